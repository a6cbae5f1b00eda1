"""The native kernels, on every instruction set, against NumPy and log-domain references."""

import numpy as np
import pytest
import reference
from cases import for_each
from numpy.testing import assert_allclose, assert_array_equal
from reference import grid_cost, random_cost, random_histograms, random_spd

from knnpress import _core

pytestmark = pytest.mark.usefixtures("target")

DIMS = [*range(1, 10), 19, 40, 65]
SHAPES = [(1, 1), (1, 3), (3, 1), (7, 2), (8, 4), (19, 5)]  # below, at and beyond whole vectors of 2, 4 and 8


def batches(X, Z):
    return _core.SpdLanes(X), _core.SpdSequence(Z)


# ---- instruction sets -----------------------------------------------------------------------------------------


def test_the_chosen_target_is_used_and_an_unknown_one_refused(target):
    assert _core.target() == target
    with pytest.raises(ValueError, match="no instruction set"):
        _core.set_target("abacus")
    assert _core.target() == target


# ---- symmetric positive definite matrices ---------------------------------------------------------------------


@for_each("d", DIMS)
def test_it_makes_no_difference_which_of_two_sets_is_in_the_lanes(rng, d):
    X, Z = random_spd(rng, 3, d), random_spd(rng, 19, d)
    assert_array_equal(_core.jbld_pairwise(*batches(X, Z)), _core.jbld_pairwise(*batches(Z, X)).T)


@for_each("d", DIMS)
def test_matrices_are_sound_if_finite_symmetric_positive_definite_and_of_moderate_size(rng, d):
    X = random_spd(rng, 19, d)
    X = 0.5 * (X + X.transpose(0, 2, 1))

    def is_sound(row, change):
        changed = X.copy()
        change(changed[row])
        return _core.all_positive_definite(changed, 1e-290, 4e307, d * 2.3e-16)

    def spoil(where, value):
        def change(A):
            A[where] = value

        return change

    def mirror(value):
        def change(A):
            A[0, -1] = A[-1, 0] = value

        return change

    for row in (0, 9, 18):
        assert is_sound(row, lambda A: None)
        for value in (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e-300, 1e308):
            assert not is_sound(row, spoil((d - 1, d - 1), value))
        if d > 1:
            assert not is_sound(row, spoil((0, d - 1), np.nextafter(X[row, 0, d - 1], np.inf)))
            assert not is_sound(row, spoil((d - 1, 0), np.nextafter(X[row, d - 1, 0], np.inf)))
            for value in (np.nan, np.inf, -np.inf, 2.0 * X[row, 0, 0] * X[row, -1, -1] + 10.0):
                assert not is_sound(row, mirror(value))


@pytest.mark.parametrize("pack", [_core.SpdLanes, _core.SpdSequence])
@for_each("d", DIMS)
def test_logdet_and_margin_are_those_of_the_cholesky_factor(rng, d, pack):
    X = random_spd(rng, 19, d)
    batch = pack(X)
    assert_allclose(batch.logdet, reference.logdet(X), rtol=1e-13, atol=1e-12)
    pivots = np.diagonal(np.linalg.cholesky(X), axis1=1, axis2=2) ** 2
    assert_allclose(batch.margin, (pivots / np.diagonal(X, axis1=1, axis2=2)).min(axis=1), rtol=1e-11)


def test_margin_of_a_matrix_that_is_not_positive_definite_is_not_positive(rng):
    X = random_spd(rng, 5, 4)
    X[2] -= 1.5 * np.linalg.eigvalsh(X[2])[0] * np.eye(4)
    assert ((_core.SpdLanes(X).margin > 0) == [True, True, False, True, True]).all()


def test_logdet_of_more_than_a_thousand_pivots_neither_overflows_nor_underflows(rng):
    d = 1101
    diagonal = np.array([np.full(d, 1.99), np.full(d, 1.99e-200), rng.uniform(1e100, 2e200, d)])
    X = diagonal[:, :, None] * np.eye(d)
    x, z = batches(X, X[1:2])
    assert_allclose(x.logdet, np.log(diagonal).sum(axis=1), rtol=1e-14)
    assert _core.jbld_pairwise(x, z)[1, 0] == 0


@for_each("d", DIMS)
def test_jbld_pairwise_agrees_with_numpy_in_every_size(rng, d):
    X, Z = random_spd(rng, 19, d), random_spd(rng, 5, d)
    assert_allclose(_core.jbld_pairwise(*batches(X, Z)), reference.jbld(X, Z), rtol=0, atol=1e-12 * d)


@for_each("shape", SHAPES)
def test_jbld_agrees_with_numpy_in_every_shape(rng, shape):
    n, m = shape
    X, Z, W = random_spd(rng, n, 5), random_spd(rng, m, 5), rng.normal(size=(n, m))
    x, z = batches(X, Z)
    assert_allclose(_core.jbld_pairwise(x, z), reference.jbld(X, Z), rtol=0, atol=1e-12)
    assert_allclose(_core.jbld_pullback(x, z, W, 0.0), reference.inverse_sums(X, Z, W), rtol=0, atol=1e-11)


