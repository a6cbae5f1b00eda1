"""Row blocks of the data, and the threads that work on them. The only module that knows about threads.

Blocks depend on the data's size alone and results are combined in block order, so no result depends on the number of
threads.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from numbers import Integral
from typing import Any, TypeVar

import joblib
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

from knnpress import _core

__all__ = ["BLOCK_BYTES", "MEMORY_BYTES", "map_blocks", "map_tasks", "one_blas_thread", "resolve_n_jobs", "row_blocks"]

Item = TypeVar("Item")
Result = TypeVar("Result")

#: A block of distances never takes more than this.
BLOCK_BYTES = 16 * 2**20

#: What all blocks of points that are not in memory may keep between two evaluations, on one machine.
MEMORY_BYTES = 256 * 2**20

_TARGET_BLOCKS = 32  # enough to keep many threads even
_LEAST_ROWS, _LEAST_BYTES = 64, 32768  # below this the call itself costs as much as the work

_GRACE = 0.0005  # seconds that other threads wait before they help

_inside = threading.local()
_helpers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def resolve_n_jobs(n_jobs: int | None = None) -> int:
    """Return the number of threads to use.

    Parameters
    ----------
    n_jobs : int or None
        None: all cores this process may use, or 1 inside another parallel worker. Negative numbers count back from
        all cores, as in joblib (-1: all, -2: all but one).

    Returns
    -------
    int
        At least 1.
    """
    if getattr(_inside, "worker", False):
        return 1
    if n_jobs is None:
        nested = multiprocessing.parent_process() is not None or get_active_backend()[0].nesting_level
        return 1 if nested else _cores()
    if not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs is {n_jobs!r}; give the number of threads, or None for all cores")
    return max(1, n_jobs if n_jobs > 0 else _cores() + 1 + n_jobs)


def _cores() -> int:
    """Cores that this process may use; joblib reads several files to find out, which one query would wait for."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return _count_cores(allowed, os.environ.get("LOKY_MAX_CPU_COUNT"))


@cache
def _count_cores(allowed: int, limit: str | None) -> int:
    return int(joblib.cpu_count())


