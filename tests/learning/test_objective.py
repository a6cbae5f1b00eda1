"""The whole objective, for every smooth geometry and its charts, against finite differences and its own parts."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import grid_cost, random_histograms, random_spd

from knnpress.execution.rows import LocalRows
from knnpress.geometries import JBLD, LogEuclidean, Sinkhorn, SquaredEuclidean
from knnpress.learning.loss import SoftNeighborLoss
from knnpress.learning.objective import Objective, Scale
from knnpress.learning.prior import Prior

COST = grid_cost(3)
GEOMETRIES = {
    "jbld": JBLD(),
    "logeuclid": LogEuclidean(),
    "sqeuclidean": SquaredEuclidean(),
    "dual": Sinkhorn(COST, reg=0.3, value="dual", tol=1e-12, max_iter=20000),
    "divergence": Sinkhorn(COST, reg=0.3, value="divergence", tol=1e-12, max_iter=20000),
}
LOSS = SoftNeighborLoss(1.3, 0.1, 0.05, 3)
every_geometry = pytest.mark.parametrize("name", GEOMETRIES)


def points(rng, name, n):
    if name in ("jbld", "logeuclid"):
        return random_spd(rng, n, 4)
    return random_histograms(rng, n, 9) if name in ("dual", "divergence") else rng.normal(size=(n, 5))


def objective(rng, name, n=70, paper=False, weight=None, n_jobs=None, prior=3.0):
    """An objective, and where to look at it: some way off the start."""
    X, Z = points(rng, name, n), points(rng, name, 5)
    y, labels = rng.integers(0, 3, n), np.array([0, 1, 2, 0, 1])
    geometry = GEOMETRIES[name]
    chart = geometry.paper_chart(Z) if paper else geometry.chart(Z)
    scale = Scale(chart, chart.to_theta(Z), 0.7)
    function = Objective(
        LocalRows(X, y, weight, n_jobs),
        labels=labels,
        geometry=geometry,
        scale=scale,
        loss=LOSS,
        prior=Prior(prior, float(n)),
    )
    return function, 0.1 * rng.normal(size=scale.origin.shape)


def slope_of_the_error(function, u, direction):
    """How fast the error of the first-order expansion falls with the step: 2 if the gradient is right."""
    here = function(u)
    steps = np.array([2e-3, 1e-3, 5e-4, 2.5e-4])
    errors = [abs(function(u + t * direction).loss - here.loss - t * (here.gradient * direction).sum()) for t in steps]
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


@pytest.mark.parametrize("paper", [False, True], ids=["normal", "paper"])
@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@every_geometry
def test_the_gradient_is_that_of_the_loss(rng, name, weighted, paper):
    weight = rng.random(70) if weighted else None
    function, u = objective(rng, name, weight=weight, paper=paper)
    assert 1.9 < slope_of_the_error(function, u, rng.normal(size=u.shape)) < 2.1


@every_geometry
def test_loss_and_error_are_those_of_the_pairwise_distances_and_the_prior(rng, name):
    function, u = objective(rng, name)
    D = function.geometry.pairwise(function.rows.X, function.scale.points(u))
    same = function.rows.y[:, None] == function.labels
    evaluation = function(u)
    assert_allclose(evaluation.loss, LOSS(D, same)[0] / 70 + 0.5 * 3.0 / 70 * (u**2).sum(), rtol=1e-9)
    assert_allclose(evaluation.error, (function.labels[D.argmin(axis=1)] != function.rows.y).mean())


@pytest.mark.usefixtures("many_blocks")
@every_geometry
def test_nothing_depends_on_the_number_of_threads(rng, name):
    seed = int(rng.integers(2**31))
    evaluations = []
    for n_jobs in (1, 2, 4):
        function, u = objective(np.random.default_rng(seed), name, n=200, n_jobs=n_jobs)
        evaluations.append(function(u))
    for other in evaluations[1:]:
        assert other.loss == evaluations[0].loss
        assert_array_equal(other.gradient, evaluations[0].gradient)


@every_geometry
def test_what_a_block_remembers_changes_no_result(rng, name):
    function, u = objective(rng, name)
    function(u + 0.1 * rng.normal(size=u.shape))
    again = function(u)
    function._memory.clear()
    fresh = function(u)
    assert_allclose(again.loss, fresh.loss, rtol=1e-9)
    assert_allclose(again.gradient, fresh.gradient, atol=1e-9)


def test_a_weight_of_two_is_the_point_twice(rng):
    X, y = points(rng, "jbld", 30), rng.integers(0, 2, 30)
    Z, labels = points(rng, "jbld", 2), np.array([0, 1])
    chart = JBLD().chart(Z)
    u = 0.2 * rng.normal(size=(2, 10))
    shared = {"labels": labels, "geometry": JBLD(), "scale": Scale(chart, np.zeros((2, 10)), 1.0), "loss": LOSS}
    twice = np.concatenate([np.arange(30), np.arange(10)])
    weight = np.where(np.arange(30) < 10, 2.0, 1.0)
    by_weight = Objective(LocalRows(X, y, weight), prior=Prior(2.0, 40.0), **shared)(u)
    by_copy = Objective(LocalRows(X[twice], y[twice]), prior=Prior(2.0, 40.0), **shared)(u)
    assert_allclose(by_weight.loss, by_copy.loss, rtol=1e-12)
    assert_allclose(by_weight.gradient, by_copy.gradient, atol=1e-12)


def test_batches_part_the_rows_and_average_to_the_whole(rng):
    function, u = objective(rng, "sqeuclidean", n=80)
    parts = function.batches(20, rng)
    assert [len(part.rows.y) for part in parts] == [20] * 4
    assert_array_equal(np.sort(np.concatenate([part.rows.X[:, 0] for part in parts])), np.sort(function.rows.X[:, 0]))
    whole, some = function(u), [part(u) for part in parts]
    assert_allclose(np.mean([one.loss for one in some]), whole.loss, rtol=1e-12)
    assert_allclose(np.mean([one.gradient for one in some], axis=0), whole.gradient, atol=1e-13)
