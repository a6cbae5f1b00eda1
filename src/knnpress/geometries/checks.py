"""What all geometries check of points, weights and settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from knnpress.arrays import as_float_array
from knnpress.exceptions import InvalidPointError, how_many
from knnpress.typing import Array, ArrayLike

_NEGLIGIBLE_WEIGHT = 1e-12  # share of the largest weight, below which a pair has no say in a pullback


def check_same_size(X: Array, Z: Array) -> None:
    """Refuse X and Z of different dimension."""
    if X.shape[1] != Z.shape[1]:
        what = "matrices" if X.ndim == 3 else "vectors"
        raise ValueError(f"X holds {what} of size {X.shape[1]} and Z of size {Z.shape[1]}; they must agree")


def check_stopping(tol: Any, max_iter: Any) -> None:
    """Refuse what cannot end the iterations of a transport: a share of the mass, and a count."""
    if isinstance(tol, bool) or not isinstance(tol, Real) or not 0 <= float(tol) < 1:
        raise ValueError(f"tol is {tol!r}; give the error that marginals may have, from 0 to below 1, e.g. 1e-4")
    if isinstance(max_iter, bool) or not isinstance(max_iter, Integral) or not 1 <= int(max_iter) < 2**31:
        raise ValueError(f"max_iter is {max_iter!r}; give a number of iterations, 1 or more")


def check_weights(weights: ArrayLike | None, n: int) -> Array:
    """Weights of n points, non-negative, scaled to sum to one; uniform where None."""
    if weights is None:
        return np.full(n, 1.0 / n)
    array = as_float_array(weights, "weights")
    if array.shape != (n,):
        raise ValueError(f"weights has shape {array.shape}; give one weight for each of the {n} points")
    largest = array.max(initial=0.0)
    if not (np.isfinite(array).all() and (array >= 0).all() and largest > 0):
        raise ValueError("weights must be finite and non-negative, and not all zero")
    shares = array / largest  # their sum may overflow
    return shares / shares.sum()


def aligned(X: Array) -> Array:
    """X, copied where its numbers begin at odd addresses, as they may after a journey between processes."""
    return np.require(X, requirements="A")


def weight_threshold(W: Array) -> float:
    """The size above which weights, (n, m), count in a pullback."""
    return _NEGLIGIBLE_WEIGHT * max(float(W.max(initial=0.0)), -float(W.min(initial=0.0)))


def as_real_array(X: ArrayLike, ndim: int, name: str, shape: str) -> Array:
    """X as a float64 C-array of `ndim` dimensions with no empty axis and no NaN or infinity."""
    array = as_shaped_array(X, ndim, name, shape)
    check_finite(array, name)
    return array


def as_shaped_array(
    X: ArrayLike, ndim: int, name: str, shape: str, advise: Callable[[tuple[int, ...]], str] | None = None
) -> Array:
    """X as a float64 C-array of `ndim` dimensions with no empty axis; `advise` may know what to do with its shape."""
    array = as_float_array(X, name)
    if array.ndim != ndim:
        hint = f"Reshape your data, e.g. {name}[None] for a single point" if array.ndim == ndim - 1 else "Reshape it"
        hint = (advise and advise(array.shape)) or hint
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}. {hint}")
    check_not_empty(array, name)
    return array


def check_not_empty(array: Any, name: str) -> None:
    """Refuse no points, and points of no features, in scikit-learn's words."""
    for axis, what in enumerate(("sample(s)", "feature(s)")):
        if array.shape[axis] == 0:
            raise ValueError(f"{name} has 0 {what} (shape={array.shape}) while a minimum of 1 is required.")


def check_finite(array: Array, name: str) -> None:
    """Refuse points that hold NaN or infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(array.sum()):  # cheap, and right unless the sum overflows
            return
    bad = ~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        where = tuple(int(k) for k in np.argwhere(~np.isfinite(array[row]))[0])
        raise InvalidPointError(
            f"{name}[{row}] contains NaN or infinity ({array[row][where]} at {list(where)}), "
            f"{how_many(bad.sum(), len(array), 'points', 'do')}; remove them or fill the gaps"
        )
