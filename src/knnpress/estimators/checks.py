"""What estimators check before anything else: labels, weights, counts."""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d, validate_data

from knnpress.arrays import as_float_array, is_missing, kinds, named_groups
from knnpress.clouds import StoredClouds
from knnpress.exceptions import how_many, warn_user
from knnpress.execution.dask import as_points
from knnpress.execution.rows import is_in_memory
from knnpress.execution.stored import StoredPoints, is_dask, is_stored, read_block
from knnpress.execution.threads import MEMORY_BYTES
from knnpress.geometries import Geometry
from knnpress.parameters import brief
from knnpress.typing import Array, ArrayLike, Labels

_MAX_PROTOTYPES = 2**31
_warned: set[tuple[float, int]] = set()  # shares and numbers of classes that there was a warning about
_WEIGHT = 1e-100, 1e100
_GAMMA = 1e-150, 1e150  # squares of others leave the range of doubles


def check_training_set(
    estimator: BaseEstimator, geometry: Geometry, X: Any, y: ArrayLike, out_of_core: bool = False
) -> tuple[Any, Labels]:
    """Checked points and labels.

    `out_of_core`: points that are not in memory may stay where they are; then they are checked as they are read.
    """
    for model in (estimator, getattr(estimator, "compressor", None)):
        check_gamma(getattr(model, "gamma", None))
    _check_count(getattr(estimator, "n_prototypes", None))
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    if out_of_core and (is_dask(X) or is_large(X)):
        check = partial(geometry.check, n_jobs=1)
        points: Any = as_points(X, check) if is_dask(X) else StoredPoints(X, check)
        if isinstance(points, StoredPoints) and not is_large(X):
            points = geometry.check(read_block(X, slice(0, X.shape[0])), n_jobs=estimator.n_jobs)
        else:
            check(read_block(points.array, slice(0, 1)))  # the shape, at once
    elif is_dask(X):
        raise TypeError(
            f"{type(estimator).__name__} cannot do this on a dask array: all points must be in memory. Give it "
            "X.compute() and y.compute() (of StoredClouds, X[:]), or a part of them; SCC, SHC, SNC and SWC can fit "
            "dask arrays"
        )
    else:
        points = geometry.check(X, n_jobs=estimator.n_jobs)
    return points, check_labels(y, len(points))


def is_large(X: Any) -> bool:
    """Whether X is in a store, or a dask array, and better read block by block than at once."""
    if isinstance(X, StoredClouds):
        return X.nbytes > MEMORY_BYTES
    return (is_stored(X) or is_dask(X)) and int(np.prod(X.shape)) * X.dtype.itemsize > MEMORY_BYTES


def remember_features(estimator: BaseEstimator, X: ArrayLike, points: Array) -> None:
    """Set ``n_features_in_`` and, where X has names, ``feature_names_in_``: last, in case the work is interrupted."""
    validate_data(estimator, X, skip_check_array=True)
    estimator.n_features_in_ = points.shape[1]


def check_gamma(gamma: float | str | None) -> None:
    """Refuse a number whose square leaves the range of doubles; words are checked elsewhere."""
    if not isinstance(gamma, Real) or isinstance(gamma, bool):
        return
    # a number of single precision would be compared in that, in which the limits overflow
    if _GAMMA[0] <= (gamma if isinstance(gamma, Integral) else float(gamma)) <= _GAMMA[1]:
        return
    raise ValueError(f"gamma is {brief(gamma)}; give a positive number, from {_GAMMA[0]:g} to {_GAMMA[1]:g}")


def _check_count(n_prototypes: Any) -> None:
    """Refuse a whole number that no set of points could have."""
    if isinstance(n_prototypes, Integral) and abs(int(n_prototypes)) > _MAX_PROTOTYPES:
        raise ValueError(
            f"n_prototypes is {brief(n_prototypes)}; give at most the number of points, or a share between 0 and 1"
        )


def check_n_neighbors(k: int, n_prototypes: int) -> None:
    """Refuse a k below one or above the number of prototypes."""
    if not isinstance(k, Integral) or not 1 <= k <= n_prototypes:
        raise ValueError(f"n_neighbors is {k!r}, but there are {n_prototypes} prototypes; choose 1 to {n_prototypes}")