@for_each("d", DIMS)
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_jbld_of_a_matrix_to_itself_is_exactly_zero(rng, d, scale):
    X = scale * random_spd(rng, 11, d, 1e6)
    D = _core.jbld_pairwise(*batches(X, X))
    assert (np.diagonal(D) == 0).all()
    assert (D >= 0).all()
    assert np.isfinite(D).all()


def test_jbld_of_numbers_is_accurate_to_the_last_digits_over_the_whole_range(rng):
    x, z = np.exp(rng.uniform(-690, 690, (2, 200)))
    D = _core.jbld_pairwise(*batches(x[:, None, None], z[:, None, None]))
    half = 0.5 * (np.log(x)[:, None] - np.log(z))  # log cosh of half the log-ratio
    assert_allclose(D, np.logaddexp(half, -half) - np.log(2), rtol=0, atol=700 * 4 * np.finfo(float).eps)


def test_logarithms_are_accurate_to_the_last_digit(rng):
    x = np.concatenate([rng.uniform(0.5, 2.0, 500), np.sqrt(2) + np.arange(-5, 5) * 1e-16, [1.0, 1 + 1e-15]])
    assert_allclose(_core.SpdLanes(x[:, None, None]).logdet, np.log(x), rtol=0, atol=3e-16)
    assert_allclose(_core.SpdLanes(1e300 * x[:, None, None]).logdet, np.log(1e300 * x), rtol=4e-16)


@for_each("d", DIMS)
def test_jbld_pullback_sums_the_weighted_inverses_in_every_size(rng, d):
    X, Z, W = random_spd(rng, 19, d), random_spd(rng, 5, d), rng.normal(size=(19, 5))
    G = _core.jbld_pullback(*batches(X, Z), W, 0.0)
    expected = reference.inverse_sums(X, Z, W)
    assert_allclose(G, expected, rtol=0, atol=1e-11 * np.abs(expected).max())
    assert np.array_equal(G, G.transpose(0, 2, 1))


@for_each("share", [0.0, 0.05, 0.5, 0.95, 1.0])
def test_jbld_pullback_drops_the_pairs_at_or_below_the_tolerance_and_no_others(rng, share):
    X, Z, W = random_spd(rng, 43, 6), random_spd(rng, 4, 6), rng.normal(size=(43, 4))
    small = rng.random(W.shape) < share
    small[:, 1] = True
    W[small] = rng.choice([0.0, 0.5, -0.5, 1e-3], small.sum())
    W[~small] += np.where(W[~small] > 0, 0.5, -0.5)
    G = _core.jbld_pullback(*batches(X, Z), W, 0.5)
    assert_allclose(G, reference.inverse_sums(X, Z, np.where(small, 0.0, W)), rtol=0, atol=1e-11)
    assert (G[1] == 0).all()


def assert_single_is_close(X, Z, W, tolerance=0.0, rtol=1e-5):
    """`rtol` of the sum of the inverses, each by the size of its weight; and that it is not the double result."""
    G, exact = (_core.jbld_pullback(*batches(X, Z), W, tolerance, single) for single in (True, False))
    largest = reference.inverse_sums(X, Z, np.abs(W)).max(axis=(1, 2), keepdims=True)
    assert (np.abs(G - exact) <= rtol * largest).all()
    assert np.array_equal(G, G.transpose(0, 2, 1))
    assert not np.array_equal(G, exact)


@for_each("d", [1, 2, 3, 11, 19, 40, 63])
def test_jbld_pullback_in_single_precision_is_close_in_every_size(rng, d):
    assert_single_is_close(random_spd(rng, 43, d), random_spd(rng, 3, d), rng.normal(size=(43, 3)))


@for_each("n", [*range(1, 35), 48, 67])
def test_jbld_pullback_in_single_precision_is_close_for_any_number_of_rows(rng, n):
    assert_single_is_close(random_spd(rng, n, 5), random_spd(rng, 3, 5), rng.normal(size=(n, 3)))


@for_each("share", [0.05, 0.5, 0.95])
def test_jbld_pullback_in_single_precision_drops_the_same_pairs(rng, share):
    X, Z, W = random_spd(rng, 43, 6), random_spd(rng, 4, 6), rng.choice([-1.0, 1.0], (43, 4))
    W[rng.random(W.shape) < share] = 0.5
    W[:, 1] = -0.5
    assert_single_is_close(X, Z, W, 0.5)
    assert (_core.jbld_pullback(*batches(X, Z), W, 0.5, True)[1] == 0).all()


@for_each("scale", [1e-300, 1e-30, 1e30, 1e290])
def test_jbld_pullback_in_single_precision_knows_weights_of_any_size(rng, scale):
    W = rng.normal(size=(19, 3)) * [1.0, scale, 1.0]
    assert_single_is_close(random_spd(rng, 19, 5), random_spd(rng, 3, 5), W)


