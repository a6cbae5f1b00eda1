"""Where labelled training points live: in memory, or in a store that is read block by block.

A function of the training set is a sum, or a list, over row blocks, whichever place it runs in. Blocks depend on the
data and the number of prototypes alone, and are combined in order.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from knnpress.clouds import Clouds
from knnpress.exceptions import InvalidPointError
from knnpress.execution.threads import BLOCK_BYTES, MEMORY_BYTES, map_blocks, row_blocks
from knnpress.typing import Array, Indices, Labels

__all__ = [
    "LocalRows",
    "Make",
    "Memory",
    "Rows",
    "StoredPoints",
    "Work",
    "add",
    "after",
    "bytes_of",
    "is_at_hand",
    "is_dask",
    "is_stored",
    "local_rows",
]

#: From a block's points, labels, weights and memory to a result and the memory of it.
Work = Callable[[Array, Labels, Array | None, Any], tuple[Any, Any]]
#: Makes a `Work`. It is what travels to other machines, so it consists of arrays and module-level functions.
Make = Callable[[], Work]

_QUICK = 1e-3  # seconds of work that are over before other threads could help
_WAVE = 32  # blocks whose results are held at a time
_RUN = 64  # rows that are read together, where a store does not say
_SPREAD = 8  # runs in a batch, at least, lest it know only one corner of the store


class Memory(dict[int, Any]):
    """What row blocks keep from one evaluation to the next, by their first row.

    Within `budget` bytes, those of the first rows: which ones depends on nothing but their size.

    Attributes
    ----------
    token : str
        What it is called on other machines.
    seconds : float
        That the last evaluation took, here.
    """

    def __init__(self, budget: float = np.inf) -> None:
        super().__init__()
        self.budget, self.token, self.seconds = budget, uuid.uuid4().hex, np.inf

    def keep(self, rows: slice, memory: Any, X: Array) -> None:
        """Keep the memory of a block of points X, if there is room for it and all before it."""
        if self.budget == np.inf or _size(memory, X) / len(X) * rows.stop <= self.budget:
            self[rows.start] = memory


class Rows(Protocol):
    """Labelled training points, wherever they live."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all points, (n, ...)."""
        ...

    @property
    def y(self) -> Labels:
        """Their labels, (n,), here."""
        ...

    @property
    def weight(self) -> Array | None:
        """Their weights, (n,), here."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether all points are at hand, here."""
        ...

    def cut(self, n_prototypes: int, batch_size: int | None = None) -> list[slice]:
        """The blocks to work in; for batches, the runs of rows that they are made of."""
        ...

    def take(self, rows: Indices, blocks: Sequence[slice]) -> Array:
        """The checked points of these rows, which are in order; every other point is checked on the way."""
        ...

    def memory(self) -> Memory:
        """A place for what the blocks remember."""
        ...

    def map(self, make: Make, blocks: Sequence[slice], memory: Memory | None = None) -> list[Any]:
        """What each block gives."""
        ...

    def sum(self, make: Make, blocks: Sequence[slice], memory: Memory) -> Any:
        """The sum of what the blocks give, tuples, added in order."""
        ...

    def transformed(self, function: Callable[[Array], Array]) -> Rows:
        """The same rows with a function of their checked points instead; blocks are to be cut anew."""
        ...

    def close(self) -> None:
        """Forget what was kept elsewhere."""
        ...


@dataclass(frozen=True)
class StoredPoints:
    """Points in a store, of which row slices can be read: a memory map, a zarr array, an HDF5 dataset.

    Attributes
    ----------
    array : object
        With ``shape`` and ``array[start:stop]``.
    check : callable
        From the points of a block to checked ones; its errors name rows of the block.
    """

    array: Any
    check: Callable[[Array], Array]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all points."""
        return tuple(int(size) for size in self.array.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        """The checked points of a block."""
        return check_block(self.check, _read(self.array, rows), rows.start)

    def rows(self, y: Labels, weight: Array | None, n_jobs: int | None) -> Rows:
        """The points with their labels and weights."""
        return LocalRows(self, y, weight, n_jobs, MEMORY_BYTES)


@dataclass(frozen=True)
class LocalRows:
    """Training points that the threads of this process work on.

    Attributes
    ----------
    X : ndarray, Clouds or StoredPoints of shape (n, ...)
    y, weight, n_jobs
    budget : float
        Bytes that memories may take.
    """

    X: Any
    y: Labels
    weight: Array | None = None
    n_jobs: int | None = None
    budget: float = np.inf

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all points."""
        shape: tuple[int, ...] = self.X.shape
        return shape

    @property
    def in_memory(self) -> bool:
        """Whether all points are at hand."""
        return is_at_hand(self.X)

    def some(self, rows: Indices) -> LocalRows:
        """Some of the points alone, where they are in memory."""
        weight = None if self.weight is None else self.weight[rows]
        return LocalRows(self.X[rows], self.y[rows], weight, self.n_jobs, self.budget)

    def cut(self, n_prototypes: int, batch_size: int | None = None) -> list[slice]:
        """The blocks to work in; for batches of stored points, the runs of rows that they are made of."""
        if self.in_memory:
            return row_blocks(self.shape[0], 8 * n_prototypes)
        return stored_blocks(self.shape, n_prototypes, batch_size, getattr(self.X.array, "chunks", None))

    def take(self, rows: Indices, blocks: Sequence[slice]) -> Array:
        """The checked points of these rows, which are in order; every other point is checked on the way."""

        def pick(block: slice) -> Array:
            return self.X[block][local(rows, block)]

        return np.concatenate(map_blocks(pick, blocks, self.n_jobs))

    def memory(self) -> Memory:
        """A place for what the blocks remember."""
        return Memory(self.budget)

    def map(self, make: Make, blocks: Sequence[slice], memory: Memory | None = None) -> list[Any]:
        """What each block gives."""
        work, kept = make(), Memory(0) if memory is None else memory

        def one(rows: slice) -> Any:
            X = self.X[rows]
            weight = None if self.weight is None else self.weight[rows]
            result, remembered = work(X, self.y[rows], weight, kept.get(rows.start))
            kept.keep(rows, remembered, X)
            return result

        began = perf_counter()
        results = map_blocks(one, blocks, 1 if kept.seconds < _QUICK else self.n_jobs)
        kept.seconds = perf_counter() - began
        return results

    def sum(self, make: Make, blocks: Sequence[slice], memory: Memory) -> Any:
        """The sum of what the blocks give, tuples, added in order."""
        made, total = make(), None
        for first in range(0, len(blocks), _WAVE):
            for part in self.map(lambda: made, blocks[first : first + _WAVE], memory):
                total = part if total is None else add(total, part)
        return total

    def transformed(self, function: Callable[[Array], Array]) -> LocalRows:
        """The same rows with a function of their checked points instead."""
        X = function(self.X) if self.in_memory else replace(self.X, check=partial(after, function, self.X.check))
        return LocalRows(X, self.y, self.weight, self.n_jobs, self.budget)

    def close(self) -> None:
        """Nothing is kept elsewhere."""


