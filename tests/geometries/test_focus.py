"""Distances that cannot matter are left out, and only those."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import grid_cost, random_histograms, random_spd

from knnpress.execution.rows import LocalRows
from knnpress.geometries import JBLD, LogEuclidean, Sinkhorn, SquaredEuclidean
from knnpress.geometries.base import Focus
from knnpress.geometries.jbld import _moved
from knnpress.learning import objective
from knnpress.learning.loss import SoftNeighborLoss
from knnpress.learning.objective import Objective, Scale
from knnpress.learning.prior import Prior

COST = grid_cost(4)
GEOMETRIES = {
    "jbld": (JBLD(), 0.02, 0.5),
    "dual": (Sinkhorn(COST, reg=0.3, value="dual", tol=1e-11, max_iter=20000), 0.02, 0.2),
    "divergence": (Sinkhorn(COST, reg=0.3, value="divergence", tol=1e-11, max_iter=20000), 0.02, 0.2),
}


def clusters(rng, name, n, m, n_classes=4):
    """Points in clusters, some of them as prototypes, and the number of each one's cluster: X, y, Z, labels."""
    y = rng.integers(0, n_classes, n + m)
    y[-n_classes:] = np.arange(n_classes)
    X = _points(rng, name, y, n_classes)
    return X[:n], y[:n], X[n:], y[n:]


def _points(rng, name, y, n_classes):
    n = len(y)
    if name == "jbld":
        scales = np.linalg.cholesky(random_spd(rng, n_classes, 5))[y]
        return scales @ random_spd(rng, n, 5, 4.0) @ scales.transpose(0, 2, 1)
    peaks = rng.permutation(16)[:n_classes]
    X = random_histograms(rng, n, 16)
    X[np.arange(n), peaks[y]] += 2.0
    return X / X.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_what_is_left_out_is_out_of_focus_and_the_rest_is_right(rng, name):
    geometry, step, gap = GEOMETRIES[name]
    X, y, Z, labels = clusters(rng, name, 61, 12)
    focus = Focus(y[:, None] == labels, np.where(np.arange(61) % 20 == 7, np.inf, gap))
    chart, memory, n_left_out = geometry.chart(Z), None, 0
    theta = chart.to_theta(Z)
    for k in range(8):
        Z = chart.to_point(theta)
        found = geometry.linearize_at(Z)(X, memory, focus)
        D = geometry.pairwise(X, Z)
        least = np.where(focus.among, D, np.inf).min(axis=1)
        left_out = np.isinf(found.D)
        assert_allclose(found.D[~left_out], D[~left_out], atol=1e-9)
        assert ((least + focus.gap)[:, None] - 1e-9 < D)[left_out].all()
        W = np.where(left_out, 0.0, rng.random(D.shape))
        assert_allclose(found.pullback(W), geometry.linearize(X, Z).pullback(W), atol=1e-8)
        n_left_out += left_out.sum()
        assert k > 0 or not left_out.any()  # nothing is known at first
        memory = found.memory
        theta = theta + step * rng.normal(size=theta.shape)
    assert n_left_out > 0.2 * 7 * D.size


@pytest.mark.parametrize("size", [1e-3, 0.3, 3.0])
def test_no_divergence_changes_more_than_its_prototype_moved(rng, size):
    d, m = 6, 40
    old = random_spd(rng, m, d, 1e3)
    turn = np.linalg.qr(rng.normal(size=(m, d, d)))[0]
    factor = np.linalg.cholesky(old) @ turn
    logs = size * rng.normal(size=(m, d)) * (rng.random((m, d)) < 0.6)
    new = factor * np.exp(logs)[:, None] @ factor.transpose(0, 2, 1)
    new = 0.5 * (new + new.transpose(0, 2, 1))
    moved = _moved(old, new)
    assert_allclose(moved, 0.5 * np.abs(logs).sum(axis=1), atol=1e-8)
    X = np.concatenate([random_spd(rng, 300, d, 1e6), old, new])
    change = np.abs(JBLD().pairwise(X, new) - JBLD().pairwise(X, old))
    assert (change <= moved + 1e-9).all()
    # matrices that are small where it grew and large where it shrank come near to it
    worst = factor * np.where(logs > 0, 1e-6, 1e6)[:, None] @ factor.transpose(0, 2, 1)
    attained = np.array(
        [
            JBLD().pairwise(x[None], z[None]) - JBLD().pairwise(x[None], o[None])
            for x, z, o in zip(worst, new, old, strict=True)
        ]
    )
    assert_allclose(np.abs(attained).ravel(), moved, rtol=1e-3, atol=1e-6)


