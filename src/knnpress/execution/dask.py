"""Training points on the workers of a Dask cluster. The only module that imports Dask.

Row blocks are checked on the workers and stay there; prototypes travel to them and one sum of gradients comes back. The
blocks, and the order in which their results are added, are those of `LocalRows`, so that results agree. What a lost
worker held is read again.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from knnpress.clouds import Clouds, StoredClouds, clouds_of_block
from knnpress.execution.rows import BlockFunctionFactory, Memory, Rows, add_tuples, joined, pick, rows_within
from knnpress.execution.stored import (
    StoredPoints,
    blocks_of,
    check_block,
    compose,
    n_bytes,
    reading_blocks,
    sample_size,
)
from knnpress.execution.threads import BLOCK_BYTES, MEMORY_BYTES, map_blocks
from knnpress.typing import Array, Indices, Labels

_POLL_SECONDS = 2.0  # between two looks at whether the cluster is still there
_MAX_SECONDS_ALONE = 60.0  # how long the cluster may have no workers

_CLUSTER_LOST = (
    "the Dask cluster {} in the middle of the work; start it again, and fit again (with checkpoint=…, the fit goes on "
    "from where it was)"
)

#: On a worker: the memories of its blocks, by token, one for each training set that is being learned
_memories: dict[str, Memory] = {}
_MAX_MEMORIES = 4  # above it the oldest are dropped: their fits ended without freeing them

_CHUNKS_PER_THREAD = 4  # of the cluster, so that none waits long for another
_CHUNKS_PER_SUM = 16  # chunks whose results one task adds up
_CHUNK_BYTES = 4 * BLOCK_BYTES

_Points = tuple[Array, Labels, Array | None]


def as_points(X: Any, check: Callable[[Array], Array]) -> ClusterPoints | StoredPoints:
    """A dask array as training points: on the workers of the current client or, without one, read block by block here.

    Parameters
    ----------
    X : dask.array.Array of shape (n, ...), or StoredClouds of one
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
    """A dask array of the results of `method` for each chunk of X, (n, *shape).

    Parameters
    ----------
    method : callable
        From points to an array with a row for each.
    X : dask.array.Array of shape (n, ...), or StoredClouds of one
    dtype : dtype of the result
    shape : tuple of int
        Of the result for one point.
    """
    if isinstance(X, StoredClouds):
        return _lazily_of_clouds(method, X, dtype, shape)
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    kept = min(len(shape), X.ndim - 1)
    axes: dict[str, Any] = {
        "drop_axis": list(range(1 + kept, X.ndim)),
        "new_axis": list(range(1 + kept, 1 + len(shape))) or None,
        "chunks": (X.chunks[0], *((size,) for size in shape)),
    }

    def on_chunk(chunk: Array, block_info: Any = None) -> Array:
        if not len(chunk):  # a mask has emptied it
            return meta
        start = block_info[0]["array-location"][0][0]
        return check_block(method, chunk, 0 if np.isnan(start) else start)  # NaN: after a chunk of unknown length

    meta = np.empty((0, *shape), dtype=dtype)
    return X.map_blocks(on_chunk, dtype=dtype, meta=meta, **axes)


def _lazily_of_clouds(method: Callable[[Any], Array], X: StoredClouds, dtype: Any, shape: tuple[int, ...]) -> Any:
    """The same of clouds, whose chunks are cut anew: those of their points end anywhere."""
    import dask
    import dask.array as da

    blocks, meta = reading_blocks(X), np.empty((0, *shape), dtype=dtype)
    found = dask.delayed(check_block, pure=False)
    parts = [found(method, part, block.start) for part, block in zip(_delayed_blocks(X, blocks), blocks, strict=True)]
    arrays = [
        da.from_delayed(part, (block.stop - block.start, *shape), dtype=dtype, meta=meta)
        for part, block in zip(parts, blocks, strict=True)
    ]
    return da.concatenate(arrays)