def after(function: Callable[[Array], Array], check: Callable[[Array], Array], X: Array) -> Array:
    """A function of checked points; with `partial`, something that can travel."""
    return function(check(X))


def local_rows(X: Any, y: Labels, weight: Array | None, n_jobs: int | None) -> Rows:
    """Checked points with their labels: arrays here, others where they are."""
    return LocalRows(X, y, weight, n_jobs) if is_at_hand(X) else X.rows(y, weight, n_jobs)


def stored_blocks(shape: tuple[int, ...], n_prototypes: int, batch_size: int | None, chunks: Any) -> list[slice]:
    """Row blocks of which neither the points nor their distances take more than a block's bytes.

    For batches: runs of rows, several in each, that agree with the first of the store's `chunks`.
    """
    if batch_size is None:
        blocks = row_blocks(shape[0], 8 * n_prototypes)  # as of points in memory, if possible
        n_features = int(np.prod(shape[1:]))
        fits = 8 * blocks[0].stop * n_features <= BLOCK_BYTES
        return blocks if fits else row_blocks(shape[0], 8 * max(n_prototypes, n_features))
    most = max(1, batch_size // _SPREAD)
    chunk = 1 if not chunks else int(np.max(chunks[0]))  # Dask gives the length of each
    run = chunk * max(1, min(_RUN, most) // chunk)  # whole chunks
    run = -(-run // -(-run // most))  # or equal parts of one
    return [slice(start, min(start + run, shape[0])) for start in range(0, shape[0], run)]


def check_block(check: Callable[[Array], Array], X: Array, start: int) -> Array:
    """Checked points; an error names the row among all of them, not in the block that begins at `start`."""
    try:
        return check(X)
    except InvalidPointError as error:
        text = re.sub(
            r"^(the covariance of )?X\[(\d+)\]",
            lambda found: f"{found[1] or ''}X[{int(found[2]) + start}]",
            str(error),
        )
        raise InvalidPointError(f"{text} (looked at: rows {start} to {start + len(X) - 1})") from None


def local(rows: Indices, block: slice) -> Indices:
    """Those of the ordered `rows` that are in a block, counted from its first."""
    first, last = np.searchsorted(rows, (block.start, block.stop))
    return rows[first:last] - block.start


def add(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sum of two results."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def digest(rows: Rows, blocks: Sequence[slice]) -> str:
    """A text that is the same for the same points."""
    parts = rows.map(_hasher, blocks)
    return f"{rows.shape}, {hashlib.sha256(''.join(parts).encode()).hexdigest()[:16]}"


def _hasher() -> Work:
    return lambda X, *_: (hashlib.sha256(bytes_of(X)).hexdigest(), None)


def bytes_of(X: Any) -> Any:
    """All that points consist of, as bytes."""
    return X.tobytes() if isinstance(X, Clouds) else np.ascontiguousarray(X).data


def is_at_hand(X: Any) -> bool:
    """Whether points are in memory, as an array or as clouds."""
    return isinstance(X, (np.ndarray, Clouds))


def is_dask(X: Any) -> bool:
    """Whether X is a collection of Dask."""
    return hasattr(X, "__dask_graph__")


def is_stored(X: Any) -> bool:
    """Whether X is read from elsewhere, row slice by row slice: a memory map, a zarr array, an HDF5 dataset."""
    if isinstance(X, np.ndarray):
        return isinstance(X, np.memmap)
    like = all(hasattr(X, name) for name in ("shape", "dtype", "chunks", "__getitem__"))
    return like and not is_dask(X)


def _read(array: Any, rows: slice) -> Array:
    block = array[rows]
    return np.asarray(block.compute(scheduler="synchronous") if is_dask(block) else block)


def _size(memory: Any, X: Array) -> int:
    """Bytes of a memory; one that does not say holds X in another form."""
    if is_dataclass(memory):
        return sum(_size(part, X) for part in vars(memory).values() if part is not None)
    return memory.nbytes if isinstance(memory, np.ndarray) else X.nbytes
