"""Histograms under entropic and exact optimal transport."""

import warnings

import numpy as np
import ot
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from reference import INPUT_FORMS, grid_cost, random_cost, random_histograms, taylor_slope
from sklearn.exceptions import ConvergenceWarning

from knnpress import _core
from knnpress.datasets import load_digits_histograms
from knnpress.geometries import EMD, Sinkhorn, SmoothGeometry

M9 = grid_cost(3)
#: max cost / reg beyond 300, through a pair of bins between which nothing moves: the stabilised solver
FAR = M9.copy()
FAR[0, 8] = FAR[8, 0] = 200.0
VALUES = ["divergence", "dual", "transport"]
WEIGHTS = {"uniform": None, "weighted": [1.0, 5.0, 0.5], "with a zero": [1.0, 0.0, 3.0]}

every_value = pytest.mark.parametrize("value", VALUES)
every_weighting = pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
both_solvers = pytest.mark.parametrize("cost", [M9, FAR], ids=["shared", "stabilised"])
every_geometry = pytest.mark.parametrize(
    "geometry", [*(Sinkhorn(M9, value=value) for value in VALUES), EMD(M9)], ids=[*VALUES, "emd"]
)


def exact(X, Z, M):
    return np.array([[reference.emd(a, b, M) for b in Z] for a in X])


# ---- values ---------------------------------------------------------------------------------------------------


@every_value
@both_solvers
@pytest.mark.parametrize("zeros", [0.0, 0.5])
@pytest.mark.parametrize("reg", [0.3, 1.0])
def test_sinkhorn_agrees_with_the_log_domain_reference(rng, value, cost, zeros, reg):
    X, Z = random_histograms(rng, 3, 9, zeros), random_histograms(rng, 2, 9, zeros)
    D = Sinkhorn(cost, reg, value, tol=1e-11, max_iter=100_000).pairwise(X, Z)
    assert_allclose(D, reference.sinkhorn_pairwise(X, Z, cost, reg, value), rtol=0, atol=1e-9)


@pytest.mark.parametrize("value", ["dual", "transport"])
def test_the_ground_cost_need_not_be_symmetric(rng, value):
    M, X, Z = random_cost(rng, 6), random_histograms(rng, 4, 6), random_histograms(rng, 3, 6)
    D = Sinkhorn(M, 0.3, value, tol=1e-11).pairwise(X, Z)
    assert_allclose(D, reference.sinkhorn_pairwise(X, Z, M, 0.3, value), rtol=0, atol=1e-9)
    assert_allclose(Sinkhorn(M.T, 0.3, value, tol=1e-11).pairwise(Z, X), D.T, rtol=0, atol=1e-9)


@every_value
@both_solvers
def test_the_default_tolerance_bounds_the_error_of_a_value(rng, value, cost):
    X, Z = random_histograms(rng, 5, 9, 0.3), random_histograms(rng, 4, 9, 0.3)
    loose, tight = (Sinkhorn(cost, 0.3, value, tol=tol).pairwise(X, Z) for tol in (1e-5, 1e-11))
    assert_allclose(loose, tight, rtol=0, atol=1e-5 * M9.max() * 2)


def test_transport_falls_to_the_linear_programme_as_reg_vanishes(rng):
    X, Z = random_histograms(rng, 4, 9, 0.3), random_histograms(rng, 3, 9, 0.3)
    gaps, regs = [], [1.0, 0.3, 0.1, 0.03, 0.01]
    for reg in regs:
        D = Sinkhorn(M9, reg, "transport", tol=1e-7, max_iter=200_000).pairwise(X, Z)
        gaps.append(D - exact(X, Z, M9))
    assert (np.array(gaps) > -1e-7 * M9.max()).all()  # never below the earth mover's distance
    assert (np.diff(gaps, axis=0) < 1e-6).all()
    assert (np.max(gaps, axis=(1, 2)) < np.array(regs) * np.log(81)).all()
    assert np.max(gaps[-1]) < 1e-4


@pytest.mark.parametrize("reg", [1e-2, 1e-3])
@every_value
def test_a_vanishing_reg_stays_finite_and_near_the_linear_programme(rng, value, reg):
    X, Z = random_histograms(rng, 3, 9, 0.5), random_histograms(rng, 2, 9, 0.5)
    geometry = Sinkhorn(M9, reg, value, tol=1e-2, max_iter=20_000)
    assert_allclose(geometry.pairwise(X, Z), exact(X, Z, M9), rtol=0, atol=5e-2 * M9.max())


