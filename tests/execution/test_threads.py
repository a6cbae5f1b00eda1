"""Blocks of rows, and the threads that work on them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib.parallel import ThreadingBackend
from threadpoolctl import ThreadpoolController, threadpool_limits

from knnpress.execution import threads
from knnpress.execution.threads import map_blocks, map_tasks, resolve_n_jobs, row_blocks
from knnpress.geometries import JBLD

BLOCKS = [slice(i, i + 1) for i in range(20)]
MATRICES = np.stack([(i + 1.0) * np.eye(3) for i in range(100)])

sizes = st.integers(0, 5000)
row_bytes = st.one_of(st.integers(0, 10**5), st.integers(1, 100).map(lambda rows: threads.BLOCK_BYTES // rows))


class Stop(Exception):
    pass


# --- blocks


@settings(deadline=None)
@given(n=sizes, width=row_bytes)
def test_blocks_cover_every_row_once_and_in_order(n, width):
    covered = [row for block in row_blocks(n, width) for row in range(n)[block]]
    assert covered == list(range(n))


@settings(deadline=None)
@given(n=sizes, width=row_bytes)
def test_no_block_exceeds_the_limit_unless_a_single_row_does(n, width):
    for block in row_blocks(n, width):
        rows = block.stop - block.start
        assert rows >= 1
        assert rows == 1 or rows * width <= threads.BLOCK_BYTES


def test_blocks_depend_on_sizes_alone(monkeypatch):
    before = row_blocks(12345, 678)
    monkeypatch.setattr(joblib, "cpu_count", lambda *args, **kwargs: 64)
    assert map_blocks(lambda _: row_blocks(12345, 678), BLOCKS[:2], 2) == [before, before]


@pytest.mark.parametrize("n", [1000, 10**5])
def test_there_are_blocks_enough_to_share_out(n):
    assert len(row_blocks(n, 8 * 64)) >= 16


# --- mapping


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 4, 50])
@pytest.mark.parametrize("n_blocks", [0, 1, 20])
def test_results_come_in_block_order(n_jobs, n_blocks):
    def late_for_early_blocks(block):
        time.sleep(0.001 * (block.start % 3 == 0))
        return block.start

    assert map_blocks(late_for_early_blocks, BLOCKS[:n_blocks], n_jobs) == list(range(n_blocks))


def test_blocks_run_at_the_same_time():
    meeting = threading.Barrier(2)
    map_blocks(lambda _: meeting.wait(timeout=10), BLOCKS[:2], 2)


def test_one_job_stays_on_the_calling_thread():
    assert set(map_blocks(lambda _: threading.get_ident(), BLOCKS, 1)) == {threading.get_ident()}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt, SystemExit])
def test_an_exception_in_a_block_is_raised_and_later_blocks_are_not_begun(error, n_jobs):
    begun = []

    def fail_at_third(block):
        begun.append(block.start)
        if block.start == 2:
            raise error("the third block")
        time.sleep(0.02)

    with pytest.raises(error, match="the third block"):
        map_blocks(fail_at_third, BLOCKS, n_jobs)
    assert len(begun) < 8


def test_helpers_stay_for_the_next_call_up_to_a_number(monkeypatch):
    monkeypatch.setattr(threads, "_helpers", threads._Helpers())
    monkeypatch.setattr(threads, "_MAX_IDLE", 2)
    before = threading.active_count()
    for _ in range(5):
        meeting = threading.Barrier(6)
        map_blocks(lambda _, meeting=meeting: meeting.wait(timeout=10), BLOCKS[:6], 6)
        for _ in range(100):  # those that are too many end on their own
            if threading.active_count() == before + 2:
                break
            time.sleep(0.01)
        assert threading.active_count() == before + 2
    threads._helpers.end()
    assert threading.active_count() == before


def test_helpers_that_wait_hold_nothing_of_the_caller():
    array = np.ones(3)
    alive = weakref.ref(array)
    meeting = threading.Barrier(2)
    map_blocks(lambda _, array=array: meeting.wait(timeout=10), BLOCKS[:2], 2)
    del array
    for _ in range(100):
        if alive() is None:
            break
        time.sleep(0.01)
    assert alive() is None


def test_ctrl_c_while_helpers_are_asked_leaves_none_at_work(monkeypatch):
    ask, asked, begun = threads._helpers.ask, [], []

    def interrupted(task):
        asked.append(task)
        if len(asked) == 2:
            raise KeyboardInterrupt
        ask(task)

    monkeypatch.setattr(threads._helpers, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        map_blocks(lambda block: begun.append(block), BLOCKS, 3)
    time.sleep(0.05)  # longer than helpers hold back
    assert begun == []


@pytest.mark.parametrize("when", ["join_task", "leave_task"])
def test_ctrl_c_where_the_callers_own_work_begins_or_ends_leaves_nothing_behind(when, monkeypatch):
    plain, caller, came = getattr(threads._core, when), threading.get_ident(), []

    def interrupted(*args):
        if threading.get_ident() == caller and not came:
            came.append(True)
            raise KeyboardInterrupt
        plain(*args)

    at_work = []

    def work(block):
        at_work.append(block)
        time.sleep(0.02)
        at_work.remove(block)

    monkeypatch.setattr(threads._core, when, interrupted)
    before = resolve_n_jobs(3)
    with pytest.raises(KeyboardInterrupt):
        map_blocks(work, BLOCKS, 3)
    assert came
    assert at_work == []
    assert resolve_n_jobs(3) == before == 3  # else this thread would be taken for a helper, and work alone ever after


def test_where_there_are_no_more_threads_those_there_are_do_the_work(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    helpers = threads._Helpers()
    monkeypatch.setattr(threads, "_helpers", helpers)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert map_blocks(lambda block: block.start, BLOCKS, 4) == list(range(20))
    helpers.end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_helpers_of_its_own():
    code = """
        import os, threading
        from knnpress.execution.threads import map_blocks
        def meet():
            meeting = threading.Barrier(2)
            map_blocks(lambda _: meeting.wait(timeout=10), [slice(0, 1), slice(1, 2)], 2)
        meet()
        child = os.fork()
        meet()
        if child == 0:
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_python(code).strip() == "0"