@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_jbld_pullback_in_single_precision_is_close_at_moderate_scales(rng, scale):
    assert_single_is_close(scale * random_spd(rng, 19, 5), scale * random_spd(rng, 3, 5), rng.normal(size=(19, 3)))


@pytest.mark.parametrize("scales", [(1e-30, 1e-30), (1e30, 1e30), (1.0, 1e-19), (1e19, 1.0)])
def test_jbld_pullback_of_extreme_matrices_is_never_in_single_precision(rng, scales):
    X, Z, W = scales[0] * random_spd(rng, 19, 5), scales[1] * random_spd(rng, 3, 5), rng.normal(size=(19, 3))
    x, z = batches(X, Z)
    assert_array_equal(_core.jbld_pullback(x, z, W, 0.0, True), _core.jbld_pullback(x, z, W, 0.0))


def nearly_singular(rng, n, d, gap):
    """Matrices of ones, whose pivots but the first are `gap` and a little more."""
    return 1.0 + rng.uniform(1.0, 2.0, (n, 1, d)) * gap * np.eye(d)


@pytest.mark.parametrize(
    ("gap", "rtol"), [(0.0, 1e-5), (1e-12, 1e-5), (1e-9, 1e-5), (1e-6, 1e-5), (1e-5, 1e-5), (1e-4, 1e-3)]
)
def test_jbld_pullback_in_single_precision_leaves_nearly_singular_matrices_to_double(rng, gap, rtol):
    X, W = random_spd(rng, 67, 7), rng.normal(size=(67, 2))
    X[[5, 20, 66]] = nearly_singular(rng, 3, 7, gap)  # in whole batches, and in the rest
    Z = np.concatenate([nearly_singular(rng, 1, 7, max(gap, 1e-12)), random_spd(rng, 1, 7)])
    assert_single_is_close(X, Z, W, rtol=rtol)
    sparse = np.where(rng.random(W.shape) < 0.5, 0.0, W)
    sparse[[5, 20, 66]] = W[[5, 20, 66]]
    assert_single_is_close(X, Z, sparse, rtol=rtol)


@pytest.mark.parametrize("condition", [1e4, 1e6, 1e8, 1e10])
def test_jbld_pullback_in_single_precision_is_close_for_ill_conditioned_matrices(rng, condition):
    X = random_spd(rng, 67, 11, condition)
    x, z = batches(X, X[:3])
    W = rng.normal(size=(67, 3))
    G, exact = (_core.jbld_pullback(x, z, W, 0.0, single) for single in (True, False))
    assert_allclose(G, exact, rtol=0, atol=1e-3 * reference.inverse_sums(X, X[:3], np.abs(W)).max())


@pytest.mark.parametrize("rows", [slice(0, 1), slice(3, 8), slice(5, 19)])
def test_a_row_of_jbld_does_not_depend_on_its_neighbours(rng, rows):
    X, Z = random_spd(rng, 19, 7), random_spd(rng, 5, 7)
    D = _core.jbld_pairwise(*batches(X, Z))
    assert np.array_equal(_core.jbld_pairwise(*batches(X[rows], Z[1:3])), D[rows, 1:3])


def test_jbld_is_finite_however_near_singular_the_matrices(rng):
    X = random_spd(rng, 9, 6, 1e15)
    X[0] = np.diag([1e-308, 1e308, 1e-160, 1e160, 1.0, 1e-308])
    x, z = batches(X, X)
    assert np.isfinite(_core.jbld_pairwise(x, z)).all()
    assert np.isfinite(x.logdet).all()


# ---- entropic transport ---------------------------------------------------------------------------------------


def solve(M, reg, X, Z, *, tol=1e-12, max_iter=100_000, transport=False, potential=None):
    """Value, iterations, error, and the potentials of X."""
    shape = (len(X), *Z.shape)
    potential = np.zeros(shape) if potential is None else potential.copy()
    cost = _core.SinkhornCost(M, reg)
    out = _core.sinkhorn(cost, X, Z, potential, np.zeros(shape[:2]), tol, max_iter, transport)
    return *out, potential


def far_corner(M, reg, times):
    """M with one pair of bins so far apart, times * reg, that no mass moves between them."""
    M = M.copy()
    M[0, -1] = M[-1, 0] = times * reg
    return M


SOLVERS = pytest.mark.parametrize("times", [pytest.param(10, id="shared"), pytest.param(1000, id="stabilised")])
ZEROS = pytest.mark.parametrize("zeros", [0.0, 0.6])


@SOLVERS
def test_the_stabilised_solver_takes_over_where_the_kernel_would_underflow(times):
    assert _core.SinkhornCost(far_corner(grid_cost(3), 0.3, times), 0.3).stabilised == (times > 300)


