"""The paper's optimisers: conjugate gradients for SCC, adaptive descent for SHC."""

from __future__ import annotations

import numpy as np

from knnpress.learning.objective import Evaluation
from knnpress.learning.optim.base import Evaluate, dot
from knnpress.learning.optim.line_search import line_search
from knnpress.learning.state import Arrays
from knnpress.typing import Array


class ConjugateGradient:
    """Conjugate gradients of Polak and Ribière, restarted where they point uphill."""

    def __init__(self) -> None:
        self.direction: Array = np.zeros(0)
        self.last_loss = 0.0

    def __call__(self, evaluate: Evaluate, u: Array, now: Evaluation) -> tuple[Array, Evaluation] | None:
        """The next u and its evaluation; None where there is no way down."""
        g = now.gradient
        if not self.direction.size or dot(g, self.direction) >= 0:
            self.direction, self.last_loss = -g, now.loss + 0.5 * float(np.sqrt(dot(g, g)))
        # as far as would gain as much as the last step did
        first = min(1.0, 2.02 * (now.loss - self.last_loss) / dot(g, self.direction))
        found = line_search(evaluate, u, now, self.direction, first, curvature=0.4)
        if found is None and not np.array_equal(self.direction, -g):
            self.direction = np.zeros(0)
            return self(evaluate, u, now)
        if found is not None:
            new = found[1].gradient
            conjugacy = max(0.0, dot(new, new - g) / dot(g, g))
            self.direction, self.last_loss = conjugacy * self.direction - new, now.loss
        return found

    def result(self, u: Array) -> Array:
        """What to return, after the last iterate, u."""
        return u

    def state(self) -> Arrays:
        """All that is remembered."""
        return {"direction": self.direction, "last_loss": np.array(self.last_loss)}

    def restore(self, state: Arrays) -> None:
        """Remember it again."""
        self.direction, self.last_loss = state["direction"], float(state["last_loss"])


class AdaptiveDescent:
    """Steps along the gradient, with a rate that adapts; the iterate of lowest error counts."""

    def __init__(self, learning_rate: float) -> None:
        self.rate, self.first_rate = 0.0, learning_rate
        self.best: Array = np.zeros(0)
        self.best_key = (np.inf, np.inf)

    def __call__(self, evaluate: Evaluate, u: Array, now: Evaluation) -> tuple[Array, Evaluation] | None:
        """The next u and its evaluation; None where there is no way down."""
        if not self.best.size:
            self._look(u, now)
            self.rate = self.first_rate * float(np.abs(u).max() or 1.0) / float(np.abs(now.gradient).max()) / 10.0
        candidate = u - self.rate * now.gradient
        evaluation = evaluate(candidate)
        if evaluation.loss < now.loss:
            self.rate *= 1.2
            u, now = candidate, evaluation
            self._look(u, now)
        else:
            self.rate *= 0.5
        return u, now

    def _look(self, u: Array, now: Evaluation) -> None:
        if (now.error, now.loss) < self.best_key:
            self.best, self.best_key = u, (now.error, now.loss)

    def result(self, u: Array) -> Array:
        """What to return, after the last iterate, u."""
        return self.best if self.best.size else u

    def state(self) -> Arrays:
        """All that is remembered."""
        return {"best": self.best, "best_key": np.array(self.best_key), "rate": np.array(self.rate)}

    def restore(self, state: Arrays) -> None:
        """Remember it again."""
        error, loss = state["best_key"].tolist()
        self.best, self.best_key, self.rate = state["best"], (error, loss), float(state["rate"])