@pytest.mark.parametrize("zeros", [0.0, 0.7])
def test_emd_agrees_with_the_linear_programme(rng, zeros):
    M, X, Z = random_cost(rng, 7), random_histograms(rng, 5, 7, zeros), random_histograms(rng, 4, 7, zeros)
    assert_allclose(EMD(M).pairwise(X, Z), exact(X, Z, M), rtol=0, atol=1e-12)


@every_geometry
def test_between_single_bins_the_value_is_the_ground_cost(geometry):
    D = geometry.pairwise(np.eye(9))
    assert_allclose(D, M9, rtol=0, atol=1e-12)


def test_auto_reg_is_a_tenth_of_the_median_positive_cost(rng):
    X, reg = random_histograms(rng, 3, 9), 0.1 * np.median(M9[M9 > 0])
    assert Sinkhorn(M9).effective_reg == reg
    assert np.array_equal(Sinkhorn(M9).pairwise(X), Sinkhorn(M9, reg).pairwise(X))


def test_pairs_that_fall_short_are_counted_in_a_warning(rng):
    X = random_histograms(rng, 3, 9)
    with pytest.warns(ConvergenceWarning, match="9 of 9 pairs did not reach tol=1e-09 in 2 iterations"):
        D = Sinkhorn(M9, 0.1, "dual", tol=1e-9, max_iter=2).pairwise(X)
    assert np.isfinite(D).all()


# ---- small reg ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    """A few digits of two kinds, their ground cost, its median and the earth mover's distances."""
    data = load_digits_histograms()
    X, Z, M = data.X[:12], data.X[100:112], data.ground_cost
    return X, Z, M, np.median(M[M > 0]), np.array([[ot.emd2(a, b, M) for b in Z] for a in X])


@pytest.mark.filterwarnings("error")  # among them those of pairs that fell short
@pytest.mark.parametrize("share", [1e-2, 1e-3, 1e-5])
@every_value
def test_digits_converge_at_small_reg_to_the_earth_movers_distance(digits, value, share):
    X, Z, M, median, emd = digits
    D = Sinkhorn(M, share * median, value).pairwise(X, Z)
    # the plan's entropy is at most that of one bin to all others
    assert_allclose(D, emd, rtol=0, atol=median * (share * np.log(64) + 1e-5))
    if share <= 1e-3 and value == "transport":
        assert_allclose(D, emd, rtol=1e-3, atol=0)
    if share <= 1e-3 and value == "divergence":
        assert_allclose(D, emd, rtol=0, atol=1e-3 * median)


def test_small_reg_takes_few_iterations(digits):
    X, Z, M, median, _ = digits
    for share in (1e-2, 1e-3, 1e-5):
        cost = _core.SinkhornCost(M, share * median)
        _, iterations, error = _core.sinkhorn(cost, X, Z, None, None, 1e-5, 2000, False)
        assert error.max() <= 1e-5
        assert iterations.max() < 500


masses = st.one_of(st.just(0.0), st.floats(1e-12, 1.0), st.sampled_from([1e-300, 1e-30, 0.25]))


