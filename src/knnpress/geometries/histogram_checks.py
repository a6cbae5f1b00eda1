"""What the geometries of histograms share: checks of histograms, of the ground cost and of the regularisation."""

from __future__ import annotations

from numbers import Real

import numpy as np

from knnpress.arrays import as_float_array
from knnpress.exceptions import InvalidPointError, how_many
from knnpress.geometries.checks import as_real_array
from knnpress.typing import Array, ArrayLike

_AUTO_REG = 0.1  # of the median positive ground cost
_LARGEST_COST = 1e300
_FAINT = 1e-290  # share of a histogram below which a bin counts as empty: products of such numbers underflow


def check_histograms(X: ArrayLike, name: str = "X", n_bins: int | None = None) -> Array:
    """Return X as a float64 C-array (n, d) of histograms, each row non-negative and scaled to sum to one."""
    array = as_real_array(X, 2, name, "(n_histograms, n_bins)")
    if n_bins is not None and array.shape[1] != n_bins:
        raise ValueError(f"{name} has {array.shape[1]} bins and the ground cost {n_bins}; they must agree")
    negative = (array < 0).any(axis=1)
    if negative.any():
        row = int(np.flatnonzero(negative)[0])
        raise InvalidPointError(
            f"{name}[{row}] has a negative bin ({array[row].min():.2g} at {int(array[row].argmin())}), "
            f"{how_many(negative.sum(), len(array), 'histograms', 'do')}; counts must not be negative, e.g. use "
            f"np.maximum({name}, 0)"
        )
    largest = array.max(axis=1, keepdims=True)
    empty = largest[:, 0] == 0
    if empty.any():
        raise InvalidPointError(
            f"{name}[{int(np.flatnonzero(empty)[0])}] is all zero, "
            f"{how_many(empty.sum(), len(array), 'histograms')}; remove them, or add a small constant to every bin"
        )
    with np.errstate(over="ignore"):
        totals = array.sum(axis=1, keepdims=True)
    if np.abs(totals - 1.0).max() > 1e-14:
        scaled = array / largest  # first by the largest bin: totals may overflow
        array = scaled / scaled.sum(axis=1, keepdims=True)
    faint = (array > 0) & (array < _FAINT)
    return np.where(faint, 0.0, array) if faint.any() else array


def check_ground_cost(ground_cost: ArrayLike | None) -> Array:
    """Return a ground cost as a float64 C-array (d, d), finite and non-negative."""
    if ground_cost is None:
        raise ValueError("ground_cost is None; give the (d, d) matrix of costs between bins")
    M = as_float_array(ground_cost, "ground_cost")
    if M.ndim != 2 or M.shape[0] != M.shape[1] or M.size == 0:
        raise ValueError(f"ground_cost has shape {M.shape}; expected a square matrix (n_bins, n_bins)")
    bad = ~(np.isfinite(M) & (M >= 0))
    if bad.any():
        i, j = (int(k) for k in np.argwhere(bad)[0])
        raise ValueError(
            f"ground_cost[{i}, {j}] is {M[i, j]}, {how_many(bad.sum(), bad.size, 'entries')}; costs must be finite "
            "and non-negative"
        )
    if M.max() > _LARGEST_COST:
        raise ValueError(
            f"ground_cost has an entry of {M.max():.1e}, and sums of such numbers overflow; scale it, e.g. by "
            f"1 / {M.max():.0e}"
        )
    return M


def resolve_reg(reg: float | str, M: Array) -> float:
    """The entropic regularisation in units of the ground cost; "auto" is a tenth of the median positive cost."""
    if reg == "auto":
        positive = M[M > 0]
        return _AUTO_REG * _median(positive) if positive.size else 1.0
    if not isinstance(reg, Real) or not (np.isfinite(reg) and reg > 0):
        raise ValueError(f"reg is {reg!r}; give a positive number, or 'auto' for {_AUTO_REG} of the median cost")
    if M.max() > 1e300 * reg:
        raise ValueError(
            f"reg is {reg:.1e}, too small for costs up to {M.max():.1e}; use at least {M.max() / 1e15:.1e}"
        )
    return float(reg)


def _median(values: Array) -> float:
    """That of NumPy, which takes five times as long, and reorders values: of 4000 bins there are 16 million."""
    half = len(values) // 2
    values.partition(half)
    upper = float(values[half])
    return upper if len(values) % 2 else 0.5 * (float(values[:half].max()) + upper)
