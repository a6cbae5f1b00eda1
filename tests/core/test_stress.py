"""Many calls at a time: from threads of the user's, after a fork, and in processes that are spawned."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from points import GEOMETRIES, GROUND_COST, histograms, labelled, sample, spd

from knnpress import _core
from knnpress.estimators import PrototypeClassifier
from knnpress.geometries import JBLD, Sinkhorn

CALLS, THREADS = 1000, 16
SANITIZED = "KNNPRESS_CORE" in os.environ
NAMES = ["jbld", "airm", "logeuclid", "sqeuclidean", "sinkhorn-divergence", "sinkhorn-transport"]


def work(call):
    """One of many different calls; what it returns depends on its number alone."""
    rng = np.random.default_rng(call)
    X, H = spd(rng, 30 + call % 9, 1 + call % 7), histograms(rng, 5 + call % 9)  # long enough for calls to meet
    W, V = rng.normal(size=(len(X), len(X))), rng.normal(size=(len(H), len(H)))
    x, z = _core.SpdLanes(X), _core.SpdSequence(X[::-1].copy())
    cost = _core.SinkhornCost(GROUND_COST, (0.5, 5e-3)[call % 2])
    potential = np.zeros((len(H), len(H), H.shape[1]))
    return [
        _core.jbld_pairwise(x, z),
        _core.jbld_pullback(x, z, W, 0.1),
        x.inverse(),
        _core.sinkhorn(cost, H, H[::-1].copy(), potential, np.zeros(V.shape), 1e-3, 50, False)[0],
        _core.sinkhorn_pullback(cost, H, potential, V, 0.0),
        _core.sinkhorn_self(cost, H, 1e-3, 50)[0],
    ]


def at_once(function, calls, threads=THREADS):
    """``[function(call) for call in range(calls)]``, by threads that begin together and change places often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(threads) as pool:
            meeting = threading.Barrier(threads)
            list(pool.map(lambda _: meeting.wait(), range(threads)))
            return list(pool.map(function, range(calls)))
    finally:
        sys.setswitchinterval(before)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_the_core_serves_a_thousand_calls_of_many_threads():
    alone = [work(call) for call in range(CALLS)]
    assert all(same(a, b) for a, b in zip(alone, at_once(work, CALLS), strict=True))


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python is not free-threaded")
def test_importing_the_core_does_not_bring_the_lock_back():
    # the core alone: other packages may bring it back
    load = f"importlib.util.spec_from_file_location('knnpress._core', {_core.__file__!r})"
    code = f"import importlib.util, sys; importlib.util.module_from_spec({load}); print(sys._is_gil_enabled())"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr


def test_the_core_serves_threads_that_share_their_arrays(rng):
    X, H = spd(rng, 150, 6), histograms(rng, 23)
    x, z = _core.SpdLanes(X), _core.SpdSequence(X)
    cost = _core.SinkhornCost(GROUND_COST, 0.5)
    calls = [
        lambda: _core.jbld_pairwise(x, z),
        lambda: _core.jbld_pullback(x, z, np.ones((150, 150)), 0.0),
        lambda: x.inverse(),
        lambda: x.logdet,
        lambda: _core.sinkhorn(cost, H, H, None, None, 1e-4, 100, False)[0],
    ]
    alone = [call() for call in calls]
    found = at_once(lambda k: calls[k % len(calls)](), 200)
    assert all(np.array_equal(result, alone[k % len(calls)]) for k, result in enumerate(found))


def test_the_geometries_serve_many_threads_each_with_threads_of_its_own():
    points = {name: sample(name, 40) for name in NAMES}
    alone = {name: GEOMETRIES[name].pairwise(X, n_jobs=1) for name, X in points.items()}

    def call(k):
        name = NAMES[k % len(NAMES)]
        return np.array_equal(GEOMETRIES[name].pairwise(points[name], n_jobs=1 + k % 3), alone[name])

    assert all(at_once(call, 120))


def test_one_classifier_serves_many_threads():
    X, y = labelled("jbld", 60)
    clf = PrototypeClassifier("jbld", n_neighbors=3, n_jobs=2).fit(X, y)
    alone = clf.predict(X), clf.predict_proba(X)
    assert all(same(alone, pair) for pair in at_once(lambda _: (clf.predict(X), clf.predict_proba(X)), 60))


def answers(_=0):
    """What a process finds: by one thread, by two, and by Sinkhorn."""
    X, H = sample("jbld", 40), sample("emd", 20)
    return [JBLD().pairwise(X, n_jobs=1), JBLD().pairwise(X, n_jobs=2), Sinkhorn(GROUND_COST).pairwise(H, n_jobs=2)]


def put_answers(queue):
    queue.put(answers())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_children_that_are_forked_while_threads_work_get_the_same_answers():
    alone, stop = answers(), threading.Event()

    def keep_busy():
        while not stop.is_set():
            answers()

    busy = [threading.Thread(target=keep_busy) for _ in range(3)]
    for thread in busy:
        thread.start()
    try:
        context = multiprocessing.get_context("fork")
        for _ in range(4):
            queue = context.SimpleQueue()
            child = context.Process(target=put_answers, args=(queue,))
            child.start()
            child.join(60)
            assert child.exitcode == 0, "the child hangs or has crashed"
            assert same(queue.get(), alone)
    finally:
        stop.set()
        for thread in busy:
            thread.join()
    assert same(answers(), alone)


@pytest.mark.slow
@pytest.mark.skipif(SANITIZED, reason="a spawned process loads the installed core")
def test_processes_that_are_spawned_get_the_same_answers():
    alone = answers()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for found in pool.map_async(answers, range(4)).get(120):
            assert same(found, alone)
