"""One descent: from a start and a setting to learned prototypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from knnpress.execution.rows import BlockFunction, LocalRows, Rows
from knnpress.geometries.base import SmoothGeometry
from knnpress.learning.loss import SoftNeighborLoss
from knnpress.learning.objective import Evaluation, Objective, Scale
from knnpress.learning.optim import Follow, Optimum, minimize, minimize_batches
from knnpress.learning.prior import Prior, spread
from knnpress.learning.state import DescentState, SaveState
from knnpress.typing import Array, Indices, Labels

Optimizer = Literal["auto", "lbfgs", "cg", "descent", "adam"]

_GAMMA_SQUARED_TIMES_MARGIN = 5.0  # of the start: suited digits, ETH-80, FPHA and COIL-20 best
_LOOSE_GRADIENT = 1e-5  # distances are solved more tightly once the gradient is below this times their slack


@dataclass(frozen=True)
class LabelledPrototypes:
    """Prototypes and their labels: where a descent begins, or where it has ended."""

    points: Array
    labels: Labels


@dataclass(frozen=True)
class DescentOptions:
    """Options of the optimiser, the same for every setting.

    Attributes
    ----------
    optimizer : {"auto", "lbfgs", "cg", "descent", "adam"}
    max_iter : int
    tol : float
        Ends a descent when ten iterations took off less than this share of the loss.
    learning_rate : float
    batch_size : int or None
    label_noise : float
    paper : bool
        Whether parameters are those that the paper learns, and not normal coordinates at the start.
    seed : int
        Draws the batches.
    """

    optimizer: Optimizer = "auto"
    max_iter: int = 300
    tol: float = 2e-3
    learning_rate: float = 1.0
    batch_size: int | None = None
    label_noise: float = 0.2
    paper: bool = False
    seed: int = 0

    def method(self, geometry: SmoothGeometry) -> str:
        """The optimiser that "auto" stands for."""
        if self.optimizer != "auto":
            return self.optimizer
        return "adam" if self.batch_size else "lbfgs" if geometry.exact_gradient else "descent"


class Problem:
    """One training set with its start.

    Parameters
    ----------
    rows : Rows
    blocks : list of slice
    geometry : SmoothGeometry
    start : LabelledPrototypes
    descent : DescentOptions
    sample : LocalRows
        Points in memory to measure the start by; `rows` themselves, where they are few.
    unit : float or None
        Of the parameters; None: the spread of the points round the start. A fit gives that round the centroids of
        the classes, however many prototypes there are.

    Attributes
    ----------
    scale : Scale
        What the parameters stand for: u = 0 is the start, and one unit the spread of the points.
    usual_gamma : float
        The sharpness that suits most data, by the margin of the start: the median gap between a point's nearest
        prototypes of its own class and of another.
    """

    def __init__(
        self,
        rows: Rows,
        blocks: Sequence[slice],
        geometry: SmoothGeometry,
        start: LabelledPrototypes,
        descent: DescentOptions,
        sample: LocalRows,
        unit: float | None = None,
    ) -> None:
        self.rows, self.blocks, self.geometry, self.start, self.descent = rows, blocks, geometry, start, descent
        by_block = sample.map(partial(_own_and_gap, geometry, start), sample.cut(len(start.points)))
        own, gap = (np.concatenate(part) for part in zip(*by_block, strict=True))
        margin = _median(gap, sample.weight)
        # equal points have no scale
        self.usual_gamma = float(np.sqrt(_GAMMA_SQUARED_TIMES_MARGIN / margin)) if margin > 0 else 1.0
        if descent.paper:
            chart = geometry.paper_chart(start.points)
            theta = chart.to_theta(start.points)
            self.scale, self.first = Scale(chart, np.zeros_like(theta), 1.0), theta
        else:
            chart = geometry.chart(start.points)
            theta = chart.to_theta(start.points)
            unit = spread(sample.X, sample.weight, start.points, own, geometry) if unit is None else unit
            self.scale, self.first = Scale(chart, theta, unit), np.zeros_like(theta)

    def objective(self, gamma: float, prior: float | Array, smoothing: float) -> Objective:
        """The loss and the prior, as a function of the prototypes' parameters."""
        n_classes = len(np.unique(self.start.labels))
        weight = self.rows.weight
        return Objective(
            self.rows,
            labels=self.start.labels,
            geometry=self.geometry,
            scale=self.scale,
            loss=SoftNeighborLoss(gamma, self.descent.label_noise, smoothing, n_classes),
            prior=Prior(prior, float(self.rows.shape[0]) if weight is None else float(weight.sum())),
            blocks=self.blocks,
        )

    def learn(
        self,
        gamma: float,
        prior: float | Array,
        smoothing: float,
        *,
        begin: Array | None = None,
        callback: Follow | None = None,
        state: DescentState | None = None,
        keep: SaveState | None = None,
    ) -> Optimum:
        """Descend from the start, from the parameters `begin`, or from where a descent was interrupted.

        An infinite prior leaves the start as it is. One for each prototype has the shape (m, 1).
        """
        u = self.first if begin is None else begin
        if np.isinf(prior).all():
            return Optimum(u, [], "flat")
        objective, descent = self.objective(gamma, prior, smoothing), self.descent
        method = descent.method(self.geometry)
        if method == "adam":
            return self._by_batches(objective, u, callback, state, keep)
        slacks = self.geometry.slacks
        curve, n_stages = ([], len(slacks)) if state is None else (state.earlier_curve, state.n_stages_left)
        for n_left in range(n_stages, 0, -1):
            objective.slack = slacks[-n_left]
            if state is not None:
                _restore([objective], state)
            found = minimize(
                objective,
                u,
                method=method,
                max_iter=descent.max_iter - max(0, len(curve) - 1),
                tol=descent.tol,
                gradient_tol=_LOOSE_GRADIENT * objective.slack if n_left > 1 else 0.1 * _LOOSE_GRADIENT,
                learning_rate=descent.learning_rate,
                callback=None if callback is None else partial(_count_on, callback, len(curve)),
                state=state,
                keep=None if keep is None else partial(_keep_descent, keep, [objective], curve, n_left),
            )
            u, curve = found.u, curve[:-1] + found.loss_curve
            if found.reason in ("flat", "max_iter", "callback"):
                break
            state = None
        return Optimum(u, curve, found.reason)

    def _by_batches(
        self,
        objective: Objective,
        u: Array,
        callback: Follow | None,
        state: DescentState | None,
        keep: SaveState | None,
    ) -> Optimum:
        descent = self.descent
        rng = np.random.default_rng(descent.seed)
        batches = objective.batches(descent.batch_size or self.rows.shape[0], rng)
        if state is not None:
            _restore(batches, state)
        return minimize_batches(
            batches,
            u,
            max_iter=descent.max_iter,
            learning_rate=descent.learning_rate,
            rng=rng,
            callback=callback,
            state=state,
            keep=None if keep is None else partial(_keep_descent, keep, batches, [], 1),
        )


