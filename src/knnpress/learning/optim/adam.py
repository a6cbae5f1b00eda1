"""Adam, for training sets that are taken batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from knnpress.learning.objective import Evaluation
from knnpress.learning.optim.base import Evaluate, Follow, Optimum, in_rows
from knnpress.learning.state import Arrays, DescentState, SaveState
from knnpress.typing import Array


def minimize_batches(
    batches: Sequence[Evaluate],
    u: Array,
    *,
    max_iter: int = 100,
    learning_rate: float = 1.0,
    rng: np.random.Generator,
    callback: Follow | None = None,
    state: DescentState | None = None,
    keep: SaveState | None = None,
) -> Optimum:
    """Minimise the mean of several functions by Adam, a step for each; an iteration is a pass over all of them.

    Parameters
    ----------
    batches : sequence of callable
        Each from u, (m, p), to an `Evaluation`.
    u : ndarray of shape (m, p)
        The start.
    max_iter : int
        Passes.
    learning_rate : float
        How far a row of u moves in the first step, in twentieths; later steps shrink evenly, to nothing at the end
        of the last pass: noise of the batches does not decide where the descent comes to rest.
    rng : Generator
        Draws the order of the batches in each pass.
    callback : callable or None
        ``callback(iteration, u, evaluation)`` is called at the start and after each pass, with the mean of the
        evaluations on the way; a true answer stops the descent there.
    state, keep
        As in `minimize`, but kept after each step; the generator is to be as it was at the start.
    """
    n, batches, u = len(batches), [in_rows(batch) for batch in batches], np.ascontiguousarray(u)
    first_rate = 0.05 * learning_rate / np.sqrt(u.shape[1])
    total = _Sum(u.shape)
    if state is None:
        mean, square = np.zeros(u.shape), np.zeros(u.shape)
        for batch in batches:
            total.add(batch(u))
        start = total.mean()
        curve, steps = [start.loss], 0
        if callback and callback(0, u, start):
            return Optimum(u, curve, "callback")
    else:
        u, curve, known = state.u, list(state.loss_curve), state.optimizer
        mean, square, steps = known["mean"], known["square"], int(known["n_steps"])
        total.restore(known)

    def read() -> DescentState:
        known = {"mean": mean, "square": square, "n_steps": np.array(steps)}
        return DescentState(u, curve, {**known, **total.state()})

    order = (k for _ in range(max_iter) for k in rng.permutation(n))
    for k in islice(order, steps, None):
        rate = first_rate * (1.0 - steps / (n * max_iter))
        evaluation = batches[k](u)
        total.add(evaluation)
        steps += 1
        mean = 0.9 * mean + 0.1 * evaluation.gradient
        square = 0.999 * square + 0.001 * evaluation.gradient**2
        scale = np.sqrt(square / (1.0 - 0.999**steps)) + 1e-12
        u = u - rate * (mean / (1.0 - 0.9**steps)) / scale
        if steps % n == 0:
            now = total.mean()
            curve.append(now.loss)
            if callback and callback(len(curve) - 1, u, now):
                return Optimum(u, curve, "callback")
        if keep is not None:
            keep(read)
    return Optimum(u, curve, "max_iter")


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
        """The mean of them; the sum begins again."""
        (loss, error), gradient = self.facts / self.n, self.gradient / self.n
        self._clear()
        return Evaluation(float(loss), gradient, float(error))

    def state(self) -> Arrays:
        return {"sum_n": np.array(self.n), "sum_facts": self.facts, "sum_gradient": self.gradient}

    def restore(self, state: Arrays) -> None:
        self.n, self.facts, self.gradient = int(state["sum_n"]), state["sum_facts"], state["sum_gradient"]