def _delayed_blocks(X: Any, blocks: Sequence[slice]) -> list[Any]:
    """The points of consecutive blocks of a dask array, or of clouds of one, each by a task."""
    points = X.points[X.span(slice(0, len(X)))] if isinstance(X, StoredClouds) else X
    spans = [X.span(block) for block in blocks] if isinstance(X, StoredClouds) else blocks
    inner = dict.fromkeys(range(1, points.ndim), -1)
    parts = points.rechunk({0: tuple(span.stop - span.start for span in spans), **inner}).to_delayed().ravel()
    if not isinstance(X, StoredClouds):
        return list(parts)

    import dask

    clouds = dask.delayed(clouds_of_block, pure=False)
    return [
        clouds(
            part,
            X.offsets[block.start : block.stop + 1] - span.start,
            None if X.weights is None else np.asarray(X.weights[span]),
            block.start,
        )
        for part, block, span in zip(parts, blocks, spans, strict=True)
    ]


@dataclass(frozen=True)
class ClusterPoints:
    """A dask array and the client of the cluster that is to hold it.

    Attributes
    ----------
    array : dask.array.Array of shape (n, ...), or StoredClouds of one
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

    span: slice
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
        """They are not: the workers hold them."""
        return False

    def cut(self, n_prototypes: int, batch_size: int | None = None) -> list[slice]:
        """The blocks to work in, or the runs of rows that batches are made of; moves them to the workers."""
        blocks = blocks_of(self.points.array, n_prototypes, batch_size)
        self._place(blocks)
        return blocks

    def sample_size(self, most: int) -> int:
        """Rows that a sample may have."""
        return sample_size(self.points.array, most)

    def take(self, rows: Indices, blocks: Sequence[slice]) -> Array:
        """The points of these rows, in ascending order; all points of all blocks are checked on the way."""
        submit = self.points.client.submit
        picked = [submit(_pick, chunk.future, rows_within(rows, chunk.span), pure=False) for chunk in self._chunks]
        return joined(self._gather(picked))

    def transformed(self, function: Callable[[Array], Array]) -> ClusterRows:
        """The same rows with a function applied to their checked points."""
        return ClusterRows(replace(self.points, check=compose(function, self.points.check)), self.y, self.weight)

    def memory(self) -> Memory:
        """The name of a new memory: what blocks remember stays on their workers."""
        memory = Memory(MEMORY_BYTES * max(1, len(self.points.client.nthreads())))
        self._tokens.append(memory.token)
        return memory

    def map(
        self, make_function: BlockFunctionFactory, blocks: Sequence[slice], memory: Memory | None = None
    ) -> list[Any]:
        """The results of all blocks, in order."""
        by_chunk = self._gather(self._submit(make_function, blocks, memory))
        return [result for results in by_chunk for result in results]

    def sum(self, make_function: BlockFunctionFactory, blocks: Sequence[slice], memory: Memory) -> Any:
        """The results of all blocks, which are tuples, added up in order, on the workers: one sum travels."""
        total, by_chunk = None, self._submit(make_function, blocks, memory)
        for first in range(0, len(by_chunk), _CHUNKS_PER_SUM):
            some = by_chunk[first : first + _CHUNKS_PER_SUM]
            total = self.points.client.submit(_add_results, total, *some, pure=False)
        return self._gather([total])[0]

    def close(self) -> None:
        """Free the memory of the workers."""
        self._chunks.clear()
        if self._tokens and self.points.client.status == "running":
            with suppress(Exception):  # they will forget anyway, when others come
                self.points.client.run(_forget, self._tokens, on_error="ignore")

    def _place(self, blocks: list[slice]) -> None:
        """Read, check and keep the points on the workers, several blocks in a chunk: a task costs milliseconds."""
        import dask

        threads = max(1, sum(self.points.client.nthreads().values()))
        size = max(n_bytes(self.points.array, block) for block in blocks)
        group = max(1, min(-(-len(blocks) // (_CHUNKS_PER_THREAD * threads)), _CHUNK_BYTES // size))
        chunks = [
            slice(blocks[k].start, blocks[min(k + group, len(blocks)) - 1].stop) for k in range(0, len(blocks), group)
        ]
        checked = dask.delayed(_checked, pure=False)
        tasks = [
            checked(part, self.y[c], None if self.weight is None else self.weight[c], self.points.check, c.start)
            for part, c in zip(_delayed_blocks(self.points.array, chunks), chunks, strict=True)
        ]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # labels are in it
            futures = self.points.client.compute(tasks)
        self._chunks = [_Chunk(span, future) for span, future in zip(chunks, futures, strict=True)]

    def _submit(self, make_function: BlockFunctionFactory, blocks: Sequence[slice], memory: Memory | None) -> list[Any]:
        """Futures, each of the results of all blocks of a chunk; the blocks are in order."""
        submit, token = self.points.client.submit, None if memory is None else memory.token
        budget = 0.0 if memory is None else memory.budget
        by_chunk = [[b for b in blocks if c.span.start <= b.start < c.span.stop] for c in self._chunks]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # prototypes are in it, once
            sent = submit(_unchanged, make_function, pure=False)
            return [
                submit(_map_chunk, sent, chunk.future, chunk.span.start, its_blocks, token, budget, pure=False)
                for chunk, its_blocks in zip(self._chunks, by_chunk, strict=True)
                if its_blocks
            ]

    def _gather(self, futures: list[Any]) -> list[Any]:
        """The results of futures; raises the error of a worker, and ConnectionError when the cluster is lost."""
        from distributed import CancelledError, wait
        from distributed.comm import CommClosedError

        client, seconds_alone = self.points.client, 0.0
        try:
            while any(future.status == "pending" for future in futures):
                with suppress(TimeoutError):
                    wait(futures, timeout=_POLL_SECONDS)
                    break
                if client.status != "running":
                    raise ConnectionError(_CLUSTER_LOST.format("has gone"))
                seconds_alone = 0.0 if client.nthreads() else seconds_alone + _POLL_SECONDS
                if seconds_alone > _MAX_SECONDS_ALONE:
                    raise ConnectionError(_CLUSTER_LOST.format("has no workers any more"))
            return list(client.gather(futures))
        except (CancelledError, CommClosedError) as error:
            raise ConnectionError(_CLUSTER_LOST.format("has gone")) from error


def _current_client() -> Any:
    """The client that the user has made last, if there is one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:  # it was never imported, so that there is no client
        return None
    try:
        return distributed.Client.current()
    except ValueError:
        return None


