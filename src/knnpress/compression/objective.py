"""The learning step: from free parameters of the prototypes to the loss of the whole training set and its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from knnpress.compression.loss import neighbor_loss
from knnpress.geometries.base import Chart, SmoothGeometry
from knnpress.parallel import map_blocks, row_blocks
from knnpress.typing import Array, Labels

__all__ = ["Evaluation", "Objective"]


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
    n_jobs : int or None

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
        n_jobs: int | None = None,
    ) -> None:
        self.X, self.y, self.labels = X, y, labels
        self.geometry, self.chart, self.gamma, self.n_jobs = geometry, chart, gamma, n_jobs
        self.weight = np.full(len(X), 1.0 / len(X)) if weight is None else weight / weight.sum()
        self._blocks = row_blocks(len(X), 8 * len(labels))
        self._memory: dict[int, Any] = {}

    def __call__(self, theta: Array) -> Evaluation:
        """Evaluate at theta, (m, p)."""
        Z = self.chart.to_point(theta)
        parts = map_blocks(lambda rows: self._block(rows, Z), self._blocks, self.n_jobs)
        loss, gradient, error = parts[0]
        for part in parts[1:]:  # in order, so that no result depends on the number of threads
            loss, gradient, error = loss + part[0], gradient + part[1], error + part[2]
        return Evaluation(loss, self.chart.pullback(theta, gradient), error)

    def _block(self, rows: slice, Z: Array) -> tuple[float, Array, float]:
        step = self.geometry.linearize(self.X[rows], Z, self._memory.get(rows.start))
        self._memory[rows.start] = step.memory
        same = self.y[rows, None] == self.labels
        loss, W = neighbor_loss(step.D, same, self.gamma, self.weight[rows])
        wrong = ~same[np.arange(len(same)), step.D.argmin(axis=1)]
        return loss, step.pullback(W), float(self.weight[rows] @ wrong)
