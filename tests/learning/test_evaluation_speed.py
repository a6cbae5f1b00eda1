"""What keeps evaluations quick on small sets: fewer blocks, no threads for a moment's work, BLAS held once."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from points import spd
from threadpoolctl import threadpool_info, threadpool_limits

from knnpress.execution import rows as rows_module
from knnpress.execution.rows import LocalRows, Memory
from knnpress.execution.threads import row_blocks
from knnpress.geometries import JBLD, SquaredEuclidean
from knnpress.learning.loss import SoftNeighborLoss
from knnpress.learning.objective import Evaluation, Objective, Scale, _joined
from knnpress.learning.optim import minimize
from knnpress.learning.prior import Prior


def objective(geometry, X, n_jobs=1):
    y, labels = np.arange(len(X)) % 3, np.arange(6) % 3
    chart = geometry.chart(X[:6])
    scale = Scale(chart, chart.to_theta(X[:6]), 1.0)
    loss = SoftNeighborLoss(1.0, 0.0, 0.0, 3)
    rows = LocalRows(X, y, None, n_jobs)
    made = Objective(rows, labels=labels, geometry=geometry, scale=scale, loss=loss, prior=Prior(1.0, 6.0))
    return made, np.zeros_like(scale.origin)


def n_blocks(function, u):
    """How many row blocks an evaluation calls its geometry for."""
    function(u)
    return len(function._memory)


def test_light_rows_are_evaluated_in_fewer_blocks_with_the_same_result_but_for_rounding(rng, monkeypatch):
    X = rng.normal(size=(2000, 20))
    function, u = objective(SquaredEuclidean(), X)
    together = function(u)
    assert n_blocks(function, u) == 1
    monkeypatch.setattr(SquaredEuclidean, "least_work", 0)
    function, u = objective(SquaredEuclidean(), X)
    apart = function(u)
    assert n_blocks(function, u) == len(row_blocks(2000, 8 * 6)) > 1
    assert together.loss == pytest.approx(apart.loss, rel=1e-13)
    np.testing.assert_allclose(together.gradient, apart.gradient, rtol=1e-10, atol=1e-14)
    assert together.error == pytest.approx(apart.error, abs=1e-12)


def test_blocks_of_many_light_rows_are_still_shared_out(rng):
    function, u = objective(SquaredEuclidean(), rng.normal(size=(20000, 100)))
    assert n_blocks(function, u) >= 4


def test_blocks_of_matrices_stay_as_they_are(rng):
    function, u = objective(JBLD(), spd(rng, 1400))
    assert n_blocks(function, u) == len(row_blocks(1400, 8 * 6))


@given(sizes=st.lists(st.integers(1, 30), max_size=20), least=st.integers(0, 100))
def test_joined_blocks_cover_the_same_rows_and_all_but_the_last_are_large_enough(sizes, least):
    ends = np.cumsum([0, *sizes]).tolist()
    joined = _joined([slice(a, b) for a, b in pairwise(ends)], least)
    assert [row for rows in joined for row in range(rows.start, rows.stop)] == list(range(ends[-1]))
    assert all(rows.stop - rows.start >= least for rows in joined[:-1])


def test_blocks_that_are_not_neighbours_are_not_joined():
    assert _joined([slice(0, 2), slice(4, 6)], 100) == [slice(0, 2), slice(4, 6)]


@pytest.mark.parametrize(("quick", "alone"), [(10.0, True), (1e-9, False)])
def test_threads_help_only_where_the_last_evaluation_took_its_time(monkeypatch, quick, alone):
    monkeypatch.setattr(rows_module, "_QUICK_SECONDS", quick)
    data, blocks = LocalRows(np.zeros((8, 1)), np.zeros(8), None, 2), [slice(i, i + 1) for i in range(8)]
    memory, seen = Memory(), set()

    def work(X, y, weight, kept):
        seen.add(threading.get_ident())
        time.sleep(0.004)
        return (1.0,), None

    for _ in range(3):
        seen.clear()
        assert data.sum(lambda: work, blocks, memory) == (8.0,)
    assert (seen == {threading.get_ident()}) == alone


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
def test_blas_has_one_thread_throughout_a_descent_and_as_many_as_before_afterwards(method):
    counts = []

    def blas_threads():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    def evaluate(u):
        counts.append(blas_threads())
        return Evaluation(float((u**2).sum()), 2.0 * u, 0.0)

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        minimize(evaluate, np.ones((2, 3)), method=method, max_iter=3)
        assert blas_threads() == before
    assert all(set(count) == {1} for count in counts)
