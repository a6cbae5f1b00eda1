"""Limited-memory BFGS: the optimiser that learns prototypes by default."""

from __future__ import annotations

import numpy as np

from knnpress.learning.objective import Evaluation
from knnpress.learning.optim.base import Evaluate, dot
from knnpress.learning.optim.line_search import line_search
from knnpress.learning.state import Arrays
from knnpress.typing import Array

_MEMORY = 20  # steps from which the curvature is known


class Lbfgs:
    """Limited-memory BFGS (Nocedal 1980): the last steps and what they did to the gradient stand for the curvature."""

    def __init__(self) -> None:
        self.steps: list[Array] = []
        self.changes: list[Array] = []
        self.curvatures: list[float] = []  # step times change, each

    def __call__(self, evaluate: Evaluate, u: Array, now: Evaluation) -> tuple[Array, Evaluation] | None:
        """The next u and its evaluation; None where there is no way down."""
        direction = -self._times_inverse(now.gradient)
        first = 1.0 if self.steps else min(1.0, 1.0 / float(np.sqrt(dot(direction, direction))))
        found = line_search(evaluate, u, now, direction, first, curvature=0.9)
        if found is None and self.steps:  # the curvature misleads: forget it, and try straight down
            self.steps, self.changes, self.curvatures = [], [], []
            return self(evaluate, u, now)
        if found is not None:
            step, change = found[0] - u, found[1].gradient - now.gradient
            if (curvature := dot(step, change)) > np.finfo(float).eps * dot(change, change):
                self.steps = [*self.steps, step][-_MEMORY:]
                self.changes = [*self.changes, change][-_MEMORY:]
                self.curvatures = [*self.curvatures, curvature][-_MEMORY:]
        return found

    def _times_inverse(self, gradient: Array) -> Array:
        """The gradient times the inverse curvature, by the two-loop recursion."""
        pairs = list(zip(self.steps, self.changes, self.curvatures, strict=True))
        result, shares = gradient.copy(), []
        for s, y, sy in reversed(pairs):
            shares.append(dot(s, result) / sy)
            result -= shares[-1] * y
        if pairs:
            result *= pairs[-1][2] / dot(pairs[-1][1], pairs[-1][1])
        for (s, y, sy), share in zip(pairs, reversed(shares), strict=True):
            result += (share - dot(y, result) / sy) * s
        return result

    def result(self, u: Array) -> Array:
        """What to return, after the last iterate, u."""
        return u

    def state(self) -> Arrays:
        """All that is remembered."""
        return {"steps": np.array(self.steps), "changes": np.array(self.changes)}

    def restore(self, state: Arrays) -> None:
        """Remember it again."""
        self.steps, self.changes = list(state["steps"]), list(state["changes"])
        self.curvatures = [dot(s, y) for s, y in zip(self.steps, self.changes, strict=True)]
