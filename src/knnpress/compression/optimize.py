"""Optimisers on one form: ``evaluate(theta)`` gives an `Evaluation`, a callback sees every iterate."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning

from knnpress.compression.objective import Evaluation
from knnpress.typing import Array

__all__ = ["Optimum", "minimize", "minimize_batches"]

Evaluate = Callable[[Array], Evaluation]
Callback = Callable[[int, Array, Evaluation], bool | None]


@dataclass(frozen=True)
class Optimum:
    """Where an optimiser stopped.

    Attributes
    ----------
    theta : ndarray of shape (m, p)
    loss_curve : list of float
        Loss at the start and after each iteration.
    n_iter : int
    stopped : bool
        Whether the callback asked for it.
    """

    theta: Array
    loss_curve: list[float]
    n_iter: int
    stopped: bool = False


def minimize(
    evaluate: Evaluate,
    theta: Array,
    *,
    method: str = "lbfgs",
    max_iter: int = 100,
    tol: float = 1e-5,
    learning_rate: float = 1.0,
    callback: Callback | None = None,
) -> Optimum:
    """Minimise from theta, using all points at every step.

    Parameters
    ----------
    evaluate : callable
        From theta, (m, p), to an `Evaluation`.
    theta : ndarray of shape (m, p)
        The start.
    method : {"lbfgs", "cg", "descent"}
        "lbfgs" and "cg" are SciPy's, with line searches, and need an exact gradient. "descent" steps along the
        gradient with a rate that grows after every success and shrinks after every failure, and returns the iterate
        with the lowest training error (then loss): the paper's choice for SHC.
    max_iter : int
    tol : float
        Stop when no entry of the gradient exceeds it.
    learning_rate : float
        First step of "descent", relative to the size of theta.
    callback : callable or None
        ``callback(iteration, theta, evaluation)`` is called at the start and after each iteration; a true answer
        stops the descent there.
    """
    if method == "descent":
        return _descent(evaluate, theta, max_iter, tol, learning_rate, callback)
    if method not in _SCIPY:
        raise ValueError(f"optimizer is {method!r}; choose 'lbfgs', 'cg' or 'descent'")
    return _scipy(evaluate, theta, method, max_iter, tol, callback)


_SCIPY: dict[str, tuple[str, dict[str, float]]] = {
    "lbfgs": ("L-BFGS-B", {"ftol": 0.0, "maxcor": 20}),
    "cg": ("CG", {}),
}


def _scipy(
    evaluate: Evaluate, theta: Array, method: str, max_iter: int, tol: float, callback: Callback | None
) -> Optimum:
    seen: dict[bytes, Evaluation] = {}  # of the current line search: the callback is handed the point, not its value

    def value_and_gradient(flat: Array) -> tuple[float, Array]:
        evaluation = evaluate(flat.reshape(theta.shape))
        seen[flat.tobytes()] = evaluation
        return evaluation.loss, evaluation.gradient.ravel()

    curve: list[float] = []
    stopped = False

    def report(flat: Array) -> None:
        nonlocal stopped
        evaluation = seen.get(flat.tobytes()) or evaluate(flat.reshape(theta.shape))
        seen.clear()
        seen[flat.tobytes()] = evaluation
        curve.append(evaluation.loss)
        stopped = bool(callback and callback(len(curve) - 1, flat.reshape(theta.shape).copy(), evaluation))

    flat = theta.ravel().copy()
    value_and_gradient(flat)
    report(flat)
    if stopped or max_iter == 0:
        return Optimum(theta, curve, 0, stopped)
    name, options = _SCIPY[method]
    settings = {"maxiter": max_iter, "gtol": tol, **options}

    def after(intermediate_result: optimize.OptimizeResult) -> None:
        report(intermediate_result.x)
        if stopped:
            raise StopIteration

    def cached(x: Array) -> tuple[float, Array]:
        known = seen.get(x.tobytes())
        return value_and_gradient(x) if known is None else (known.loss, known.gradient.ravel())

    result = optimize.minimize(cached, flat, jac=True, method=name, callback=after, options=settings)
    if not np.isfinite(result.fun):
        warnings.warn(f"the loss became {result.fun}; lower gamma", ConvergenceWarning, stacklevel=3)
    return Optimum(result.x.reshape(theta.shape), curve, len(curve) - 1, stopped)


def _descent(
    evaluate: Evaluate, theta: Array, max_iter: int, tol: float, learning_rate: float, callback: Callback | None
) -> Optimum:
    current = evaluate(theta)
    curve = [current.loss]
    best, best_key = theta, (current.error, current.loss)
    scale = float(np.abs(current.gradient).max()) or 1.0
    rate = learning_rate * float(np.abs(theta).max() or 1.0) / scale / 10.0
    stop = bool(callback and callback(0, theta, current))
    iteration = 0
    while not stop and iteration < max_iter and np.abs(current.gradient).max() > tol:
        candidate = theta - rate * current.gradient
        evaluation = evaluate(candidate)
        iteration += 1
        if evaluation.loss < current.loss:
            theta, current, rate = candidate, evaluation, 1.2 * rate
        else:
            rate *= 0.5
        curve.append(current.loss)
        if (current.error, current.loss) < best_key:
            best, best_key = theta, (current.error, current.loss)
        stop = bool(callback and callback(iteration, theta, current))
    return Optimum(best, curve, iteration, stop)


def minimize_batches(
    batches: Sequence[Evaluate],
    theta: Array,
    *,
    max_iter: int = 100,
    learning_rate: float = 1.0,
    rng: np.random.Generator,
    callback: Callback | None = None,
) -> Optimum:
    """Minimise the mean of several functions by Adam, a step for each; an iteration is a pass over all of them.

    Parameters
    ----------
    batches : sequence of callable
        Each from theta, (m, p), to an `Evaluation`.
    theta : ndarray of shape (m, p)
        The start.
    max_iter : int
        Passes.
    learning_rate : float
        First step, in twentieths of the size of theta; later ones shrink with the root of the number of passes.
    rng : Generator
        Draws the order of the batches in each pass.
    callback : callable or None
        ``callback(iteration, theta, evaluation)`` is called at the start and after each pass, with the mean of what
        the batches said on the way; a true answer stops the descent there.
    """
    shape = theta.shape
    mean, square = np.zeros(shape), np.zeros(shape)
    first_rate = 0.05 * learning_rate * float(np.sqrt(np.mean(theta**2)))
    start = _mean([batch(theta) for batch in batches])
    curve, steps = [start.loss], 0
    stop = bool(callback and callback(0, theta, start))
    iteration = 0
    while not stop and iteration < max_iter:
        rate = first_rate / np.sqrt(1.0 + iteration / 10.0)
        said = []
        for k in rng.permutation(len(batches)):
            said.append(batches[k](theta))
            steps += 1
            mean = 0.9 * mean + 0.1 * said[-1].gradient
            square = 0.999 * square + 0.001 * said[-1].gradient ** 2
            scale = np.sqrt(square / (1.0 - 0.999**steps)) + 1e-12
            theta = theta - rate * (mean / (1.0 - 0.9**steps)) / scale
        iteration += 1
        now = _mean(said)
        curve.append(now.loss)
        stop = bool(callback and callback(iteration, theta, now))
    return Optimum(theta, curve, iteration, stop)


def _mean(evaluations: Sequence[Evaluation]) -> Evaluation:
    n = len(evaluations)
    return Evaluation(
        sum(e.loss for e in evaluations) / n,
        np.sum([e.gradient for e in evaluations], axis=0) / n,
        sum(e.error for e in evaluations) / n,
    )