@SOLVERS
@ZEROS
@for_each("d", [2, 3, 5, 8, 9, 13, 25])
def test_sinkhorn_agrees_with_the_log_domain_reference_in_every_size(rng, d, zeros, times):
    M, reg = far_corner(random_cost(rng, d), 0.4, times), 0.4
    X, Z = random_histograms(rng, 3, d, zeros), random_histograms(rng, 2, d, zeros)
    dual, _, _, potential = solve(M, reg, X, Z)
    transport = solve(M, reg, X, Z, transport=True)[0]
    for i, a in enumerate(X):
        for j, b in enumerate(Z):
            expected = reference.sinkhorn(a, b, M, reg)
            assert_allclose(dual[i, j], expected.dual, rtol=1e-10)
            assert_allclose(transport[i, j], expected.transport, rtol=1e-9)
            shift = potential[i, j, 0] - expected.potential_x[0]
            assert_allclose(potential[i, j], expected.potential_x + shift, rtol=0, atol=1e-9)


@ZEROS
@for_each("d", [2, 5, 13, 25, 60])
def test_sinkhorn_in_single_precision_agrees_with_that_in_double(rng, d, zeros):
    M, reg, tol = random_cost(rng, d), 0.3, 1e-4
    X, Z, W = random_histograms(rng, 17, d, zeros), random_histograms(rng, 6, d, zeros), rng.normal(size=(17, 6))
    cost = _core.SinkhornCost(M, reg)
    values, gradients = [], []
    for single in (False, True):
        potential, relaxation = np.zeros((17, 6, d)), np.zeros((17, 6))
        for _ in range(2):  # cold, then warm
            value, iterations, error = _core.sinkhorn(
                cost, X, Z, potential, relaxation, tol, 1000, False, None, None, single
            )
            assert (error < tol).all()
            assert (iterations > 0).all()
        values.append(value)
        gradients.append(_core.sinkhorn_pullback(cost, X, potential, W, 0.0, single))
    assert not np.array_equal(*values)  # it is another precision
    assert_allclose(values[1], solve(M, reg, X, Z)[0], rtol=0, atol=1e-4 * M.max())
    assert_allclose(*values, rtol=0, atol=1e-5 * M.max())
    gauge = (gradients[1] - gradients[0]).mean(axis=1, keepdims=True)
    assert_allclose(gradients[1] - gauge, gradients[0], rtol=0, atol=1e-3 * np.abs(gradients[0]).max())


@pytest.mark.parametrize(("times", "safe"), [(30, True), (60, False), (400, False)])
def test_sinkhorn_is_in_single_precision_only_where_no_scaling_can_overflow(rng, times, safe):
    M, reg = far_corner(grid_cost(3), 0.3, times), 0.3
    X, Z = random_histograms(rng, 5, 9, 0.3), random_histograms(rng, 4, 9)
    cost = _core.SinkhornCost(M, reg)
    settings = (cost, X, Z, None, None, 1e-4, 1000, False, None, None)
    double, single = _core.sinkhorn(*settings)[0], _core.sinkhorn(*settings, True)[0]
    assert np.array_equal(double, single) != safe
    assert_allclose(single, double, rtol=1e-4)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 40), (23, 3), (24, 1), (13, 13)])
def test_sinkhorn_serves_any_number_of_pairs(rng, n, m):
    M, X, Z = grid_cost(2), random_histograms(rng, n, 4), random_histograms(rng, m, 4)
    value, iterations, error, _ = solve(M, 0.5, X, Z)
    assert value.shape == iterations.shape == error.shape == (n, m)
    corners = (0, 0), (0, m - 1), (n - 1, 0), (n - 1, m - 1)
    for i, j in corners:
        assert_allclose(value[i, j], reference.sinkhorn(X[i], Z[j], M, 0.5).dual, rtol=1e-10)


def test_one_bin_costs_what_its_ground_cost_says():
    one = np.ones((2, 1))
    for transport in (False, True):
        assert_allclose(solve(np.array([[1.7]]), 0.2, one, one, transport=transport)[0], 1.7, rtol=1e-14)


@SOLVERS
@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-10])
def test_each_pair_meets_its_marginals_to_the_tolerance(rng, tol, times):
    M, reg = far_corner(grid_cost(4), 0.3, times), 0.3
    X, Z = random_histograms(rng, 9, 16, 0.3), random_histograms(rng, 7, 16, 0.3)
    _, iterations, error, potential = solve(M, reg, X, Z, tol=tol)
    assert (error < tol).all()
    assert (iterations > 0).all()
    actual = [
        [reference.marginal_error(reference.transport_of(f, a, b, M, reg), a) for f, b in zip(row, Z, strict=True)]
        for row, a in zip(potential, X, strict=True)
    ]
    assert np.max(actual) < 2 * tol
    assert len(np.unique(iterations)) > 1  # pairs stop when they are ready, not together


