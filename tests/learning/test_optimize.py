"""The optimisers, on functions whose minimum is known."""

import numpy as np
import pytest
from cases import for_each
from numpy.testing import assert_allclose, assert_array_equal
from points import labelled
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning

from knnpress.compression import Subsample
from knnpress.execution.rows import LocalRows
from knnpress.geometries import JBLD
from knnpress.learning.loss import SoftNeighborLoss
from knnpress.learning.objective import Evaluation, Objective, Scale
from knnpress.learning.optim import minimize, minimize_batches
from knnpress.learning.optim.line_search import line_search
from knnpress.learning.prior import Prior
from knnpress.learning.state import DescentState


def bowl(theta):
    """A quadratic with curvatures from 1 to 10 and its minimum at 1; the "error" falls with the loss."""
    curvature = np.linspace(1.0, 10.0, theta.size).reshape(theta.shape)
    gap = theta - 1.0
    loss = 0.5 * float((curvature * gap**2).sum())
    return Evaluation(loss, curvature * gap, min(1.0, round(loss, 1)))


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
def test_each_finds_the_minimum(method):
    found = minimize(bowl, np.zeros((3, 4)), method=method, max_iter=300, gradient_tol=1e-8)
    assert_allclose(found.u, 1.0, atol=1e-3 if method == "descent" else 1e-6)


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
def test_the_callback_sees_the_start_and_every_iterate_and_can_stop_there(method):
    seen = []

    def look(k, theta, evaluation):
        seen.append((k, theta.copy(), evaluation))
        return k == 3

    found = minimize(bowl, np.zeros((3, 4)), method=method, max_iter=50, callback=look)
    assert [k for k, _, _ in seen] == [0, 1, 2, 3]
    assert len(found.loss_curve) == 4
    for _, theta, evaluation in seen:
        assert_allclose(bowl(theta).loss, evaluation.loss)
    assert_allclose(found.loss_curve, [evaluation.loss for _, _, evaluation in seen])


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
def test_no_iterations_return_the_start(method):
    start = np.full((2, 2), 0.3)
    found = minimize(bowl, start, method=method, max_iter=0)
    assert_allclose(found.u, start)
    assert found.loss_curve == [bowl(start).loss]


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
def test_the_loss_never_rises_and_the_start_is_left_alone(method):
    start = np.zeros((3, 4))
    found = minimize(bowl, start, method=method, max_iter=30)
    assert (np.diff(found.loss_curve) <= 0).all()
    assert not start.any()


def test_descent_returns_the_iterate_of_lowest_error():
    def deceptive(theta):  # the loss falls towards 1, the error has its minimum on the way, at 0.5
        return Evaluation(float(((theta - 1) ** 2).sum()), 2 * (theta - 1), float(abs(theta[0, 0] - 0.5) > 0.1))

    found = minimize(deceptive, np.zeros((1, 1)), method="descent", learning_rate=0.5, max_iter=200)
    assert abs(found.u[0, 0] - 0.5) <= 0.1


@pytest.mark.parametrize("method", ["lbfgs", "cg"])
@for_each("seed", range(20))
def test_a_loss_known_only_to_a_tolerance_ends_the_search_near_the_minimum(method, seed):
    """As Sinkhorn's is: the same theta does not give the same loss twice."""
    rng = np.random.default_rng(seed)

    def uncertain(theta):
        exact = valley(theta)
        return Evaluation(
            exact.loss + 1e-9 * rng.normal(), exact.gradient + 1e-6 * rng.normal(size=theta.shape), exact.error
        )

    found = minimize(uncertain, rng.normal(size=(1, 3)), method=method, max_iter=300, gradient_tol=0.0)
    assert valley(found.u).loss < 1e-3


def test_it_says_why_it_ended():
    start = np.zeros((3, 4))
    assert minimize(bowl, start, gradient_tol=1e-3).reason == "gradient"
    assert minimize(bowl, start, max_iter=2).reason == "max_iter"
    assert minimize(bowl, start, callback=lambda *_: True).reason == "callback"
    assert minimize(bowl, np.ones((3, 4)), gradient_tol=1e-3).loss_curve == [bowl(np.ones((3, 4))).loss]
    assert minimize(lambda theta: Evaluation(float((theta**2).sum()), -theta, 0.0), start + 1).reason == "no way down"


