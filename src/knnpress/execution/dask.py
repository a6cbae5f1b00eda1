"""Training points on the workers of a Dask cluster. The only module that knows Dask.

Row blocks are checked and stay on the workers; prototypes go there and one sum of gradients comes back. The blocks and
the order in which they are added are those of threads, so that results agree. A block of a lost worker is read again.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from knnpress.execution.rows import Make, Memory, Rows, StoredPoints, add, after, check_block, local, stored_blocks
from knnpress.execution.threads import BLOCK_BYTES, MEMORY_BYTES, map_blocks
from knnpress.typing import Array, Indices, Labels

__all__ = ["ClusterPoints", "ClusterRows", "as_points", "connect", "lazily"]

_GLANCE = 2.0  # seconds between two looks at whether the cluster is still there
_PATIENCE = 60.0  # seconds that it may be without workers

_LOST = (
    "the Dask cluster {} in the middle of the work; start it again, and fit again (with checkpoint=…, the fit goes on "
    "from where it was)"
)

#: What blocks remember on this worker, for each training set that is being learned
_memories: dict[str, Memory] = {}

_TASKS = 4  # chunks for each thread of the cluster, so that none waits long for another
_FAN = 16  # chunks whose results are added by one task
_CHUNK_BYTES = 4 * BLOCK_BYTES

_Points = tuple[Array, Labels, Array | None]


def as_points(X: Any, check: Callable[[Array], Array]) -> ClusterPoints | StoredPoints:
    """A dask array as training points: on the workers of the current client, or, without one, read block by block.

    Parameters
    ----------
    X : dask.array.Array of shape (n, ...)
    check : callable
        From the points of a block to checked ones.
    """
    if any(np.isnan(size) for size in X.shape):
        raise ValueError("X has chunks of unknown length; call X.compute_chunk_sizes() first")
    client = _current_client()
    return StoredPoints(X, check) if client is None else ClusterPoints(X, check, client)


def connect(scheduler: str) -> Any:
    """A client of the cluster at an address, or, for "local", of one made of this machine's cores.

    Raises ConnectionError where nobody answers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("Dask is not installed: pip install knnpress[dask]") from error
    if scheduler == "local":
        return Client(threads_per_worker=1, dashboard_address=":0")
    try:
        return Client(scheduler, timeout=10)
    except (OSError, TimeoutError) as error:
        raise ConnectionError(f"no Dask scheduler answers at {scheduler}; start one with: dask scheduler") from error