@SOLVERS
def test_a_pair_cut_short_reports_its_true_error(rng, times):
    M, reg = far_corner(grid_cost(4), 0.1, times), 0.1
    X, Z = random_histograms(rng, 5, 16), random_histograms(rng, 3, 16)
    value, iterations, error, _ = solve(M, reg, X, Z, tol=0.0, max_iter=5)
    assert (iterations == 5).all()
    before, after = (solve(M, reg, X, Z, tol=0.0, max_iter=steps)[3] for steps in (4, 5))
    for i, a in enumerate(X):
        for j, b in enumerate(Z):
            earlier, later = (
                reference.marginal_error(reference.transport_of(f[i, j], a, b, M, reg), a) for f in (before, after)
            )
            if times == 10:
                assert_allclose(error[i, j], earlier, rtol=1e-9)
            else:  # Newton's: that of the plan before the last half-step, which can only make it smaller
                assert later * (1 - 1e-9) <= error[i, j] < 10 * later
    assert np.isfinite(value).all()


@SOLVERS
def test_a_pair_does_not_depend_on_the_pairs_solved_with_it(rng, times):
    M, reg = far_corner(grid_cost(3), 0.2, times), 0.2
    X, Z = random_histograms(rng, 9, 9, 0.3), random_histograms(rng, 8, 9, 0.3)
    together = solve(M, reg, X, Z, tol=1e-8)
    for i, j in [(0, 0), (4, 3), (8, 7), (8, 0)]:
        alone = solve(M, reg, X[[i]], Z[[j]], tol=1e-8)
        for a, b in zip(alone, together, strict=True):
            assert np.array_equal(a[0, 0], b[i, j])


@SOLVERS
def test_the_values_do_not_depend_on_whether_potentials_are_kept(rng, times):
    M, X, Z = far_corner(grid_cost(3), 0.2, times), random_histograms(rng, 5, 9), random_histograms(rng, 4, 9)
    bare = _core.sinkhorn(_core.SinkhornCost(M, 0.2), X, Z, None, None, 1e-8, 10_000, False)
    for a, b in zip(bare, solve(M, 0.2, X, Z, tol=1e-8)[:3], strict=True):
        assert_allclose(a, b, rtol=1e-13)


@pytest.mark.parametrize("zeros", [0.0, 0.6])
@pytest.mark.parametrize("transport", [False, True])
def test_both_solvers_agree_where_both_are_valid(rng, transport, zeros):
    reg, X, Z = 0.25, random_histograms(rng, 6, 16, zeros), random_histograms(rng, 4, 16, zeros)
    below, above = (far_corner(grid_cost(4), reg, times) for times in (299.9, 300.1))
    assert not _core.SinkhornCost(below, reg).stabilised
    assert _core.SinkhornCost(above, reg).stabilised
    shared, stabilised = (solve(M, reg, X, Z, transport=transport) for M in (below, above))
    assert_allclose(shared[0], stabilised[0], rtol=1e-10)
    gauge = (shared[3] - stabilised[3])[..., :1]
    # the far corner itself shows in the potential of a bin only where all nearer bins are empty
    assert_allclose(shared[3], stabilised[3] + gauge, rtol=0, atol=1e-9 if zeros == 0 else 0.2 * reg)


@SOLVERS
@pytest.mark.parametrize("transport", [False, True])
def test_between_single_bins_the_value_is_the_ground_cost(times, transport):
    M = far_corner(random_cost(np.random.default_rng(1), 5), 0.3, times)
    assert_allclose(solve(M, 0.3, np.eye(5), np.eye(5), transport=transport)[0], M, rtol=1e-13)


@for_each("c", [1e-3, 0.1, 1.0, 10.0, 40.0, 299.0, 301.0, 650.0])
def test_two_even_bins_have_the_value_of_the_closed_form(c):
    """With marginals 1/2 and cost c / reg off the diagonal, T = [[1, e], [e, 1]] / (2 + 2 e), e = exp(-c)."""
    M, even, e = 0.7 * c * (1 - np.eye(2)), np.full((1, 2), 0.5), np.exp(-c)
    assert_allclose(solve(M, 0.7, even, even, transport=True)[0], [[0.7 * c * e / (1 + e)]], rtol=1e-13, atol=1e-75)
    assert_allclose(solve(M, 0.7, even, even)[0], [[0.7 * (np.log(2) - np.log1p(e))]], rtol=1e-13)


@pytest.mark.parametrize("times", [1e3, 1e6, 1e12])
def test_a_vanishing_reg_gives_the_exact_transport_of_what_it_solved(rng, times):
    """As reg falls, transport stays between EMD and EMD + reg * log(d^2), up to the marginal error reported."""
    M = grid_cost(3)
    reg = M.max() / times
    X, Z = random_histograms(rng, 4, 9, 0.3), random_histograms(rng, 3, 9, 0.3)
    cost = _core.SinkhornCost(M, reg)
    assert cost.stabilised
    value, _, error, potential = solve(M, reg, X, Z, tol=1e-7, max_iter=20_000, transport=True)
    dual = solve(M, reg, X, Z, tol=1e-7, max_iter=20_000)[0]
    for array in (value, dual, error, potential):
        assert np.isfinite(array).all()
    exact = np.array([[reference.emd(a, b, M) for b in Z] for a in X])
    assert (value > exact - M.max() * (error + 1e-12)).all()
    assert (value < exact + reg * np.log(81) + M.max() * (error + 1e-12)).all()


