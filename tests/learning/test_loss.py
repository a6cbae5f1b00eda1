"""The soft nearest-neighbour loss, against its definition, finite differences and its limits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from knnpress.learning.loss import SoftNeighborLoss

LOSS = SoftNeighborLoss(1.7)


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
    assert_allclose(LOSS(D, same, weight)[0], literal_loss(D, same, 1.7, weight), rtol=1e-13)
    assert_allclose(LOSS(D, same)[0], literal_loss(D, same, 1.7, np.ones(6)), rtol=1e-13)


@pytest.mark.parametrize(("noise", "n_classes", "floor"), [(0.5, 5, 0.2), (0.2, 2, 0.125)])
def test_label_noise_bounds_what_a_point_can_cost(rng, noise, n_classes, floor):
    D, same, _ = problem(rng)
    noisy = SoftNeighborLoss(1.7, label_noise=noise, n_classes=n_classes)
    one = np.array([LOSS(D[[i]], same[[i]])[0] for i in range(6)])
    assert_allclose(noisy(D, same)[0], -np.log((np.exp(-one) + floor) / (1 + floor)).sum(), rtol=1e-13)
    hopeless, gradient = noisy(np.array([[0.0, 1e6]]), np.array([[False, True]]))
    assert_allclose(hopeless, np.log((1 + floor) / floor))
    assert_allclose(gradient, 0.0)


def test_smoothing_mixes_in_the_cross_entropy_from_an_even_draw(rng):
    D, same, weight = problem(rng)
    odds = np.exp(-(1.7**2) * D)
    even = -(weight * np.log(odds / odds.sum(axis=1, keepdims=True)).mean(axis=1)).sum()
    plain, _ = LOSS(D, same, weight)
    assert_allclose(SoftNeighborLoss(1.7, smoothing=0.3)(D, same, weight)[0], 0.7 * plain + 0.3 * even, rtol=1e-12)


@pytest.mark.parametrize("label_noise", [0.0, 0.1])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("some", [False, True])
def test_the_gradient_is_that_of_finite_differences(rng, label_noise, smoothing, some):
    D, same, weight = problem(rng)
    loss = SoftNeighborLoss(1.7, label_noise, smoothing, n_classes=3)
    reach = np.array([0.0, 3.0, 0.0, 1.0, 0.5, 1.5]) if some else None
    _, gradient = loss(D, same, weight, reach)
    for at in np.ndindex(D.shape):
        step = np.zeros_like(D)
        step[at] = 1e-5
        ahead, behind = (loss(D + s * step, same, weight, reach)[0] for s in (1, -1))
        assert_allclose(gradient[at], (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-9)


def test_reach_says_how_much_each_point_counts_in_the_smoothing(rng):
    D, same, weight = problem(rng)
    reach = np.array([0.0, 3.0, 0.0, 1.0, 0.5, 1.5])
    plain, mixed, smooth = (SoftNeighborLoss(1.7, 0.1, s, 3) for s in (0.0, 0.2, 1.0 - 1e-15))
    loss, gradient = mixed(D, same, weight, reach)
    expected = 0.8 * plain(D, same, weight)[1] + 0.2 * reach[:, None] * smooth(D, same, weight)[1]
    assert_allclose(gradient, expected, rtol=1e-12, atol=1e-14)
    each = [smooth(D[[i]], same[[i]], weight[[i]])[0] for i in range(6)]
    assert_allclose(loss, 0.8 * plain(D, same, weight)[0] + 0.2 * reach @ each, rtol=1e-12)
    far = np.where(reach[:, None] == 0, np.where(same, D, np.inf), D)  # which they may be where they do not count
    assert np.isfinite(mixed(far, same, weight, reach)[0])


def test_a_constant_added_to_all_distances_of_a_point_changes_nothing(rng):
    D, same, weight = problem(rng)
    loss, gradient = LOSS(D, same, weight)
    shifted = LOSS(D + rng.normal(size=(6, 1)), same, weight)
    assert_allclose(shifted[0], loss, rtol=1e-12)
    assert_allclose(shifted[1], gradient, atol=1e-12)
    assert_allclose(gradient.sum(axis=1), 0.0, atol=1e-12)


@pytest.mark.parametrize("gamma", [1e-3, 1.0, 1e3])
def test_it_is_finite_where_probabilities_underflow(gamma):
    D = np.array([[0.0, 1e4], [1e4, 0.0]])
    same = np.array([[False, True], [False, True]])
    loss, gradient = SoftNeighborLoss(gamma)(D, same)
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()
    assert_allclose(loss, np.logaddexp(0.0, gamma**2 * 1e4) + np.logaddexp(0.0, -(gamma**2) * 1e4), rtol=1e-10)


def test_a_sharp_neighbourhood_counts_errors_by_their_margin(rng):
    D, same, _ = problem(rng, 50, 6)
    gamma = 1e3
    loss, _ = SoftNeighborLoss(gamma)(D, same)
    own = np.where(same, D, np.inf).min(axis=1)
    assert_allclose(loss / gamma**2, (own - D.min(axis=1)).sum(), rtol=1e-4)
