"""Points in a store that is read block by block: a memory map, a zarr array, an HDF5 dataset, a dask array, clouds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from knnpress.clouds import StoredClouds, as_read
from knnpress.exceptions import InvalidPointError
from knnpress.execution.rows import LocalRows, Rows
from knnpress.execution.threads import BLOCK_BYTES, MEMORY_BYTES, row_blocks
from knnpress.typing import Array, Labels

_ROWS_PER_READ = 64  # consecutive ones, where a store does not say
_READS_PER_BATCH = 8  # at least, so that a batch is not from one corner of the store alone


@dataclass(frozen=True)
class StoredPoints:
    """Points in a store, of which row slices can be read.

    Attributes
    ----------
    array : object
        With ``shape`` and ``array[start:stop]``; or `StoredClouds`.
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

    def __getitem__(self, block: slice) -> Array:
        """The checked points of a block."""
        return check_block(self.check, read_block(self.array, block, "synchronous"), block.start)

    def rows(self, y: Labels, weight: Array | None, n_jobs: int | None) -> Rows:
        """The points with their labels and weights."""
        return LocalRows(self, y, weight, n_jobs, MEMORY_BYTES)

    def blocks(self, n_prototypes: int, batch_size: int | None) -> list[slice]:
        """The row blocks to read; for batches, the runs of rows that they are made of."""
        return blocks_of(self.array, n_prototypes, batch_size)

    def sample_size(self, most: int) -> int:
        """Rows that a sample may have."""
        return sample_size(self.array, most)

    def transformed(self, function: Callable[[Array], Array]) -> StoredPoints:
        """The same points with a function applied to each block, after the check."""
        return replace(self, check=compose(function, self.check))


def compose(function: Callable[[Array], Array], check: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """First the check, then the function, as something that can be pickled."""
    return partial(_check_and_apply, function, check)


def _check_and_apply(function: Callable[[Array], Array], check: Callable[[Array], Array], X: Array) -> Array:
    return function(check(X))


def blocks_of(array: Any, n_prototypes: int, batch_size: int | None) -> list[slice]:
    """The row blocks of points that are not in memory; for batches, the runs of rows that they are made of."""
    chunks = getattr(array, "chunks", None)
    if not isinstance(array, StoredClouds):
        return stored_blocks(tuple(int(size) for size in array.shape), n_prototypes, batch_size, chunks)
    n_points = -(-int(array.sizes.sum()) // len(array))  # of a cloud, on average; prototypes have about as many
    shape = (len(array), n_points * (array.shape[1] + 1))
    return _cut_where_large(array, stored_blocks(shape, n_prototypes * n_points, batch_size, chunks))


def _cut_where_large(clouds: StoredClouds, blocks: list[slice]) -> list[slice]:
    """The same rows in blocks whose points take no more than a block's bytes: clouds differ in size."""
    most = BLOCK_BYTES // (8 * (clouds.shape[1] + 1))
    cut = []
    for block in blocks:
        first = block.start
        while first < block.stop:
            fits = int(np.searchsorted(clouds.offsets, clouds.offsets[first] + most, "right")) - 1
            cut.append(slice(first, min(block.stop, max(first + 1, fits))))
            first = cut[-1].stop
    return cut


def reading_blocks(array: Any) -> list[slice]:
    """The row blocks in which points that are not in memory are read, where nothing is computed of them."""
    if isinstance(array, StoredClouds):
        return _cut_where_large(array, [slice(0, len(array))])
    return row_blocks(array.shape[0], 8 * int(np.prod(array.shape[1:])))


def read_block(array: Any, block: slice, scheduler: str | None = None) -> Any:
    """The points of a block, in memory; `scheduler`: of Dask, None: the current one."""
    return array.read(block, scheduler) if isinstance(array, StoredClouds) else as_read(array[block], scheduler)


def n_bytes(array: Any, block: slice) -> int:
    """Bytes that the points of a block take."""
    if isinstance(array, StoredClouds):
        at = array.span(block)
        return 8 * (at.stop - at.start) * (array.shape[1] + 1)
    return 8 * (block.stop - block.start) * int(np.prod(array.shape[1:]))


def sample_size(array: Any, most: int) -> int:
    """Rows of a sample: at most so many; of clouds, which may be large, only as many as fit in `MEMORY_BYTES`."""
    if not isinstance(array, StoredClouds):
        return most
    return min(most, max(1, MEMORY_BYTES * len(array) // array.nbytes))


def stored_blocks(shape: tuple[int, ...], n_prototypes: int, batch_size: int | None, chunks: Any) -> list[slice]:
    """Row blocks of which neither the points nor their distances take more than a block's bytes.

    For batches: runs of rows, several in each, that agree with the first of the store's `chunks`.
    """
    if batch_size is None:
        blocks = row_blocks(shape[0], 8 * n_prototypes)  # as of points in memory, if possible
        n_features = int(np.prod(shape[1:]))
        fits = 8 * blocks[0].stop * n_features <= BLOCK_BYTES
        return blocks if fits else row_blocks(shape[0], 8 * max(n_prototypes, n_features))
    most = max(1, batch_size // _READS_PER_BATCH)
    chunk = 1 if not chunks else int(np.max(chunks[0]))  # Dask gives the length of each
    run = chunk * max(1, min(_ROWS_PER_READ, most) // chunk)  # whole chunks
    run = -(-run // -(-run // most))  # or equal parts of one
    return [slice(start, min(start + run, shape[0])) for start in range(0, shape[0], run)]


def check_block(check: Callable[[Array], Array], X: Array, start: int) -> Array:
    """Checked points; an error names the row among all of them, not in the block that begins at `start`."""
    try:
        return check(X)
    except InvalidPointError as error:
        text = re.sub(
            r"^(the covariance of |point \d+ of )?X\[(\d+)\]",
            lambda found: f"{found[1] or ''}X[{int(found[2]) + start}]",
            str(error),
        )
        raise InvalidPointError(f"{text} (looked at: rows {start} to {start + len(X) - 1})") from None


def is_dask(X: Any) -> bool:
    """Whether X is a collection of Dask, or clouds whose points are."""
    return X.in_dask if isinstance(X, StoredClouds) else hasattr(X, "__dask_graph__")


def is_stored(X: Any) -> bool:
    """Whether X is read from elsewhere, row slice by row slice: a memory map, a zarr array, an HDF5 dataset."""
    if isinstance(X, np.ndarray):
        return isinstance(X, np.memmap)
    like = all(hasattr(X, name) for name in ("shape", "dtype", "chunks", "__getitem__"))
    return like and not is_dask(X)
