"""Histograms by the square roots of their bins."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import random_histograms
from scipy.optimize import minimize
from sklearn.base import clone

from knnpress.exceptions import InvalidPointError
from knnpress.geometries import Geometry, Hellinger, as_geometry


def test_distances_are_two_minus_twice_the_affinity(rng):
    X, Z = random_histograms(rng, 7, 5, zeros=0.3), random_histograms(rng, 4, 5, zeros=0.3)
    affinity = np.sqrt(X[:, None] * Z).sum(axis=2)
    D = Hellinger().pairwise(X, Z)
    assert_allclose(D, 2 - 2 * affinity, rtol=0, atol=1e-14)
    assert_allclose(Hellinger().pairwise(100 * X, 3 * Z), D, rtol=0, atol=1e-14)


def test_histograms_and_roots_go_there_and_back(rng):
    X = random_histograms(rng, 6, 9, zeros=0.3)
    V = Hellinger().embed(X)
    assert_allclose((V**2).sum(axis=1), 1.0, rtol=1e-14)
    assert_allclose(Hellinger().unembed(V), X, rtol=1e-14, atol=1e-16)
    assert_allclose(Hellinger().unembed(-7 * V), X, rtol=1e-14, atol=1e-16)
    assert_allclose(Hellinger().unembed(1e300 * V), X, rtol=1e-14, atol=1e-16)
    assert_allclose(Hellinger().transform(7 * X), V, rtol=1e-14, atol=1e-16)


def test_the_centroid_has_the_least_weighted_sum_of_distances(rng):
    X, weights = random_histograms(rng, 6, 4), rng.uniform(size=6)
    geometry = Hellinger()

    def total(theta):
        return weights @ geometry.pairwise(X, np.exp(theta - theta.max())[None])[:, 0]

    C = geometry.centroid(X, weights)
    found = minimize(total, np.zeros(4), options={"gtol": 1e-8})
    assert total(np.log(C)) <= found.fun + 1e-12
    assert_allclose(np.exp(found.x) / np.exp(found.x).sum(), C, rtol=0, atol=1e-5)
    W = np.stack([weights / weights.sum(), np.full(6, 1 / 6)], axis=1)
    assert_allclose(geometry.centroid_step(X, W, X[:2]), [C, geometry.centroid(X)], rtol=1e-14)


def test_it_is_a_geometry_known_by_name_with_nothing_to_fit(rng):
    geometry = as_geometry("hellinger")
    assert isinstance(geometry, Hellinger)
    assert isinstance(geometry, Geometry)
    assert geometry.fitted_to(random_histograms(rng, 3, 4)) is geometry
    assert repr(clone(geometry)) == "Hellinger()"


@pytest.mark.usefixtures("many_blocks")
def test_threads_change_nothing(rng):
    X = random_histograms(rng, 100, 5)
    assert_array_equal(Hellinger().pairwise(X, n_jobs=1), Hellinger().pairwise(X, n_jobs=2))


def test_what_is_not_a_histogram_is_refused_with_the_cure():
    with pytest.raises(InvalidPointError, match=r"X\[1\] has a negative bin"):
        Hellinger().transform([[1.0, 1.0], [1.0, -1.0]])
    with pytest.raises(InvalidPointError, match=r"X\[0\] is all zero"):
        Hellinger().pairwise([[0.0, 0.0]])
    with pytest.raises(InvalidPointError, match=r"V\[1\] is all zero, the only one of 2 vectors"):
        Hellinger().unembed([[1.0, 0.0], [0.0, 0.0]])