def as_generator(random_state: Any) -> np.random.Generator:
    """A Generator from whatever scikit-learn users give as random_state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return np.random.default_rng(random_state)
    return np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))


def check_labels(y: ArrayLike, n: int) -> Labels:
    """Labels of n points: numbers or strings, none missing."""
    if np.ma.is_masked(y):
        raise ValueError("y contains missing labels (it is masked); remove those points")
    labels = column_or_1d(np.asarray(y) if is_dask(y) or is_stored(y) else _without_mask(y), warn=True)
    if len(labels) != n:
        raise ValueError(f"X has {n} points and y {len(labels)} labels; give one label for each point")
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    elif labels.dtype.kind == "O" and any(map(is_missing, labels)):
        raise ValueError("y contains missing labels (None or NaN); remove those points")
    elif labels.dtype.kind in "mM" and np.isnat(labels).any():
        raise ValueError("y contains missing labels (NaT); remove those points")
    if labels.dtype.kind == "V":
        raise ValueError(f"y holds records, {labels.dtype}; give one label for each point: text or a whole number")
    try:
        check_classification_targets(labels)
        np.unique(labels)
    except (TypeError, ValueError) as error:
        if labels.dtype.kind != "O" or isinstance(labels[0], bytes) or "legacy multi-label" in str(error):
            raise
        names = kinds(labels)
        if "," in names:
            raise ValueError(f"y holds labels of several kinds ({names}); use one, e.g. text") from error
        raise ValueError(f"Unknown label type: y holds {names}; give text or whole numbers below 2**63") from error
    return labels


def _without_mask(y: Any) -> Any:
    """Nullable integers and booleans of pandas as plain ones: as floats, large ones would be merged."""
    if isinstance(y, np.ndarray) and y.dtype.kind == "T":  # NumPy's strings of any length: scikit-learn knows them not
        return y.astype(object)
    plain = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if plain is None or plain.kind not in "iub" or not hasattr(y, "isna"):
        return y
    if y.isna().any():
        raise ValueError("y contains missing labels (NA); remove those points")
    return y.to_numpy(dtype=plain)


def check_sample_weight(weight: ArrayLike | None, class_weight: Any, y: Labels) -> Array | None:
    """Weights of the training points, times the weights of their classes: finite, non-negative, of moderate size."""
    if weight is None and class_weight is None:
        return None
    array = np.ones(len(y)) if weight is None else as_float_array(weight, "sample_weight")
    if array.shape != (len(y),):
        raise ValueError(f"sample_weight has shape {array.shape}; give one weight for each of the {len(y)} points")
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"sample_weight[{row}] is {array[row]}, {how_many(bad.sum(), len(y), 'weights')} that are "
            "negative or not finite; give 0 for points to leave out"
        )
    kept = array > 0
    if not kept.any():
        raise ValueError("sample_weight is zero for all points; give some of them a weight")
    if class_weight is not None:  # of the classes as they are without the absent points
        _check_class_weight(class_weight)
        array = array.copy()
        array[kept] *= compute_sample_weight(class_weight, y[kept])
    if not array.any():
        raise ValueError("class_weight is zero for all classes in y; give some of them a weight")
    if not _WEIGHT[0] <= array.max() <= _WEIGHT[1]:  # sums of them, and products with losses, must stay numbers
        raise ValueError(f"sample_weight goes up to {array.max():.1e}; scale them, e.g. divide by their mean")
    return array


def _check_class_weight(class_weight: Any) -> None:
    if not isinstance(class_weight, dict):
        if isinstance(class_weight, str) and class_weight == "balanced":
            return
        raise ValueError(f"class_weight is {class_weight!r}; give a dict from class to weight, 'balanced' or None")
    for label, value in class_weight.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
            raise ValueError(f"class_weight[{label!r}] is {value!r}; give a number, 0 to leave the class out")


def check_groups(groups: ArrayLike, n: int) -> Labels:
    """Groups of n points, as numbers."""
    shape = np.shape(groups)
    if shape not in ((n,), (n, 1)):
        has = f"{shape[0]} entries" if len(shape) == 1 else f"shape {shape}"
        raise ValueError(f"groups has {has}, and X has {n} points; give one group for each point")
    return named_groups(groups)[1].reshape(-1)


def present(
    points: Any, labels: Labels, weight: Array | None, groups: Labels | None
) -> tuple[Any, Labels, Array | None, Labels | None]:
    """The points whose weight is not zero: the others are absent.

    Where points are not in memory, all stay where they are, and absent ones get a label that others have: whatever is
    summed over points ignores them, and no class is made of them.
    """
    if weight is None or weight.all():
        return points, labels, weight, groups
    kept = weight > 0
    if not is_in_memory(points):
        return points, np.where(kept, labels, labels[kept][0]), weight, groups
    return points[kept], labels[kept], weight[kept], None if groups is None else groups[kept]


def resolve_n_prototypes(n_prototypes: int | float | str | None, n: int, n_classes: int) -> int | None:
    """The number of prototypes meant by a count, a share of n, or None."""
    if n_prototypes is None:
        return None
    _check_count(n_prototypes)
    if isinstance(n_prototypes, (bool, str)) or not n_prototypes > 0:
        raise ValueError(f"n_prototypes is {n_prototypes!r}; give a positive count, or a share between 0 and 1")
    if isinstance(n_prototypes, (int, np.integer)):
        return int(n_prototypes)
    if n_prototypes > 1:
        raise ValueError(f"n_prototypes is {n_prototypes}; a share is at most 1, a count a whole number")
    count = round(n_prototypes * n)
    if count < n_classes and (n_prototypes, n_classes) not in _warned:
        _warned.add((n_prototypes, n_classes))  # the folds of a cross-validation have nothing new to say
        warn_user(
            f"{n_prototypes:g} of {n} points is fewer than the {n_classes} classes: learning one prototype for each",
        )
    return max(count, n_classes)
