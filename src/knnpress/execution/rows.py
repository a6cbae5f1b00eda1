"""Labelled training points, wherever they are, and functions of them.

A function of the training set is a sum, or a list, over row blocks, whichever place it runs in. Blocks never depend on
the number of threads or workers, and are combined in order: no result depends on it. They depend on the shape of the
data, the number of prototypes and, where points are not in memory, the chunks of the store and the size of a batch.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from knnpress.clouds import Clouds
from knnpress.execution.threads import map_blocks, row_blocks
from knnpress.typing import Array, Indices, Labels

#: From a block's points, labels, weights and memory to a result and the memory for the next call.
BlockFunction = Callable[[Array, Labels, Array | None, Any], tuple[Any, Any]]
#: Makes a block function, once for all blocks of a machine. It can be pickled: this is what travels to other machines.
BlockFunctionFactory = Callable[[], BlockFunction]

_QUICK_SECONDS = 1e-3  # work of this length is over before other threads could help
_RESULTS_HELD = 32  # blocks whose results are in memory at a time, while they are summed


class Memory(dict[int, Any]):
    """What row blocks keep from one evaluation to the next, by their first row.

    At most `budget` bytes, of the first rows: what is kept depends on its size alone.

    Attributes
    ----------
    token : str
        The name of this memory on other machines.
    last_seconds : float
        How long the last evaluation took in this process.
    """

    def __init__(self, budget: float = np.inf) -> None:
        super().__init__()
        self.budget, self.token, self.last_seconds = budget, uuid.uuid4().hex, np.inf

    def keep(self, block: slice, memory: Any, X: Array) -> None:
        """Keep the memory of a block of points X, if there is room for it and for the memories of all earlier rows."""
        if self.budget == np.inf or _size(memory, X) / len(X) * block.stop <= self.budget:
            self[block.start] = memory


class Rows(Protocol):
    """Labelled training points: `LocalRows` in this process, or `ClusterRows` on the workers of a Dask cluster."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all points, (n, ...)."""
        ...

    @property
    def y(self) -> Labels:
        """Labels, (n,), in memory."""
        ...

    @property
    def weight(self) -> Array | None:
        """Weights, (n,), in memory."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether all points are in the memory of this process."""
        ...

    def cut(self, n_prototypes: int, batch_size: int | None = None) -> list[slice]:
        """The blocks to work in; for batches, the runs of rows that they are made of."""
        ...

    def sample_size(self, most: int) -> int:
        """Rows that a sample may have: at most so many, and fewer where that would take much memory."""
        ...

    def take(self, rows: Indices, blocks: Sequence[slice]) -> Array:
        """The points of these rows, in ascending order; all points of all blocks are checked on the way."""
        ...

    def memory(self) -> Memory:
        """A new memory for the blocks."""
        ...

    def map(
        self, make_function: BlockFunctionFactory, blocks: Sequence[slice], memory: Memory | None = None
    ) -> list[Any]:
        """The results of all blocks, in order."""
        ...

    def sum(self, make_function: BlockFunctionFactory, blocks: Sequence[slice], memory: Memory) -> Any:
        """The results of all blocks, which are tuples, added up in order."""
        ...

    def transformed(self, function: Callable[[Array], Array]) -> Rows:
        """The same rows with a function applied to their checked points; blocks must be cut again."""
        ...

    def close(self) -> None:
        """Free what other processes keep."""
        ...


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
        return self.X.shape

    @property
    def in_memory(self) -> bool:
        """Whether all points are in memory, rather than in a store."""
        return is_in_memory(self.X)

    def subset(self, rows: Indices) -> LocalRows:
        """Some of the points, where they are in memory."""
        weight = None if self.weight is None else self.weight[rows]
        return LocalRows(self.X[rows], self.y[rows], weight, self.n_jobs, self.budget)

    def cut(self, n_prototypes: int, batch_size: int | None = None) -> list[slice]:
        """The blocks to work in; for batches of stored points, the runs of rows that they are made of."""
        if self.in_memory:
            return row_blocks(self.shape[0], 8 * n_prototypes)
        return self.X.blocks(n_prototypes, batch_size)

    def sample_size(self, most: int) -> int:
        """Rows that a sample may have: at most so many, and fewer where that would take much memory."""
        return most if self.in_memory else self.X.sample_size(most)

    def take(self, rows: Indices, blocks: Sequence[slice]) -> Array:
        """The points of these rows, in ascending order; all points of all blocks are checked on the way."""
        return joined(map_blocks(lambda block: pick(self.X[block], rows_within(rows, block)), blocks, self.n_jobs))

    def memory(self) -> Memory:
        """A new memory for the blocks."""
        return Memory(self.budget)

    def map(
        self, make_function: BlockFunctionFactory, blocks: Sequence[slice], memory: Memory | None = None
    ) -> list[Any]:
        """The results of all blocks, in order."""
        function, memories = make_function(), Memory(0) if memory is None else memory

        def on_block(block: slice) -> Any:
            X = self.X[block]
            weight = None if self.weight is None else self.weight[block]
            result, block_memory = function(X, self.y[block], weight, memories.get(block.start))
            memories.keep(block, block_memory, X)
            return result

        began = perf_counter()
        results = map_blocks(on_block, blocks, 1 if memories.last_seconds < _QUICK_SECONDS else self.n_jobs)
        memories.last_seconds = perf_counter() - began
        return results

    def sum(self, make_function: BlockFunctionFactory, blocks: Sequence[slice], memory: Memory) -> Any:
        """The results of all blocks, which are tuples, added up in order."""
        function, total = make_function(), None
        for first in range(0, len(blocks), _RESULTS_HELD):
            for result in self.map(lambda: function, blocks[first : first + _RESULTS_HELD], memory):
                total = result if total is None else add_tuples(total, result)
        return total

    def transformed(self, function: Callable[[Array], Array]) -> LocalRows:
        """The same rows with a function applied to their checked points."""
        X = function(self.X) if self.in_memory else self.X.transformed(function)
        return LocalRows(X, self.y, self.weight, self.n_jobs, self.budget)

    def close(self) -> None:
        """No other process keeps anything."""


