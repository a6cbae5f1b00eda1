"""Prototypes are held near their start, in units of the data."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from points import GROUND_COST, labelled
from sklearn.datasets import load_digits

from knnpress import SCC, SHC, SNC, SWC, Clouds
from knnpress.compression import ClassCentroids, StochasticCompression
from knnpress.geometries import JBLD, SquaredEuclidean
from knnpress.learning.descent import _median
from knnpress.learning.prior import Prior, spread

pytestmark = pytest.mark.filterwarnings("ignore:the loss was still falling")

FIXED = {"gamma": "scale", "smoothing": 0.02, "vote": "nearest"}


@pytest.mark.parametrize("strength", [3.0, np.array([[0.0], [1.0], [5.0]])], ids=["one", "each"])
def test_the_gradient_is_that_of_finite_differences(rng, strength):
    prior, u = Prior(strength, 40.0), rng.normal(size=(3, 4))
    value, gradient = prior(u)
    assert_allclose(value, 0.5 * (strength * u**2).sum() / 40.0)
    for at in np.ndindex(u.shape):
        step = np.zeros_like(u)
        step[at] = 1e-6
        assert_allclose(gradient[at], (prior(u + step)[0] - prior(u - step)[0]) / 2e-6, rtol=1e-6, atol=1e-10)


def test_the_spread_is_how_far_points_are_from_their_starts(rng):
    X, start, own = rng.normal(size=(200, 3)), rng.normal(size=(4, 3)), rng.integers(0, 4, 200)
    squares = ((X - start[own]) ** 2).sum(axis=1)
    assert_allclose(spread(X, None, start, own, SquaredEuclidean()), np.sqrt(squares.mean()))
    weight = rng.random(200)
    assert_allclose(spread(X, weight, start, own, SquaredEuclidean()), np.sqrt(np.average(squares, weights=weight)))
    assert spread(start, None, start, np.arange(4), SquaredEuclidean()) == 1.0


def test_the_spread_of_matrices_is_affine_invariant():
    X, _ = labelled("jbld", 40)
    A = np.random.default_rng(3).normal(size=(4, 4))
    own = np.arange(40) % 3
    one, two = (spread(P, None, P[:3], own, JBLD()) for P in (X, A @ X @ A.T))
    assert_allclose(one, two, rtol=1e-9)


def test_an_infinite_prior_returns_the_start():
    X, y = labelled("jbld", 60)
    learner = StochasticCompression(prior=np.inf, init=ClassCentroids(), **FIXED)
    found = learner.compress(X, y, geometry=JBLD(), n_prototypes=6, random_state=np.random.default_rng(0))
    still = learner.set_params(prior=1.0, max_iter=0).compress(
        X, y, geometry=JBLD(), n_prototypes=6, random_state=np.random.default_rng(0)
    )
    assert_array_equal(found.points, still.points)
    assert (found.trace["n_iter"], found.trace["loss_curve"], found.trace["reason"]) == (0, [], "flat")


def test_the_stronger_the_prior_the_nearer_prototypes_stay():
    X, y = labelled("jbld", 60)
    Z = {}
    for prior in (0.0, 1.0, 100.0, np.inf):
        learner = StochasticCompression(prior=prior, init=ClassCentroids(), **FIXED)
        Z[prior] = learner.compress(X, y, geometry=JBLD(), n_prototypes=3, random_state=np.random.default_rng(0)).points
    moved = [JBLD().pairwise(Z[p], Z[np.inf]).diagonal().sum() for p in (0.0, 1.0, 100.0)]
    assert moved[0] > 1.5 * moved[1] > 3.0 * moved[2] > 0.0


@pytest.mark.parametrize("exponent", [10, -332, 332])  # a thousand, 1e-100, 1e100, without other rounding
def test_the_unit_of_the_data_changes_nothing(exponent):
    scale = 2.0**exponent
    V, y = load_digits(return_X_y=True)
    V, y = V[:220], y[:220]
    model = SNC(20, max_iter=8, prior=1.0, smoothing=0.02, random_state=0)
    one, other = model.fit(V[:120], y[:120]), SNC(**model.get_params()).fit(scale * V[:120], y[:120])
    assert_array_equal(one.predict(V), other.predict(scale * V))
    assert_allclose(one.loss_curve_, other.loss_curve_, rtol=1e-9)
    assert one.selection_[0]["error"] == other.selection_[0]["error"]


def model_and_points(name, scale):
    """A learner with a setting of its own, and its points in another unit."""
    settings = {"n_prototypes": 6, "max_iter": 2, "prior": 1.0, **FIXED}
    X, y = labelled("sinkhorn-divergence" if name.startswith("shc") else "jbld" if name != "snc" else "sqeuclidean", 60)
    if name == "snc":
        return SNC(**settings), scale * X, y
    if name.startswith("swc"):
        clouds = Clouds(scale * X.reshape(-1, 4), 4 * np.arange(61))  # the rows of a matrix, as a cloud
        return SWC(n_points=2, cost=name.removeprefix("swc "), **settings), clouds, y
    if name == "shc sinkhorn":  # the unit of a histogram is that of its ground cost
        settings["compressor"] = StochasticCompression(init=ClassCentroids(SquaredEuclidean()))
        return SHC(scale * GROUND_COST, metric="sinkhorn", **settings), X, y
    if name == "shc hellinger":
        return SHC(metric="hellinger", **settings), scale * X, y
    return SCC(metric=name.removeprefix("scc "), **settings), scale * X, y


EVERY = [
    *("snc", "scc jbld", "scc tangent", "scc logeuclid", "shc sinkhorn", "shc hellinger"),
    *("swc sqeuclidean", "swc euclidean"),
]


@pytest.mark.parametrize("name", EVERY)
def test_nor_does_that_of_any_geometry_from_1e_minus_100_to_1e100(name):
    """Not only powers of two: what is left is rounding, which no prediction of this set hangs on."""
    model, X, y = model_and_points(name, 1.0)
    plain = model.fit(X, y)
    for scale in (1e-100, 1e100):
        model, points, _ = model_and_points(name, scale)
        other = model.fit(points, y)
        assert_array_equal(other.predict(points), plain.predict(X))
        assert other.n_iter_ == plain.n_iter_ > 0
        assert_allclose(other.loss_curve_, plain.loss_curve_, rtol=1e-4)


def test_a_weighted_median_counts_a_point_as_often_as_it_weighs(rng):
    values, copies = rng.normal(size=31), rng.integers(1, 5, 31)
    assert_allclose(_median(values, copies.astype(float)), np.median(np.repeat(values, copies)))
    assert_allclose(_median(values[:30], None), np.median(values[:30]))
