"""Clouds whose points are in a store or a dask array, and read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from knnpress.arrays import as_float_array
from knnpress.clouds.checks import as_whole_numbers, check_parts, check_sizes, rows_of
from knnpress.clouds.memory import Cloud, Clouds, describe
from knnpress.typing import Array, ArrayLike, Indices


class StoredClouds:
    """Clouds whose points stay in a store, and are read some clouds at a time.

    For `SWC.fit`, which then never holds more than a block of them, and for the queries of a fitted model. Each block
    is checked when it is read, and becomes float64. Where the points are a dask array and a ``distributed.Client`` is
    open, ``fit`` leaves them on its workers.

    Indexing brings clouds into memory: a slice, a mask or row numbers give `Clouds`, a single number one `Cloud`. So
    scikit-learn's splitters and ``cross_val_score`` can cut it, where the parts fit in memory.

    Parameters
    ----------
    points : memory map, zarr array, HDF5 dataset or dask array of shape (n_points, d)
        The points of all clouds, one cloud after the other.
    offsets : array of shape (n + 1,)
        Where each cloud begins and the last one ends. They need not cover all points: ``offsets[:k + 1]`` and
        ``offsets[k:]`` are the first k clouds and the others.
    weights : array of shape (n_points,) or None
        Positive, in memory or in a memory map; None: the points of a cloud weigh the same.

    Attributes
    ----------
    shape : tuple
        (n, d).

    Examples
    --------
    >>> import numpy as np
    >>> import knnpress as kp
    >>> points = np.arange(12.0).reshape(6, 2)  # or np.load("points.npy", mmap_mode="r")
    >>> clouds = kp.StoredClouds(points, offsets=[0, 2, 3, 6])
    >>> clouds
    StoredClouds(3 clouds of 1 to 3 points in 2 dimensions)
    >>> clouds[1:]
    Clouds(2 clouds of 1 to 3 points in 2 dimensions)
    """

    dtype = np.dtype(np.float64)

    def __init__(self, points: Any, offsets: ArrayLike, weights: Any = None) -> None:
        shape = getattr(points, "shape", None)
        if shape is None or not hasattr(points, "dtype"):
            raise TypeError(
                f"points is a {type(points).__name__}; give a memory map, a zarr array, an HDF5 dataset or a dask "
                "array, (n_points, n_dims). For points in memory there is knnpress.Clouds"
            )
        if len(shape) != 2 or shape[1] == 0:
            raise ValueError(f"points has shape {tuple(shape)}; expected (n_points, n_dims)")
        if points.dtype.kind not in "biuf":
            raise ValueError(f"points has dtype {points.dtype}; store it as plain numbers")
        if np.isnan(shape[0]):
            raise ValueError("points has chunks of unknown length; call points.compute_chunk_sizes() first")
        starts = as_whole_numbers(offsets)
        if starts[0] < 0 or starts[-1] > shape[0]:
            raise ValueError(
                f"offsets goes from {starts[0]} to {starts[-1]}, and there are {shape[0]} points; give where clouds "
                "begin among them"
            )
        check_sizes(starts)
        if weights is not None and not hasattr(weights, "shape"):
            weights = as_float_array(weights, "weights")
        if weights is not None and weights.shape != (shape[0],):
            raise ValueError(f"weights has shape {weights.shape}; give one weight for each of the {shape[0]} points")
        self.points, self.offsets, self.weights = points, starts, weights

    @property
    def shape(self) -> tuple[int, int]:
        """Number of clouds, and dimension of their points."""
        return len(self), int(self.points.shape[1])

    @property
    def sizes(self) -> Indices:
        """Number of points of each cloud, (n,)."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes that the clouds would take in memory."""
        return 8 * int(self.offsets[-1] - self.offsets[0]) * (self.shape[1] + 1)

    @property
    def in_dask(self) -> bool:
        """Whether the points are a dask array."""
        return hasattr(self.points, "__dask_graph__")

    @property
    def chunks(self) -> tuple[int, int] | None:
        """About how many clouds a chunk of the store holds, and d; None where it has no chunks."""
        per_chunk = _chunk_length(self.points)
        if per_chunk is None:
            return None
        return max(1, round(per_chunk * len(self) / int(self.offsets[-1] - self.offsets[0]))), self.shape[1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Cloud]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, rows: Any) -> Any:
        """Some of the clouds, in memory; a single number gives one `Cloud`."""
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]  # as scikit-learn asks
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self.read(slice(start, max(start, stop)))
            rows = np.arange(start, stop, step)
        chosen = rows_of(rows, len(self))
        return self.read(slice(chosen, chosen + 1))[0] if isinstance(chosen, int) else self._take(chosen)

    def read(self, block: slice, scheduler: str | None = None) -> Clouds:
        """The clouds of a block, checked; errors name the cloud among all. `scheduler`: of Dask, where that reads."""
        at = self.span(block)
        points = as_read(self.points[at], scheduler)
        weights = None if self.weights is None else as_read(self.weights[at], scheduler)
        return clouds_of_block(points, self.offsets[block.start : block.stop + 1] - at.start, weights, block.start)

    def span(self, block: slice) -> slice:
        """Where the points of the clouds of a block are."""
        return slice(int(self.offsets[block.start]), int(self.offsets[block.stop]))

    def _take(self, rows: Indices) -> Clouds:
        """The clouds of these row numbers."""
        rows, order = np.unique(rows, return_inverse=True)  # stores are read from the first to the last
        sizes = self.sizes[rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        at = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], sizes)
        weights = None if self.weights is None else np.asarray(self.weights)[at]
        table = as_float_array(_points_at(self.points, at), "points")
        return Clouds._made_of(table, np.arange(len(at)), offsets, check_parts(table, offsets, weights, rows))[order]

    def some_points(self, most: int, rows: Indices | None = None) -> Array:
        """At most so many points, at equal steps from the first of these clouds to the last."""
        starts, sizes = self.offsets[:-1], self.sizes
        if rows is not None:
            starts, sizes = starts[rows], sizes[rows]
        ends = np.cumsum(sizes)
        some = equal_steps(int(ends[-1]), most)
        cloud = np.searchsorted(ends, some, "right")
        return as_float_array(_points_at(self.points, starts[cloud] + some - ends[cloud] + sizes[cloud]), "points")

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        """Refuse: clouds differ in size."""
        raise TypeError("StoredClouds differ in size, and are no array; X[:] brings them into memory as Clouds")

    def __repr__(self) -> str:
        return f"Stored{describe(self.sizes, self.shape[1])}"


