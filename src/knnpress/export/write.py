"""From a model to a file of source code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from knnpress.export.c import c_source
from knnpress.export.js import js_source
from knnpress.export.tables import exported
from knnpress.files import check_output, replacing


def export_c(
    model: Any,
    path: str | os.PathLike[str],
    *,
    dtype: Literal["float64", "float32"] = "float64",
    reject: float | None = None,
    group: Any = None,
) -> None:
    """Write a fitted model as one C99 file that needs no library but libm, and no memory but the stack.

    The file defines ``KNNPRESS_POINT_SIZE``, ``KNNPRESS_N_CLASSES``, ``knnpress_classes``, ``knnpress_version`` and ::

        int knnpress_predict(const double *x, double *probabilities);

    which returns the index of a class, or -1 where x is not a valid point or is rejected; `probabilities` has room for
    all classes, or is NULL. A matrix is given whole, row by row. The working memory is stated at the top of the file.
    Where the model begins with a `SignalCovariance`, there is also ::

        int knnpress_predict_window(const double *samples, int n_samples, double *probabilities);

    which takes a window of samples, one channel after the other.

    Parameters
    ----------
    model : SCC, SHC, SNC or PrototypeClassifier, Pipeline or DescriptorClassifier
        Fitted, under JBLD, Tangent, LogEuclidean, SquaredEuclidean, Hellinger or Sinkhorn. Before it, there may be a
        `SignalCovariance` and a `Recenter`; other descriptors stay in Python.
    path : str or path
        Replaced in one step. A name that ends in ``.h`` or ``.hpp`` makes a header for C99 and C++17, with the code
        itself where ``KNNPRESS_IMPLEMENTATION`` is defined before it is included.
    dtype : {"float64", "float32"}
        Of the tables and of the arithmetic with them; the query is checked and prepared in float64 in both cases.
    reject : float or None
        As in ``predict(X, reject=...)`` of a learned model: the share of the training points of a class that may be
        refused.
    group : name, or None
        Whose mean `Recenter` moves matrices by, where it knows several groups (subjects, sessions). The file keeps it:
        it learns nothing of the device's own samples.

    Raises
    ------
    TypeError
        Where the model cannot be exported; the message says why.

    Examples
    --------
    >>> import knnpress as kp, tempfile, pathlib
    >>> data = kp.datasets.load_digits_histograms()
    >>> clf = kp.SHC(metric="hellinger", n_prototypes=10, max_iter=5).fit(data.X[:200], data.y[:200])
    >>> path = pathlib.Path(tempfile.mkdtemp(), "digits.c")
    >>> kp.export_c(clf, path)
    >>> "#define KNNPRESS_POINT_SIZE 64" in path.read_text()
    True
    """
    check_output(Path(path))
    header = Path(path).suffix in (".h", ".hpp")
    _write(path, c_source(exported(model, dtype, reject=reject, group=group), header=header))


def export_js(
    model: Any,
    path: str | os.PathLike[str],
    *,
    dtype: Literal["float64", "float32"] = "float64",
    reject: float | None = None,
    group: Any = None,
) -> None:
    """Write a fitted model as one JavaScript module without dependencies, for browsers and for Node.

    It exports ``pointSize``, ``classes``, ``version`` and ``predict(x, probabilities)``, which returns the index of a
    class, or -1 where x is not a valid point or is rejected; `probabilities`, an array that is filled, may be left out.
    Where the model begins with a `SignalCovariance`, it also exports ``predictWindow(samples, n, probabilities)``.

    Parameters
    ----------
    model : SCC, SHC, SNC or PrototypeClassifier, Pipeline or DescriptorClassifier
        As for `export_c`.
    path : str or path
        Replaced in one step; usually ``.mjs``.
    dtype : {"float64", "float32"}
        Of the tables; float32 halves the file.
    reject : float or None
        As for `export_c`.
    group : name, or None
        As for `export_c`.

    Raises
    ------
    TypeError
        Where the model cannot be exported; the message says why.
    """
    check_output(Path(path))
    _write(path, js_source(exported(model, dtype, reject=reject, group=group)))


def _write(path: str | os.PathLike[str], text: str) -> None:
    with replacing(Path(path)) as file:
        file.write(text.encode("ascii"))
