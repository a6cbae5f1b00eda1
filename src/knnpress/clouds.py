"""Clouds: sets of weighted points, such as the words of documents or the local features of images."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from knnpress.arrays import as_float_array
from knnpress.exceptions import InvalidPointError, how_many
from knnpress.files import read_npz, replacing
from knnpress.typing import Array, ArrayLike, Indices

_ARRAYS = ("table", "index", "offsets", "weights")
LARGEST = 1e150  #: of the coordinates of a point: squares of larger numbers overflow


class Cloud(NamedTuple):
    """One cloud: its points, (k, d), and their weights, (k,), which sum to one."""

    points: Array
    weights: Array


class Clouds:
    """n sets of weighted points in one flat array, as CSR stores the rows of a sparse matrix.

    Cloud i consists of ``points[offsets[i]:offsets[i + 1]]``. Weights are scaled to sum to one in each cloud.

    Indexing with a slice, a mask or row numbers gives `Clouds` again, without copying points; a single number gives a
    `Cloud`. So scikit-learn's splitters and ``cross_val_score`` can cut it.

    Parameters
    ----------
    points : array of shape (n_points, d)
        The points of all clouds, one cloud after the other.
    offsets : array of shape (n + 1,)
        Where each cloud begins; the last is ``n_points``. No cloud may be empty.
    weights : array of shape (n_points,) or None
        Positive; None: the points of a cloud weigh the same.

    Attributes
    ----------
    table : ndarray of shape (n_table, d)
        Every point that is stored. Clouds that share points, such as words, store each of them once.
    index : ndarray of shape (n_points,)
        The row of `table` of each point.
    offsets : ndarray of shape (n + 1,)
    weights : ndarray of shape (n_points,)
    shape : tuple
        (n, d).

    Examples
    --------
    >>> import knnpress as kp
    >>> clouds = kp.Clouds([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], offsets=[0, 2, 3])
    >>> clouds
    Clouds(2 clouds of 1 to 2 points in 2 dimensions)
    >>> clouds[0].weights
    array([0.5, 0.5])
    """

    table: Array
    index: Indices
    offsets: Indices
    weights: Array

    def __init__(self, points: ArrayLike, offsets: ArrayLike, weights: ArrayLike | None = None) -> None:
        table = _as_table(points, "points")
        starts = _as_offsets(offsets, len(table))
        self._set(table, np.arange(len(table)), starts, _check_parts(table, starts, weights))

    def _set(self, table: Array, index: Indices, offsets: Indices, weights: Array) -> None:
        self.table, self.index, self.offsets, self.weights = table, index, offsets, weights

    @classmethod
    def _made_of(cls, table: Array, index: Indices, offsets: Indices, weights: Array) -> Clouds:
        """From parts that are known to be right."""
        made = cls.__new__(cls)
        made._set(table, index, offsets, weights)
        return made

    @classmethod
    def from_list(cls, clouds: Iterable[ArrayLike], weights: Iterable[ArrayLike] | None = None) -> Clouds:
        """Clouds from a list of arrays, (k_i, d) each, and a list of their weights, (k_i,) each.

        Examples
        --------
        >>> import knnpress as kp
        >>> kp.Clouds.from_list([[[0.0], [1.0]], [[2.0]]]).shape
        (2, 1)
        """
        arrays = [as_float_array(cloud, f"cloud {i}") for i, cloud in enumerate(clouds)]
        if not arrays:
            raise ValueError("there are no clouds; give at least one")
        for i, array in enumerate(arrays):
            if array.ndim != 2:
                raise ValueError(f"cloud {i} has shape {array.shape}; expected (n_points, n_dims)")
            if array.shape[1] != arrays[0].shape[1]:
                raise ValueError(
                    f"cloud {i} has points of {array.shape[1]} dimensions and cloud 0 of {arrays[0].shape[1]}; they "
                    "must agree"
                )
        offsets = np.cumsum([0, *(len(array) for array in arrays)])
        flat = None
        if weights is not None:
            parts = [as_float_array(part, f"the weights of cloud {i}") for i, part in enumerate(weights)]
            if len(parts) != len(arrays):
                raise ValueError(f"there are {len(parts)} arrays of weights and {len(arrays)} clouds; they must agree")
            for i, (part, array) in enumerate(zip(parts, arrays, strict=True)):
                if part.shape != (len(array),):
                    raise ValueError(
                        f"the weights of cloud {i} have shape {part.shape}; give one for each of its {len(array)} "
                        "points"
                    )
            flat = np.concatenate(parts)
        return cls(np.concatenate(arrays), offsets, flat)

    @classmethod
    def from_csr(cls, matrix: Any, vectors: ArrayLike) -> Clouds:
        """Clouds from a sparse matrix of counts or weights, (n, v), and a vector for each of its columns, (v, d).

        A row is the cloud of the vectors of its columns, weighted by its entries. Vectors are stored once, not once
        per entry. Entries of zero are left out.

        Examples
        --------
        >>> import knnpress as kp
        >>> from scipy.sparse import csr_matrix
        >>> clouds = kp.Clouds.from_csr(csr_matrix([[2, 0, 1], [0, 1, 0]]), [[0.0], [1.0], [2.0]])
        >>> clouds[0].points.ravel(), clouds[0].weights.round(2)
        (array([0., 2.]), array([0.67, 0.33]))
        """
        table = _as_table(vectors, "vectors")
        if not hasattr(matrix, "tocsr"):
            raise TypeError(
                f"matrix is a {type(matrix).__name__}; give a sparse matrix, e.g. scipy.sparse.csr_array(…)"
            )
        csr = matrix.tocsr().copy()
        csr.sum_duplicates()
        csr.eliminate_zeros()
        if csr.shape[1] != len(table):
            raise ValueError(f"matrix has {csr.shape[1]} columns and there are {len(table)} vectors; they must agree")
        offsets = csr.indptr.astype(np.intp)
        empty = np.flatnonzero(np.diff(offsets) == 0)
        if len(empty):
            raise InvalidPointError(
                f"row {empty[0]} of the matrix is all zero, {how_many(len(empty), csr.shape[0], 'rows')}, e.g. "
                "documents without a known word; remove them"
            )
        if csr.shape[0] == 0:
            raise ValueError("the matrix has no rows; give at least one")
        bad = _bad_row(table)
        if bad is not None:
            raise InvalidPointError(_what_is_wrong(f"vector {bad}", table[bad]))
        weights = _as_weights(csr.data, offsets)
        return cls._made_of(table, csr.indices.astype(np.intp), offsets, weights)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of clouds, and dimension of their points."""
        return len(self), self.table.shape[1]

    @property
    def sizes(self) -> Indices:
        """Number of points of each cloud, (n,)."""
        return np.diff(self.offsets)

    @property
    def points(self) -> Array:
        """The points of all clouds, one cloud after the other, (n_points, d): a copy."""
        return self.table[self.index]

    @property
    def nbytes(self) -> int:
        """Bytes that the points would take, were none shared."""
        return 8 * len(self.index) * (self.table.shape[1] + 1)

    def means(self) -> Array:
        """Weighted mean of each cloud, (n, d)."""
        from scipy.sparse import csr_array

        shape = (len(self), len(self.table))
        return csr_array((self.weights, self.index, self.offsets), shape=shape) @ self.table

    @classmethod
    def joined(cls, parts: Sequence[Clouds]) -> Clouds:
        """The clouds of all parts, one after the other; points that clouds of a part share stay shared."""
        before = np.cumsum([0, *(len(part.table) for part in parts)])
        return cls._made_of(
            np.concatenate([part.table for part in parts]),
            np.concatenate([part.index + first for part, first in zip(parts, before, strict=False)]),
            np.concatenate([[0], np.cumsum(np.concatenate([part.sizes for part in parts]))]),
            np.concatenate([part.weights for part in parts]),
        )

    def compact(self) -> Clouds:
        """The same clouds without the points that none of them uses, e.g. of a larger set they are a part of."""
        return self._made_of(**self.arrays())

    def __reduce__(self) -> Any:
        """For pickles, which then hold no points of other clouds."""
        arrays = self.arrays()
        return Clouds._made_of, tuple(arrays[name] for name in _ARRAYS)

    def __copy__(self) -> Clouds:
        return self._made_of(self.table, self.index, self.offsets, self.weights)

    def copy(self) -> Clouds:
        """The same clouds in arrays of their own."""
        return self._made_of(self.table.copy(), self.index.copy(), self.offsets.copy(), self.weights.copy())

    def arrays(self) -> dict[str, Array]:
        """What the clouds consist of, by name, for `from_arrays`; only points that are used, each once."""
        used, index = np.unique(self.index, return_inverse=True)
        return {"table": self.table[used], "index": index, "offsets": self.offsets, "weights": self.weights}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], name: str = "arrays") -> Clouds:
        """Clouds from what `arrays` gave; `name` is what messages call them."""
        try:
            table, index, offsets, weights = (np.asarray(arrays[key]) for key in _ARRAYS)
        except KeyError as error:
            raise ValueError(f"{name} holds no clouds: {error} is missing; give what Clouds.save wrote") from error
        table = _as_table(table, "table")
        if (
            index.ndim != 1
            or index.dtype.kind not in "iu"
            or (len(index) and not 0 <= index.min() <= index.max() < len(table))
        ):
            raise ValueError(f"{name} is damaged: its index points beyond its {len(table)} points; save it again")
        starts = _as_offsets(offsets, len(index))
        bad = _bad_row(table)
        if bad is not None:
            raise InvalidPointError(_what_is_wrong(f"point {bad} of {name}", table[bad]))
        checked = _as_weights(weights, starts)
        same = weights.shape == checked.shape and np.allclose(weights, checked, rtol=1e-12, atol=0.0)
        return cls._made_of(table, index.astype(np.intp), starts, weights.astype(np.float64) if same else checked)

    def tobytes(self) -> bytes:
        """All that the clouds consist of: the same for equal clouds, however they are stored."""
        parts = (self.sizes.astype(np.int64), self.weights, self.points)
        return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Cloud]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, rows: Any) -> Any:
        """Some of the clouds; a single number gives one `Cloud`."""
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]  # as scikit-learn asks
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                stop = max(start, stop)
                at = slice(self.offsets[start], self.offsets[stop])
                offsets = self.offsets[start : stop + 1] - self.offsets[start]
                return self._made_of(self.table, self.index[at], offsets, self.weights[at])
            return self[np.arange(start, stop, step)]
        chosen = _rows_of(rows, len(self))
        if isinstance(chosen, int):
            at = slice(self.offsets[chosen], self.offsets[chosen + 1])
            return Cloud(self.table[self.index[at]], self.weights[at])
        sizes = self.sizes[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        flat = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], sizes)
        return self._made_of(self.table, self.index[flat], offsets, self.weights[flat])

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same clouds, however they are stored."""
        if not isinstance(other, Clouds):
            return NotImplemented
        return (
            self.shape == other.shape
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.weights, other.weights)
            and np.array_equal(self.points, other.points)
        )

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        """Refuse: clouds differ in size."""
        raise TypeError(
            "Clouds differ in size, and are no array; SWC learns them, and PrototypeClassifier('clouds') takes them. "
            "All their points are clouds.points"
        )

    def __repr__(self) -> str:
        return _describe(self.sizes, self.shape[1])

    def save(self, path: str | os.PathLike[str], **more: ArrayLike) -> None:
        """Write to one .npz file, replaced in one step; shared points are written once.

        Parameters
        ----------
        path : path
        **more : arrays of shape (n,)
            Labels and groups to be kept beside the clouds, by name, e.g. ``y=labels, author=authors``. The command
            line takes the labels from y.
        """
        for name, array in more.items():
            if name in _ARRAYS:
                raise ValueError(f"{name} is what the clouds themselves consist of; give the array another name")
            if np.shape(array) != (len(self),):
                raise ValueError(f"{name} has shape {np.shape(array)}; give one entry for each of {len(self)} clouds")
        with replacing(_path(path)) as file:
            np.savez(file, **self.arrays(), **{name: np.asarray(array) for name, array in more.items()})  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Clouds:
        """Read what `save` wrote; nothing in the file is run."""
        try:
            arrays = read_npz(path)  # counts what it takes before it takes it
            arrays = {key: arrays[key] for key in _ARRAYS}
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            raise
        except Exception as error:  # damaged archives raise many kinds
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path} holds no clouds ({what}); give a file that Clouds.save wrote") from error
        return cls.from_arrays(arrays, str(path))


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
        starts = _as_whole_numbers(offsets)
        if starts[0] < 0 or starts[-1] > shape[0]:
            raise ValueError(
                f"offsets goes from {starts[0]} to {starts[-1]}, and there are {shape[0]} points; give where clouds "
                "begin among them"
            )
        _check_sizes(starts)
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
        chosen = _rows_of(rows, len(self))
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
        return Clouds._made_of(table, np.arange(len(at)), offsets, _check_parts(table, offsets, weights, rows))[order]

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
        return f"Stored{_describe(self.sizes, self.shape[1])}"


def clouds_of_block(points: Array, offsets: Indices, weights: Array | None, first: int) -> Clouds:
    """Checked clouds of a block of stored ones, of which the first has the number `first` among all."""
    table = as_float_array(points, "points")
    return Clouds._made_of(table, np.arange(len(table)), offsets, _check_parts(table, offsets, weights, first))


def as_read(part: Any, scheduler: str | None) -> Array:
    """A part of a store as an array; a dask array is computed by a scheduler (None: the current one)."""
    return np.asarray(part.compute(scheduler=scheduler) if hasattr(part, "__dask_graph__") else part)


def _rows_of(rows: Any, n: int) -> int | Indices:
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


def _describe(sizes: Indices, d: int) -> str:
    n = len(sizes)
    if n == 0:
        return f"Clouds(0 clouds in {d} dimensions)"
    low, high = int(sizes.min()), int(sizes.max())
    size = f"{low}" if low == high else f"{low} to {high}"
    return f"Clouds({n} cloud{'s' * (n != 1)} of {size} point{'s' * (high != 1)} in {d} dimension{'s' * (d != 1)})"


def _path(path: str | os.PathLike[str]) -> Any:
    from pathlib import Path

    return Path(path)


def _as_table(points: ArrayLike, name: str) -> Array:
    table = as_float_array(points, name)
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"{name} has shape {table.shape}; expected (n_points, n_dims)")
    return table


def _as_offsets(offsets: ArrayLike, n_points: int) -> Indices:
    array = _as_whole_numbers(offsets)
    if array[0] != 0 or array[-1] != n_points:
        raise ValueError(
            f"offsets goes from {array[0]} to {array[-1]}; it must begin with 0 and end with the number of points, "
            f"{n_points}"
        )
    _check_sizes(array)
    return array


def _as_whole_numbers(offsets: ArrayLike) -> Indices:
    array = np.asarray(offsets)
    if array.ndim != 1 or len(array) < 2 or array.dtype.kind not in "iu":
        raise ValueError(
            f"offsets has shape {array.shape} and dtype {array.dtype}; give n + 1 whole numbers for n clouds, n > 0"
        )
    return array.astype(np.intp)


def _check_sizes(offsets: Indices) -> None:
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


def _check_parts(table: Array, offsets: Indices, weights: ArrayLike | None, numbers: int | Indices = 0) -> Array:
    """Refuse bad points; weights that sum to one in each cloud. Messages call clouds by `numbers`, or count from it."""
    bad = _bad_row(table)
    if bad is not None:
        cloud = int(np.searchsorted(offsets, bad, "right")) - 1
        raise InvalidPointError(_what_is_wrong(f"point {bad - offsets[cloud]} of {_name(cloud, numbers)}", table[bad]))
    return _as_weights(weights, offsets, numbers)


def _as_weights(weights: ArrayLike | None, offsets: Indices, numbers: int | Indices = 0) -> Array:
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


def _bad_row(table: Array) -> int | None:
    """The first row with NaN, infinity or a number too large to be squared."""
    with np.errstate(invalid="ignore"):
        if not table.size or (table.max() <= LARGEST and table.min() >= -LARGEST):
            return None
        good = (np.abs(table) <= LARGEST).all(axis=1)
    return int(np.flatnonzero(~good)[0])


def _what_is_wrong(where: str, point: Array) -> str:
    at = int(np.flatnonzero(~(np.abs(point) <= LARGEST))[0])
    if np.isfinite(point[at]):
        return f"{where} has an entry of size {abs(point[at]):.1e} at {at}, whose square overflows; scale all points"
    return f"{where} contains NaN or infinity ({point[at]} at {at}); remove it or fill the gaps"
