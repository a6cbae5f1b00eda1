"""The soft nearest-neighbour loss, against its definition, finite differences and its limits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from knnpress.compression.loss import neighbor_loss


def literal_loss(D, same, gamma, weight):
    total = 0.0
    for i in range(len(D)):
        odds = [np.exp(-(gamma**2) * d) for d in D[i]]
        total -= weight[i] * np.log(sum(o for o, s in zip(odds, same[i], strict=True) if s) / sum(odds))
    return total


def problem(rng, n=6, m=4):
    same = rng.random((n, m)) < 0.5
    same[np.arange(n), rng.integers(0, m, n)] = True
    return rng.random((n, m)), same, rng.random(n)


def test_the_loss_is_minus_the_log_of_the_chance_of_a_right_label(rng):
    D, same, weight = problem(rng)
    assert_allclose(neighbor_loss(D, same, 1.7, weight)[0], literal_loss(D, same, 1.7, weight), rtol=1e-13)
    assert_allclose(neighbor_loss(D, same, 1.7)[0], literal_loss(D, same, 1.7, np.ones(6)), rtol=1e-13)


def test_a_floor_is_added_to_the_chance(rng):
    D, same, _ = problem(rng)
    one = np.array([neighbor_loss(D[i : i + 1], same[i : i + 1], 1.7)[0] for i in range(6)])
    assert_allclose(neighbor_loss(D, same, 1.7, None, 0.2)[0], -np.log((np.exp(-one) + 0.2) / 1.2).sum(), rtol=1e-13)
    hopeless, gradient = neighbor_loss(np.array([[0.0, 1e6]]), np.array([[False, True]]), 1.0, None, 0.2)
    assert_allclose(hopeless, np.log(6.0))
    assert_allclose(gradient, 0.0)


def test_smoothing_mixes_in_the_cross_entropy_from_an_even_draw(rng):
    D, same, weight = problem(rng)
    odds = np.exp(-(1.7**2) * D)
    even = -(weight * np.log(odds / odds.sum(axis=1, keepdims=True)).mean(axis=1)).sum()
    plain, _ = neighbor_loss(D, same, 1.7, weight)
    assert_allclose(neighbor_loss(D, same, 1.7, weight, 0.0, 0.3)[0], 0.7 * plain + 0.3 * even, rtol=1e-12)


def test_attraction_adds_how_far_each_point_is_from_its_class(rng):
    D, same, weight = problem(rng)
    plain, _ = neighbor_loss(D, same, 1.7, weight, 0.03, 0.2)
    apart = -(weight * np.log(np.where(same, np.exp(-(1.7**2) * D), 0.0).sum(axis=1))).sum()
    assert_allclose(neighbor_loss(D, same, 1.7, weight, 0.03, 0.2, None, 0.3)[0], plain + 0.3 * apart, rtol=1e-12)


@pytest.mark.parametrize("floor", [0.0, 0.03])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("attraction", [0.0, 0.3])
def test_the_gradient_is_that_of_finite_differences(rng, floor, smoothing, attraction):
    D, same, weight = problem(rng)
    settings = 1.7, weight, floor, smoothing, None, attraction
    _, gradient = neighbor_loss(D, same, *settings)
    for at in np.ndindex(D.shape):
        step = np.zeros_like(D)
        step[at] = 1e-5
        ahead, behind = (neighbor_loss(D + s * step, same, *settings)[0] for s in (1, -1))
        assert_allclose(gradient[at], (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-9)


def test_reach_says_how_much_each_point_counts_in_the_smoothing(rng):
    D, same, weight = problem(rng)
    reach = np.array([0.0, 3.0, 0.0, 1.0, 0.5, 1.5])
    plain, smooth = (neighbor_loss(D, same, 1.7, weight, 0.1, s) for s in (0.0, 1.0 - 1e-15))
    loss, gradient = neighbor_loss(D, same, 1.7, weight, 0.1, 0.2, reach)
    assert_allclose(gradient, 0.8 * plain[1] + 0.2 * reach[:, None] * smooth[1], rtol=1e-12, atol=1e-14)
    each = [neighbor_loss(D[[i]], same[[i]], 1.7, weight[[i]], 0.1, 1.0 - 1e-15)[0] for i in range(6)]
    assert_allclose(loss, 0.8 * plain[0] + 0.2 * reach @ each, rtol=1e-12)
    far = np.where(reach[:, None] == 0, np.where(same, D, np.inf), D)  # which they may be where they do not count
    assert np.isfinite(neighbor_loss(far, same, 1.7, weight, 0.1, 0.2, reach)[0])


def test_a_constant_added_to_all_distances_of_a_point_changes_nothing(rng):
    D, same, weight = problem(rng)
    loss, gradient = neighbor_loss(D, same, 2.0, weight)
    shifted = neighbor_loss(D + rng.normal(size=(6, 1)), same, 2.0, weight)
    assert_allclose(shifted[0], loss, rtol=1e-12)
    assert_allclose(shifted[1], gradient, atol=1e-12)
    assert_allclose(gradient.sum(axis=1), 0.0, atol=1e-12)


@pytest.mark.parametrize("gamma", [1e-3, 1.0, 1e3])
def test_it_is_finite_where_probabilities_underflow(gamma):
    D = np.array([[0.0, 1e4], [1e4, 0.0]])
    same = np.array([[False, True], [False, True]])
    loss, gradient = neighbor_loss(D, same, gamma)
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()
    assert_allclose(loss, np.logaddexp(0.0, gamma**2 * 1e4) + np.logaddexp(0.0, -(gamma**2) * 1e4), rtol=1e-10)


def test_a_sharp_neighbourhood_counts_errors_by_their_margin(rng):
    D, same, _ = problem(rng, 50, 6)
    gamma = 1e3
    loss, _ = neighbor_loss(D, same, gamma)
    own = np.where(same, D, np.inf).min(axis=1)
    assert_allclose(loss / gamma**2, (own - D.min(axis=1)).sum(), rtol=1e-4)
