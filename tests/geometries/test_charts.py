"""Charts: free parameters to valid points, and gradients back."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import grid_cost, random_histograms, random_spd, taylor_slope

from knnpress.exceptions import InvalidPointError
from knnpress.geometries import AIRM, JBLD, LogEuclidean, Sinkhorn, SquaredEuclidean
from knnpress.geometries.charts import CholeskyChart, ExponentialChart, IdentityChart, RootChart, SoftmaxChart

M4 = grid_cost(2)


def vectors(rng, n):
    return rng.normal(size=(n, 4))


def matrices(rng, n):
    return random_spd(rng, n, 4, 20.0)


def histograms(rng, n):
    return random_histograms(rng, n, 4)


CHARTS = {
    "identity": (lambda points: IdentityChart(points.shape[1:]), vectors),
    "identity of matrices": (lambda points: IdentityChart(points.shape[1:]), matrices),
    "exponential": (lambda points: ExponentialChart.around(points[::-1]), matrices),
    "cholesky": (lambda points: CholeskyChart(4), matrices),
    "cholesky at the scale of the start": (lambda points: CholeskyChart.around(7.0 * points), matrices),
    "softmax": (lambda points: SoftmaxChart(smoothing=0.0), histograms),
    "roots": (lambda points: RootChart(smoothing=0.0), histograms),
}
GEOMETRIES = {
    "squared euclidean": (SquaredEuclidean(), vectors),
    "jbld": (JBLD(), matrices),
    "log-euclidean": (LogEuclidean(), matrices),
    "dual": (Sinkhorn(M4, reg=0.3, value="dual", tol=1e-13), histograms),
    "divergence": (Sinkhorn(M4, reg=0.3, tol=1e-13), histograms),
}


@pytest.mark.parametrize("name", CHARTS)
def test_points_come_back_from_their_parameters(rng, name):
    make, sample = CHARTS[name]
    points = sample(rng, 5)
    theta = make(points).to_theta(points)
    assert theta.ndim == 2
    assert_allclose(make(points).to_point(theta), points, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", CHARTS)
def test_the_pullback_is_the_adjoint_of_the_derivative(rng, name):
    make, sample = CHARTS[name]
    points = sample(rng, 5)
    chart, A = make(points), rng.normal(size=points.shape)
    if points.ndim == 3:
        A = A + A.transpose(0, 2, 1)
    theta = chart.to_theta(points)
    # the identity is linear, so a quadratic makes the error visible
    here = chart.at(theta)
    assert_allclose(here.points, chart.to_point(theta), rtol=0, atol=1e-15)
    gradient = here.pullback(A + 2 * here.points)
    slope = taylor_slope(
        lambda t: np.sum(A * chart.to_point(t)) + np.sum(chart.to_point(t) ** 2),
        gradient,
        theta,
        rng.normal(size=theta.shape),
    )
    assert slope > 1.9


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("kind", ["chart", "paper_chart"])
def test_a_chart_and_its_geometry_compose(rng, name, kind):
    geometry, sample = GEOMETRIES[name]
    X, Z = geometry.check(sample(rng, 7)), geometry.check(sample(rng, 3))
    W, chart = rng.normal(size=(7, 3)), getattr(geometry, kind)(geometry.check(sample(rng, 3)))
    theta = chart.to_theta(Z)

    def value(theta):
        return np.sum(W * geometry.linearize(X, chart.to_point(theta)).D)

    here = chart.at(theta)
    gradient = here.pullback(geometry.linearize(X, here.points).pullback(W))
    assert gradient.shape == theta.shape
    assert taylor_slope(value, gradient, theta, rng.normal(size=theta.shape)) > 1.9


@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometries_are_learned_in_normal_coordinates_and_the_paper_in_its_own(name):
    geometry, sample = GEOMETRIES[name]
    start = geometry.check(sample(np.random.default_rng(0), 3))
    kinds = type(geometry.chart(start)), type(geometry.paper_chart(start))
    if geometry.point_ndim == 2:
        assert kinds == (ExponentialChart, CholeskyChart)
    else:
        assert kinds == ((IdentityChart,) * 2 if name == "squared euclidean" else (RootChart, SoftmaxChart))


@pytest.mark.parametrize("make", [ExponentialChart.around, CholeskyChart.around], ids=["exponential", "cholesky"])
def test_any_parameters_are_a_positive_definite_matrix(rng, make):
    points = make(random_spd(rng, 20, 4)).to_point(rng.normal(size=(20, 10)))
    assert np.array_equal(points, points.transpose(0, 2, 1))
    assert (np.linalg.eigvalsh(points) > 0).all()
    JBLD().check(points)


def test_a_step_beyond_what_floats_hold_stays_finite(rng):
    placed = ExponentialChart.around(random_spd(rng, 2, 3)).at(1e6 * rng.normal(size=(2, 6)))
    assert np.isfinite(placed.points).all()
    assert np.isfinite(placed.pullback(np.ones((2, 3, 3)))).all()


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_the_origin_of_the_exponential_chart_is_the_start(rng, scale):
    start = scale * matrices(rng, 5)
    chart = ExponentialChart.around(start)
    assert_allclose(chart.to_point(np.zeros((5, 10))) / scale, start / scale, rtol=0, atol=1e-13)
    assert_allclose(chart.to_theta(start), 0.0, atol=1e-13)


def test_the_length_of_theta_is_the_affine_invariant_distance_from_the_start(rng):
    start, points = matrices(rng, 6), matrices(rng, 6)
    theta = ExponentialChart.around(start).to_theta(points)
    distances = np.diag(AIRM().pairwise(points, start))
    assert_allclose(np.linalg.norm(theta, axis=1), distances, rtol=1e-10)


@pytest.mark.parametrize("gap", [0.0, 1e-300, 1e-16, 1e-12, 1e-9, 1e-6, 1e-3, 1.0])
def test_the_exponential_pullback_holds_where_eigenvalues_meet(rng, gap):
    """By central differences of each parameter in turn, at eigenvalues a, a + gap, a + 2 gap and b."""
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    S = turn * np.array([0.3, 0.3 + gap, 0.3 + 2 * gap, -0.8]) @ turn.T
    i, j = np.triu_indices(4)
    theta = (0.5 * (S + S.T))[i, j][None] * np.where(i == j, 1.0, np.sqrt(2.0))
    chart = ExponentialChart.around(matrices(rng, 1))
    A = rng.normal(size=(1, 4, 4))
    A = A + A.transpose(0, 2, 1)
    gradient, steps = chart.at(theta).pullback(A), 1e-5 * np.eye(10)
    ahead, behind = (np.array([np.sum(A * chart.to_point(theta + s * step)) for step in steps]) for s in (1, -1))
    assert_allclose(gradient[0], (ahead - behind) / 2e-5, rtol=1e-7, atol=1e-7 * np.abs(gradient).max())


def test_the_cholesky_chart_is_in_units_of_the_start(rng):
    X = random_spd(rng, 6, 4)
    thetas = [CholeskyChart.around(scale * X).to_theta(scale * X) for scale in (1e-60, 1.0, 1e60)]
    assert_allclose(thetas[0], thetas[1], rtol=1e-9, atol=1e-12)
    assert_allclose(thetas[2], thetas[1], rtol=1e-9, atol=1e-12)
    even = np.trace(X.mean(axis=0)) / 4 * np.eye(4)[None]
    assert_allclose(CholeskyChart.around(X).to_theta(even)[0], np.eye(4)[np.triu_indices(4)], atol=1e-9)


def test_the_jbld_gradient_in_the_papers_parameters_is_the_corrected_one(rng):
    """With Z = B'B: dD/dB = 2 B (X + Z)^-1 - B^-T, zero at X = Z (the printed form lacks the 2)."""
    X, Z = random_spd(rng, 1, 4), random_spd(rng, 1, 4)
    chart, triangle = CholeskyChart(4, floor=0.0), np.triu_indices(4)
    B = np.linalg.cholesky(Z[0]).T
    gradient = chart.at(chart.to_theta(Z)).pullback(JBLD().linearize(X, Z).pullback(np.ones((1, 1))))
    expected = 2 * B @ np.linalg.inv(X[0] + Z[0]) - np.linalg.inv(B).T
    assert_allclose(gradient[0], expected[triangle], rtol=0, atol=1e-11)


