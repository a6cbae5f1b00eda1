"""Bounds of transport between clouds, the search that rests on them, and the exact distance."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.sparse import csr_array

import knnpress as kp
from knnpress import _core
from knnpress.geometries import EMD, CloudEMD, CloudSinkhorn
from knnpress.geometries.cloud_costs import costs
from knnpress.geometries.cloud_points import cut_by_distinct
from knnpress.geometries.cloud_search import mean_bounds, means_of, relaxed_transport
from knnpress.geometries.cloud_solver import Side
from knnpress.neighbors import nearest

COSTS = ["sqeuclidean", "euclidean", "cosine"]


def clouds(rng, n, d=3, spread=2.0):
    """Clouds of 2 to 9 points round centres of their own."""
    sizes = rng.integers(2, 10, n)
    return kp.Clouds.from_list(
        [rng.normal(0, spread, d) + rng.normal(size=(k, d)) for k in sizes], [rng.random(k) + 0.05 for k in sizes]
    )


def documents(rng, n, v=60, d=4):
    """Clouds that share points."""
    topics = rng.dirichlet(np.full(v, 0.1), 4)
    counts = np.stack([rng.multinomial(12, topics[i % 4]) for i in range(n)])
    return kp.Clouds.from_csr(csr_array(counts), rng.normal(size=(v, d)))


def transport(cost, x, z):
    """Exact transport by linear programming."""
    C = costs(cost, x.points, z.points)
    n, k = C.shape
    rows, columns = np.kron(np.eye(n), np.ones(k)), np.kron(np.ones(n), np.eye(k))
    return linprog(C.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([x.weights, z.weights])).fun


def hard_relaxation(cost, x, z):
    C = costs(cost, x.points, z.points)
    return max(x.weights @ C.min(axis=1), z.weights @ C.min(axis=0))


@pytest.mark.parametrize("reg", [1.0, 4.0])
@pytest.mark.parametrize("cost", COSTS)
def test_the_bounds_hold_in_their_order(rng, cost, reg):
    X, Z = clouds(rng, 6), clouds(rng, 5)
    dual = CloudSinkhorn(reg, cost, "dual", tol=1e-8, max_iter=100_000)
    OT, S = dual.pairwise(X, Z), CloudSinkhorn(reg, cost, tol=1e-8, max_iter=100_000).pairwise(X, Z)
    W = np.array([[transport(cost, x, z) for z in Z] for x in X])
    hard = np.array([[hard_relaxation(cost, x, z) for z in Z] for x in X])
    x, z = Side.of(X), Side.of(Z)
    soft = reg * relaxed_transport(costs(cost, x.points, z.points) / reg, x.weight_table, z.weight_table)
    means = mean_bounds(means_of(X, cost), means_of(Z, cost), 1 if cost == "euclidean" else 2)
    means *= 0.5 if cost == "cosine" else 1.0
    self_x, self_z = (np.diag(dual.pairwise(part)) for part in (X, Z))
    bias, tiny = 0.5 * (self_x[:, None] + self_z), 1e-7
    assert (means <= W + tiny).all()
    assert (hard <= W + tiny).all()
    assert (hard <= soft + tiny).all()
    assert (soft <= OT + tiny).all()
    assert (OT + tiny >= W).all()
    assert (soft - bias <= S + tiny).all()
    assert (means - bias <= S + tiny).all()
    if cost != "euclidean":
        assert (means <= S + tiny).all()


def test_the_divergence_may_be_below_the_exact_transport(rng):
    """So no bound by exact transport, and none by its hard relaxation, may prune it."""
    X, Z = clouds(rng, 8, spread=0.3), clouds(rng, 8, spread=0.3)
    S = CloudSinkhorn(1.0).pairwise(X, Z)
    hard = np.array([[hard_relaxation("sqeuclidean", x, z) for z in Z] for x in X])
    assert (hard > S).any()


@pytest.mark.parametrize("make", [clouds, documents])
@pytest.mark.parametrize("value", ["divergence", "dual"])
@pytest.mark.parametrize("cost", COSTS)
def test_the_nearest_are_those_of_all_distances_and_most_pairs_are_not_solved(rng, cost, value, make, monkeypatch):
    Z, X = make(rng, 150)[:120], make(rng, 30)
    if make is documents:
        X = Z[np.arange(0, 60, 2)]  # the same words
    geometry = CloudSinkhorn(1.0, cost, value)
    D = geometry.distances_to(Z)(X)
    for widest in (16384, 40):
        monkeypatch.setattr("knnpress.geometries.cloud_search._WIDEST", widest)
        for k in (1, 5, 100):
            found = geometry.nearest_to(Z, k)(X)
            order, own = np.sort(D, axis=1)[:, :k], np.sort(found, axis=1)[:, :k]
            assert_allclose(own, order, atol=1e-7)  # distances of copies lose half their digits
            solved = np.isfinite(found)
            assert_allclose(found[solved], D[solved], atol=1e-7)
            if k == 1:
                assert solved.mean() < 0.5


def test_the_search_of_a_classifier_is_the_pruned_one(rng, monkeypatch):
    Z, X = clouds(rng, 80), clouds(rng, 70)
    y = np.arange(80) % 3
    model = kp.PrototypeClassifier(CloudSinkhorn(1.0), n_neighbors=3).fit(Z, y)
    distance, index = model.kneighbors(X)
    wanted = nearest(CloudSinkhorn(1.0).distances_to(Z), X, 80, 3, 1)
    assert_array_equal(index, wanted[1])
    assert_allclose(distance, wanted[0], atol=1e-9)
    asked = []
    monkeypatch.setattr(CloudSinkhorn, "nearest_to", lambda own, Z, k: asked.append(k) or own.distances_to(Z))
    model.kneighbors(X)
    assert asked == [3]


def test_parts_hold_every_cloud_once_and_each_distinct_point_once(rng):
    Z = documents(rng, 50)
    assert cut_by_distinct(Z, 100) == [slice(0, 50)]
    assert len(Side.of(Z).points) == len(np.unique(Z.index))
    parts = cut_by_distinct(Z, 30)
    assert len(parts) > 3
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    for part in parts:
        side = Side.of(Z[part])
        assert_array_equal(side.points[side.index], Z[part].points)
        assert_allclose(side.weight_table.sum(axis=1), 1.0)


@pytest.mark.parametrize("target", _core.targets())
@pytest.mark.parametrize("scale", [1.0, 2000.0])  # scalings, logarithms
def test_a_pair_is_given_up_only_above_its_limit(rng, target, scale):
    before = _core.target()
    _core.set_target(target)
    try:
        n, k = 9, 5
        cost = scale * rng.random((n, k))
        a, b = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(k))
        pair = (cost, np.arange(n), np.array([0, n]), a, np.array([0, k]), b, None, False, 1e-10, 10_000)
        ((value,),), ((iterations,),), _ = _core.clouds(*pair)
        swapped = rng.permutation(k)
        moved = (cost[:, np.argsort(swapped)].copy(), *pair[1:])
        assert_allclose(_core.clouds(*moved, z_index=swapped)[0][0, 0], value, rtol=1e-10)
        for limit in (value + 1e-6 * abs(value), np.inf):
            assert _core.clouds(*pair, limit=np.array([[limit]]))[0][0, 0] == value
        found, used, _ = _core.clouds(*pair, limit=np.array([[0.5 * value]]))
        assert found[0, 0] == np.inf
        assert used[0, 0] < iterations or iterations < 8
        found, used, _ = _core.clouds(*pair, limit=np.array([[-np.inf]]))
        assert (found[0, 0], used[0, 0]) == (np.inf, 0)
    finally:
        _core.set_target(before)


def test_the_core_refuses_columns_and_limits_that_do_not_fit():
    pair = (np.ones((2, 3)), np.arange(2), np.array([0, 2]), np.full(2, 0.5), np.array([0, 2]), np.full(2, 0.5))
    how = (None, False, 1e-6, 100)
    with pytest.raises(ValueError, match="z_index must name columns"):
        _core.clouds(*pair, *how, z_index=np.array([0, 3]))
    with pytest.raises(ValueError, match="each point needs a column"):
        _core.clouds(*pair, *how, z_index=np.array([0]))
    with pytest.raises(ValueError, match="limit must be"):
        _core.clouds(*pair, *how, z_index=np.array([0, 2]), limit=np.ones((1, 2)))


@pytest.mark.parametrize("cost", COSTS)
def test_the_exact_distance_is_that_of_linear_programming(rng, cost):
    pytest.importorskip("ot")
    X, Z = clouds(rng, 4), clouds(rng, 3)
    expected = [[transport(cost, x, z) for z in Z] for x in X]
    assert_allclose(CloudEMD(cost).pairwise(X, Z), expected, atol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of the centroid, on its way
def test_exact_distances_of_shared_points_are_those_of_histograms_and_serve_a_classifier(rng):
    pytest.importorskip("ot")
    vectors, H = rng.normal(size=(6, 2)), rng.random((8, 6)) + 0.1
    X = kp.Clouds.from_csr(csr_array(H), vectors)
    geometry = CloudEMD("euclidean", n_points=3)
    M = np.linalg.norm(vectors[:, None] - vectors, axis=-1)
    assert_allclose(geometry.pairwise(X), EMD(M).pairwise(H), atol=1e-7)
    assert geometry.centroid(X).shape == (3, 3)
    y = np.arange(8) % 2
    assert kp.PrototypeClassifier(geometry).fit(X, y).predict(X).tolist() == y.tolist()
    with pytest.raises(ValueError, match="X holds points of 2 dimensions and Z of 3"):
        geometry.pairwise(X, kp.Clouds.from_list([np.ones((1, 3))]))
    with pytest.raises(TypeError, match=r"give knnpress\.Clouds"):
        geometry.pairwise(H)