def row_blocks(n_rows: int, bytes_per_row: int = 8) -> list[slice]:
    """Cut ``range(n_rows)`` into slices whose results take at most `BLOCK_BYTES`.

    Parameters
    ----------
    n_rows : int
    bytes_per_row : int
        What one row's result takes, e.g. 8 m for its distances to m prototypes.

    Returns
    -------
    list of slice
        In order, covering every row; they depend on the two arguments alone.
    """
    most = max(1, BLOCK_BYTES // max(1, bytes_per_row))
    least = max(_LEAST_ROWS, _LEAST_BYTES // max(1, bytes_per_row))
    size = min(most, max(least, -(-n_rows // _TARGET_BLOCKS)))
    size = size // 16 * 16 or size  # whole vectors
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def map_blocks(function: Callable[[slice], Result], blocks: Sequence[slice], n_jobs: int | None = None) -> list[Result]:
    """Return ``[function(block) for block in blocks]``, computed by threads.

    BLAS is held to one thread meanwhile, so that the cores are shared out once and its sums do not depend on their
    number. An exception (or Ctrl-C) cancels the blocks not yet begun, makes native kernels give up those they are at,
    and is raised here.
    """
    workers = 1 if n_jobs is None and len(blocks) == 1 else min(resolve_n_jobs(n_jobs), len(blocks))
    with one_blas_thread:
        if workers <= 1:
            return [function(block) for block in blocks]
        return _share_out(function, blocks, workers)


def map_tasks(function: Callable[[Item], Result], items: Iterable[Item], n_jobs: int = 1) -> Iterator[Result]:
    """Yield ``function(item)`` for every item, as they come, by processes of joblib's current backend.

    One at a time, here, where `n_jobs` is 1; each may then use threads of its own.
    """
    if n_jobs == 1:
        yield from map(function, items)
        return
    call = joblib.delayed(function)
    if get_active_backend()[0].supports_return_generator:
        pool = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")
        yield from pool(call(item) for item in items)
        return
    waiting = iter(items)  # a backend that answers only when all is done (Ray's) is given a few at a time
    while some := list(islice(waiting, 2 * n_jobs)):
        yield from joblib.Parallel(n_jobs=n_jobs)(call(item) for item in some)


def _share_out(function: Callable[[slice], Result], blocks: Sequence[slice], workers: int) -> list[Result]:
    """Let this thread and `workers - 1` others take blocks in turn: a pool's futures would cost 50 us a block.

    The others hold back for a moment, so that what is quickly done is done without them.
    """
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    turns, changed = iter(range(len(blocks))), threading.Condition()
    done, helping = False, 0
    task = _core.Task()  # by which kernels of one thread learn that another has failed

    def fail(failure: BaseException) -> None:
        failures.append(failure)
        task.cancel()

    def work(helping: bool) -> None:
        _inside.worker = True
        _core.join_task(task, helping)
        try:
            while not failures:
                with changed:
                    turn = next(turns, None)
                if turn is None:
                    return
                results[turn] = function(blocks[turn])
        except BaseException as failure:
            fail(failure)
        finally:
            _core.leave_task()
            _inside.worker = False

    def help_out() -> None:
        nonlocal helping
        with changed:
            if changed.wait_for(lambda: done, _GRACE):
                return
            helping += 1
        work(helping=True)
        with changed:
            helping -= 1
            changed.notify_all()

    for _ in range(workers - 1):
        helper = threading.Thread(target=help_out, daemon=True)
        _helpers.add(helper)
        helper.start()
    work(helping=False)
    while True:  # until no thread works on the caller's arrays any more, whatever interrupts the waiting
        try:
            with changed:
                done = True
                changed.notify_all()
                changed.wait_for(lambda: not helping)
            break
        except BaseException as failure:  # Ctrl-C
            fail(failure)
    if failures:
        first = failures[0]
        failures.clear()  # or it would hold its own frame, and all that is in there, for as long as Python runs
        try:
            raise first
        finally:
            del first
    return [results[turn] for turn in range(len(blocks))]


@atexit.register
def _wait_for_helpers() -> None:
    """Let threads that had nothing to do end before Python does: they hold what they were to work on."""
    for helper in list(_helpers):
        helper.join(1.0)


class _OneBlasThread:
    """Holds BLAS to one thread from the first entry to the last exit, however many threads enter and leave."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entered = 0
        self.libraries: list[Any] | None = None
        self.n_modules = 0  # when they were looked for
        self.before: list[tuple[Any, int]] = []  # libraries, and how many threads they had

    def __enter__(self) -> None:
        with self.lock:
            if self.entered == 0:
                # a scan of everything loaded takes milliseconds: only after more was imported, another BLAS perhaps
                if self.libraries is None or len(sys.modules) != self.n_modules:
                    found = ThreadpoolController().select(user_api="blas")
                    self.libraries, self.n_modules = found.lib_controllers, len(sys.modules)
                # one by one: threadpoolctl's own limit takes an inventory first, which one query would wait for
                self.before = [(library, library.num_threads) for library in self.libraries]
                for library, count in self.before:
                    if count != 1:
                        library.set_num_threads(1)
            self.entered += 1

    def __exit__(self, *exception: object) -> None:
        with self.lock:
            self.entered -= 1
            if self.entered == 0:
                for library, count in self.before:
                    if count != 1:
                        library.set_num_threads(count)


#: Entered once, it costs nothing to enter again within
one_blas_thread = _OneBlasThread()
if hasattr(os, "register_at_fork"):  # a child has no other threads: a lock or a count taken by them is void there
    os.register_at_fork(after_in_child=one_blas_thread.__init__)  # type: ignore[misc]