def _checked(X: Array, y: Labels, weight: Array | None, check: Callable[[Array], Array], start: int) -> _Points:
    return check_block(check, X if isinstance(X, Clouds) else np.asarray(X), start), y, weight


def _unchanged(make_function: BlockFunctionFactory) -> BlockFunctionFactory:
    """As a task, it brings what many tasks need to the workers once."""
    return make_function


def _pick(points: _Points, rows: Indices) -> Array:
    return pick(points[0], rows)


def _add_results(total: Any, *chunks: list[Any]) -> Any:
    for result in (result for results in chunks for result in results):
        total = result if total is None else add_tuples(total, result)
    return total


def _map_chunk(
    make_function: BlockFunctionFactory,
    points: _Points,
    start: int,
    blocks: list[slice],
    token: str | None,
    budget: float,
) -> list[Any]:
    """The results of the blocks of a chunk whose first row is `start`; the worker keeps their memories."""
    memories = Memory(0)
    if token is not None:
        while len(_memories) >= _MAX_MEMORIES and token not in _memories:
            _memories.pop(next(iter(_memories)))
        memories = _memories.setdefault(token, Memory(budget))
    function = make_function()
    points = (_aligned(points[0]), *points[1:])

    def on_block(block: slice) -> Any:
        within = slice(block.start - start, block.stop - start)
        X, y, weight = (None if part is None else part[within] for part in points)
        assert X is not None
        assert y is not None
        result, block_memory = function(X, y, weight, memories.pop(block.start, None))
        memories.keep(block, block_memory, X)
        return result

    return map_blocks(on_block, blocks, 1)


def _aligned(X: Any) -> Any:
    """Points at addresses that suit their type: the frames of a message may begin at any."""
    if not isinstance(X, Clouds):
        return np.require(X, requirements="A")
    parts = (X.table, X.index, X.offsets, X.weights)
    return Clouds._made_of(*(np.require(part, requirements="A") for part in parts))


def _forget(tokens: list[str]) -> None:
    for token in tokens:
        _memories.pop(token, None)
