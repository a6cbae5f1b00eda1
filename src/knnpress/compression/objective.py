"""The learning step: from free parameters of the prototypes to the loss of the whole training set and its gradient."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from knnpress.compression.loss import log_softmax, neighbor_loss
from knnpress.geometries.base import Chart, Focus, SmoothGeometry
from knnpress.rows import LocalRows, Memory, Rows, Work
from knnpress.typing import Array, Labels

__all__ = ["Evaluation", "Objective"]

#: What a soft error counts for beside a real one: little, since smoothing makes it larger while errors get fewer
_SOFT = 0.25

#: Points that the smoothing term is taken over, at least; it concerns all their distances, the rest only near ones
_REACH = 2000

#: Share of a point's softmaxes that distances left out may have had
_NEGLIGIBLE = 1e-10


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


@dataclass(frozen=True)
class _Terms:
    """What the loss of a block depends on, beside the prototypes."""

    geometry: SmoothGeometry
    labels: Labels
    gamma: float
    floor: float
    smoothing: float
    attraction: float
    total: float  # of the weights; the number of points where they have none
    n_points: int

    def reach(self, X: Array) -> Array | None:
        """How much each point of a block counts in the smoothing, (n,); None: all alike.

        Of many points, some, drawn by the block's first one: the same in all evaluations, wherever they are made.
        """
        n = len(X)
        n_drawn = min(n, -(-n * _REACH // self.n_points))
        if not self.smoothing or n_drawn == n:
            return None
        drawn = np.random.default_rng(zlib.crc32(np.ascontiguousarray(X[0]).data)).choice(n, n_drawn, replace=False)
        reach = np.zeros(n)
        reach[drawn] = n / n_drawn
        return reach

    def focus(self, same: Array, needs_all: Array | bool = False) -> Focus | None:
        """The pairs that are not negligible in both softmaxes, over all prototypes and over those of the own class.

        None where every point needs all its pairs; otherwise those of `needs_all` do.
        """
        if np.all(needs_all):
            return None
        gap = np.log(same.shape[1] / _NEGLIGIBLE) / self.gamma**2
        return Focus(same, np.where(needs_all, np.inf, np.full(len(same), gap)))


class Objective:
    """Mean soft nearest-neighbour loss of a training set, as a function of the prototypes' parameters.

    Parameters
    ----------
    X : ndarray of shape (n, ...), or Rows
        Checked points; rows know their labels and weights.
    y : ndarray of shape (n,) or None
    labels : ndarray of shape (m,)
        Labels of the prototypes.
    geometry : SmoothGeometry
    chart : Chart
    gamma : float
    weight : ndarray of shape (n,) or None
    floor, smoothing, attraction : float
        Of the loss; see `neighbor_loss`.
    n_jobs : int or None
    blocks : list of slice or None
        Rows that count; None: all.
    memory : Memory or None
        To share with objectives of other rows.

    Attributes
    ----------
    slack : float
        How loosely the geometry may solve its distances or compute its gradients; set it before a call.

    Each row block keeps a memory between calls (packed matrices, warm potentials), which saves time and changes no
    result beyond the geometry's own tolerance.
    """

    def __init__(
        self,
        X: Array | Rows,
        y: Labels | None = None,
        *,
        labels: Labels,
        geometry: SmoothGeometry,
        chart: Chart,
        gamma: float,
        weight: Array | None = None,
        floor: float = 0.0,
        smoothing: float = 0.0,
        attraction: float = 0.0,
        n_jobs: int | None = None,
        blocks: Sequence[slice] | None = None,
        memory: Memory | None = None,
    ) -> None:
        if isinstance(X, np.ndarray):
            assert y is not None
            self.rows: Rows = LocalRows(X, y, weight, n_jobs)
        else:
            self.rows = X
        self.labels, self.geometry, self.chart, self.gamma = labels, geometry, chart, gamma
        self.floor, self.smoothing, self.attraction = floor, smoothing, attraction
        self.slack = 1.0
        self._blocks = self.rows.cut(len(labels)) if blocks is None else blocks
        self._memory = self.rows.memory() if memory is None else memory
        self._total = _total(self.rows.weight, self._blocks)
        self._n_points = sum(rows.stop - rows.start for rows in self._blocks)

    def __call__(self, theta: Array) -> Evaluation:
        """Evaluate at theta, (m, p)."""
        make = partial(_evaluation, self._terms(), self.chart.to_point(theta), self.slack)
        loss, gradient, error = self.rows.sum(make, self._blocks, self._memory)
        return Evaluation(loss, self.chart.pullback(theta, gradient), error)

    def scores(self, theta: Array) -> Array:
        """Each point's error by its nearest prototype, and a little of that by a soft one, which breaks ties, (n,)."""
        make = partial(_scores, self._terms(), self.chart.to_point(theta), self.slack)
        return np.concatenate(self.rows.map(make, self._blocks, self._memory))

    def state(self) -> dict[str, Array]:
        """What earlier calls left that later results depend on, if only within the geometry's tolerance.

        That is, what memories name in their attribute ``kept``.
        """
        known = {rows.start: self._memory[rows.start] for rows in self._blocks if rows.start in self._memory}
        return {
            f"{start}/{name}": getattr(memory, name)
            for start, memory in known.items()
            for name in getattr(memory, "kept", ())
            if getattr(memory, name) is not None
        }

    def restore(self, theta: Array, state: dict[str, Array], scored: bool = False) -> None:
        """Go on as after the calls before `state`, which were of `scores` or not; any theta will do."""
        if not state:
            return
        _ = self.scores(theta) if scored else self(theta)  # makes the memories
        for key, array in state.items():
            start, name = key.split("/")
            setattr(self._memory[int(start)], name, array)

    def batches(self, size: int, rng: np.random.Generator) -> list[Objective]:
        """Cut the training set at random into parts of about `size` rows, each an objective of its own.

        Of points that are not in memory, a part is made of whole blocks, so that a pass over all parts reads each once.
        """
        rows = self.rows
        n_parts = max(1, round(rows.shape[0] / size))
        if isinstance(rows, LocalRows) and rows.in_memory:
            X, y = rows.X, rows.y
            weight = (np.ones(len(X)) if rows.weight is None else rows.weight) / self._total
            return [
                self._part(LocalRows(X[k], y[k], weight[k], rows.n_jobs, rows.budget))
                for k in np.array_split(rng.permutation(len(X)), n_parts)
            ]
        order = np.array_split(rng.permutation(len(self._blocks)), min(n_parts, len(self._blocks)))
        return [self._part(rows, [self._blocks[k] for k in np.sort(part)], self._memory) for part in order]

    def _part(self, rows: Rows, blocks: Sequence[slice] | None = None, memory: Memory | None = None) -> Objective:
        return Objective(
            rows,
            labels=self.labels,
            geometry=self.geometry,
            chart=self.chart,
            gamma=self.gamma,
            floor=self.floor,
            smoothing=self.smoothing,
            attraction=self.attraction,
            blocks=blocks,
            memory=memory,
        )

    def _terms(self) -> _Terms:
        shape = self.floor, self.smoothing, self.attraction
        return _Terms(self.geometry, self.labels, self.gamma, *shape, self._total, self._n_points)