def test_any_logarithms_are_a_histogram(rng):
    points = SoftmaxChart().to_point(np.array([[0.0, 1e4, -1e4], [-1e300, -1e300, 0.0], [1e-9, 0.0, 3.0]]))
    assert np.isfinite(points).all()
    assert (points >= 0).all()
    assert_allclose(points.sum(axis=1), 1, rtol=1e-14)


def test_any_roots_are_a_histogram_without_an_empty_bin(rng):
    points = RootChart().to_point(np.array([[0.0, 1e4, -1e4], [0.0, 0.0, 0.0], [1e-9, 0.0, -3.0]]))
    assert (points > 0).all()
    assert_allclose(points.sum(axis=1), 1, rtol=1e-14)
    assert_allclose(points[1], 1 / 3)
    theta, grad = rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    assert_allclose(RootChart().at(theta).pullback(grad + 7), RootChart().at(theta).pullback(grad), rtol=0, atol=1e-14)


def test_the_root_chart_lifts_empty_bins_by_a_share_of_the_uniform_histogram():
    chart = RootChart(smoothing=0.05)
    theta = chart.to_theta(np.array([[1.0, 0.0, 0.0, 0.0]]))
    assert_allclose(chart.to_point(theta), [[0.9625, 0.0125, 0.0125, 0.0125]], rtol=1e-9)
    assert (chart.at(theta).pullback(np.array([[0.0, 1.0, 2.0, 3.0]]))[0, 1:] > 0).all()  # and they have a slope