def test_an_exception_ends_the_work_while_an_earlier_block_still_runs():
    failed = threading.Event()
    begun = []

    def slow_first_then_failure(block):
        begun.append(block.start)
        if block.start == 0:
            failed.wait(10)
            time.sleep(0.1)
        elif block.start == 1:
            failed.set()
            raise Stop
        else:
            time.sleep(0.005)

    with pytest.raises(Stop):
        map_blocks(slow_first_then_failure, BLOCKS, 2)
    assert len(begun) < 10


def test_ctrl_c_in_the_calling_thread_cancels_the_blocks_not_begun():
    code = """
        import os, signal, threading, time
        from knnpress.execution.threads import map_blocks
        begun = []
        def work(block):
            begun.append(block)
            time.sleep(0.1)
        threading.Timer(0.25, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            map_blocks(work, [slice(i, i + 1) for i in range(100)], 2)
        except KeyboardInterrupt:
            print("interrupted", len(begun))
    """
    word, begun = run_python(code).split()
    assert word == "interrupted"
    assert int(begun) < 20


def test_nested_maps_finish_and_the_inner_one_starts_no_threads():
    def inner(block):
        return map_blocks(lambda b: (b.start, threading.get_ident()), BLOCKS, 4)

    for result in map_blocks(inner, BLOCKS[:4], 2):
        assert [start for start, _ in result] == list(range(len(BLOCKS)))
        assert len({thread for _, thread in result}) == 1


def blas_threads():
    return [lib["num_threads"] for lib in ThreadpoolController().info() if lib["user_api"] == "blas"]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_blas_has_one_thread_in_a_block_and_as_many_as_before_afterwards(n_jobs):
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        inside = map_blocks(lambda _: blas_threads(), BLOCKS[:3], n_jobs)
        assert {count for counts in inside for count in counts} == {1}
        assert blas_threads() == before


def test_overlapping_maps_leave_blas_as_many_threads_as_before():
    code = """
        import threading
        import numpy as np
        from threadpoolctl import ThreadpoolController
        from knnpress.execution.threads import map_blocks
        blas = lambda: [lib["num_threads"] for lib in ThreadpoolController().info() if lib["user_api"] == "blas"]
        first_inside, second_inside, first_done = threading.Event(), threading.Event(), threading.Event()
        def first(block):
            first_inside.set()
            second_inside.wait(10)
        def second(block):
            second_inside.set()
            first_done.wait(10)
        def run_first():
            map_blocks(first, [slice(0, 1), slice(1, 2)], 2)
            first_done.set()
        before = blas()
        early = threading.Thread(target=run_first)
        early.start()
        first_inside.wait(10)
        map_blocks(second, [slice(0, 1), slice(1, 2)], 2)
        early.join()
        print(before == blas(), before, blas())
    """
    assert run_python(code, OPENBLAS_NUM_THREADS="2").startswith("True")


# --- how many threads


def test_n_jobs_none_is_every_core_this_process_may_use():
    assert resolve_n_jobs() == resolve_n_jobs(None) == joblib.cpu_count()