def clouds_of_block(points: Array, offsets: Indices, weights: Array | None, first: int) -> Clouds:
    """Checked clouds of a block of stored ones, of which the first has the number `first` among all."""
    table = as_float_array(points, "points")
    return Clouds._made_of(table, np.arange(len(table)), offsets, check_parts(table, offsets, weights, first))


def as_read(part: Any, scheduler: str | None) -> Array:
    """A part of a store as an array; a dask array is computed by a scheduler (None: the current one)."""
    return np.asarray(part.compute(scheduler=scheduler) if hasattr(part, "__dask_graph__") else part)


def equal_steps(n: int, most: int) -> Indices:
    """At most so many of the numbers below n, at equal steps from the first to the last."""
    return np.linspace(0, n - 1, min(n, most)).astype(np.intp)


def _points_at(points: Any, at: Indices) -> Array:
    """Rows of a store, in ascending order."""
    if isinstance(points, np.ndarray) or hasattr(points, "__dask_graph__"):
        return as_read(points[at], None)
    step = _chunk_length(points)  # other stores may give slices alone: one for each chunk, or run
    new = np.diff(at // step) > 0 if step else np.diff(at) > 1
    groups = np.split(at, np.flatnonzero(new) + 1)
    return np.concatenate([np.asarray(points[int(g[0]) : int(g[-1]) + 1])[g - g[0]] for g in groups])


def _chunk_length(points: Any) -> int | None:
    """Rows of a chunk of a store; None where it has none."""
    chunks = getattr(points, "chunks", None)
    return int(np.max(chunks[0])) if chunks else None  # Dask gives the length of each
