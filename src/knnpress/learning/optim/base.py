"""What optimisers share: the form of a function of u, of a rule for the next u, and of a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from knnpress.learning.objective import Evaluation
from knnpress.learning.state import Arrays
from knnpress.typing import Array

Evaluate = Callable[[Array], Evaluation]
#: Called with the number of an iteration, u and its evaluation; a true answer stops the descent there
Follow = Callable[[int, Array, Evaluation], bool | None]
Reason = Literal["flat", "gradient", "no way down", "max_iter", "callback"]


@dataclass(frozen=True)
class Optimum:
    """Where an optimiser stopped.

    Attributes
    ----------
    u : ndarray of shape (m, p)
        Parameters of the prototypes, in units of the data; `Scale.points` turns them into prototypes.
    loss_curve : list of float
        Loss at the start and after each iteration.
    reason : str
        Why it stopped: the loss is "flat", the "gradient" vanishes, a line search found "no way down", or "max_iter"
        or the "callback" ended it.
    """

    u: Array
    loss_curve: list[float]
    reason: Reason


class Method(Protocol):
    """A rule for the next iterate, with what it remembers of the last ones."""

    def __call__(self, evaluate: Evaluate, u: Array, now: Evaluation) -> tuple[Array, Evaluation] | None:
        """The next u and its evaluation; None where there is no way down."""
        ...

    def result(self, u: Array) -> Array:
        """What to return, after the last iterate, u."""
        ...

    def state(self) -> Arrays:
        """All that is remembered."""
        ...

    def restore(self, state: Arrays) -> None:
        """Remember it again."""
        ...


def in_rows(evaluate: Evaluate) -> Evaluate:
    """The same with gradients in C order: sums round by the layout, and a state is read back in this one."""

    def call(u: Array) -> Evaluation:
        found = evaluate(u)
        return Evaluation(found.loss, np.ascontiguousarray(found.gradient), found.error)

    return call


def dot(a: Array, b: Array) -> float:
    """Inner product of two arrays, (m, p)."""
    return float(np.vdot(a, b))  # by BLAS, which `minimize` holds to one thread: sums would round by their number
