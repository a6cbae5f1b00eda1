"""Symmetric positive definite matrices under JBLD, AIRM and the log-Euclidean metric."""

import mpmath
import numpy as np
import pytest
import reference
from cases import for_each
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from pyriemann.geometry.distance import pairwise_distance
from pyriemann.geometry.mean import mean_logdet, mean_logeuclid, mean_riemann
from reference import INPUT_FORMS, random_spd, taylor_slope
from scipy.linalg import logm

from knnpress.geometries import AIRM, JBLD, LogEuclidean, SmoothGeometry, spectral
from knnpress.geometries.log_euclidean import _divided_log

GEOMETRIES = [JBLD(), AIRM(), LogEuclidean()]
SMOOTH = [JBLD(), LogEuclidean()]
WEIGHTS = {"uniform": None, "weighted": [1.0, 5.0, 0.5, 2.0, 0.1, 3.0], "with zeros": [0.0, 1.0, 0.0, 2.0, 1.0, 0.0]}

every_geometry = pytest.mark.parametrize("geometry", GEOMETRIES, ids=repr)
every_smooth_geometry = pytest.mark.parametrize("geometry", SMOOTH, ids=repr)
every_weighting = pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)


# ---- values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("geometry", "metric", "squared"),
    [(JBLD(), "logdet", True), (AIRM(), "riemann", False), (LogEuclidean(), "logeuclid", True)],
    ids=["jbld", "airm", "logeuclid"],
)
@pytest.mark.parametrize("condition", [1.0, 30.0, 1e3])
@for_each("d", [1, 2, 5, 19])
def test_distances_agree_with_pyriemann(rng, geometry, metric, squared, condition, d):
    X, Z = random_spd(rng, 9, d, condition), random_spd(rng, 6, d, condition)
    expected = pairwise_distance(X, Z, metric=metric, squared=squared)
    assert_allclose(geometry.pairwise(X, Z), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("geometry", "exact"),
    [(JBLD(), reference.jbld_50_digits), (AIRM(), reference.airm_50_digits)],
    ids=["jbld", "airm"],
)
@pytest.mark.parametrize("condition", [1e3, 1e6, 1e10, 1e14])
@for_each("d", [2, 4, 7])
def test_ill_conditioned_matrices_lose_no_more_than_their_condition(rng, geometry, exact, condition, d):
    X, Z = random_spd(rng, 3, d, condition), random_spd(rng, 3, d, condition)
    expected = [[exact(x, z) for z in Z] for x in X]
    bound = 100 * np.finfo(float).eps * d * condition
    assert_allclose(geometry.pairwise(X, Z), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("d", [1, 4])
def test_one_step_finds_the_karcher_mean_of_matrices_that_differ_in_scale_alone(rng, d):
    """There the metric is flat, however far they are apart."""
    X, scales, weights = random_spd(rng, 1, d), 10.0 ** rng.uniform(-9, 9, 6), rng.dirichlet(np.ones(6))
    found = AIRM().centroid_step(X * scales[:, None, None], weights[:, None], X)
    assert_allclose(found, X * np.exp(weights @ np.log(scales)), rtol=1e-10)


def test_airm_of_wide_matrices_by_lapack_agrees_with_the_core(rng, monkeypatch):
    X, Z = random_spd(rng, 5, 12), random_spd(rng, 3, 12)
    native = AIRM().pairwise(X, Z)
    monkeypatch.setattr(spectral, "_WIDEST", 11)
    assert_allclose(AIRM().pairwise(X, Z), native, rtol=1e-12)


@pytest.mark.usefixtures("target")
@for_each("d", [*range(1, 11), 19, 40, 65])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 2), (19, 3)])
def test_airm_of_every_size_is_that_of_singular_values(rng, d, n, m):
    X, Z = random_spd(rng, n, d, 1e4), random_spd(rng, m, d, 1e4)
    ratios = np.linalg.solve(np.linalg.cholesky(Z), np.linalg.cholesky(X)[:, None])
    expected = 2 * np.linalg.norm(np.log(np.linalg.svd(ratios, compute_uv=False)), axis=-1)
    assert_allclose(AIRM().pairwise(X, Z), expected, rtol=1e-11)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("scale", [1e-140, 1e-20, 1e20, 1e140])
