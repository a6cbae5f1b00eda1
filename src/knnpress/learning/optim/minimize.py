"""Descent on all points at once: a rule for the next iterate, until there is little left to gain."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from knnpress.execution.threads import one_blas_thread
from knnpress.learning.objective import Evaluation
from knnpress.learning.optim.base import Evaluate, Follow, Method, Optimum, Reason, in_rows
from knnpress.learning.optim.lbfgs import Lbfgs
from knnpress.learning.optim.paper import AdaptiveDescent, ConjugateGradient
from knnpress.learning.state import DescentState, SaveState
from knnpress.typing import Array

_SPAN = 10  # iterations that a loss must have been flat for

_METHODS: dict[str, Callable[[float], Method]] = {
    "lbfgs": lambda _: Lbfgs(),
    "cg": lambda _: ConjugateGradient(),
    "descent": AdaptiveDescent,
}


def minimize(
    evaluate: Evaluate,
    u: Array,
    *,
    method: str = "lbfgs",
    max_iter: int = 100,
    tol: float = 0.0,
    gradient_tol: float = 1e-6,
    learning_rate: float = 1.0,
    callback: Follow | None = None,
    state: DescentState | None = None,
    keep: SaveState | None = None,
) -> Optimum:
    """Minimise from u, using all points at every step.

    Parameters
    ----------
    evaluate : callable
        From u, (m, p), to an `Evaluation`.
    u : ndarray of shape (m, p)
        The start.
    method : {"lbfgs", "cg", "descent"}
        "lbfgs" (limited-memory BFGS) and "cg" (conjugate gradients of Polak and Ribière) search along a line, and need
        an exact gradient. "descent" steps along the gradient with a rate that grows after every success and shrinks
        after every failure, and returns the iterate with the lowest training error (then loss): the paper's choice for
        SHC.
    max_iter : int
    tol : float
        Stop when ten iterations took off less than this share of the loss.
    gradient_tol : float
        Stop when no entry of the gradient exceeds it.
    learning_rate : float
        First step of "descent", relative to the size of u.
    callback : callable or None
        ``callback(iteration, u, evaluation)`` is called at the start and after each iteration; a true answer
        stops the descent there.
    state : DescentState or None
        Of a descent that was interrupted: goes on from there.
    keep : callable or None
        Called after each iteration with a function that returns the state.
    """
    if method not in _METHODS:
        raise ValueError(f"optimizer is {method!r}; choose 'lbfgs', 'cg' or 'descent'")
    with one_blas_thread:  # throughout: entering it again for every evaluation takes longer
        return _minimize(
            evaluate, u, _METHODS[method](learning_rate), max_iter, tol, gradient_tol, callback, state, keep
        )


def _minimize(
    evaluate: Evaluate,
    u: Array,
    step: Method,
    max_iter: int,
    tol: float,
    gradient_tol: float,
    callback: Follow | None,
    state: DescentState | None,
    keep: SaveState | None,
) -> Optimum:
    reason = None
    evaluate, u = in_rows(evaluate), np.ascontiguousarray(u)
    if state is None:
        now = evaluate(u)
        curve = [now.loss]
        reason = _reason(curve, now, max_iter, tol, gradient_tol, bool(callback and callback(0, u, now)))
    else:
        u, curve, known = state.u, list(state.loss_curve), state.optimizer
        now = Evaluation(float(known["loss"]), known["gradient"], float(known["error"]))
        step.restore(known)

    def read() -> DescentState:
        facts = {"loss": np.array(now.loss), "gradient": now.gradient, "error": np.array(now.error)}
        return DescentState(u, curve, {**facts, **step.state()})

    while reason is None:
        moved = step(evaluate, u, now)
        if moved is None:
            reason = "no way down"
            break
        u, now = moved
        curve.append(now.loss)
        stop = bool(callback and callback(len(curve) - 1, u, now))
        reason = _reason(curve, now, max_iter, tol, gradient_tol, stop)
        if keep is not None and reason is None:
            keep(read)
    if not np.isfinite(curve[-1]):
        warnings.warn(f"the loss became {curve[-1]}; lower gamma", ConvergenceWarning, stacklevel=3)
    return Optimum(step.result(u), curve, reason)


def _reason(
    curve: list[float], now: Evaluation, max_iter: int, tol: float, gradient_tol: float, stop: bool
) -> Reason | None:
    """Why to stop here, if there is a reason."""
    if stop:
        return "callback"
    if not np.abs(now.gradient).max(initial=0.0) > gradient_tol:
        return "gradient"
    if len(curve) > _SPAN and curve[-1 - _SPAN] - curve[-1] < tol * curve[-1]:
        return "flat"
    return "max_iter" if len(curve) > max_iter else None
