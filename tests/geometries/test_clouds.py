"""Entropic transport between clouds: truths, limits, derivatives, independent references."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

import knnpress as kp
from knnpress import _core
from knnpress.exceptions import InvalidPointError
from knnpress.execution.threads import at_most
from knnpress.geometries import CloudEMD, CloudSinkhorn, Sinkhorn, as_geometry, cloud_solver, geometry_name
from knnpress.geometries.charts import CloudChart
from knnpress.geometries.cloud_points import as_clouds

COSTS = ("sqeuclidean", "euclidean", "cosine")


def clouds(n=5, d=3, seed=0, most=12, shift=0.0):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(shift, 1.0, (int(rng.integers(1, most)), d)) for _ in range(n)]
    return kp.Clouds.from_list(parts, [rng.uniform(0.2, 1.0, len(part)) for part in parts])


@pytest.mark.parametrize("geometry", [CloudSinkhorn(), CloudEMD()])
def test_they_have_names(geometry):
    assert type(as_geometry(geometry_name(geometry))) is type(geometry)


def packed(m=3, k=4, d=3, seed=1):
    rng = np.random.default_rng(seed)
    Z = np.concatenate([rng.normal(size=(m, k, d)), rng.uniform(0.3, 1.0, (m, k, 1))], axis=2)
    Z[:, :, -1] /= Z[:, :, -1].sum(axis=1, keepdims=True)
    return Z


@pytest.fixture(params=_core.targets())
def target(request):
    before = _core.target()
    _core.set_target(request.param)
    yield request.param
    _core.set_target(before)


@pytest.mark.parametrize("value", ["divergence", "dual"])
@pytest.mark.parametrize(("reg", "tol"), [(0.5, 1e-9), (0.02, 1e-7)], ids=["scalings", "logarithms"])
def test_on_a_shared_support_it_is_sinkhorn(target, value, reg, tol):
    rng = np.random.default_rng(0)
    support = rng.normal(size=(9, 2)) * (1.0 if reg == 0.5 else 3.0)
    H = rng.dirichlet(np.ones(9), 6)
    M = cdist(support, support, "sqeuclidean")
    assert (M.max() / reg > 300) == (reg == 0.02)  # beyond which scalings would underflow
    shared = kp.Clouds.from_list([support] * 6, H)
    found = CloudSinkhorn(reg, value=value, tol=tol, max_iter=100_000).pairwise(shared)
    wanted = Sinkhorn(M, reg, value, tol=tol, max_iter=100_000).pairwise(H)
    np.testing.assert_allclose(found, wanted, atol=1e-4 * reg)


@pytest.mark.parametrize("cost", COSTS)
def test_one_point_per_cloud_is_the_ground_cost(cost):
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    X, Z = (kp.Clouds(points, np.arange(len(points) + 1)) for points in (x, z))
    for value in ("divergence", "dual"):
        found = CloudSinkhorn(0.3, cost, value).pairwise(X, Z)
        np.testing.assert_allclose(found, cdist(x, z, cost), atol=1e-12)


@pytest.mark.parametrize("cost", COSTS)
def test_a_divergence_is_symmetric_positive_and_zero_of_itself(cost):
    X = clouds(6)
    D = CloudSinkhorn(1.0, cost, tol=1e-9, max_iter=100_000).pairwise(X)
    np.testing.assert_allclose(D, D.T, atol=1e-8)
    np.testing.assert_allclose(np.diag(D), 0.0, atol=1e-8)
    assert (D[~np.eye(6, dtype=bool)] > 1e-3).all()


@pytest.mark.parametrize("cost", ["sqeuclidean", "euclidean"])
def test_translation_changes_nothing(cost):
    X, Z = clouds(4), clouds(3, seed=1)
    geometry, by = CloudSinkhorn(0.2, cost), np.array([100.0, -20.0, 3.0])
    moved = [kp.Clouds(one.points + by, one.offsets, one.weights) for one in (X, Z)]
    np.testing.assert_allclose(geometry.pairwise(*moved), geometry.pairwise(X, Z), atol=1e-8)


def test_moving_a_cloud_costs_the_squared_distance():
    X = clouds(1)
    away = kp.Clouds(X.points + np.array([3.0, 0.0, 4.0]), X.offsets, X.weights)
    assert CloudSinkhorn(2.0, tol=1e-9, max_iter=100_000).pairwise(X, away)[0, 0] == pytest.approx(25.0, abs=1e-6)


def test_the_order_of_points_and_repeated_points_change_nothing():
    X, Z = clouds(1, most=9, seed=3), clouds(3)
    order = np.random.default_rng(0).permutation(len(X.index))
    shuffled = kp.Clouds(X.points[order], X.offsets, X.weights[order])
    halves = kp.Clouds(np.repeat(X.points, 2, axis=0), 2 * X.offsets, np.repeat(X.weights, 2))
    geometry = CloudSinkhorn(1.0, tol=1e-9, max_iter=100_000)
    for other in (shuffled, halves):
        np.testing.assert_allclose(geometry.pairwise(other, Z), geometry.pairwise(X, Z), atol=1e-8)


@pytest.mark.parametrize("cost", COSTS)
def test_as_reg_falls_it_is_the_earth_movers_distance(cost):
    ot = pytest.importorskip("ot")
    X, Z = clouds(3, seed=5), clouds(4, seed=6)
    exact = np.array([[ot.emd2(x.weights, z.weights, cdist(x.points, z.points, cost)) for z in Z] for x in X])
    gaps = []
    for reg in (1e-1, 1e-2, 1e-3):
        found = CloudSinkhorn(reg, cost, "dual", tol=1e-4, max_iter=100_000).pairwise(X, Z)
        gaps.append(np.abs(found - exact).max())
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 5e-3


def test_many_clouds_of_many_points_are_cut_into_blocks_that_change_nothing(monkeypatch):
    X, Z = clouds(20), clouds(30, seed=2)
    packs, W = packed(7), np.random.default_rng(0).normal(size=(20, 7))

    def found(n_jobs):
        with at_most(n_jobs):
            step = CloudSinkhorn(0.3).linearize(X, packs)
            return CloudSinkhorn(0.3).pairwise(X, Z, n_jobs), step.D, step.pullback(W), step.memory.potential

    whole = found(1)
    for kept in (2**22, 0):  # costs are kept for the gradient, or computed again
        monkeypatch.setattr("knnpress.geometries.cloud_linearization._KEPT_COSTS", kept)
        monkeypatch.setattr("knnpress.geometries.cloud_linearization._CHUNK", 9)
        monkeypatch.setattr("knnpress.geometries.cloud_solver.BLOCK_BYTES", 3000)
        for one, part in zip(whole, found(1), strict=True):
            np.testing.assert_allclose(part, one, rtol=1e-11, atol=1e-13)
        for one, many in zip(found(1), found(3), strict=True):
            np.testing.assert_array_equal(one, many)


def test_costs_of_shared_points_are_computed_once_for_values_and_gradient(monkeypatch):
    made = []
    plain = cloud_solver.costs
    monkeypatch.setattr(cloud_solver, "costs", lambda cost, P, Q: made.append(P.shape) or plain(cost, P, Q))
    rng = np.random.default_rng(0)
    X = kp.Clouds.from_csr(csr_array(rng.poisson(2.0, (50, 10)) + 1), rng.normal(size=(10, 3)))
    monkeypatch.setattr(cloud_solver, "BLOCK_BYTES", 8 * 10 * 12)  # ten points to twelve: 500 would not fit
    step = CloudSinkhorn(1.0, value="dual").linearize(X, packed())
    step.pullback(np.ones((50, 3)))
    assert made == [(10, 3)]


@pytest.mark.parametrize("value", ["divergence", "dual"])
@pytest.mark.parametrize("cost", COSTS)
def test_gradients_are_those_of_finite_differences(cost, value, target):
    X, Z, rng = clouds(5), packed(), np.random.default_rng(2)
    geometry = CloudSinkhorn(1.0, cost, value, tol=1e-11, max_iter=100_000)
    W = rng.normal(size=(5, 3))
    chart = CloudChart.around(Z)
    theta = chart.to_theta(Z)
    np.testing.assert_allclose(chart.to_point(theta), Z, atol=1e-6)
    placed = chart.at(theta)
    step = geometry.linearize(X, placed.points)
    np.testing.assert_allclose(step.D, geometry.pairwise(X, placed.points), atol=1e-8)
    gradient = placed.pullback(step.pullback(W))
    for _ in range(4):
        way = rng.normal(size=theta.shape)
        up, down = ((W * geometry.linearize(X, chart.to_point(theta + h * way)).D).sum() for h in (1e-5, -1e-5))
        assert (gradient * way).sum() == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-6)


def test_memory_saves_iterations_and_changes_nothing_beyond_the_tolerance():
    X, Z = clouds(8), packed()
    geometry = CloudSinkhorn(1.0, tol=1e-7, max_iter=100_000)
    first = geometry.linearize(X, Z)
    near = packed()
    near[:, :, :-1] += 1e-3
    cold = geometry.linearize(X, near)
    warm = geometry.linearize(X, near, first.memory)
    np.testing.assert_allclose(warm.D, cold.D, atol=1e-6)
    W = np.ones((8, 3))
    np.testing.assert_allclose(warm.pullback(W), cold.pullback(W), atol=1e-4)


def test_the_centroid_is_the_cloud_itself_and_the_mean_of_moved_ones():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4, 2))
    geometry = CloudSinkhorn(0.2, n_points=4, tol=1e-6, max_iter=100_000)
    by = np.array([2.0, -1.0])
    both = kp.Clouds.from_list([points - by, points + 3 * by])
    middle = geometry.centroid(both, [0.75, 0.25])
    assert middle.shape == (4, 3)
    wanted = kp.Clouds.from_list([points])
    assert geometry.pairwise(middle[None], wanted)[0, 0] < 1e-3


@pytest.mark.filterwarnings("ignore:CloudSinkhorn. 1 of . pairs")
@pytest.mark.parametrize("reg", ["auto", 1.0])
def test_clouds_of_weight_zero_do_not_move_the_centroid(reg):
    X, geometry = clouds(6), CloudSinkhorn(reg, n_points=3)
    far = [X[4].points + 50.0, *(X[i].points for i in (1, 2, 3)), X[5].points * 0.0]
    found = geometry.centroid(kp.Clouds.from_list(far), [0, 3, 1, 1, 0])
    np.testing.assert_array_equal(found, geometry.centroid(kp.Clouds.from_list(far[1:4]), [3, 1, 1]))


def test_the_centroid_is_better_than_its_neighbours():
    X, geometry, rng = clouds(6), CloudSinkhorn(1.0, n_points=3, tol=1e-6, max_iter=100_000), np.random.default_rng(0)
    Z = geometry.centroid(X)
    best = geometry.pairwise(X, Z[None]).mean()
    for _ in range(5):
        other = Z[None].copy()
        other[:, :, :-1] += 0.05 * rng.normal(size=other[:, :, :-1].shape)
        assert geometry.pairwise(X, other).mean() > best


def test_auto_reg_follows_the_scale_of_the_data():
    X = clouds(8)
    larger = kp.Clouds(10.0 * X.points, X.offsets, X.weights)
    reg = CloudSinkhorn().fitted_to(X).reg
    assert CloudSinkhorn().fitted_to(larger).reg == pytest.approx(100 * reg)
    np.testing.assert_allclose(
        CloudSinkhorn().pairwise(larger), 100 * CloudSinkhorn().pairwise(X), rtol=1e-4, atol=1e-3
    )


def test_bad_input_is_named():
    X = clouds(3)
    with pytest.raises(ValueError, match="X holds points of 3 dimensions and Z of 2"):
        CloudSinkhorn(0.1).pairwise(X, clouds(3, d=2))
    with pytest.raises(TypeError, match=r"X is a list; give knnpress\.Clouds"):
        CloudSinkhorn(0.1).pairwise([[1.0]])
    with pytest.raises(TypeError, match=r"X has shape \(3, 2\)"):
        CloudSinkhorn(0.1).pairwise(np.zeros((3, 2)))
    with pytest.raises(InvalidPointError, match=r"point 1 of X\[0\] is zero"):
        CloudSinkhorn(0.1, "cosine").pairwise(kp.Clouds.from_list([[[1.0, 0.0], [0.0, 0.0]]]))
    for wrong in ({"reg": -1}, {"cost": "cityblock"}, {"value": "transport"}, {"n_points": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
            CloudSinkhorn(**wrong).pairwise(X)
    Z = packed()
    Z[1, 2, -1] = -0.5
    with pytest.raises(InvalidPointError, match=r"Z\[1\] has a weight of -0\.5"):
        CloudSinkhorn(0.1).pairwise(X, Z)


def test_packed_clouds_are_clouds():
    Z = packed()
    alike = kp.Clouds.from_list([one[:, :-1] for one in Z], [one[:, -1] for one in Z])
    np.testing.assert_allclose(as_clouds(Z).points, alike.points)
    np.testing.assert_allclose(CloudSinkhorn(0.2).pairwise(clouds(), Z), CloudSinkhorn(0.2).pairwise(clouds(), alike))


def test_clouds_as_arrays_with_numbers_at_the_end_of_the_range_are_refused_or_right():
    X = np.ones((3, 2, 3))
    X[:, 1] = 2.0
    X[2, 1, 0] = -1e151
    with pytest.raises(InvalidPointError, match=r"Z\[2\] has an entry of size 1\.0e\+151, .*scale all points"):
        CloudSinkhorn(1.0).check(X, "Z")
    heavy = X[:2].copy()
    heavy[1, :, -1] = 1e308
    kept = CloudSinkhorn(1.0).check(heavy)
    np.testing.assert_allclose(kept[:, :, -1], [[1 / 3, 2 / 3], [0.5, 0.5]])
    assert heavy[1, 0, -1] == 1e308


@pytest.mark.parametrize("scale", [1e140, 1e-140])
@pytest.mark.parametrize("cost", COSTS)
def test_clouds_far_from_one_are_compared_as_others(cost, scale):
    X = clouds(6)
    unit = {"sqeuclidean": scale**2, "euclidean": scale, "cosine": 1.0}[cost]
    found = CloudSinkhorn(cost=cost).pairwise(kp.Clouds(scale * X.points, X.offsets, X.weights))
    np.testing.assert_allclose(found / unit, CloudSinkhorn(cost=cost).pairwise(X), rtol=1e-3, atol=1e-3)


def test_clouds_whose_costs_would_underflow_are_refused():
    X = clouds(6)
    tiny = kp.Clouds(1e-150 * X.points, X.offsets, X.weights)
    for cost in ("sqeuclidean", "euclidean"):
        with pytest.raises(InvalidPointError, match=r"differ by less than 1e-145, .*; scale all points"):
            CloudSinkhorn(cost=cost).pairwise(tiny)
    with pytest.raises(InvalidPointError, match=r"point 0 of X\[0\] is zero, or nearly, and has no direction"):
        CloudSinkhorn(cost="cosine").pairwise(tiny)
    alike = kp.Clouds(np.full((6, 2), 3.0), [0, 2, 4, 6])
    np.testing.assert_allclose(CloudSinkhorn().pairwise(alike), 0.0, atol=1e-12)


@pytest.mark.parametrize("search", [False, True], ids=["all", "nearest"])
def test_points_that_clouds_share_are_not_copied_for_each(search):
    rng = np.random.default_rng(0)
    X = kp.Clouds.from_csr(csr_array(np.ones((200, 40))), rng.normal(size=(40, 500)))
    copied = X.points.nbytes  # 32 MB
    geometry = CloudSinkhorn(100.0)
    tracemalloc.start()
    distances = geometry.nearest_to(X, 1) if search else geometry.distances_to(X)
    distances(X[:4])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < copied / 4