def _evaluation(terms: _Terms, Z: Array, slack: float) -> Work:
    """Loss, gradient in Z and error of a block, weighted."""
    linearize = terms.geometry.linearize_at(Z, slack)

    def work(X: Array, y: Labels, weight: Array | None, memory: object) -> tuple[tuple[float, Array, float], object]:
        share = np.full(len(X), 1.0 / terms.total) if weight is None else weight / terms.total
        same, reach = y[:, None] == terms.labels, terms.reach(X)
        needs_all = bool(terms.smoothing) if reach is None else reach > 0
        step = linearize(X, memory, terms.focus(same, needs_all))
        shape = terms.floor, terms.smoothing, reach, terms.attraction
        loss, W = neighbor_loss(step.D, same, terms.gamma, share, *shape)
        return (loss, step.pullback(W), float(share @ _wrong(step.D, same))), step.memory

    return work


def _scores(terms: _Terms, Z: Array, slack: float) -> Work:
    """`Objective.scores` of a block."""
    linearize = terms.geometry.linearize_at(Z, slack)

    def work(X: Array, y: Labels, weight: Array | None, memory: object) -> tuple[Array, object]:
        same = y[:, None] == terms.labels
        step = linearize(X, memory, terms.focus(same))
        _, P = log_softmax(-(terms.gamma**2) * step.D)
        return _wrong(step.D, same) + _SOFT * (1.0 - (P * same).sum(axis=1)), step.memory

    return work


def _total(weight: Array | None, blocks: Sequence[slice]) -> float:
    if weight is None:
        return float(sum(rows.stop - rows.start for rows in blocks))
    return float(np.concatenate([weight[rows] for rows in blocks]).sum())


def _wrong(D: Array, same: Array) -> Array:
    """Whether the nearest prototype has another label, (n,)."""
    wrong: Array = ~same[np.arange(len(D)), D.argmin(axis=1)]
    return wrong
