"""The learning step: from free parameters of the prototypes to the loss of the whole training set and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np

from knnpress.compression.loss import log_softmax, neighbor_loss
from knnpress.geometries.base import Chart, Linearization, SmoothGeometry
from knnpress.parallel import map_blocks, row_blocks
from knnpress.typing import Array, Labels

__all__ = ["Evaluation", "Objective"]

#: What a soft error counts for beside a real one: little, since smoothing makes it larger while errors get fewer
_SOFT = 0.25

_Linearize = Callable[[Array, Any], Linearization]


@dataclass(frozen=True)
class Evaluation:
    """The objective at one theta.

    Attributes
    ----------
    loss : float
        Mean of -log p_i, weighted.
    gradient : ndarray of the shape of theta
    error : float
        Weighted share of the training points whose nearest prototype has another label.
    """

    loss: float
    gradient: Array
    error: float


class Objective:
    """Mean soft nearest-neighbour loss of a training set, as a function of the prototypes' parameters.

    Parameters
    ----------
    X, y : ndarray of shapes (n, ...), (n,)
        Checked points and their labels.
    labels : ndarray of shape (m,)
        Labels of the prototypes.
    geometry : SmoothGeometry
    chart : Chart
    gamma : float
    weight : ndarray of shape (n,) or None
    floor, smoothing : float
        Of the loss; see `neighbor_loss`.
    n_jobs : int or None

    Attributes
    ----------
    slack : float
        How loosely the geometry may solve its distances; set it before a call.

    Each row block keeps a memory between calls (packed matrices, warm potentials), which saves time and changes no
    result beyond the geometry's own tolerance.
    """

    def __init__(
        self,
        X: Array,
        y: Labels,
        *,
        labels: Labels,
        geometry: SmoothGeometry,
        chart: Chart,
        gamma: float,
        weight: Array | None = None,
        floor: float = 0.0,
        smoothing: float = 0.0,
        n_jobs: int | None = None,
    ) -> None:
        self.X, self.y, self.labels = X, y, labels
        self.geometry, self.chart, self.gamma, self.n_jobs = geometry, chart, gamma, n_jobs
        self.floor, self.smoothing = floor, smoothing
        self.slack = 1.0
        self.weight = np.full(len(X), 1.0 / len(X)) if weight is None else weight / weight.sum()
        self._blocks = row_blocks(len(X), 8 * len(labels))
        self._memory: dict[int, Any] = {}

    def __call__(self, theta: Array) -> Evaluation:
        """Evaluate at theta, (m, p)."""
        linearize = self.geometry.linearize_at(self.chart.to_point(theta), self.slack)
        parts = map_blocks(lambda rows: self._block(rows, linearize), self._blocks, self.n_jobs)
        loss, gradient, error = parts[0]
        for part in parts[1:]:  # in order, so that no result depends on the number of threads
            loss, gradient, error = loss + part[0], gradient + part[1], error + part[2]
        return Evaluation(loss, self.chart.pullback(theta, gradient), error)

    def scores(self, theta: Array) -> Array:
        """Each point's error by its nearest prototype, and a little of that by a soft one, which breaks ties, (n,)."""
        linearize = self.geometry.linearize_at(self.chart.to_point(theta), self.slack)

        def block(rows: slice) -> Array:
            step, same = self._distances(rows, linearize)
            _, P = log_softmax(-(self.gamma**2) * step.D)
            return _wrong(step.D, same) + _SOFT * (1.0 - (P * same).sum(axis=1))

        return np.concatenate(map_blocks(block, self._blocks, self.n_jobs))

    def state(self) -> dict[str, Array]:
        """What earlier calls left that later results depend on, if only within the geometry's tolerance.

        That is, the arrays of memories that are dataclasses; other memories hold nothing but X in another form.
        """
        known = {start: vars(memory) for start, memory in self._memory.items() if is_dataclass(memory)}
        return {
            f"{start}/{name}": value
            for start, fields in known.items()
            for name, value in fields.items()
            if isinstance(value, np.ndarray)
        }

    def restore(self, theta: Array, state: dict[str, Array]) -> None:
        """Go on as after the calls before `state`; any theta will do."""
        if not state:
            return
        self(theta)  # makes the memories
        for key, array in state.items():
            start, name = key.split("/")
            setattr(self._memory[int(start)], name, array)

    def batches(self, size: int, rng: np.random.Generator) -> list[Objective]:
        """Cut the training set at random into parts of about `size` rows, each an objective of its own."""
        n = len(self.X)
        return [
            Objective(
                self.X[rows],
                self.y[rows],
                labels=self.labels,
                geometry=self.geometry,
                chart=self.chart,
                gamma=self.gamma,
                weight=self.weight[rows],
                floor=self.floor,
                smoothing=self.smoothing,
                n_jobs=self.n_jobs,
            )
            for rows in np.array_split(rng.permutation(n), max(1, round(n / size)))
        ]

    def _block(self, rows: slice, linearize: _Linearize) -> tuple[float, Array, float]:
        step, same = self._distances(rows, linearize)
        loss, W = neighbor_loss(step.D, same, self.gamma, self.weight[rows], self.floor, self.smoothing)
        return loss, step.pullback(W), float(self.weight[rows] @ _wrong(step.D, same))

    def _distances(self, rows: slice, linearize: _Linearize) -> tuple[Linearization, Array]:
        step = linearize(self.X[rows], self._memory.get(rows.start))
        self._memory[rows.start] = step.memory
        return step, self.y[rows, None] == self.labels


def _wrong(D: Array, same: Array) -> Array:
    """Whether the nearest prototype has another label, (n,)."""
    wrong: Array = ~same[np.arange(len(D)), D.argmin(axis=1)]
    return wrong