def test_an_unknown_method_is_refused_by_name():
    with pytest.raises(ValueError, match="optimizer is 'newton'; choose"):
        minimize(bowl, np.zeros((1, 1)), method="newton")


def valley(theta):
    """Rosenbrock's: a bent valley that no first step goes down along."""
    x, y = theta[:, :-1], theta[:, 1:]
    gap = y - x**2
    gradient = np.zeros_like(theta)
    gradient[:, :-1] = -400 * x * gap - 2 * (1 - x)
    gradient[:, 1:] += 200 * gap
    loss = float((100 * gap**2 + (1 - x) ** 2).sum())
    return Evaluation(loss, gradient, min(1.0, loss))


def slopes(function):
    """Batches of a function: it, seen from slightly different places."""
    return [lambda theta, k=k: function(theta + 0.01 * k) for k in range(4)]


class Counted:
    def __init__(self, function):
        self.function, self.n = function, 0

    def __call__(self, theta):
        self.n += 1
        return self.function(theta)


@pytest.mark.parametrize("method", ["lbfgs", "cg"])
def test_the_bent_valley_is_followed_to_its_end(method):
    found = minimize(valley, np.full((2, 3), -1.0), method=method, max_iter=400, gradient_tol=1e-9)
    assert_allclose(found.u, 1.0, atol=1e-6)


def covariances():
    X, y = labelled("jbld", 150)
    start = Subsample().compress(X, y, geometry=JBLD(), n_prototypes=9, random_state=np.random.default_rng(0))
    chart = JBLD().chart(start.points)
    theta = chart.to_theta(start.points)
    objective = Objective(
        LocalRows(X, y),
        labels=start.labels,
        geometry=JBLD(),
        scale=Scale(chart, theta, 1.0),
        loss=SoftNeighborLoss(3.0, 0.2, 0.05, 3),
        prior=Prior(1.0, 150.0),
    )
    return objective, np.zeros_like(theta)


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
@pytest.mark.parametrize("tol", [0.01, 0.1])
def test_it_ends_when_ten_iterations_took_off_little_of_what_is_left(method, tol):
    objective, start = covariances()
    found = minimize(objective, start, method=method, max_iter=500, tol=tol, gradient_tol=0.0)
    curve = np.array(found.loss_curve)
    flat = [curve[k - 10] - curve[k] < tol * curve[k] for k in range(10, len(curve))]
    assert found.reason == "flat"
    assert flat == [False] * (len(flat) - 1) + [True]


@pytest.mark.parametrize(("method", "theirs"), [("lbfgs", "L-BFGS-B"), ("cg", "CG")])
def test_as_good_as_scipys_in_as_few_evaluations(method, theirs):
    objective, start = covariances()
    ours, scipys = Counted(objective), Counted(objective)

    def value_and_gradient(flat):
        evaluation = scipys(flat.reshape(start.shape))
        return evaluation.loss, evaluation.gradient.ravel()

    options = {"maxiter": 60, "gtol": 0.0} | ({"ftol": 0.0, "maxcor": 20} if method == "lbfgs" else {})
    other = optimize.minimize(value_and_gradient, start.ravel(), jac=True, method=theirs, options=options)
    found = minimize(ours, start, method=method, max_iter=60, gradient_tol=0.0)
    fallen = found.loss_curve[0] - other.fun
    assert found.loss_curve[-1] < other.fun + 0.02 * fallen
    assert ours.n < 1.1 * scipys.n + 5


@pytest.mark.parametrize("curvature", [0.9, 0.4])
@pytest.mark.parametrize("step", [1e-6, 1e-3, 1.0, 1e3])
def test_a_step_meets_the_strong_wolfe_conditions_wherever_the_search_begins(step, curvature):
    theta = np.array([[-1.0, 0.5, 0.7]])
    now = valley(theta)
    direction = -now.gradient
    point, evaluation = line_search(valley, theta, now, direction, step, curvature)
    slope = (now.gradient * direction).sum()
    length = np.linalg.norm(point - theta) / np.linalg.norm(direction)
    assert evaluation.loss <= now.loss + 1e-3 * length * slope
    assert abs((evaluation.gradient * direction).sum()) <= curvature * abs(slope)


