"""What is asked of clouds: points, offsets and weights that make sense, or an error that names the cloud."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from knnpress.arrays import as_float_array
from knnpress.exceptions import InvalidPointError, how_many
from knnpress.typing import Array, ArrayLike, Indices

LARGEST = 1e150  #: of the coordinates of a point: squares of larger numbers overflow


def rows_of(rows: Any, n: int) -> int | Indices:
    """The row that an index stands for, or several."""
    if isinstance(rows, (int, np.integer)) and not isinstance(rows, bool):
        row = operator.index(rows) + (n if rows < 0 else 0)
        if not 0 <= row < n:
            raise IndexError(f"there is no cloud {rows}; there are {n}")
        return row
    chosen = np.asarray(rows)
    if isinstance(rows, tuple) or chosen.ndim != 1 or chosen.dtype.kind not in "biu" + "f" * (chosen.size == 0):
        raise IndexError("clouds are indexed by a number, a slice, a mask or an array of row numbers")
    if chosen.dtype.kind == "b" and len(chosen) != n:
        raise IndexError(f"the mask has {len(chosen)} entries, and there are {n} clouds")
    return np.arange(n)[chosen.astype(np.intp) if chosen.dtype.kind != "b" else chosen]


def as_table(points: ArrayLike, name: str) -> Array:
    """Points as a float64 array (n_points, d), in C order."""
    table = as_float_array(points, name)
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"{name} has shape {table.shape}; expected (n_points, n_dims)")
    return table


def as_offsets(offsets: ArrayLike, n_points: int) -> Indices:
    """Where each cloud begins and ends; together they hold all of the points."""
    array = as_whole_numbers(offsets)
    if array[0] != 0 or array[-1] != n_points:
        raise ValueError(
            f"offsets goes from {array[0]} to {array[-1]}; it must begin with 0 and end with the number of points, "
            f"{n_points}"
        )
    check_sizes(array)
    return array


def as_whole_numbers(offsets: ArrayLike) -> Indices:
    """Offsets as integers, at least two."""
    array = np.asarray(offsets)
    if array.ndim != 1 or len(array) < 2 or array.dtype.kind not in "iu":
        raise ValueError(
            f"offsets has shape {array.shape} and dtype {array.dtype}; give n + 1 whole numbers for n clouds, n > 0"
        )
    return array.astype(np.intp)


def check_sizes(offsets: Indices) -> None:
    """Refuse offsets that do not ascend: every cloud needs a point."""
    sizes = np.diff(offsets)
    if (sizes < 0).any():
        cloud = int(np.flatnonzero(sizes < 0)[0])
        raise ValueError(
            f"offsets does not ascend: cloud {cloud} begins at {offsets[cloud]} and ends at {offsets[cloud + 1]}; sort "
            "the points by cloud"
        )
    if (sizes == 0).any():
        raise InvalidPointError(
            f"cloud {int(np.flatnonzero(sizes == 0)[0])} is empty, "
            f"{how_many((sizes == 0).sum(), len(sizes), 'clouds')}; remove them"
        )


def check_parts(table: Array, offsets: Indices, weights: ArrayLike | None, numbers: int | Indices = 0) -> Array:
    """Refuse bad points; weights that sum to one in each cloud. Messages call clouds by `numbers`, or count from it."""
    bad = bad_row(table)
    if bad is not None:
        cloud = int(np.searchsorted(offsets, bad, "right")) - 1
        raise InvalidPointError(what_is_wrong(f"point {bad - offsets[cloud]} of {_name(cloud, numbers)}", table[bad]))
    return as_weights(weights, offsets, numbers)


def as_weights(weights: ArrayLike | None, offsets: Indices, numbers: int | Indices = 0) -> Array:
    """Weights that sum to one in each cloud."""
    sizes = np.diff(offsets)
    if weights is None:
        return np.repeat(1.0 / sizes, sizes)
    array = as_float_array(weights, "weights")
    if array.shape != (offsets[-1],):
        raise ValueError(f"weights has shape {array.shape}; give one weight for each of the {offsets[-1]} points")
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        cloud = int(np.searchsorted(offsets, row, "right")) - 1
        raise InvalidPointError(
            f"the weight of point {row - offsets[cloud]} of {_name(cloud, numbers)} is {array[row]}, "
            f"{how_many(bad.sum(), len(array), 'weights')} that are not positive; remove these points"
        )
    largest = np.maximum.reduceat(array, offsets[:-1])
    scaled = array / np.repeat(largest, sizes)  # first by the largest: sums may overflow
    scaled /= np.repeat(np.add.reduceat(scaled, offsets[:-1]), sizes)
    return np.maximum(scaled, np.finfo(np.float64).tiny)


def _name(cloud: int, numbers: int | Indices) -> str:
    return f"cloud {cloud + numbers if isinstance(numbers, int) else numbers[cloud]}"


def bad_row(table: Array) -> int | None:
    """The first row with NaN, infinity or a number too large to be squared."""
    with np.errstate(invalid="ignore"):
        if not table.size or (table.max() <= LARGEST and table.min() >= -LARGEST):
            return None
        good = (np.abs(table) <= LARGEST).all(axis=1)
    return int(np.flatnonzero(~good)[0])


def what_is_wrong(where: str, point: Array) -> str:
    """Say why a point is refused."""
    at = int(np.flatnonzero(~(np.abs(point) <= LARGEST))[0])
    if np.isfinite(point[at]):
        return f"{where} has an entry of size {abs(point[at]):.1e} at {at}, whose square overflows; scale all points"
    return f"{where} contains NaN or infinity ({point[at]} at {at}); remove it or fill the gaps"
