"""From a model to a file of source code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from knnpress.export.c import c_source
from knnpress.export.js import js_source
from knnpress.export.tables import exported
from knnpress.files import check_output, replacing

__all__ = ["export_c", "export_js"]


def export_c(model: Any, path: str | os.PathLike[str], *, dtype: Literal["float64", "float32"] = "float64") -> None:
    """Write a fitted model as one C99 file that needs no library but libm, and no memory but the stack.

    The file defines ``KNNPRESS_POINT_SIZE``, ``KNNPRESS_N_CLASSES``, ``knnpress_classes``, ``knnpress_version`` and ::

        int knnpress_predict(const double *x, double *probabilities);

    which returns the index of a class, or -1 where x is not a valid point; `probabilities` has room for all classes, or
    is NULL. A matrix is given whole, row by row. The working memory is stated at the top of the file.

    Parameters
    ----------
    model : SCC, SHC, SNC or PrototypeClassifier
        Fitted, under JBLD, Tangent, LogEuclidean, SquaredEuclidean, Hellinger or Sinkhorn.
    path : str or path
        Replaced in one step. A name that ends in ``.h`` or ``.hpp`` makes a header for C99 and C++17, with the code
        itself where ``KNNPRESS_IMPLEMENTATION`` is defined before it is included.
    dtype : {"float64", "float32"}
        Of the tables and of the arithmetic with them; the query is checked and prepared in float64 in both cases.

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
    _write(path, c_source(exported(model, dtype), header=header))


def export_js(model: Any, path: str | os.PathLike[str], *, dtype: Literal["float64", "float32"] = "float64") -> None:
    """Write a fitted model as one JavaScript module without dependencies, for browsers and for Node.

    It exports ``pointSize``, ``classes``, ``version`` and ``predict(x, probabilities)``, which returns the index of a
    class, or -1 where x is not a valid point; `probabilities`, an array that is filled, may be left out.

    Parameters
    ----------
    model : SCC, SHC, SNC or PrototypeClassifier
        As for `export_c`.
    path : str or path
        Replaced in one step; usually ``.mjs``.
    dtype : {"float64", "float32"}
        Of the tables; float32 halves the file.

    Raises
    ------
    TypeError
        Where the model cannot be exported; the message says why.
    """
    check_output(Path(path))
    _write(path, js_source(exported(model, dtype)))


def _write(path: str | os.PathLike[str], text: str) -> None:
    with replacing(Path(path)) as file:
        file.write(text.encode("ascii"))