def lazily(method: Callable[[Array], Array], X: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """A dask array of what `method` gives for each chunk of X, (n, *shape).

    Parameters
    ----------
    method : callable
        From points to an array with a row for each.
    X : dask.array.Array of shape (n, ...)
    dtype : dtype of the result
    shape : tuple of int
        Of what one point gives.
    """
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    kept = min(len(shape), X.ndim - 1)
    axes: dict[str, Any] = {
        "drop_axis": list(range(1 + kept, X.ndim)),
        "new_axis": list(range(1 + kept, 1 + len(shape))) or None,
        "chunks": (X.chunks[0], *((size,) for size in shape)),
    }

    def one(block: Array, block_info: Any = None) -> Array:
        if not len(block):  # what a mask has emptied
            return meta
        start = block_info[0]["array-location"][0][0]
        return check_block(method, block, start if start == start else 0)  # NaN: of unknown length

    meta = np.empty((0, *shape), dtype=dtype)
    return X.map_blocks(one, dtype=dtype, meta=meta, **axes)


@dataclass(frozen=True)
class ClusterPoints:
    """A dask array and the client of the cluster that is to hold it.

    Attributes
    ----------
    array : dask.array.Array of shape (n, ...)
    check : callable
        From the points of a block to checked ones.
    client : distributed.Client
    """

    array: Any
    check: Callable[[Array], Array]
    client: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all points."""
        return tuple(int(size) for size in self.array.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, y: Labels, weight: Array | None, n_jobs: int | None) -> Rows:
        """The points with their labels and weights."""
        return ClusterRows(self, y, weight)


@dataclass(frozen=True)
class _Chunk:
    """Consecutive rows that are on one worker, with their labels and weights."""

    rows: slice
    future: Any


@dataclass
class ClusterRows:
    """Training points that the workers of a cluster work on.

    Attributes
    ----------
    points : ClusterPoints
    y, weight
    """

    points: ClusterPoints
    y: Labels
    weight: Array | None = None
    _chunks: list[_Chunk] = field(default_factory=list)
    _tokens: list[str] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all points."""
        return self.points.shape

    @property
    def in_memory(self) -> bool:
        """They are elsewhere."""
        return False

    def cut(self, n_prototypes: int, batch_size: int | None = None) -> list[slice]:
        """The blocks to work in, or the runs of rows that batches are made of; places them on the workers."""
        blocks = stored_blocks(self.shape, n_prototypes, batch_size, self.points.array.chunks)
        self._place(blocks)
        return blocks

    def take(self, rows: Indices, blocks: Sequence[slice]) -> Array:
        """The checked points of these rows, which are in order; every other point is checked on the way."""
        submit = self.points.client.submit
        picks = [submit(_pick, chunk.future, local(rows, chunk.rows), pure=False) for chunk in self._chunks]
        return np.concatenate(self._gather(picks))

    def transformed(self, function: Callable[[Array], Array]) -> ClusterRows:
        """The same rows with a function of their checked points instead."""
        check = partial(after, function, self.points.check)
        return ClusterRows(replace(self.points, check=check), self.y, self.weight)

    def memory(self) -> Memory:
        """A name for what the blocks remember, each on its worker."""
        memory = Memory(MEMORY_BYTES * max(1, len(self.points.client.nthreads())))
        self._tokens.append(memory.token)
        return memory

    def map(self, make: Make, blocks: Sequence[slice], memory: Memory | None = None) -> list[Any]:
        """What each block gives."""
        return [part for parts in self._gather(self._parts(make, blocks, memory)) for part in parts]

    def sum(self, make: Make, blocks: Sequence[slice], memory: Memory) -> Any:
        """The sum of what the blocks give, tuples, added in order, on the workers: one sum travels."""
        total, parts = None, self._parts(make, blocks, memory)
        for first in range(0, len(parts), _FAN):
            total = self.points.client.submit(_add_all, total, *parts[first : first + _FAN], pure=False)
        return self._gather([total])[0]

    def close(self) -> None:
        """Let the workers forget."""
        self._chunks.clear()
        if self._tokens and self.points.client.status == "running":
            with suppress(Exception):  # they will forget anyway, when others come
                self.points.client.run(_forget, self._tokens, on_error="ignore")

    def _place(self, blocks: list[slice]) -> None:
        """Read, check and keep the points on the workers, several blocks in a chunk: tasks cost milliseconds."""
        import dask

        threads = max(1, sum(self.points.client.nthreads().values()))
        size = (blocks[0].stop - blocks[0].start) * int(np.prod(self.shape[1:])) * 8
        group = max(1, min(-(-len(blocks) // (_TASKS * threads)), _CHUNK_BYTES // size))
        chunks = [
            slice(blocks[k].start, blocks[min(k + group, len(blocks)) - 1].stop) for k in range(0, len(blocks), group)
        ]
        inner = dict.fromkeys(range(1, len(self.shape)), -1)
        X = self.points.array.rechunk({0: tuple(c.stop - c.start for c in chunks), **inner})
        checked = dask.delayed(_checked, pure=False)
        tasks = [
            checked(part, self.y[c], None if self.weight is None else self.weight[c], self.points.check, c.start)
            for part, c in zip(X.to_delayed().ravel(), chunks, strict=True)
        ]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # labels are in it
            futures = self.points.client.compute(tasks)
        self._chunks = [_Chunk(rows, future) for rows, future in zip(chunks, futures, strict=True)]

    def _parts(self, make: Make, blocks: Sequence[slice], memory: Memory | None) -> list[Any]:
        """Futures of what the blocks of each chunk give; the blocks are in order."""
        submit, token = self.points.client.submit, None if memory is None else memory.token
        budget = 0.0 if memory is None else memory.budget
        inside = [[b for b in blocks if c.rows.start <= b.start < c.rows.stop] for c in self._chunks]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # prototypes are in it, once
            made = submit(_held, make, pure=False)
            return [
                submit(_work, made, chunk.future, chunk.rows.start, some, token, budget, pure=False)
                for chunk, some in zip(self._chunks, inside, strict=True)
                if some
            ]

    def _gather(self, futures: list[Any]) -> list[Any]:
        """Their results; an error of a worker is raised here, and so is the loss of the cluster."""
        from distributed import CancelledError, wait
        from distributed.comm import CommClosedError

        client, alone = self.points.client, 0.0
        try:
            while any(future.status == "pending" for future in futures):
                with suppress(TimeoutError):
                    wait(futures, timeout=_GLANCE)
                    break
                if client.status != "running":
                    raise ConnectionError(_LOST.format("has gone"))
                alone = 0.0 if client.nthreads() else alone + _GLANCE
                if alone > _PATIENCE:
                    raise ConnectionError(_LOST.format("has no workers any more"))
            return list(client.gather(futures))
        except (CancelledError, CommClosedError) as error:
            raise ConnectionError(_LOST.format("has gone")) from error


def _current_client() -> Any:
    """The client that the user has made last, if there is one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:  # then nobody has made one
        return None
    try:
        return distributed.Client.current()
    except ValueError:
        return None


def _checked(X: Array, y: Labels, weight: Array | None, check: Callable[[Array], Array], start: int) -> _Points:
    return check_block(check, np.asarray(X), start), y, weight


def _held(make: Make) -> Make:
    return make


def _pick(points: _Points, rows: Indices) -> Array:
    return points[0][rows]


def _add_all(total: Any, *chunks: list[Any]) -> Any:
    for part in (part for parts in chunks for part in parts):
        total = part if total is None else add(total, part)
    return total


def _work(make: Make, points: _Points, start: int, blocks: list[slice], token: str | None, budget: float) -> list[Any]:
    """What each block of a chunk gives, on its worker, which keeps their memories; the chunk begins at `start`."""
    memory = Memory(0)
    if token is not None:
        while len(_memories) > 3 and token not in _memories:  # others that were not said to have ended
            _memories.pop(next(iter(_memories)))
        memory = _memories.setdefault(token, Memory(budget))
    work = make()
    points = (np.require(points[0], requirements="A"), *points[1:])  # frames of a message begin anywhere

    def one(rows: slice) -> Any:
        here = slice(rows.start - start, rows.stop - start)
        X, y, weight = (None if part is None else part[here] for part in points)
        assert X is not None
        assert y is not None
        result, remembered = work(X, y, weight, memory.pop(rows.start, None))
        memory.keep(rows, remembered, X)
        return result

    return map_blocks(one, blocks, 1)


def _forget(tokens: list[str]) -> None:
    for token in tokens:
        _memories.pop(token, None)