def test_a_prototype_too_near_to_singular_may_have_moved_anywhere(rng):
    Z = random_spd(rng, 2, 3)
    assert np.isinf(_moved(Z, np.zeros((2, 3, 3)))).all()


def objective_of(X, y, Z, labels, geometry, gamma, smoothing):
    chart = geometry.chart(Z)
    return Objective(
        LocalRows(X, y, None, 1),
        labels=labels,
        geometry=geometry,
        scale=Scale(chart, chart.to_theta(Z), 1.0),
        loss=SoftNeighborLoss(gamma, smoothing=smoothing),
        prior=Prior(0.0, float(len(X))),
    )


@pytest.mark.parametrize("name", ["jbld", "divergence"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_objective_is_the_same_to_what_is_negligible(rng, name, smoothing, monkeypatch):
    monkeypatch.setattr(objective, "_SMOOTHING_POINTS", 40)
    geometry, step, gap = GEOMETRIES[name]
    X, y, Z, labels = clusters(rng, name, 200, 12)
    gamma = np.sqrt(np.log(12 / objective._NEGLIGIBLE) / gap)
    task = X, y, Z, labels, geometry, gamma, smoothing
    function = objective_of(*task)
    u, counted, count = np.zeros_like(function.scale.origin), SoftNeighborLoss.__call__, []
    monkeypatch.setattr(
        SoftNeighborLoss,
        "__call__",
        lambda self, D, *args: (count.append(np.isinf(D).mean()), counted(self, D, *args))[1],
    )
    for _ in range(4):
        again, fresh = function(u), objective_of(*task)(u)
        assert_allclose(again.loss, fresh.loss, rtol=1e-9, atol=1e-10)
        assert_allclose(again.gradient, fresh.gradient, atol=1e-9 + 1e-8 * np.abs(fresh.gradient).max())
        u = u + step * rng.normal(size=u.shape)
    assert np.mean(count) > 0.05


def test_of_many_points_some_speak_for_the_smoothing_of_all(rng, monkeypatch):
    X, y, Z, labels = clusters(rng, "jbld", 400, 8)
    whole = objective_of(X, y, Z, labels, JBLD(), 1.0, 0.5)
    u = np.zeros_like(whole.scale.origin)
    all_say = whole(u)
    monkeypatch.setattr(objective, "_SMOOTHING_POINTS", 200)
    function = objective_of(X, y, Z, labels, JBLD(), 1.0, 0.5)
    some = function(u)
    assert some.loss != all_say.loss
    assert_allclose(some.loss, all_say.loss, rtol=0.05)
    assert function(u).loss == pytest.approx(some.loss, rel=1e-12)


@pytest.mark.parametrize("geometry", [SquaredEuclidean(), LogEuclidean(), Sinkhorn(COST, value="transport")])
def test_other_geometries_may_ignore_the_focus(rng, geometry):
    X = random_spd(rng, 9, 4) if geometry.point_ndim == 2 else random_histograms(rng, 9, 16)
    focus = Focus(np.ones((9, 3), dtype=bool), np.zeros(9))
    found = geometry.linearize_at(X[:3])(X, None, focus)
    assert np.isfinite(geometry.linearize_at(X[:3])(X, found.memory, focus).D).all()