@pytest.mark.parametrize(("n_jobs", "expected"), [(1, 1), (3, 3), (-1, 8), (-2, 7), (-8, 1), (-100, 1), (None, 8)])
def test_n_jobs_counts_as_in_joblib(monkeypatch, n_jobs, expected):
    monkeypatch.setattr(threads, "_count_cores", lambda *_: 8)
    assert resolve_n_jobs(n_jobs) == expected


def test_cores_are_counted_again_where_fewer_are_allowed(monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    assert resolve_n_jobs() == 1
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT")
    assert resolve_n_jobs() == joblib.cpu_count()


def test_n_jobs_zero_is_an_error_with_a_cure():
    with pytest.raises(ValueError, match=r"n_jobs is 0; give .* None"):
        resolve_n_jobs(0)


@pytest.mark.parametrize("n_jobs", [2.5, "2"])
def test_n_jobs_that_is_not_an_integer_is_refused(n_jobs):
    with pytest.raises((TypeError, ValueError), match="n_jobs"):
        resolve_n_jobs(n_jobs)


def test_inside_a_block_there_is_one_thread():
    assert map_blocks(lambda _: (resolve_n_jobs(None), resolve_n_jobs(4)), BLOCKS[:3], 2) == [(1, 1)] * 3
    assert resolve_n_jobs(4) == 4


@pytest.mark.parametrize("backend", ["threading", "loky", "multiprocessing"])
def test_inside_a_joblib_worker_there_is_one_thread(backend):
    assert joblib.Parallel(2, backend=backend)(joblib.delayed(resolve_n_jobs)() for _ in range(3)) == [1, 1, 1]


def test_choosing_a_joblib_backend_is_not_yet_being_inside_one():
    with joblib.parallel_config(backend="threading"):
        assert resolve_n_jobs() == joblib.cpu_count()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_has_one_thread_by_itself_and_more_if_asked(method):
    expected = JBLD().pairwise(MATRICES, n_jobs=2)  # the parent has used its threads before the fork
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(resolve_n_jobs) == 1
        assert pool.apply(resolve_n_jobs, (3,)) == 3
        result = pool.apply_async(JBLD().pairwise, (MATRICES,), {"n_jobs": 2}).get(timeout=30)
    np.testing.assert_array_equal(result, expected)


def test_a_fork_in_the_middle_of_a_map_can_itself_map():
    code = """
        import os, threading
        import numpy as np
        from knnpress.geometries import JBLD
        from knnpress.execution.threads import map_blocks
        X = np.stack([(i + 1.0) * np.eye(3) for i in range(100)])
        started, release = threading.Event(), threading.Event()
        def wait(block):
            started.set()
            release.wait(20)
        outer = threading.Thread(target=map_blocks, args=(wait, [slice(0, 1), slice(1, 2)], 2))
        outer.start()
        started.wait()
        child = os.fork()
        if child == 0:
            os._exit(0 if JBLD().pairwise(X, n_jobs=2).shape == (100, 100) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        release.set()
        outer.join()
    """
    assert run_python(code).strip() == "0"


def run_python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("streams", [True, False])
def test_tasks_go_to_the_current_backend_of_joblib(streams):
    """Also to one that answers only when all is done, as Ray's: a few at a time then, so that results still come."""

    class Backend(ThreadingBackend):
        supports_return_generator = streams

    begun = []

    def square(item):
        begun.append(item)
        return item * item

    joblib.register_parallel_backend("mine", Backend)
    with joblib.parallel_config(backend="mine"):
        results = map_tasks(square, range(20), 2)
        first = next(results)
        assert streams or len(begun) == 4
        assert sorted([first, *results]) == [k * k for k in range(20)]


@pytest.mark.parametrize("ends", ["well", "in an error", "in an interrupt"])
def test_nothing_native_is_left_behind_when_python_ends_at_once(ends):
    code = """
    import sys, numpy as np
    from knnpress import _core
    from knnpress.execution.threads import map_blocks
    X, blocks = np.stack([np.eye(3)] * 50), [slice(k, k + 1) for k in range(50)]

    def run():
        z = _core.SpdSequence(X)
        def one(rows):
            D = _core.jbld_pairwise(_core.SpdLanes(X), z)
            if rows.start > 2 and sys.argv[1] != "well":
                raise (ValueError if "error" in sys.argv[1] else KeyboardInterrupt)
            return D
        map_blocks(one, blocks, 8)

    try:
        run()
    except (ValueError, KeyboardInterrupt):
        sys.exit(2)
    """
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), ends], capture_output=True, text=True)
        assert done.stderr == ""
        assert done.returncode == (0 if ends == "well" else 2)