@for_each("times", [10, 299, 301, 709.8, 1500, 2100, 3000, 1e5, 1e8])
def test_an_empty_bin_may_be_as_far_as_it_likes(rng, times):
    M, reg = grid_cost(3), 0.5
    M[0, 1:] = M[1:, 0] = times * reg
    X = random_histograms(rng, 4, 9)
    X[:, 0] = 0.0
    X /= X.sum(axis=1, keepdims=True)
    value, _, error, potential = solve(M, reg, X, X)
    near = solve(M[1:, 1:].copy(), reg, X[:, 1:].copy(), X[:, 1:].copy())
    assert (error < 1e-12).all()
    assert_allclose(value, near[0], rtol=1e-10)
    gauge = potential[..., 1:2] - near[3][..., :1]
    assert_allclose(potential[..., 1:], near[3] + gauge, rtol=0, atol=1e-9)
    assert np.isfinite(potential).all()
    own = _core.sinkhorn_self(_core.SinkhornCost(M, reg), X, 1e-12, 10_000)
    assert_allclose(own[0], np.diagonal(value), rtol=1e-10)
    pulled = _core.sinkhorn_pullback(_core.SinkhornCost(M, reg), X, potential, np.ones((4, 4)), 0.0)
    assert np.isfinite(pulled).all()


@SOLVERS
@pytest.mark.parametrize("tol", [1e-1, 1e-3])
def test_at_any_tolerance_the_dual_value_is_a_bound_from_below(rng, times, tol):
    """One potential answers the other exactly, so what is returned is a value of the dual problem."""
    M, reg = far_corner(grid_cost(4), 0.2, times), 0.2
    X, Z = random_histograms(rng, 9, 16), random_histograms(rng, 7, 16)
    below = solve(M, reg, X, Z)[0] - solve(M, reg, X, Z, tol=tol)[0]
    assert (below > -1e-12).all()
    assert (below < tol * M[0, 1]).all()
    cost = _core.SinkhornCost(M, reg)
    below = np.diagonal(solve(M, reg, X, X)[0]) - _core.sinkhorn_self(cost, X, tol, 10_000)[0]
    assert (below > -1e-12).all()
    assert (below < tol * M[0, 1]).all()


@SOLVERS
def test_bins_of_vanishing_mass_keep_everything_finite(rng, times):
    M = far_corner(grid_cost(3), 0.3, times)
    X = random_histograms(rng, 4, 9)
    X[1, :4], X[2, 0], X[3, :8] = 1e-300, 5e-324, 1e-17
    X /= X.sum(axis=1, keepdims=True)
    value, _, error, potential = solve(M, 0.3, X, X, tol=1e-9)
    own, own_potential, _, _ = _core.sinkhorn_self(_core.SinkhornCost(M, 0.3), X, 1e-9, 10_000)
    for array in (value, potential, own, own_potential):
        assert np.isfinite(array).all()
    assert (error < 1e-9).all()
    exact = np.where(X < 1e-100, 0.0, X)
    assert_allclose(value, solve(M, 0.3, exact, exact, tol=1e-9)[0], rtol=0, atol=1e-8)


@SOLVERS
def test_a_warm_start_gives_the_same_answer_in_fewer_steps(rng, times):
    M, reg = far_corner(grid_cost(4), 0.2, times), 0.2
    X, Z = random_histograms(rng, 6, 16), random_histograms(rng, 5, 16)
    cost = _core.SinkhornCost(M, reg)
    potential, relaxation = np.zeros((6, 5, 16)), np.zeros((6, 5))
    _core.sinkhorn(cost, X, Z, potential, relaxation, 1e-10, 10_000, False)
    assert ((relaxation >= 0) & (relaxation < 1)).all()
    again = _core.sinkhorn(cost, X, Z, potential, relaxation, 1e-9, 10_000, False)
    assert (again[1] <= 2).all()
    moved = 0.99 * Z + 0.01 * random_histograms(rng, 5, 16)
    warm = _core.sinkhorn(cost, X, moved, potential, relaxation, 1e-10, 10_000, False)
    cold = solve(M, reg, X, moved, tol=1e-10)
    assert_allclose(warm[0], cold[0], rtol=0, atol=1e-9)
    assert warm[1].mean() < cold[1].mean()
    assert (warm[2] < 1e-10).all()