def test_airm_of_every_scale_is_right(rng, scale):
    X = random_spd(rng, 9, 5)
    assert_allclose(AIRM().pairwise(X * scale, X * scale), AIRM().pairwise(X), rtol=1e-11, atol=1e-13)
    far = AIRM().pairwise(X * scale, X)
    assert_allclose(np.diagonal(far), np.sqrt(5) * abs(np.log(scale)), rtol=1e-13)
    diagonal = np.diag([1.0, 1e-100, 1e100, scale])[None]
    exact = np.sqrt(2 * np.log(1e100) ** 2 + np.log(scale) ** 2)
    assert_allclose(AIRM().pairwise(diagonal, np.eye(4)[None]), [[exact]], rtol=1e-13)


def test_airm_agrees_with_generalised_eigenvalues(rng):
    X, Z = random_spd(rng, 4, 6, 10.0), random_spd(rng, 3, 6, 10.0)
    assert_allclose(AIRM().pairwise(X, Z), reference.airm(X, Z), rtol=1e-12)


@every_geometry
def test_scaled_identities_have_the_distance_of_numbers(geometry):
    d, ratio = 3, 4.0
    expected = {
        "JBLD": d * np.log((1 + ratio) / 2) - d * np.log(ratio) / 2,
        "AIRM": np.sqrt(d) * np.log(ratio),
        "LogEuclidean": d * np.log(ratio) ** 2,
    }[type(geometry).__name__]
    assert_allclose(geometry.pairwise([np.eye(d)], [ratio * np.eye(d)]), [[expected]], rtol=1e-14)


# ---- truths ---------------------------------------------------------------------------------------------------


@every_geometry
def test_distances_are_symmetric_positive_and_zero_only_at_the_same_point(rng, geometry):
    X = random_spd(rng, 7, 5)
    D = geometry.pairwise(X)
    assert_allclose(D, D.T, rtol=0, atol=1e-12)
    assert_allclose(np.diagonal(D), 0, atol=1e-11)
    assert (D[~np.eye(7, dtype=bool)] > 0.01).all()
    assert np.array_equal(D, geometry.pairwise(X, X))


def test_jbld_of_a_matrix_to_itself_is_exactly_zero(rng):
    X = random_spd(rng, 40, 6, 1e8)
    assert (np.diagonal(JBLD().pairwise(X)) == 0).all()


@pytest.mark.parametrize("geometry", [JBLD(), AIRM()], ids=repr)
def test_a_congruence_leaves_distances_unchanged(rng, geometry):
    X, Z, A = random_spd(rng, 6, 5), random_spd(rng, 4, 5), rng.normal(size=(5, 5)) + 3 * np.eye(5)
    moved = [0.5 * (Y + Y.transpose(0, 2, 1)) for Y in (A @ X @ A.T, A @ Z @ A.T)]
    assert_allclose(geometry.pairwise(*moved), geometry.pairwise(X, Z), rtol=0, atol=1e-10)


@every_geometry
def test_inversion_and_scaling_leave_distances_unchanged(rng, geometry):
    X, Z = random_spd(rng, 6, 5), random_spd(rng, 4, 5)
    D = geometry.pairwise(X, Z)
    inverses = [0.5 * (Y + Y.transpose(0, 2, 1)) for Y in (np.linalg.inv(X), np.linalg.inv(Z))]
    assert_allclose(geometry.pairwise(*inverses), D, rtol=0, atol=1e-10)
    assert_allclose(geometry.pairwise(1e-3 * X, 1e-3 * Z), D, rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=60, database=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 6), log_condition=st.floats(0, 6), log_scale=st.floats(-5, 5))