@settings(deadline=None, max_examples=150)
@given(data=st.data(), d=st.integers(2, 9), log_reg=st.floats(-5, 1), max_iter=st.sampled_from([1, 5, 30, 2000]))
def test_transport_is_never_below_the_earth_movers_distance(data, d, log_reg, max_iter):
    """Nor where it has not converged: plans are rounded to their marginals."""
    rows = st.lists(masses, min_size=d, max_size=d).filter(lambda row: max(row) > 1e-3)
    X, Z = (np.array(data.draw(st.lists(rows, min_size=1, max_size=3))) for _ in range(2))
    M = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 5, (d, d)).astype(float)
    geometry = Sinkhorn(M, 10.0**log_reg, "transport", max_iter=max_iter)
    X, Z = geometry.check(X), geometry.check(Z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        D = geometry.pairwise(X, Z)
    above = D - exact(X, Z, M)
    assert above.min() >= -1e-12 * max(M.max(), 1.0)
    assert D.max() <= M.max() * (1 + 1e-12)


@pytest.mark.parametrize("value", ["divergence", "dual"])
@pytest.mark.parametrize("share", [1e-2, 1e-3])
def test_the_gradient_at_small_reg_is_that_of_finite_differences(digits, value, share):
    X, Z, M, median, _ = digits
    rng = np.random.default_rng(0)
    Z = 0.9 * Z[:3] + 0.1 * rng.dirichlet(np.ones(64), 3)
    geometry, W = Sinkhorn(M, share * median, value, tol=1e-11, max_iter=20_000), rng.normal(size=(4, 3))
    step = geometry.linearize(X[:4], Z)
    H = Z * rng.normal(size=Z.shape)
    H -= Z * H.sum(axis=1, keepdims=True)
    h = 1e-5 * share / 1e-3
    up, down = (np.sum(W * geometry.linearize(X[:4], Z + s * h * H).D) for s in (1, -1))
    assert_allclose(np.vdot(step.pullback(W), H), (up - down) / (2 * h), rtol=1e-5)


def test_warm_starts_at_small_reg_give_the_same_in_fewer_iterations(digits):
    X, Z, M, median, _ = digits
    cost, shape = _core.SinkhornCost(M, 1e-3 * median), (len(X), *Z.shape)
    potential, relaxation = np.zeros(shape), np.zeros(shape[:2])
    _core.sinkhorn(cost, X, Z, potential, relaxation, 1e-8, 2000, False)
    moved = 0.999 * Z + 0.001 * X
    cold = _core.sinkhorn(cost, X, moved, None, None, 1e-8, 2000, False)
    warm = _core.sinkhorn(cost, X, moved, potential, relaxation, 1e-8, 2000, False)
    assert_allclose(warm[0], cold[0], rtol=0, atol=1e-8 * M.max())
    assert warm[1].mean() < 0.8 * cold[1].mean()


# ---- truths ---------------------------------------------------------------------------------------------------


@both_solvers
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_the_divergence_is_zero_only_between_equals_and_positive(rng, cost, zeros):
    X = random_histograms(rng, 8, 9, zeros)
    D = Sinkhorn(cost, 0.3, tol=1e-9, max_iter=100_000).pairwise(X)
    assert_allclose(np.diagonal(D), 0, atol=1e-9)
    assert (D[~np.eye(8, dtype=bool)] > 1e-3).all()


@every_geometry
def test_values_are_symmetric_where_the_cost_is(rng, geometry):
    X, Z = random_histograms(rng, 5, 9), random_histograms(rng, 4, 9)
    assert_allclose(geometry.pairwise(X, Z), geometry.pairwise(Z, X).T, rtol=0, atol=1e-5 * M9.max())


@every_geometry
def test_values_scale_with_the_ground_cost(rng, geometry):
    X = random_histograms(rng, 5, 9)
    scaled = type(geometry)(**{**geometry.get_params(), "ground_cost": 1e6 * M9})
    assert_allclose(scaled.pairwise(X), 1e6 * geometry.pairwise(X), rtol=1e-9, atol=1e-9 * 1e6)


@every_geometry
def test_the_order_of_the_bins_does_not_matter(rng, geometry):
    X, order = random_histograms(rng, 5, 9), rng.permutation(9)
    shuffled = type(geometry)(**{**geometry.get_params(), "ground_cost": M9[np.ix_(order, order)]})
    assert_allclose(shuffled.pairwise(X[:, order]), geometry.pairwise(X), rtol=0, atol=1e-4)


# ---- derivatives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["divergence", "dual"])
@both_solvers
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_the_gradient_is_that_of_the_value_along_the_simplex(rng, value, cost, zeros):
    """zeros: of X; a histogram of X may have empty bins, while Z can move both ways only if it has none."""
    X, Z, W = random_histograms(rng, 6, 9, zeros), random_histograms(rng, 3, 9), rng.normal(size=(6, 3))
    geometry = Sinkhorn(cost, 0.4, value, tol=1e-13, max_iter=100_000)
    step = geometry.linearize(X, Z)
    assert_allclose(step.D, geometry.pairwise(X, Z), rtol=0, atol=1e-12)
    H = Z * rng.normal(size=Z.shape)
    H -= H.mean(axis=1, keepdims=True)
    H *= 0.3 * Z.min() / np.abs(H).max()  # no bin may turn negative
    # taylor_slope scales by the norm of Z, so hand it coordinates in which Z has norm one
    slope = taylor_slope(
        lambda t: np.sum(W * geometry.linearize(X, Z + (t[0] - 1) * 100 * H).D),
        np.array([100 * np.vdot(step.pullback(W), H)]),
        np.array([1.0]),
        np.array([1.0]),
    )
    assert slope > 1.9
    assert_allclose(step.pullback(W).mean(axis=1), 0, atol=1e-14)


@pytest.mark.parametrize("value", ["divergence", "dual"])
@both_solvers
def test_the_gradient_holds_at_empty_bins_into_which_mass_may_flow(rng, value, cost):
    X, Z = random_histograms(rng, 6, 9), random_histograms(rng, 3, 9, 0.6)
    geometry, W = Sinkhorn(cost, 0.4, value, tol=1e-10, max_iter=100_000), rng.normal(size=(6, 3))
    expected = np.zeros_like(Z)
    for j, b in enumerate(Z):
        own = reference.sinkhorn(b, b, cost, 0.4)
        for w, a in zip(W[:, j], X, strict=True):
            expected[j] += w * reference.sinkhorn(a, b, cost, 0.4).potential_z
            if value == "divergence":
                expected[j] -= w * 0.5 * (own.potential_x + own.potential_z)
    expected -= expected.mean(axis=1, keepdims=True)
    assert_allclose(geometry.linearize(X, Z).pullback(W), expected, rtol=0, atol=1e-8)


def test_transport_uses_the_gradient_of_the_dual_value_and_says_so(rng):
    X, Z, W = random_histograms(rng, 6, 9), random_histograms(rng, 3, 9), rng.normal(size=(6, 3))
    transport, dual = (Sinkhorn(M9, 0.4, value) for value in ("transport", "dual"))
    assert np.array_equal(transport.linearize(X, Z).pullback(W), dual.linearize(X, Z).pullback(W))
    assert np.array_equal(transport.linearize(X, Z).D, transport.pairwise(X, Z))
    assert not transport.exact_gradient
    assert dual.exact_gradient
    assert Sinkhorn(M9).exact_gradient


def test_the_divergence_has_no_gradient_at_the_point_itself(rng):
    Z = random_histograms(rng, 3, 9)
    G = Sinkhorn(M9, 0.4, tol=1e-12).linearize(Z, Z).pullback(np.eye(3))
    assert_allclose(G, 0, atol=1e-9)


@every_value
@both_solvers
def test_memory_changes_nothing_but_time(rng, value, cost):
    X, Z, W = random_histograms(rng, 6, 9, 0.3), random_histograms(rng, 3, 9), rng.normal(size=(6, 3))
    geometry, moved = Sinkhorn(cost, 0.3, value, tol=1e-10), 0.9 * Z + 0.1 * random_histograms(rng, 3, 9)
    memory = geometry.linearize(X, Z).memory
    warm, cold = (geometry.linearize(X, moved, start) for start in (memory, None))
    assert_allclose(warm.D, cold.D, rtol=0, atol=1e-9)
    assert_allclose(warm.pullback(W), cold.pullback(W), rtol=0, atol=1e-8)


def test_memory_of_another_shape_is_forgotten(rng):
    X, Z = random_histograms(rng, 6, 9), random_histograms(rng, 3, 9)
    geometry = Sinkhorn(M9, 0.3)
    memory = geometry.linearize(X, Z).memory
    assert np.array_equal(geometry.linearize(X[:4], Z, memory).D, geometry.linearize(X[:4], Z).D)


def test_weights_far_below_the_largest_do_not_matter(rng):
    X, Z, W = random_histograms(rng, 6, 9), random_histograms(rng, 3, 9), rng.normal(size=(6, 3))
    step = Sinkhorn(M9, 0.3).linearize(X, Z)
    W[:2] = 0.0
    without = step.pullback(W)
    W[:2] = 1e-14
    assert_allclose(step.pullback(W), without, rtol=0, atol=1e-12)
    assert not step.pullback(np.zeros_like(W)).any()


def test_what_weighed_little_is_solved_loosely_and_the_rest_as_before(rng):
    X, Z, other = (random_histograms(rng, n, 9) for n in (40, 6, 6))
    W = 10.0 ** -rng.integers(0, 9, (40, 6))
    geometry = Sinkhorn(M9, 0.3, tol=1e-8)
    first = geometry.linearize(X, Z)
    first.pullback(W)
    Z = 0.9 * Z + 0.1 * other
    loose, exact = geometry.linearize(X, Z, first.memory), geometry.linearize(X, Z)
    gap = np.abs(loose.D - exact.D)
    assert gap[W == 1].max() < 1e-11
    assert 1e-11 < gap[W < 1e-6].max() < 1e-8  # the value errs by the square of what the marginals do
    gradient = exact.pullback(W)
    assert_allclose(loose.pullback(W), gradient, rtol=0, atol=1e-7 * np.abs(gradient).max())


# ---- centroids ------------------------------------------------------------------------------------------------


@every_value
@every_weighting
@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_barycenters_are_as_good_as_a_general_optimiser_finds(rng, value, weights, zeros):
    M, X = grid_cost(2), random_histograms(rng, 3, 4, zeros)
    w = np.full(3, 1 / 3) if weights is None else np.array(weights) / np.sum(weights)
    b = Sinkhorn(M, 0.3, value).centroid(X, weights)
    assert_allclose(b.sum(), 1, rtol=1e-14)
    assert (b >= 0).all()
    found = reference.barycenter_objective(b, X, w, M, 0.3, value == "divergence")[0]
    assert_allclose(found, reference.least_barycenter_objective(X, w, M, 0.3, value == "divergence"), rtol=0, atol=1e-6)


@every_value
@every_weighting
def test_barycenters_are_those_of_pot(rng, value, weights):
    X = random_histograms(rng, 3, 9)
    # weights by repetition: POT's own start (0.9.7) assumes equal ones, and its result depends on its start
    repeated = X if weights is None else np.repeat(X, (2 * np.array(weights)).astype(int), axis=0)
    method = ot.bregman.barycenter_debiased if value == "divergence" else ot.bregman.barycenter
    expected = method(repeated.T.copy(), M9, 0.3, stopThr=1e-13, numItermax=100_000)
    assert_allclose(Sinkhorn(M9, 0.3, value).centroid(X, weights), expected / expected.sum(), rtol=0, atol=1e-7)


@every_value
def test_barycenters_do_not_depend_on_how_the_kernel_is_formed(rng, value):
    X = random_histograms(rng, 3, 9, 0.3)
    plain, far = (Sinkhorn(cost, 0.5, value).centroid(X) for cost in (np.where(FAR > 10, 140.0, M9), FAR))
    assert_allclose(far, plain, rtol=0, atol=1e-8)


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_the_debiased_barycenter_of_one_histogram_is_that_histogram(rng, zeros):
    X = random_histograms(rng, 1, 9, zeros)
    assert_allclose(Sinkhorn(M9, 0.3).centroid(X), X[0], rtol=0, atol=1e-5)


def test_the_emd_centroid_is_the_entropic_barycenter_at_the_auto_reg(rng):
    X = random_histograms(rng, 4, 9)
    expected = Sinkhorn(M9, 0.1 * np.median(M9[M9 > 0]), "transport").centroid(X, [1, 2, 3, 4])
    assert np.array_equal(EMD(M9).centroid(X, [1, 2, 3, 4]), expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", ["divergence", "transport"])
def test_barycenters_at_small_reg_are_as_good_as_the_linear_programme_can_tell(value):
    data = load_digits_histograms()
    X, M = data.X[data.y == 3][:8], data.ground_cost

    def mean_emd(b):
        return np.mean([ot.emd2(x, b, M) for x in X])

    b = Sinkhorn(M, 1e-2, value).centroid(X)
    least = mean_emd(ot.lp.barycenter(X.T.copy(), M, solver="highs"))
    assert least * (1 - 1e-9) <= mean_emd(b) < least * (1 + 2e-3)
    with pytest.warns(ConvergenceWarning, match="marginals differ by"):  # but near it all the same
        b = Sinkhorn(M, 1e-7, value).centroid(X)
    assert mean_emd(b) < least * (1 + 1e-3)


# ---- doors ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("many_blocks")
@every_geometry
def test_results_are_the_same_for_any_number_of_threads(rng, geometry):
    X, Z = random_histograms(rng, 133, 9, 0.2), random_histograms(rng, 5, 9, 0.2)
    alone = geometry.pairwise(X, Z, n_jobs=1)
    for n_jobs in (2, 4, None):
        assert np.array_equal(geometry.pairwise(X, Z, n_jobs=n_jobs), alone)


@every_geometry
@pytest.mark.parametrize("form", INPUT_FORMS)
def test_every_form_of_input_gives_the_float64_result(rng, geometry, form):
    (X, plain_x), (Z, plain_z) = (INPUT_FORMS[form](random_histograms(rng, n, 9)) for n in (5, 3))
    assert np.array_equal(geometry.pairwise(X, Z), geometry.pairwise(plain_x, plain_z))
    assert np.array_equal(geometry.centroid(X), geometry.centroid(plain_x))


@every_value
@pytest.mark.parametrize("form", INPUT_FORMS)
def test_every_form_of_ground_cost_gives_the_float64_result(rng, value, form):
    X, (M, plain) = random_histograms(rng, 4, 9), INPUT_FORMS[form](M9)
    before = np.array(M)
    assert np.array_equal(Sinkhorn(M, value=value).pairwise(X), Sinkhorn(plain, value=value).pairwise(X))
    assert np.array_equal(M, before)


@every_geometry
def test_rows_are_normalised(rng, geometry):
    X, Z = random_histograms(rng, 5, 9), random_histograms(rng, 3, 9)
    scales = np.array([[1e-300], [1e-3], [1.0], [7.0], [1e300]])
    assert_allclose(geometry.pairwise(scales * X, 3 * Z), geometry.pairwise(X, Z), rtol=0, atol=1e-10)
    assert_allclose(geometry.check(scales * X), X, rtol=1e-13)


@every_geometry
def test_counts_whose_sum_overflows_are_normalised(geometry):
    assert_allclose(geometry.check(np.full((2, 9), 1e308)), 1 / 9, rtol=1e-14)
    assert_allclose(geometry.check(np.full((2, 9), 5e-324)), 1 / 9, rtol=1e-14)


def test_sample_weights_whose_sum_overflows_are_normalised(rng):
    X = random_histograms(rng, 3, 9)
    for geometry in (Sinkhorn(M9), Sinkhorn(M9, value="transport")):
        assert np.array_equal(geometry.centroid(X, np.full(3, 1e308)), geometry.centroid(X, np.ones(3)))


@pytest.mark.parametrize(
    "geometry", [Sinkhorn(M9), Sinkhorn(M9, 1e-3), Sinkhorn(M9, 1e-3, "dual"), EMD(M9)], ids=lambda g: f"{g}"[:30]
)
def test_bins_of_next_to_nothing_count_as_empty(rng, geometry):
    X, Z = random_histograms(rng, 4, 9, 0.5), random_histograms(rng, 3, 9, 0.5)
    for faint in (5e-324, 1e-310, 1e-307, 1e-300, 1e-250):
        filled = [np.where(A > 0, A, faint) for A in (X, Z)]
        before = [A.copy() for A in filled]
        assert_allclose(geometry.pairwise(*filled), geometry.pairwise(X, Z), rtol=0, atol=1e-5)
        assert all(np.array_equal(a, b) for a, b in zip(filled, before, strict=True))


def test_a_cost_asymmetric_by_rounding_is_taken_and_another_refused(rng):
    X, noise = random_histograms(rng, 4, 9), 1 + 1e-6 * rng.uniform(-1, 1, (9, 9))
    for reg in ("auto", 1e-3):
        rounded, plain = Sinkhorn(M9 * noise, reg), Sinkhorn(M9, reg)
        assert_allclose(rounded.pairwise(X), plain.pairwise(X), rtol=0, atol=1e-5 * M9.max())
        assert np.abs(np.diagonal(rounded.pairwise(X))).max() < 1e-8
    M = M9.copy()
    M[2, 5] *= 1.001
    with pytest.raises(ValueError, match=r"symmetric ground cost; .* ground_cost\[2, 5\] is"):
        Sinkhorn(M).pairwise(X)


@every_geometry
def test_inputs_are_never_modified(rng, geometry):
    X, Z, w = 2 * random_histograms(rng, 5, 9), random_histograms(rng, 3, 9), np.arange(1.0, 6.0)
    before = X.copy(), Z.copy(), w.copy(), M9.copy()
    geometry.pairwise(X, Z)
    geometry.centroid(X, w)
    if isinstance(geometry, SmoothGeometry):
        W, X1 = np.ones((5, 3)), geometry.check(X)
        checked = X1.copy()
        geometry.linearize(X1, Z).pullback(W)
        assert (W == 1).all()
        assert np.array_equal(X1, checked)
    for a, b in zip((X, Z, w, M9), before, strict=True):
        assert np.array_equal(a, b)


@every_geometry
def test_all_but_emd_are_smooth(geometry):
    assert isinstance(geometry, SmoothGeometry) == isinstance(geometry, Sinkhorn)


@pytest.mark.parametrize("scale", [1e-150, 1e-12, 1e150])
def test_emd_of_costs_of_any_scale_is_that_of_costs_near_one(rng, scale):
    X = random_histograms(rng, 5, 4)
    M = grid_cost(2)
    M[0, 1] = M[1, 0] = 0.0
    assert_allclose(EMD(scale * M).pairwise(X), scale * EMD(M).pairwise(X), rtol=1e-9, atol=1e-12 * scale)