def nearest_of_own_class(
    rows: Rows, blocks: Sequence[slice], geometry: SmoothGeometry, prototypes: LabelledPrototypes
) -> Indices:
    """Which prototype of its own class is nearest to each training point, (n,)."""
    return np.concatenate([own for own, _ in rows.map(partial(_own_and_gap, geometry, prototypes), blocks)])


def _own_and_gap(geometry: SmoothGeometry, prototypes: LabelledPrototypes) -> BlockFunction:
    """Each point's nearest prototype of its own class, and how much nearer or farther the others are."""
    linearize = geometry.linearize_at(prototypes.points, geometry.slacks[0])  # roughly is enough

    def on_block(X: Array, y: Labels, *_: Any) -> tuple[tuple[Indices, Array], None]:
        D, same = linearize(X).D, y[:, None] == prototypes.labels
        own, other = np.where(same, D, np.inf), np.where(same, np.inf, D)
        return (own.argmin(axis=1), np.abs(other.min(axis=1) - own.min(axis=1))), None

    return on_block


def _median(values: Array, weight: Array | None) -> float:
    """The weighted median: half the weight is on either side of it. Where a value ends the lower half exactly, the mean
    of that and the next.
    """
    if weight is None:
        weight = np.ones(len(values))
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order])
    low, high = (np.searchsorted(share, 0.5 * share[-1], side) for side in ("left", "right"))
    return 0.5 * float(values[order[low]] + values[order[min(high, len(order) - 1)]])


def _keep_descent(
    keep: SaveState,
    objectives: list[Objective],
    earlier_curve: list[float],
    n_stages_left: int,
    read_optimizer: Callable[[], DescentState],
) -> None:
    """Keep the state of an optimiser together with what only the descent knows."""

    def read() -> DescentState:
        memories = [one.state() for one in objectives]
        return replace(read_optimizer(), earlier_curve=earlier_curve, n_stages_left=n_stages_left, memories=memories)

    keep(read)


def _restore(objectives: list[Objective], state: DescentState) -> None:
    for one, memory in zip(objectives, state.memories, strict=True):
        one.restore(state.u, memory)


def _count_on(callback: Follow, n_before: int, k: int, u: Array, now: Evaluation) -> bool | None:
    """Number the iterations of a later stage on; its start was the end of the stage before."""
    return callback(k + max(0, n_before - 1), u, now) if k > 0 or n_before == 0 else None