@pytest.mark.parametrize("chart", [SoftmaxChart(), RootChart()], ids=repr)
def test_by_itself_a_chart_of_histograms_lifts_empty_bins_by_a_hundredth(chart):
    lifted = chart.to_point(chart.to_theta(np.array([[0.0, 0.0, 1.0, 0.0]])))
    assert_allclose(lifted, [[0.0025, 0.0025, 0.9925, 0.0025]], rtol=1e-6)


def test_softmax_forgets_a_constant_in_theta_and_in_the_gradient(rng):
    chart, theta, grad = SoftmaxChart(), rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    assert_allclose(chart.to_point(theta + 7), chart.to_point(theta), rtol=1e-14)
    assert_allclose(chart.at(theta).pullback(grad + 7), chart.at(theta).pullback(grad), rtol=0, atol=1e-14)
    assert_allclose(chart.at(theta).pullback(grad).sum(axis=1), 0, atol=1e-15)


def test_the_softmax_chart_lifts_empty_bins_by_a_share_of_the_uniform_histogram():
    chart = SoftmaxChart(smoothing=0.05)
    theta = chart.to_theta(np.array([[1.0, 0.0, 0.0, 0.0]]))
    assert_allclose(theta.sum(axis=1), 0, atol=1e-14)
    assert_allclose(chart.to_point(theta), [[0.9625, 0.0125, 0.0125, 0.0125]], rtol=1e-13)


def test_a_cholesky_factor_gone_singular_still_gives_a_positive_definite_matrix():
    chart = CholeskyChart(3)
    theta = np.array([[1.0, 2.0, 3.0, 0.0, 1.0, 0.0]])  # two zeros on the diagonal
    Z = chart.to_point(theta)
    assert_allclose(JBLD().check(Z), Z)  # which refuses a singular matrix
    with pytest.raises(InvalidPointError):
        JBLD().check(CholeskyChart(3, floor=0.0).to_point(theta))


def test_a_start_that_is_all_but_singular_has_a_chart():
    # JBLD().check takes it
    start = np.array([[[186.9161503629108, 35.76084743856308], [35.76084743856308, 6.841774812081409]]])
    chart = ExponentialChart.around(start)
    assert np.isfinite(chart.root).all()
    assert np.isfinite(chart.inverse_root).all()
    assert_allclose(chart.to_point(np.zeros((1, 3))), start, rtol=1e-8)
