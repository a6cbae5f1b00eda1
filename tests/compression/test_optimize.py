"""The optimisers, on functions whose minimum is known."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from knnpress.compression.objective import Evaluation
from knnpress.compression.optimize import minimize


def bowl(theta):
    """A quadratic with curvatures from 1 to 10 and its minimum at 1; the "error" falls with the loss."""
    curvature = np.linspace(1.0, 10.0, theta.size).reshape(theta.shape)
    gap = theta - 1.0
    loss = 0.5 * float((curvature * gap**2).sum())
    return Evaluation(loss, curvature * gap, min(1.0, round(loss, 1)))


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
def test_each_finds_the_minimum(method):
    found = minimize(bowl, np.zeros((3, 4)), method=method, max_iter=300, tol=1e-8)
    assert_allclose(found.theta, 1.0, atol=1e-3 if method == "descent" else 1e-6)


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
def test_the_callback_sees_the_start_and_every_iterate_and_can_stop_there(method):
    seen = []

    def look(k, theta, evaluation):
        seen.append((k, theta.copy(), evaluation))
        return k == 3

    found = minimize(bowl, np.zeros((3, 4)), method=method, max_iter=50, callback=look)
    assert [k for k, _, _ in seen] == [0, 1, 2, 3]
    assert found.n_iter == 3
    for _, theta, evaluation in seen:
        assert_allclose(bowl(theta).loss, evaluation.loss)
    assert_allclose(found.loss_curve, [evaluation.loss for _, _, evaluation in seen])


@pytest.mark.parametrize("method", ["lbfgs", "cg", "descent"])
def test_no_iterations_return_the_start(method):
    start = np.full((2, 2), 0.3)
    found = minimize(bowl, start, method=method, max_iter=0)
    assert_allclose(found.theta, start)
    assert (found.n_iter, found.loss_curve) == (0, [bowl(start).loss])


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
    assert abs(found.theta[0, 0] - 0.5) <= 0.1


def test_an_unknown_method_is_refused_by_name():
    with pytest.raises(ValueError, match="optimizer is 'newton'; choose"):
        minimize(bowl, np.zeros((1, 1)), method="newton")
