"""The whole objective, for every smooth geometry and its chart, against finite differences and its own parts."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import grid_cost, random_histograms, random_spd

from knnpress.compression.loss import neighbor_loss
from knnpress.compression.objective import Objective
from knnpress.geometries import JBLD, LogEuclidean, Sinkhorn, SquaredEuclidean
from knnpress.geometries.charts import CholeskyChart

COST = grid_cost(3)
GEOMETRIES = {
    "jbld": JBLD(),
    "logeuclid": LogEuclidean(),
    "sqeuclidean": SquaredEuclidean(),
    "dual": Sinkhorn(COST, reg=0.3, value="dual", tol=1e-12, max_iter=20000),
    "divergence": Sinkhorn(COST, reg=0.3, value="divergence", tol=1e-12, max_iter=20000),
}


def points(rng, name, n):
    if name in ("jbld", "logeuclid"):
        return random_spd(rng, n, 4)
    return random_histograms(rng, n, 9) if name in ("dual", "divergence") else rng.normal(size=(n, 5))


def objective(rng, name, n=70, **options):
    X, Z = points(rng, name, n), points(rng, name, 5)
    y, labels = rng.integers(0, 3, n), np.array([0, 1, 2, 0, 1])
    geometry = GEOMETRIES[name]
    chart = options.pop("chart", None) or geometry.chart(X)
    function = Objective(X, y, labels=labels, geometry=geometry, chart=chart, gamma=1.3, **options)
    return function, chart.to_theta(Z)


def slope_of_the_error(function, theta, direction):
    """How fast the error of the first-order expansion falls with the step: 2 if the gradient is right."""
    here = function(theta)
    steps = np.array([2e-3, 1e-3, 5e-4, 2.5e-4])
    errors = [
        abs(function(theta + t * direction).loss - here.loss - t * (here.gradient * direction).sum()) for t in steps
    ]
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_gradient_is_that_of_the_loss(rng, name, weighted):
    weight = rng.random(70) if weighted else None
    function, theta = objective(rng, name, weight=weight)
    assert 1.9 < slope_of_the_error(function, theta, rng.normal(size=theta.shape)) < 2.1


def test_the_gradient_holds_in_the_papers_own_chart_too(rng):
    function, theta = objective(rng, "jbld", chart=CholeskyChart(np.eye(4)))
    assert 1.9 < slope_of_the_error(function, theta, rng.normal(size=theta.shape)) < 2.1


@pytest.mark.parametrize("name", GEOMETRIES)
def test_loss_and_error_are_those_of_the_pairwise_distances(rng, name):
    function, theta = objective(rng, name)
    D = function.geometry.pairwise(function.rows.X, function.chart.to_point(theta))
    same = function.rows.y[:, None] == function.labels
    evaluation = function(theta)
    assert_allclose(evaluation.loss, neighbor_loss(D, same, 1.3)[0] / 70, rtol=1e-9)
    assert_allclose(evaluation.error, (function.labels[D.argmin(axis=1)] != function.rows.y).mean())


@pytest.mark.parametrize("name", GEOMETRIES)
def test_nothing_depends_on_the_number_of_threads(rng, name):
    seed = int(rng.integers(2**31))
    evaluations = []
    for n_jobs in (1, 2, 4):
        function, theta = objective(np.random.default_rng(seed), name, n=200, n_jobs=n_jobs)
        evaluations.append(function(theta))
    for other in evaluations[1:]:
        assert other.loss == evaluations[0].loss
        assert_array_equal(other.gradient, evaluations[0].gradient)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_what_a_block_remembers_changes_no_result(rng, name):
    function, theta = objective(rng, name)
    function(theta + 0.1 * rng.normal(size=theta.shape))
    again = function(theta)
    function._memory.clear()
    fresh = function(theta)
    assert_allclose(again.loss, fresh.loss, rtol=1e-9)
    assert_allclose(again.gradient, fresh.gradient, atol=1e-9)


def test_a_weight_of_two_is_the_point_twice(rng):
    X, y = points(rng, "jbld", 30), rng.integers(0, 2, 30)
    Z, labels = points(rng, "jbld", 2), np.array([0, 1])
    chart = JBLD().chart(X)
    shared = {"labels": labels, "geometry": JBLD(), "chart": chart, "gamma": 1.0}
    twice = np.concatenate([np.arange(30), np.arange(10)])
    weight = np.where(np.arange(30) < 10, 2.0, 1.0)
    by_weight = Objective(X, y, weight=weight, **shared)(chart.to_theta(Z))
    by_copy = Objective(X[twice], y[twice], **shared)(chart.to_theta(Z))
    assert_allclose(by_weight.loss, by_copy.loss, rtol=1e-12)
    assert_allclose(by_weight.gradient, by_copy.gradient, atol=1e-12)