def test_the_root_of_jbld_obeys_the_triangle_inequality(seed, d, log_condition, log_scale):
    rng = np.random.default_rng(seed)
    X = random_spd(rng, 5, d, 10.0**log_condition) * 10.0 ** rng.uniform(-abs(log_scale), abs(log_scale), (5, 1, 1))
    R = np.sqrt(JBLD().pairwise(X))
    assert (R[:, None, :] <= R[:, :, None] + R[None, :, :] + 1e-7).all()


@settings(deadline=None, max_examples=60, database=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 6), log_condition=st.floats(0, 3))
def test_airm_bounds_jbld(seed, d, log_condition):
    """JBLD sums log cosh(log(lambda) / 2), which is at most log(lambda)^2 / 8."""
    X = random_spd(np.random.default_rng(seed), 4, d, 10.0**log_condition)
    assert (JBLD().pairwise(X) <= AIRM().pairwise(X) ** 2 / 8 + 1e-9).all()


@every_geometry
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_scales_change_neither_distances_nor_the_centroid(rng, geometry, scale):
    X, Z = random_spd(rng, 6, 4), random_spd(rng, 3, 4)
    assert_allclose(geometry.pairwise(scale * X, scale * Z), geometry.pairwise(X, Z), rtol=1e-9, atol=1e-9)
    apart = geometry.pairwise(scale * X, Z / scale)
    assert (np.isfinite(apart) & (apart > 100)).all()
    assert_allclose(geometry.centroid(scale * X) / scale, geometry.centroid(X), rtol=1e-9, atol=1e-9)


@every_smooth_geometry
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_scales_scale_the_gradient_inversely(rng, geometry, scale):
    X, Z, W = random_spd(rng, 6, 4), random_spd(rng, 3, 4), rng.normal(size=(6, 3))
    plain, scaled = (geometry.linearize(s * X, s * Z).pullback(W) for s in (1.0, scale))
    assert_allclose(scaled * scale, plain, rtol=0, atol=1e-9 * np.abs(plain).max())


# ---- derivatives ----------------------------------------------------------------------------------------------


@every_smooth_geometry
@pytest.mark.parametrize("d", [1, 2, 5, 8])
def test_the_gradient_is_that_of_the_distances(rng, geometry, d):
    X, Z, W = random_spd(rng, 7, d, 20.0), random_spd(rng, 3, d, 20.0), rng.normal(size=(7, 3))
    step = geometry.linearize(X, Z)
    assert_allclose(step.D, geometry.pairwise(X, Z), rtol=0, atol=1e-12)
    H = rng.normal(size=Z.shape)
    H = H + H.transpose(0, 2, 1)
    G = step.pullback(W)
    assert np.array_equal(G, G.transpose(0, 2, 1))
    assert taylor_slope(lambda Z: np.sum(W * geometry.linearize(X, Z).D), G, Z, H) > 1.9


def test_with_slack_jbld_has_the_same_distances_and_nearly_the_same_gradient(rng):
    X, Z, W = random_spd(rng, 40, 7), random_spd(rng, 3, 7), rng.normal(size=(40, 3))
    exact, loose = (JBLD().linearize_at(Z, slack)(X) for slack in (1.0, JBLD.slacks[0]))
    assert np.array_equal(loose.D, exact.D)
    assert_allclose(loose.pullback(W), exact.pullback(W), rtol=0, atol=1e-5 * np.abs(exact.pullback(W)).max())
    assert not np.array_equal(loose.pullback(W), exact.pullback(W))
    assert np.array_equal(JBLD().linearize(X, Z).pullback(W), exact.pullback(W))


@pytest.mark.parametrize(
    ("low", "high"),
    [(1e-149, 1e-146), (1.0, 1e3), (1.0, 1e9), (1e-150, 1e-137), (1e120, 1e140), (1e-160, 1e100), (1e-200, 1e150)],
)
def test_divided_differences_of_log_are_those_of_50_digits(low, high):
    """Also where one eigenvalue is rounded away beside the other, and where their quotient overflows."""
    found = _divided_log(np.array([[low, high]]))[0]
    with mpmath.workdps(50):
        a, b = mpmath.mpf(low), mpmath.mpf(high)
        exact = float((mpmath.log(a) - mpmath.log(b)) / (a - b))
    expected = np.array([[1 / low, exact], [exact, 1 / high]])
    assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-12, 1e-8, 1e-5, 1e-3])
