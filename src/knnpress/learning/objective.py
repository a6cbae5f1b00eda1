"""The learning step: from free parameters of the prototypes to the loss of the whole training set and its gradient."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from knnpress.execution.rows import BlockFunction, LocalRows, Memory, Rows, as_bytes
from knnpress.geometries.base import Chart, CheapGeometry, Focus, SmoothGeometry
from knnpress.learning.loss import SoftNeighborLoss
from knnpress.learning.prior import Prior
from knnpress.learning.state import Arrays
from knnpress.typing import Array, Labels

#: Points that the smoothing term is taken over, at least; it concerns all their distances, the rest only near ones
_SMOOTHING_POINTS = 2000

#: Share of a point's softmaxes that distances left out may have had
_NEGLIGIBLE = 1e-10


@dataclass(frozen=True)
class Evaluation:
    """The objective at one u.

    Attributes
    ----------
    loss : float
        Mean loss of the points, weighted, and the prior.
    gradient : ndarray of the shape of u
    error : float
        Weighted share of the training points whose nearest prototype has another label.
    """

    loss: float
    gradient: Array
    error: float


@dataclass(frozen=True)
class Scale:
    """How the parameters that an optimiser sees stand for prototypes: theta = origin + unit * u.

    In units of the data's spread the same steps and tolerances suit all data.

    Attributes
    ----------
    chart : Chart
    origin : ndarray of shape (m, p)
        theta of the start.
    unit : float
    """

    chart: Chart
    origin: Array
    unit: float

    def theta(self, u: Array) -> Array:
        """Parameters of the chart."""
        return self.origin + self.unit * u

    def points(self, u: Array) -> Array:
        """Prototypes."""
        return self.chart.to_point(self.theta(u))

    def u(self, points: Array) -> Array:
        """What stands for given prototypes."""
        return (self.chart.to_theta(points) - self.origin) / self.unit


class Objective:
    """Mean soft nearest-neighbour loss of a training set plus a prior, as a function of the prototypes' parameters.

    Parameters
    ----------
    rows : Rows
        Checked points with their labels and weights.
    labels : ndarray of shape (m,)
        Labels of the prototypes.
    geometry : SmoothGeometry
    scale : Scale
    loss : SoftNeighborLoss
    prior : Prior
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
        rows: Rows,
        *,
        labels: Labels,
        geometry: SmoothGeometry,
        scale: Scale,
        loss: SoftNeighborLoss,
        prior: Prior,
        blocks: Sequence[slice] | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.rows, self.labels, self.geometry, self.scale = rows, labels, geometry, scale
        self.loss, self.prior = loss, prior
        self.slack = 1.0
        blocks = rows.cut(len(labels)) if blocks is None else blocks
        if rows.in_memory:
            work_per_row = len(labels) * int(np.prod(rows.shape[1:]))
            least_work = geometry.least_work if isinstance(geometry, CheapGeometry) else 0
            blocks = _joined(blocks, least_work // work_per_row)
        self._blocks = blocks
        self._memory = rows.memory() if memory is None else memory

    def __call__(self, u: Array) -> Evaluation:
        """Evaluate at u, (m, p)."""
        placed = self.scale.chart.at(self.scale.theta(u))
        total, n_points = _total(self.rows.weight, self._blocks), sum(b.stop - b.start for b in self._blocks)
        terms = _Terms(self.geometry, self.labels, self.loss, total, n_points)
        make_function = partial(_evaluation, terms, placed.points, self.slack)
        loss, gradient, error = self.rows.sum(make_function, self._blocks, self._memory)
        penalty, pull = self.prior(u)
        return Evaluation(loss + penalty, self.scale.unit * placed.pullback(gradient) + pull, error)

    def state(self) -> Arrays:
        """What earlier calls left that later results depend on, if only within the geometry's tolerance.

        That is, what memories name in their attribute ``kept``.
        """
        known = {block.start: self._memory[block.start] for block in self._blocks if block.start in self._memory}
        return {
            f"{start}/{name}": getattr(memory, name)
            for start, memory in known.items()
            for name in getattr(memory, "kept", ())
            if getattr(memory, name) is not None
        }

    def restore(self, u: Array, state: Arrays) -> None:
        """Go on as after the calls before `state`; any u will do."""
        if not state:
            return
        self(u)  # makes the memories
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
            return [self._part(rows.subset(k)) for k in np.array_split(rng.permutation(rows.shape[0]), n_parts)]
        order = np.array_split(rng.permutation(len(self._blocks)), min(n_parts, len(self._blocks)))
        return [self._part(rows, [self._blocks[k] for k in np.sort(part)], self._memory) for part in order]

    def _part(self, rows: Rows, blocks: Sequence[slice] | None = None, memory: Memory | None = None) -> Objective:
        return Objective(
            rows,
            labels=self.labels,
            geometry=self.geometry,
            scale=self.scale,
            loss=self.loss,
            prior=self.prior,
            blocks=blocks,
            memory=memory,
        )


@dataclass(frozen=True)
class _Terms:
    """What the loss of a block depends on, beside the prototypes."""

    geometry: SmoothGeometry
    labels: Labels
    loss: SoftNeighborLoss
    total: float  # of the weights; the number of points where they have none
    n_points: int

    def reach(self, X: Array) -> Array | None:
        """How much each point of a block counts in the smoothing, (n,); None: all alike.

        Of many points, some, drawn by the block's first one: the same in all evaluations, wherever they are made.
        """
        n = len(X)
        n_drawn = min(n, -(-n * _SMOOTHING_POINTS // self.n_points))
        if not self.loss.smoothing or n_drawn == n:
            return None
        drawn = np.random.default_rng(zlib.crc32(as_bytes(X[:1]))).choice(n, n_drawn, replace=False)
        reach = np.zeros(n)
        reach[drawn] = n / n_drawn
        return reach

    def focus(self, same: Array, reach: Array | None) -> Focus | None:
        """The pairs that are not negligible in both softmaxes: over all prototypes, and over the point's own class.

        None where every point needs all its pairs, for the smoothing; otherwise those that count in it do.
        """
        if self.loss.smoothing and reach is None:
            return None
        gap = np.full(len(same), np.log(same.shape[1] / _NEGLIGIBLE) / self.loss.gamma**2)
        return Focus(same, gap if reach is None else np.where(reach > 0, np.inf, gap))


def _evaluation(terms: _Terms, Z: Array, slack: float) -> BlockFunction:
    """Loss, gradient in Z and error of a block, weighted."""
    linearize = terms.geometry.linearize_at(Z, slack)

    def on_block(
        X: Array, y: Labels, weight: Array | None, memory: object
    ) -> tuple[tuple[float, Array, float], object]:
        share = np.full(len(X), 1.0 / terms.total) if weight is None else weight / terms.total
        same, reach = y[:, None] == terms.labels, terms.reach(X)
        step = linearize(X, memory, terms.focus(same, reach))
        loss, W = terms.loss(step.D, same, share, reach)
        wrong = ~same[np.arange(len(X)), step.D.argmin(axis=1)]
        return (loss, step.pullback(W), float(share @ wrong)), step.memory

    return on_block


def _joined(blocks: Sequence[slice], least_rows: int) -> list[slice]:
    """The same rows in fewer blocks: neighbours are joined until they have `least_rows`."""
    joined: list[slice] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if last is not None and last.stop == block.start and last.stop - last.start < least_rows:
            joined[-1] = slice(last.start, block.stop)
        else:
            joined.append(block)
    return joined


def _total(weight: Array | None, blocks: Sequence[slice]) -> float:
    """What the sum over some blocks is divided by to be a mean; of a batch whose points are all absent, 1."""
    if weight is None:
        return float(sum(block.stop - block.start for block in blocks))
    return float(np.concatenate([weight[block] for block in blocks]).sum()) or 1.0