@SOLVERS
def test_each_pair_is_solved_to_its_own_tolerance(rng, times):
    M, reg = far_corner(grid_cost(4), 0.2, times), 0.2
    X, Z = random_histograms(rng, 12, 16), random_histograms(rng, 5, 16)
    cost, tols = _core.SinkhornCost(M, reg), 10.0 ** -rng.integers(1, 10, (12, 5))
    _, steps, error = _core.sinkhorn(cost, X, Z, None, None, 1e-12, 10_000, False, None, tols)
    assert (error < tols).all()
    for tol in np.unique(tols):
        _, all_steps, _ = _core.sinkhorn(cost, X, Z, None, None, tol, 10_000, False)
        assert_array_equal(steps[tols == tol], all_steps[tols == tol])
    with pytest.raises(ValueError, match="tols must be"):
        _core.sinkhorn(cost, X, Z, None, None, 1e-12, 10_000, False, None, tols[:, :4].copy())


def test_a_pair_beyond_its_limit_is_left_out_however_soon_it_is_solved(rng):
    X, Z = random_histograms(rng, 20, 16), random_histograms(rng, 7, 16)
    cost = _core.SinkhornCost(grid_cost(4), 0.2)
    value = _core.sinkhorn(cost, X, Z, None, None, 1e-10, 10_000, False)[0]
    limit = value + rng.choice([-0.05, 0.05], value.shape)
    for tol in (1e-10, 1e-2):
        found = _core.sinkhorn(cost, X, Z, None, None, tol, 10_000, False, limit)[0]
        assert_array_equal(np.isinf(found), limit < value)


@SOLVERS
@pytest.mark.parametrize("constant", [-7.0, 1000.0])
def test_a_constant_in_the_potentials_changes_nothing(rng, times, constant):
    M, reg, W = far_corner(grid_cost(3), 0.2, times), 0.2, rng.normal(size=(6, 5))
    X, Z = random_histograms(rng, 6, 9, 0.3), random_histograms(rng, 5, 9, 0.3)
    value, _, _, potential = solve(M, reg, X, Z, tol=1e-10)
    shifted = solve(M, reg, X, Z, tol=1e-10, potential=potential + constant)
    assert_allclose(shifted[0], value, rtol=0, atol=1e-9)
    cost = _core.SinkhornCost(M, reg)
    plain, moved = (_core.sinkhorn_pullback(cost, X, f, W, 0.0) for f in (potential, potential + constant))
    gauge = (moved - plain).mean(axis=1, keepdims=True)
    assert_allclose(moved, plain + gauge, rtol=0, atol=1e-9)


@SOLVERS
@ZEROS
@for_each("n", [1, 13, 50])
def test_sinkhorn_pullback_sums_the_potentials_of_the_pairs_that_matter(rng, n, zeros, times):
    M, reg = far_corner(random_cost(rng, 7), 0.4, times), 0.4
    X, Z, W = random_histograms(rng, n, 7, zeros), random_histograms(rng, 3, 7, zeros), rng.normal(size=(n, 3))
    small = rng.random(W.shape) < 0.4
    small[:, 2] = True
    W[small] = rng.choice([0.0, 0.1, -0.1], small.sum())
    W[~small] += np.where(W[~small] > 0, 0.1, -0.1)
    potential = solve(M, reg, X, Z, tol=1e-8)[3]
    G = _core.sinkhorn_pullback(_core.SinkhornCost(M, reg), X, potential, W, 0.1)
    expected = np.zeros((3, 7))
    for i, j in zip(*np.nonzero(~small), strict=True):
        expected[j] += W[i, j] * reference.soft_minimum(M.T, potential[i, j], X[i], reg)
    gauge = (G - expected).mean(axis=1, keepdims=True)
    assert_allclose(G, expected + gauge, rtol=0, atol=1e-9)
    assert (G[2] == 0).all()


@SOLVERS
@ZEROS
@for_each("n", [1, 13, 25])
def test_self_terms_are_those_of_a_histogram_with_itself(rng, n, zeros, times):
    M, reg = far_corner(grid_cost(3), 0.3, times), 0.3
    X = random_histograms(rng, n, 9, zeros)
    value, potential, iterations, error = _core.sinkhorn_self(_core.SinkhornCost(M, reg), X, 1e-12, 10_000)
    assert (error < 1e-12).all()
    assert ((iterations > 0) & (iterations < 10_000)).all()
    for i in {0, n - 1}:
        expected = reference.sinkhorn(X[i], X[i], M, reg)
        assert_allclose(value[i], expected.dual, rtol=0, atol=1e-11)
        # the symmetric potential, by its own fixed-point equation, at empty bins too
        assert_allclose(potential[i], reference.soft_minimum(M, potential[i], X[i], reg), rtol=0, atol=1e-9)


@SOLVERS
def test_self_potentials_hold_at_empty_bins_at_a_loose_tolerance(rng, times):
    """The divergence's gradient uses them at every bin, so mass must be able to flow into an empty one."""
    M, reg, tol = far_corner(grid_cost(4), 0.5, times), 0.5, 1e-7
    X = random_histograms(rng, 9, 16, 0.7)
    _, potential, _, _ = _core.sinkhorn_self(_core.SinkhornCost(M, reg), X, tol, 10_000)
    for a, f in zip(X, potential, strict=True):
        assert_allclose(f, reference.soft_minimum(M, f, a, reg), rtol=0, atol=1e-4)