def test_a_long_step_onto_a_plain_is_not_taken():
    def slide(theta):
        return Evaluation(-float(np.tanh(theta).sum()), np.tanh(theta) ** 2 - 1.0, 0.0)

    start = np.zeros((1, 1))
    point, _ = line_search(slide, start, slide(start), np.ones((1, 1)), 1e4, 0.9)
    assert 0.3 < point[0, 0] < 1e3


@pytest.mark.parametrize("method", ["lbfgs", "cg"])
def test_where_the_function_ends_the_search_turns_back(method):
    def walled(theta):
        with np.errstate(invalid="ignore", divide="ignore"):  # not a number beyond 1, and its minimum close to there
            loss, gradient = -np.log(1.0 - theta) - 50.0 * theta, 1.0 / (1.0 - theta) - 50.0
        return Evaluation(float(loss.sum()), gradient, 0.0)

    found = minimize(walled, np.array([[-40.0, 0.5]]), method=method, max_iter=100, gradient_tol=1e-9)
    assert_allclose(found.u, 0.98, atol=1e-9)


@pytest.mark.parametrize("method", ["lbfgs", "cg"])
def test_a_gradient_that_lies_ends_the_descent_with_the_best_point(method):
    function = Counted(lambda theta: Evaluation(float((theta**2).sum()), -theta, 0.0))
    found = minimize(function, np.ones((1, 2)), method=method, max_iter=50)
    assert_array_equal(found.u, 1.0)
    assert function.n < 50


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
def test_a_loss_that_is_not_a_number_says_so(method):
    with pytest.warns(ConvergenceWarning, match="the loss became nan; lower gamma"):
        minimize(lambda theta: Evaluation(np.nan, np.full_like(theta, np.nan), 1.0), np.ones((1, 2)), method=method)


def copied(states):
    """A `keep` that keeps everything, as it would come back from a file."""

    def keep(read):
        arrays = read().to_arrays()
        states.append(DescentState.from_arrays({name: np.array(array) for name, array in arrays.items()}))

    return keep


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
def test_a_descent_broken_off_anywhere_goes_on_as_if_it_had_not_been(method):
    start, states = np.full((2, 3), -1.0), []
    settings = {"method": method, "max_iter": 40, "gradient_tol": 1e-3, "learning_rate": 0.01}
    whole = minimize(valley, start, keep=copied(states), **settings)
    assert len(states) == len(whole.loss_curve) - 2 > 25  # beyond the memory of L-BFGS
    for state in states:
        seen = []
        rest = minimize(valley, start, state=state, callback=lambda k, *_: seen.append(k), **settings)  # noqa: B023
        assert_array_equal(rest.u, whole.u)
        assert rest.loss_curve == whole.loss_curve
        assert seen == list(range(len(state.loss_curve), len(whole.loss_curve)))


def test_adam_comes_to_rest_where_the_batches_agree():
    """Batches pull to both sides of the minimum: steps that stay long would wander round it for ever."""
    pulls = np.random.default_rng(0).normal(0, 2.0, (20, 3, 4))
    batches = [lambda theta, pull=pull: bowl(theta - (pull - pulls.mean(axis=0))) for pull in pulls]
    far = []
    minimize_batches(
        batches,
        np.zeros((3, 4)),
        max_iter=60,
        rng=np.random.default_rng(1),
        callback=lambda k, theta, _: far.append(float(np.abs(theta - 1.0).max())),
    )
    assert far[0] == 1.0
    assert far[-1] < 0.01
    assert far[-1] < 0.2 * min(far[20:30])


def test_adam_broken_off_in_a_pass_goes_on_as_if_it_had_not_been():
    start, states = np.full((2, 3), -1.0), []

    def run(**more):
        rng = np.random.default_rng(3)
        rng.random(5)  # as the one who cut the batches has drawn
        return minimize_batches(slopes(valley), start, max_iter=5, rng=rng, **more)

    whole = run(keep=copied(states))
    assert len(states) == 20
    for state in states:
        rest = run(state=state)
        assert_array_equal(rest.u, whole.u)
        assert rest.loss_curve == whole.loss_curve