def test_the_log_euclidean_gradient_holds_where_eigenvalues_meet(rng, gap):
    """Its reference: the derivative of log at Z along H is the upper right block of log [[Z, H], [0, Z]]."""
    frame = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    Z = (frame * [1.0, 1.0, 1.0 + gap, 3.0]) @ frame.T
    Z, X = 0.5 * (Z + Z.T), random_spd(rng, 1, 4, 20.0)[0]
    H = 2 * (logm(Z) - logm(X))
    expected = logm(np.block([[Z, H], [np.zeros((4, 4)), Z]]))[:4, 4:]
    G = LogEuclidean().linearize(X[None], Z[None]).pullback(np.ones((1, 1)))
    assert_allclose(G[0], expected, rtol=0, atol=1e-9)


@every_smooth_geometry
def test_the_gradient_vanishes_at_the_point_itself(rng, geometry):
    Z = random_spd(rng, 3, 5)
    assert_allclose(geometry.linearize(Z, Z).pullback(np.eye(3)), 0, atol=1e-10)


@every_smooth_geometry
def test_memory_changes_nothing_but_time(rng, geometry):
    X, Z, W = random_spd(rng, 11, 4), random_spd(rng, 3, 4), rng.normal(size=(11, 3))
    moved = 1.1 * Z + 0.1 * np.eye(4)
    warm, cold = (geometry.linearize(X, moved, memory) for memory in (geometry.linearize(X, Z).memory, None))
    assert np.array_equal(warm.D, cold.D)
    assert np.array_equal(warm.pullback(W), cold.pullback(W))


@every_smooth_geometry
def test_weights_far_below_the_largest_do_not_matter(rng, geometry):
    X, Z, W = random_spd(rng, 11, 4), random_spd(rng, 3, 4), rng.normal(size=(11, 3))
    step = geometry.linearize(X, Z)
    whole = step.pullback(W)
    W[:5] = 0.0
    without = step.pullback(W)
    W[:5] = 1e-14
    assert_allclose(step.pullback(W), without, rtol=0, atol=1e-12)
    assert np.abs(whole - without).max() > 0.01
    assert not step.pullback(np.zeros_like(W)).any()


# ---- centroids ------------------------------------------------------------------------------------------------


@every_weighting
@pytest.mark.parametrize(
    ("geometry", "mean"),
    [
        (JBLD(), lambda X, w: mean_logdet(X, sample_weight=w, tol=1e-12, maxiter=500)),
        (AIRM(), lambda X, w: mean_riemann(X, sample_weight=w, tol=1e-12, maxiter=500)),
        (LogEuclidean(), lambda X, w: mean_logeuclid(X, sample_weight=w)),
    ],
    ids=["jbld", "airm", "logeuclid"],
)
def test_centroids_are_those_of_pyriemann(rng, geometry, mean, weights):
    X = random_spd(rng, 6, 5)
    used = np.ones(6, dtype=bool) if weights is None else np.array(weights) > 0
    expected = mean(X[used], None if weights is None else np.array(weights)[used])
    C = geometry.centroid(X, weights)
    assert_allclose(C, expected, rtol=0, atol=1e-6)
    assert np.array_equal(C, C.T)


@every_weighting
@every_smooth_geometry
def test_the_gradient_vanishes_at_the_centroid(rng, geometry, weights):
    X = random_spd(rng, 6, 5)
    C = geometry.centroid(X, weights)
    w = np.full(6, 1 / 6) if weights is None else np.array(weights) / np.sum(weights)
    assert np.linalg.norm(geometry.linearize(X, C[None]).pullback(w[:, None])) < 1e-8


