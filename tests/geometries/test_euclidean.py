"""Vectors under the squared Euclidean distance."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import INPUT_FORMS, taylor_slope
from scipy.spatial.distance import cdist

from knnpress.geometries import SquaredEuclidean


@pytest.fixture
def geometry():
    return SquaredEuclidean()


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("d", [1, 3, 50])
def test_distances_agree_with_scipy_even_far_from_the_origin(rng, geometry, d, offset):
    X, Z = offset + rng.normal(size=(9, d)), offset + rng.normal(size=(6, d))
    assert_allclose(geometry.pairwise(X, Z), cdist(X, Z, "sqeuclidean"), rtol=1e-12, atol=1e-12)


def test_distances_are_never_negative(rng, geometry):
    X = rng.normal(size=(30, 4))
    D = geometry.pairwise(X)
    assert (D >= 0).all()
    assert_allclose(np.diagonal(D), 0, atol=1e-13)


def test_the_centroid_is_the_weighted_mean(rng, geometry):
    X, w = rng.normal(size=(7, 3)), rng.random(7)
    assert_allclose(geometry.centroid(X), X.mean(axis=0), rtol=1e-13)
    assert_allclose(geometry.centroid(X, 5 * w), np.average(X, axis=0, weights=w), rtol=1e-13)


def test_the_gradient_is_that_of_the_distances(rng, geometry):
    X, Z, W = rng.normal(size=(7, 4)), rng.normal(size=(3, 4)), rng.normal(size=(7, 3))
    step = geometry.linearize(X, Z)
    assert_allclose(step.D, geometry.pairwise(X, Z), rtol=0, atol=1e-13)
    assert (
        taylor_slope(lambda Z: np.sum(W * geometry.linearize(X, Z).D), step.pullback(W), Z, rng.normal(size=Z.shape))
        > 1.9
    )


def test_the_gradient_vanishes_at_the_centroid(rng, geometry):
    X = rng.normal(size=(7, 4))
    assert_allclose(geometry.linearize(X, geometry.centroid(X)[None]).pullback(np.ones((7, 1))), 0, atol=1e-13)


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize(("n", "d", "m"), [(133, 3, 7), (1000, 300, 200)])
def test_results_are_the_same_for_any_number_of_threads(rng, geometry, n, d, m):
    X, Z = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    alone = geometry.pairwise(X, Z, n_jobs=1)
    for n_jobs in (2, 4, None):
        assert np.array_equal(geometry.pairwise(X, Z, n_jobs=n_jobs), alone)


@pytest.mark.parametrize("form", INPUT_FORMS)
def test_every_form_of_input_gives_the_float64_result(rng, geometry, form):
    (X, plain_x), (Z, plain_z) = (INPUT_FORMS[form](rng.normal(size=(n, 4))) for n in (5, 3))
    assert np.array_equal(geometry.pairwise(X, Z), geometry.pairwise(plain_x, plain_z))
    assert np.array_equal(geometry.centroid(X), geometry.centroid(plain_x))


def test_inputs_are_never_modified(rng, geometry):
    X, Z, W = rng.normal(size=(5, 4)), rng.normal(size=(3, 4)), np.ones((5, 3))
    before = X.copy(), Z.copy(), W.copy()
    geometry.pairwise(X, Z)
    geometry.centroid(X, W[:, 0])
    geometry.linearize(X, Z).pullback(W)
    for a, b in zip((X, Z, W), before, strict=True):
        assert np.array_equal(a, b)


def test_steps_of_a_descent_agree_with_distances_of_points_far_from_zero(rng):
    X, Z = 1e5 + rng.normal(size=(40, 6)), 1e5 + rng.normal(size=(5, 6))
    step = SquaredEuclidean().linearize_at(Z)
    first = step(X)
    expected = ((X[:, None] - Z) ** 2).sum(axis=2)
    for D in (first.D, step(X, first.memory).D):
        assert_allclose(D, expected, rtol=1e-8, atol=1e-9)