def local_rows(X: Any, y: Labels, weight: Array | None, n_jobs: int | None) -> Rows:
    """Checked points with their labels, as rows of this process or, for points of a cluster, of its workers."""
    return LocalRows(X, y, weight, n_jobs) if is_in_memory(X) else X.rows(y, weight, n_jobs)


def rows_within(rows: Indices, block: slice) -> Indices:
    """Which of the ascending `rows` are in a block, counted from its first."""
    first, last = np.searchsorted(rows, (block.start, block.stop))
    return rows[first:last] - block.start


def pick(X: Any, rows: Indices) -> Any:
    """Some of the points of a block, which is not kept in memory for them."""
    return X[rows].compact() if isinstance(X, Clouds) else X[rows]


def joined(parts: Sequence[Any]) -> Any:
    """Points of several blocks, one after the other."""
    return Clouds.joined(parts) if isinstance(parts[0], Clouds) else np.concatenate(parts)


def add_tuples(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sum of two results, item by item."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def fingerprint(rows: Rows, blocks: Sequence[slice]) -> str:
    """A text that is the same for the same points."""
    hashes = rows.map(_make_hash, blocks)
    return f"{rows.shape}, {hashlib.sha256(''.join(hashes).encode()).hexdigest()[:16]}"


def _make_hash() -> BlockFunction:
    return lambda X, *_: (hashlib.sha256(as_bytes(X)).hexdigest(), None)


def as_bytes(X: Any) -> Any:
    """Points in memory as a buffer of bytes."""
    return X.tobytes() if isinstance(X, Clouds) else np.ascontiguousarray(X).data


def is_in_memory(X: Any) -> bool:
    """Whether points are an array or clouds, and not in a store or on a cluster."""
    return isinstance(X, (np.ndarray, Clouds))


def _size(memory: Any, X: Array) -> int:
    """Bytes of a memory; what is no array holds X in another form."""
    if is_dataclass(memory):
        return sum(_size(part, X) for part in vars(memory).values() if part is not None)
    return memory.nbytes if isinstance(memory, np.ndarray) else X.nbytes
