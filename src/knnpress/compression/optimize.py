"""Optimisers on one form: ``evaluate(theta)`` gives an `Evaluation`, a callback sees every iterate.

Each knows its whole state as arrays, so that a descent can be broken off and go on bit by bit as if it had not been.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from knnpress.compression.checkpoint import Keep, State
from knnpress.compression.objective import Evaluation
from knnpress.typing import Array

__all__ = ["Optimum", "minimize", "minimize_batches"]

Evaluate = Callable[[Array], Evaluation]
Callback = Callable[[int, Array, Evaluation], bool | None]

_MEMORY = 20  # steps from which L-BFGS knows the curvature
_DECREASE = 1e-3  # share of what the slope promises that a step must bring
_MOST_TRIALS = 20  # evaluations in a line search


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
    state: State | None = None,
    keep: Keep | None = None,
) -> Optimum:
    """Minimise from theta, using all points at every step.

    Parameters
    ----------
    evaluate : callable
        From theta, (m, p), to an `Evaluation`.
    theta : ndarray of shape (m, p)
        The start.
    method : {"lbfgs", "cg", "descent"}
        "lbfgs" (limited-memory BFGS) and "cg" (conjugate gradients of Polak and Ribière) search along a line, and need
        an exact gradient. "descent" steps along the gradient with a rate that grows after every success and shrinks
        after every failure, and returns the iterate with the lowest training error (then loss): the paper's choice for
        SHC.
    max_iter : int
    tol : float
        Stop when no entry of the gradient exceeds it.
    learning_rate : float
        First step of "descent", relative to the size of theta.
    callback : callable or None
        ``callback(iteration, theta, evaluation)`` is called at the start and after each iteration; a true answer
        stops the descent there.
    state : dict or None
        What `keep` was given by a descent that was broken off: goes on from there.
    keep : callable or None
        Called after each iteration with a function that returns the state.
    """
    if method not in _METHODS:
        raise ValueError(f"optimizer is {method!r}; choose 'lbfgs', 'cg' or 'descent'")
    step, stopped = _METHODS[method](learning_rate), False
    evaluate, theta = _in_rows(evaluate), np.ascontiguousarray(theta)
    if state is None:
        now = evaluate(theta)
        curve = [now.loss]
        stopped = bool(callback and callback(0, theta, now))
    else:
        theta, now = state["theta"], Evaluation(float(state["loss"]), state["gradient"], float(state["error"]))
        curve = state["curve"].tolist()
        step.restore(state)

    def read() -> State:
        facts = {"loss": np.array(now.loss), "error": np.array(now.error), "curve": np.array(curve)}
        return {"theta": theta, "gradient": now.gradient, **facts, **step.state()}

    while not stopped and len(curve) <= max_iter and np.abs(now.gradient).max() > tol:
        moved = step(evaluate, theta, now)
        if moved is None:
            break
        theta, now = moved
        curve.append(now.loss)
        stopped = bool(callback and callback(len(curve) - 1, theta, now))
        if keep is not None and not stopped:
            keep(read)
    if not np.isfinite(curve[-1]):
        warnings.warn(f"the loss became {curve[-1]}; lower gamma", ConvergenceWarning, stacklevel=2)
    return Optimum(step.chosen(theta), curve, len(curve) - 1, stopped)


class _Method(Protocol):
    """A rule for the next iterate, with what it remembers of the last ones."""

    def __call__(self, evaluate: Evaluate, theta: Array, now: Evaluation) -> tuple[Array, Evaluation] | None:
        """The next theta and its evaluation; None where there is no way down."""
        ...

    def chosen(self, theta: Array) -> Array:
        """What to return, after the last iterate, theta."""
        ...

    def state(self) -> State:
        """All that is remembered."""
        ...

    def restore(self, state: State) -> None:
        """Remember it again."""
        ...


class _Lbfgs:
    """Limited-memory BFGS (Nocedal 1980): the last steps and what they did to the gradient stand for the curvature."""

    def __init__(self) -> None:
        self.steps: list[Array] = []
        self.changes: list[Array] = []

    def __call__(self, evaluate: Evaluate, theta: Array, now: Evaluation) -> tuple[Array, Evaluation] | None:
        direction = -self._times_inverse(now.gradient)
        first = 1.0 if self.steps else min(1.0, 1.0 / float(np.sqrt(_dot(direction, direction))))
        found = _line_search(evaluate, theta, now, direction, first, curvature=0.9)
        if found is None and self.steps:  # the curvature misleads: forget it, and try straight down
            self.steps, self.changes = [], []
            return self(evaluate, theta, now)
        if found is not None:
            step, change = found[0] - theta, found[1].gradient - now.gradient
            if _dot(step, change) > np.finfo(float).eps * _dot(change, change):
                self.steps = [*self.steps, step][-_MEMORY:]
                self.changes = [*self.changes, change][-_MEMORY:]
        return found

    def _times_inverse(self, gradient: Array) -> Array:
        """The gradient times the inverse curvature, by the two-loop recursion."""
        pairs = [(s, y, _dot(s, y)) for s, y in zip(self.steps, self.changes, strict=True)]
        result, shares = gradient.copy(), []
        for s, y, sy in reversed(pairs):
            shares.append(_dot(s, result) / sy)
            result -= shares[-1] * y
        if pairs:
            result *= pairs[-1][2] / _dot(pairs[-1][1], pairs[-1][1])
        for (s, y, sy), share in zip(pairs, reversed(shares), strict=True):
            result += (share - _dot(y, result) / sy) * s
        return result

    def chosen(self, theta: Array) -> Array:
        return theta

    def state(self) -> State:
        return {"steps": np.array(self.steps), "changes": np.array(self.changes)}

    def restore(self, state: State) -> None:
        self.steps, self.changes = list(state["steps"]), list(state["changes"])


class _ConjugateGradient:
    """Conjugate gradients of Polak and Ribière, restarted where they point uphill."""

    def __init__(self) -> None:
        self.direction: Array = np.zeros(0)
        self.last_loss = 0.0

    def __call__(self, evaluate: Evaluate, theta: Array, now: Evaluation) -> tuple[Array, Evaluation] | None:
        g = now.gradient
        if not self.direction.size or _dot(g, self.direction) >= 0:
            self.direction, self.last_loss = -g, now.loss + 0.5 * float(np.sqrt(_dot(g, g)))
        # as far as would bring what the last step brought
        first = min(1.0, 2.02 * (now.loss - self.last_loss) / _dot(g, self.direction))
        found = _line_search(evaluate, theta, now, self.direction, first, curvature=0.4)
        if found is None and not np.array_equal(self.direction, -g):
            self.direction = np.zeros(0)
            return self(evaluate, theta, now)
        if found is not None:
            new = found[1].gradient
            conjugacy = max(0.0, _dot(new, new - g) / _dot(g, g))
            self.direction, self.last_loss = conjugacy * self.direction - new, now.loss
        return found

    def chosen(self, theta: Array) -> Array:
        return theta

    def state(self) -> State:
        return {"direction": self.direction, "last_loss": np.array(self.last_loss)}

    def restore(self, state: State) -> None:
        self.direction, self.last_loss = state["direction"], float(state["last_loss"])


class _Descent:
    """Steps along the gradient, with a rate that adapts; the iterate of lowest error counts."""

    def __init__(self, learning_rate: float) -> None:
        self.rate, self.first_rate = 0.0, learning_rate
        self.best: Array = np.zeros(0)
        self.best_key = (np.inf, np.inf)

    def __call__(self, evaluate: Evaluate, theta: Array, now: Evaluation) -> tuple[Array, Evaluation] | None:
        if not self.best.size:
            self._look(theta, now)
            self.rate = self.first_rate * float(np.abs(theta).max() or 1.0) / float(np.abs(now.gradient).max()) / 10.0
        candidate = theta - self.rate * now.gradient
        evaluation = evaluate(candidate)
        if evaluation.loss < now.loss:
            self.rate *= 1.2
            theta, now = candidate, evaluation
            self._look(theta, now)
        else:
            self.rate *= 0.5
        return theta, now

    def _look(self, theta: Array, now: Evaluation) -> None:
        if (now.error, now.loss) < self.best_key:
            self.best, self.best_key = theta, (now.error, now.loss)

    def chosen(self, theta: Array) -> Array:
        return self.best if self.best.size else theta

    def state(self) -> State:
        return {"best": self.best, "best_key": np.array(self.best_key), "rate": np.array(self.rate)}

    def restore(self, state: State) -> None:
        error, loss = state["best_key"].tolist()
        self.best, self.best_key, self.rate = state["best"], (error, loss), float(state["rate"])


_METHODS: dict[str, Callable[[float], _Method]] = {
    "lbfgs": lambda _: _Lbfgs(),
    "cg": lambda _: _ConjugateGradient(),
    "descent": _Descent,
}


@dataclass(frozen=True)
class _Trial:
    """A point on the line of a search."""

    step: float
    loss: float
    slope: float
    found: tuple[Array, Evaluation] | None = None


def _line_search(
    evaluate: Evaluate, theta: Array, now: Evaluation, direction: Array, step: float, curvature: float
) -> tuple[Array, Evaluation] | None:
    """A point on the line that meets the strong Wolfe conditions, or is at least lower; None where none was found.

    Steps grow until a minimum lies between two of them, `low` with the lowest loss and `high`; then that interval
    shrinks. `step` is the first one tried.
    """
    slope = _dot(now.gradient, direction)
    low = _Trial(0.0, now.loss, slope)
    high: _Trial | None = None
    for _ in range(_MOST_TRIALS):
        if not abs(step * slope) > np.finfo(float).eps * abs(now.loss):  # nothing but rounding is left
            break
        candidate = theta + step * direction
        evaluation = evaluate(candidate)
        here = _Trial(step, evaluation.loss, _dot(evaluation.gradient, direction), (candidate, evaluation))
        if not here.loss <= now.loss + _DECREASE * step * slope or here.loss >= low.loss or not np.isfinite(here.slope):
            high = here
        elif abs(here.slope) <= -curvature * slope:
            return here.found
        else:
            before, low = low, here
            if high is None and here.slope < 0:
                step = _beyond(before, here)
                continue
            if high is None or here.slope * (high.step - here.step) >= 0:
                high = before
        if abs(high.step - low.step) <= np.finfo(float).eps * max(high.step, low.step):
            break  # nothing lies between: losses differ by what their own solver leaves open
        step = _between(low, high)
    return low.found


def _beyond(before: _Trial, here: _Trial) -> float:
    """Where the slope would vanish if it went on changing as it did, within limits."""
    change, width = here.slope - before.slope, here.step - before.step
    ahead = -here.slope * width / change if change > 0 else np.inf
    return here.step + float(np.clip(ahead, 0.1 * width, 4.0 * width))


def _between(low: _Trial, high: _Trial) -> float:
    """The minimum of the cubic through both ends, away from them; a tenth of the way where it is unknown."""
    width, share = high.step - low.step, 0.1
    with np.errstate(all="ignore"):
        a = 3.0 * (low.loss - high.loss) / width + low.slope + high.slope
        root = np.copysign(np.sqrt(max(0.0, a * a - low.slope * high.slope)), width)
        minimum = 1.0 - (high.slope + root - a) / (high.slope - low.slope + 2.0 * root)
    if np.isfinite(minimum):
        share = float(np.clip(minimum, 0.1, 0.9))
    return low.step + share * width


def _in_rows(evaluate: Evaluate) -> Evaluate:
    """The same with gradients in C order: sums round by the layout, and a state is read back in this one."""

    def call(theta: Array) -> Evaluation:
        found = evaluate(theta)
        return Evaluation(found.loss, np.ascontiguousarray(found.gradient), found.error)

    return call


def _dot(a: Array, b: Array) -> float:
    return float(np.einsum("jk,jk->", a, b))  # BLAS would round by its number of threads


def minimize_batches(
    batches: Sequence[Evaluate],
    theta: Array,
    *,
    max_iter: int = 100,
    learning_rate: float = 1.0,
    rng: np.random.Generator,
    callback: Callback | None = None,
    state: State | None = None,
    keep: Keep | None = None,
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
    state, keep
        As in `minimize`, but kept after each step; the generator is to be as it was at the start.
    """
    n, batches, theta = len(batches), [_in_rows(batch) for batch in batches], np.ascontiguousarray(theta)
    first_rate = 0.05 * learning_rate * float(np.sqrt(np.mean(theta**2)))
    said = _Sum(theta.shape)
    if state is None:
        mean, square = np.zeros(theta.shape), np.zeros(theta.shape)
        for batch in batches:
            said.add(batch(theta))
        start = said.mean()
        curve, steps = [start.loss], 0
        if callback and callback(0, theta, start):
            return Optimum(theta, curve, 0, True)
    else:
        theta, mean, square = state["theta"], state["mean"], state["square"]
        curve, steps = state["curve"].tolist(), int(state["n_steps"])
        said.restore(state)

    def read() -> State:
        facts = {"curve": np.array(curve), "n_steps": np.array(steps)}
        return {"theta": theta, "mean": mean, "square": square, **facts, **said.state()}

    order = (k for _ in range(max_iter) for k in rng.permutation(n))
    for k in islice(order, steps, None):
        rate = first_rate / np.sqrt(1.0 + (steps // n) / 10.0)
        evaluation = batches[k](theta)
        said.add(evaluation)
        steps += 1
        mean = 0.9 * mean + 0.1 * evaluation.gradient
        square = 0.999 * square + 0.001 * evaluation.gradient**2
        scale = np.sqrt(square / (1.0 - 0.999**steps)) + 1e-12
        theta = theta - rate * (mean / (1.0 - 0.9**steps)) / scale
        if steps % n == 0:
            now = said.mean()
            curve.append(now.loss)
            if callback and callback(len(curve) - 1, theta, now):
                return Optimum(theta, curve, len(curve) - 1, True)
        if keep is not None:
            keep(read)
    return Optimum(theta, curve, len(curve) - 1)


class _Sum:
    """Evaluations added up."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._clear()

    def _clear(self) -> None:
        self.n, self.facts, self.gradient = 0, np.zeros(2), np.zeros(self.shape)

    def add(self, evaluation: Evaluation) -> None:
        self.n += 1
        self.facts = self.facts + np.array([evaluation.loss, evaluation.error])
        self.gradient = self.gradient + evaluation.gradient

    def mean(self) -> Evaluation:
        """The mean of them; the sum begins anew."""
        (loss, error), gradient = self.facts / self.n, self.gradient / self.n
        self._clear()
        return Evaluation(float(loss), gradient, float(error))

    def state(self) -> State:
        return {"said_n": np.array(self.n), "said_facts": self.facts, "said_gradient": self.gradient}

    def restore(self, state: State) -> None:
        self.n, self.facts, self.gradient = int(state["said_n"]), state["said_facts"], state["said_gradient"]