@every_weighting
def test_the_mean_logarithm_vanishes_at_the_karcher_mean(rng, weights):
    X = random_spd(rng, 6, 5)
    values, vectors = np.linalg.eigh(AIRM().centroid(X, weights))
    whiten = (vectors / np.sqrt(values)) @ vectors.T
    values, vectors = np.linalg.eigh(whiten @ X @ whiten)
    logs = (vectors * np.log(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
    assert np.linalg.norm(np.average(logs, axis=0, weights=weights)) < 1e-8


@every_geometry
@pytest.mark.parametrize("condition", [1e6, 1e10])
def test_centroids_of_ill_conditioned_matrices_converge(rng, geometry, condition):
    X = random_spd(rng, 12, 6, condition)
    C = geometry.centroid(X)
    spread = geometry.pairwise(X, [C])
    power = 2 if isinstance(geometry, AIRM) else 1  # what the centroid minimises the sum of
    for factor in (0.9, 1.1):
        assert np.sum(spread**power) < np.sum(geometry.pairwise(X, [factor * C]) ** power)


@every_geometry
def test_the_centroid_of_one_point_is_that_point(rng, geometry):
    X = random_spd(rng, 1, 5)
    assert_allclose(geometry.centroid(X), X[0], rtol=0, atol=1e-12)
    assert_allclose(geometry.centroid(np.repeat(X, 3, axis=0), [0.0, 2.0, 1.0]), X[0], rtol=0, atol=1e-12)


# ---- doors ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("many_blocks")
@every_geometry
@pytest.mark.parametrize("d", [3, 40])
def test_results_are_the_same_for_any_number_of_threads(rng, geometry, d):
    X, Z = random_spd(rng, 133, d), random_spd(rng, 7, d)
    alone = geometry.pairwise(X, Z, n_jobs=1)
    for n_jobs in (2, 4, None):
        assert np.array_equal(geometry.pairwise(X, Z, n_jobs=n_jobs), alone)


@every_geometry
@pytest.mark.parametrize("form", INPUT_FORMS)
def test_every_form_of_input_gives_the_float64_result(rng, geometry, form):
    (X, plain_x), (Z, plain_z) = (INPUT_FORMS[form](random_spd(rng, n, 4)) for n in (5, 3))
    assert np.array_equal(geometry.pairwise(X, Z), geometry.pairwise(plain_x, plain_z))
    assert np.array_equal(geometry.centroid(X), geometry.centroid(plain_x))
    checked = geometry.check(X)
    assert checked.dtype == np.float64
    assert checked.flags.c_contiguous


@every_geometry
def test_inputs_are_never_modified(rng, geometry):
    X, Z, w = random_spd(rng, 5, 4), random_spd(rng, 3, 4), np.arange(1.0, 6.0)
    X[1, 0, 1] *= 1 + 1e-10  # asymmetric by rounding: averaged away, but not in place
    before = X.copy(), Z.copy(), w.copy()
    geometry.pairwise(X, Z)
    geometry.centroid(X, w)
    if isinstance(geometry, SmoothGeometry):
        W = np.ones((5, 3))
        geometry.linearize(X, Z).pullback(W)
        assert (W == 1).all()
    for a, b in zip((X, Z, w), before, strict=True):
        assert np.array_equal(a, b)


@every_geometry
def test_asymmetry_from_rounding_is_averaged_away(rng, geometry):
    X = random_spd(rng, 5, 4)
    skew = rng.normal(size=X.shape)
    skewed = X + 1e-10 * (skew - skew.transpose(0, 2, 1))
    checked = geometry.check(skewed)
    assert np.array_equal(checked, checked.transpose(0, 2, 1))
    assert_allclose(geometry.pairwise(skewed), geometry.pairwise(X), rtol=0, atol=1e-12)


@every_geometry
def test_only_the_smooth_geometries_say_that_they_are(geometry):
    assert isinstance(geometry, SmoothGeometry) == (type(geometry) is not AIRM)