@SOLVERS
def test_a_self_term_does_not_depend_on_the_histograms_solved_with_it(rng, times):
    cost, X = _core.SinkhornCost(far_corner(grid_cost(3), 0.2, times), 0.2), random_histograms(rng, 30, 9, 0.3)
    together, alone = (_core.sinkhorn_self(cost, x, 1e-8, 10_000) for x in (X, X[[27]]))
    for a, b in zip(alone, together, strict=True):
        assert np.array_equal(a[0], b[27])


def test_groups_that_a_mask_leaves_out_are_infinitely_far(rng):
    X, Z = random_spd(rng, 19, 3), random_spd(rng, 5, 3)
    x, z = batches(X, Z)
    mask = rng.random((x.groups, 5)) < 0.5
    D = _core.jbld_pairwise(x, z, mask=mask)
    assert_array_equal(D, np.where(np.repeat(mask, x.lanes, axis=0)[:19], _core.jbld_pairwise(x, z), np.inf))
    lower, limit = np.full(mask.shape, 2.0), np.full(19, 1.0)  # beyond their limit: all left out
    assert np.isinf(_core.jbld_pairwise(x, z, lower, limit, mask)).all()
    assert np.isfinite(_core.jbld_pairwise(x, z, lower, limit + 1.0, np.ones_like(mask))).all()


# ---- shapes that do not fit -----------------------------------------------------------------------------------

EYES, HALVES = np.stack([np.eye(2)] * 3), np.full((3, 2), 0.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: _core.SpdLanes(np.ones((2, 3, 4))),
        lambda: _core.SpdLanes(np.ones((2, 0, 0))),
        lambda: _core.jbld_pairwise(_core.SpdLanes(EYES), _core.SpdSequence(np.ones((1, 3, 3)))),
        lambda: _core.jbld_pairwise(*batches(EYES, EYES), mask=np.ones((3, 2), dtype=bool)),
        lambda: _core.jbld_pullback(*batches(EYES, EYES[:1]), np.ones((1, 3)), 0.0),
        lambda: _core.SinkhornCost(np.ones((2, 3)), 1.0),
        lambda: _core.SinkhornCost(np.ones((0, 0)), 1.0),
        lambda: solve(np.ones((3, 3)), 1.0, HALVES, HALVES),
        lambda: solve(np.ones((2, 2)), 1.0, HALVES, np.ones((3, 3))),
        lambda: solve(np.ones((2, 2)), 1.0, HALVES, HALVES, potential=np.zeros((3, 2, 2))),
        lambda: _core.sinkhorn(
            _core.SinkhornCost(np.ones((2, 2)), 1.0), HALVES, HALVES, np.zeros((3, 3, 2)), None, 1e-5, 10, False
        ),
        lambda: _core.sinkhorn_self(_core.SinkhornCost(np.ones((3, 3)), 1.0), HALVES, 1e-5, 10),
        lambda: _core.sinkhorn_pullback(
            _core.SinkhornCost(np.ones((2, 2)), 1.0), HALVES, np.zeros((3, 2, 2)), np.ones((3, 3)), 0.0
        ),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(call):
    with pytest.raises(ValueError, match=r"must|differ"):
        call()


def test_arrays_of_another_rank_are_refused():
    with pytest.raises(TypeError):
        _core.SpdLanes(np.eye(2))
    with pytest.raises(TypeError):
        solve(np.ones(2), 1.0, HALVES, HALVES)


@pytest.mark.parametrize("pack", [_core.SpdLanes, _core.SpdSequence])
def test_two_batches_of_one_layout_are_refused(pack):
    with pytest.raises(TypeError):
        _core.jbld_pairwise(pack(EYES), pack(EYES))


# ---- moments of signals


@pytest.mark.parametrize(("d", "length"), [(1, 1), (2, 7), (3, 8), (4, 9), (21, 480), (22, 1003), (64, 129)])
def test_moments_are_sums_of_products(rng, d, length):
    S = rng.normal(size=(3, d, length)) + 2.0
    second, mean = _core.moments(S)
    assert_allclose(second, S @ S.transpose(0, 2, 1) / length, rtol=1e-12)
    assert_allclose(mean, S.mean(axis=2), rtol=1e-12)
    assert_array_equal(second, second.transpose(0, 2, 1))
    assert_array_equal(_core.moments(S[1:2])[0], second[1:2])  # whatever comes before
    S[1, 0, -1] = np.nan
    assert_array_equal(np.isnan(_core.moments(S)[0]).any(axis=(1, 2)), [False, True, False])


def test_moments_of_nothing_are_empty_and_no_channels_are_refused(rng):
    assert _core.moments(np.empty((0, 3, 5)))[0].shape == (0, 3, 3)
    for shape in ((2, 0, 5), (2, 3, 0), (1, 20_001, 1)):
        with pytest.raises(ValueError, match="1 to 20000 channels"):
            _core.moments(np.zeros(shape))
