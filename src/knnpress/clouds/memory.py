"""Clouds: sets of weighted points, such as the words of documents or the local features of images."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from knnpress.arrays import as_float_array
from knnpress.clouds.checks import as_offsets, as_table, as_weights, bad_row, check_parts, rows_of, what_is_wrong
from knnpress.exceptions import InvalidPointError, how_many
from knnpress.files import read_npz, replacing
from knnpress.typing import Array, ArrayLike, Indices

_ARRAYS = ("table", "index", "offsets", "weights")


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
        table = as_table(points, "points")
        starts = as_offsets(offsets, len(table))
        self._set(table, np.arange(len(table)), starts, check_parts(table, starts, weights))

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
        table = as_table(vectors, "vectors")
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
        bad = bad_row(table)
        if bad is not None:
            raise InvalidPointError(what_is_wrong(f"vector {bad}", table[bad]))
        weights = as_weights(csr.data, offsets)
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
        table = as_table(table, "table")
        if (
            index.ndim != 1
            or index.dtype.kind not in "iu"
            or (len(index) and not 0 <= index.min() <= index.max() < len(table))
        ):
            raise ValueError(f"{name} is damaged: its index points beyond its {len(table)} points; save it again")
        starts = as_offsets(offsets, len(index))
        bad = bad_row(table)
        if bad is not None:
            raise InvalidPointError(what_is_wrong(f"point {bad} of {name}", table[bad]))
        checked = as_weights(weights, starts)
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
        chosen = rows_of(rows, len(self))
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
        return describe(self.sizes, self.shape[1])

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


def describe(sizes: Indices, d: int) -> str:
    """What `repr` says of clouds of these sizes in d dimensions."""
    n = len(sizes)
    if n == 0:
        return f"Clouds(0 clouds in {d} dimensions)"
    low, high = int(sizes.min()), int(sizes.max())
    size = f"{low}" if low == high else f"{low} to {high}"
    return f"Clouds({n} cloud{'s' * (n != 1)} of {size} point{'s' * (high != 1)} in {d} dimension{'s' * (d != 1)})"


def _path(path: str | os.PathLike[str]) -> Any:
    from pathlib import Path

    return Path(path)
