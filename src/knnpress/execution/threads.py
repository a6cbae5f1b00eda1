"""Row blocks of the data, and the threads that work on them. The only module that knows of threads and processes.

Blocks do not depend on the number of threads, and results are combined in the order of the blocks, so no result depends
on it either.
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
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import joblib
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

from knnpress import _core

Item = TypeVar("Item")
Result = TypeVar("Result")

#: A block of distances never takes more than this.
BLOCK_BYTES = 16 * 2**20

#: What all blocks of points that are not in memory may keep between two evaluations, on one machine.
MEMORY_BYTES = 256 * 2**20

_TARGET_BLOCKS = 32  # enough to keep many threads evenly busy
_MIN_ROWS, _MIN_BYTES = 64, 32768  # below this the call itself costs as much as the work

_GRACE_SECONDS = 0.0005  # how long helpers wait before they help
_MAX_IDLE = 64  # helpers kept waiting for the next call

_this_thread = threading.local()


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
    if getattr(_this_thread, "is_worker", False):
        return 1
    if n_jobs is None:
        most: int | None = getattr(_this_thread, "most", None)
        if most is not None:
            return most
        nested = multiprocessing.parent_process() is not None or get_active_backend()[0].nesting_level
        return 1 if nested else _cores()
    if not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs is {n_jobs!r}; give the number of threads, or None for all cores")
    return max(1, n_jobs if n_jobs > 0 else _cores() + 1 + n_jobs)


class at_most:  # lower case as it reads like a function; made from a generator it would slow a single query
    """While active, ``n_jobs=None`` resolves to this many threads: for calls that a model's `n_jobs` is not passed to.

    Parameters
    ----------
    n_jobs : int or None
        None: nothing changes.
    """

    def __init__(self, n_jobs: int | None) -> None:
        self.n_jobs = n_jobs

    def __enter__(self) -> None:
        self.before = getattr(_this_thread, "most", None)
        if self.n_jobs is not None:
            _this_thread.most = resolve_n_jobs(self.n_jobs)

    def __exit__(self, *exception: object) -> None:
        _this_thread.most = self.before


def _cores() -> int:
    """Cores that this process may use; joblib reads several files to count them, which would slow a single query."""
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
    least = max(_MIN_ROWS, _MIN_BYTES // max(1, bytes_per_row))
    size = min(most, max(least, -(-n_rows // _TARGET_BLOCKS)))
    size = size // 16 * 16 or size  # whole vectors
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def map_blocks(function: Callable[[slice], Result], blocks: Sequence[slice], n_jobs: int | None = None) -> list[Result]:
    """Return ``[function(block) for block in blocks]``, computed by threads.

    BLAS is held to one thread meanwhile: threads of its own would compete with ours, and its sums would depend on their
    number. An exception (or Ctrl-C) cancels the blocks not yet begun, ends the kernels that other threads are in, and
    is raised here.
    """
    workers = 1 if n_jobs is None and len(blocks) == 1 else min(resolve_n_jobs(n_jobs), len(blocks))
    with one_blas_thread:
        if workers <= 1:
            with at_most(n_jobs):
                return [function(block) for block in blocks]
        return _SharedWork(function, blocks).run(workers)


def map_tasks(function: Callable[[Item], Result], items: Iterable[Item], n_jobs: int = 1) -> Iterator[Result]:
    """Yield ``function(item)`` for every item, in the order they are done, by processes of joblib's current backend.

    With `n_jobs` 1, one after another in this process; each may then use threads.
    """
    if n_jobs == 1:
        yield from map(function, items)
        return
    call = joblib.delayed(function)
    if get_active_backend()[0].supports_return_generator:
        pool = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")
        yield from pool(call(item) for item in items)
        return
    remaining = iter(items)  # a backend that returns nothing before all is done (Ray's) is given a few at a time
    while some := list(islice(remaining, 2 * n_jobs)):
        yield from joblib.Parallel(n_jobs=n_jobs)(call(item) for item in some)


class _SharedWork(Generic[Result]):
    """Blocks that the caller's thread and helpers take in turn.

    Helpers hold back for a moment, so that what is quickly done is done without them. The caller waits for every helper
    that has begun, whatever interrupts the waiting: none may be at the caller's arrays after that.
    """

    def __init__(self, function: Callable[[slice], Result], blocks: Sequence[slice]) -> None:
        self.function, self.blocks = function, blocks
        self.results: dict[int, Result] = {}
        self.failures: list[BaseException] = []
        self.next_block = iter(range(len(blocks)))
        self.changed = threading.Condition()  # guards what follows, and `next_block`
        self.caller_is_done, self.n_helping = False, 0
        self.task = _core.Task()  # through it, a failure in one thread ends the kernels that others are in

    def run(self, workers: int) -> list[Result]:
        """The results of all blocks, in order, by this thread and `workers - 1` helpers; raises the first failure."""
        try:
            for _ in range(workers - 1):
                _helpers.ask(self._help)
        except BaseException as failure:  # Ctrl-C: some may have been asked
            self._fail(failure)
        try:
            self._take_blocks(as_helper=False)
        except BaseException as failure:  # Ctrl-C, where that begins or ends
            self._fail(failure)
        self._wait_for_helpers()
        if self.failures:
            first = self.failures[0]
            self.failures.clear()  # else the exception would keep its own frame alive, and all arrays in there
            try:
                raise first
            finally:
                del first
        return [self.results[k] for k in range(len(self.blocks))]

    def _take_blocks(self, as_helper: bool) -> None:
        try:
            _this_thread.is_worker = True
            _core.join_task(self.task, as_helper)
            while not self.failures:
                with self.changed:
                    k = next(self.next_block, None)
                if k is None:
                    return
                self.results[k] = self.function(self.blocks[k])
        except BaseException as failure:
            self._fail(failure)
        finally:
            _leave_task()

    def _help(self) -> None:
        with self.changed:
            if self.changed.wait_for(lambda: self.caller_is_done, _GRACE_SECONDS):
                return
            self.n_helping += 1
        self._take_blocks(as_helper=True)
        with self.changed:
            self.n_helping -= 1
            self.changed.notify_all()

    def _wait_for_helpers(self) -> None:
        while True:
            try:
                with self.changed:
                    self.caller_is_done = True
                    self.changed.notify_all()
                    self.changed.wait_for(lambda: self.n_helping == 0)
                _leave_task()  # once more, in case Ctrl-C came in the middle of it
                return
            except BaseException as failure:  # Ctrl-C
                self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        self.failures.append(failure)
        self.task.cancel()


def _leave_task() -> None:
    _core.leave_task()
    _this_thread.is_worker = False


class _Helpers:
    """Threads that wait to be asked: to make them for each call would take longer than quick work itself."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.n_idle = 0
        self.threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def ask(self, task: Callable[[], None]) -> None:
        """Have an idle thread, or a new one, do a task."""
        with self.lock:
            idle = self.n_idle > 0
            self.n_idle -= idle
        if not idle:
            thread = threading.Thread(target=self._serve, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more to give: those there are do the work
                return
            self.threads.add(thread)
        self.tasks.put(task)

    def _serve(self) -> None:
        while (task := self.tasks.get()) is not None:
            task()
            del task  # else it would hold the caller's arrays while it waits
            with self.lock:
                if self.n_idle >= _MAX_IDLE:
                    return
                self.n_idle += 1

    def end(self) -> None:
        """Let all threads end: they may still hold what they were to work on."""
        threads = list(self.threads)
        for _ in threads:
            self.tasks.put(None)
        for thread in threads:
            thread.join(1.0)


def _end() -> None:
    _helpers.end()
    if any(thread.daemon for thread in threading.enumerate()):  # of the user's, perhaps within a kernel
        _core.expect_leaks()


_helpers = _Helpers()
atexit.register(_end)
if hasattr(os, "register_at_fork"):  # a child has none of these threads
    os.register_at_fork(after_in_child=_helpers.__init__)  # type: ignore[misc]


class _OneBlasThread:
    """Holds BLAS to one thread from the first entry to the last exit, however many threads enter and leave."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entered = 0
        self.libraries: list[Any] | None = None
        self.n_modules = 0  # imported when the libraries were looked for
        self.before: list[tuple[Any, int]] = []  # each library with the number of its threads

    def __enter__(self) -> None:
        with self.lock:
            if self.entered == 0:
                # the search takes milliseconds: again only after more was imported, perhaps another BLAS
                if self.libraries is None or len(sys.modules) != self.n_modules:
                    found = ThreadpoolController().select(user_api="blas")
                    self.libraries, self.n_modules = found.lib_controllers, len(sys.modules)
                # one by one: threadpoolctl's own limit makes an inventory first, which would slow a single query
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


#: A context; once entered, it costs nothing to enter it again within
one_blas_thread = _OneBlasThread()
if hasattr(os, "register_at_fork"):  # a child has none of the other threads that hold the lock or are counted
    os.register_at_fork(after_in_child=one_blas_thread.__init__)  # type: ignore[misc]
