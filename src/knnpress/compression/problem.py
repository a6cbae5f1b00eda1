"""One training set with its start: what is learned from it, and how held-out points judge each iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from knnpress.compression.checkpoint import Keep, State, pack, unpack
from knnpress.compression.objective import Evaluation, Objective
from knnpress.compression.optimize import Optimum, minimize, minimize_batches
from knnpress.compression.prototypes import Prototypes
from knnpress.geometries import SmoothGeometry
from knnpress.geometries.base import Chart
from knnpress.rows import LocalRows, Rows, Work
from knnpress.typing import Array, Indices, Labels

if TYPE_CHECKING:
    from knnpress.compression.stochastic import StochasticCompression

__all__ = ["STEP_LOSS", "Problem", "held_out_parts"]

STEP_LOSS = 0.01  # held-out score that a later iteration may lose to the best: descents are cut short by chance
_SHARPNESS = 5.0  # gamma^2 in units of 1 / `Problem.margin`: the one that suited most data
_PATIENCE = 20  # iterations since the best held-out score after which the search ends
_SPAN, _FLAT = 10, 0.015  # iterations, and the share of all that a loss has fallen below which it has gone flat in them
_SLACK_GRADIENT = 1e-5  # distances are solved more tightly once the gradient is below this times their slack
_SCORES_SLACK = 10.0  # how much more loosely distances may be solved where only the nearest is looked for
_LEAST_HELD_OUT = 20  # points below which a held-out part says nothing
_ENOUGH_HELD_OUT = 100  # points; smaller parts are held out in turn until so many have been


@dataclass(frozen=True)
class Problem:
    """One training set, in row blocks, with its start."""

    settings: StochasticCompression
    geometry: SmoothGeometry
    chart: Chart
    rows: Rows
    blocks: Sequence[slice]
    start: Prototypes
    seed: int
    attraction: float = 0.0

    def margin(self) -> float:
        """Median gap between a point's nearest starting prototypes of its own class and of another."""
        return float(np.median(self._each(_gaps, self.start.points)))

    def usual_gamma(self) -> float:
        """The sharpness that suits most data, by the margin of the start."""
        margin = self.margin()
        return float(np.sqrt(_SHARPNESS / max(margin, 1e-300))) if margin > 0 else 1.0  # equal points know no scale

    def represented(self, points: Array) -> Indices:
        """The nearest of `points` of the same class to each training point, (n,)."""
        return self._each(_own, points)

    def _each(self, function: Callable[[Array, Array], Array], points: Array) -> Array:
        """A function of the distances to points with the labels of the start, and of who shares them; row by row."""
        make = partial(_by_distance, function, self.geometry, points, self.start.labels)
        return np.concatenate(self.rows.map(make, self.blocks))

    def objective(self, gamma: float, rows: Rows, blocks: Sequence[slice] | None = None) -> Objective:
        """The loss of labelled points as a function of these prototypes."""
        noise, n_classes = self.settings.label_noise, len(np.unique(self.start.labels))
        return Objective(
            rows,
            labels=self.start.labels,
            geometry=self.geometry,
            chart=self.chart,
            gamma=gamma,
            floor=noise / (1.0 - noise) / n_classes,
            smoothing=self.settings.smoothing,
            attraction=self.attraction,
            blocks=blocks,
        )

    def learn(
        self,
        gamma: float,
        iterations: int,
        callback: Callable[[int, Array, Evaluation], Any],
        state: State | None = None,
        keep: Keep | None = None,
    ) -> Optimum:
        """Descend from the start, or go on from the state of a descent that was broken off."""
        settings = self.settings
        objective = self.objective(gamma, self.rows, self.blocks)
        theta = self.chart.to_theta(self.start.points)
        method: str = settings.optimizer
        if method == "auto":
            method = "adam" if settings.batch_size else "lbfgs" if self.geometry.exact_gradient else "descent"
        if method == "adam":
            rng = np.random.default_rng(self.seed)
            batches = objective.batches(settings.batch_size or self.rows.shape[0], rng)
            if state is not None:
                _restore(batches, state)
            return minimize_batches(
                batches,
                theta,
                max_iter=iterations,
                learning_rate=settings.learning_rate,
                rng=rng,
                callback=callback,
                state=state,
                keep=_keep_also(keep, partial(_memories, batches)),
            )
        curve: list[float] = [] if state is None else state["earlier"].tolist()
        n_left = len(self.geometry.slacks) if state is None else int(state["n_left"])
        for slack in self.geometry.slacks[-n_left:]:
            objective.slack = slack
            if state is not None:
                _restore([objective], state)
            found = minimize(
                objective,
                theta,
                method=method,
                max_iter=iterations - max(0, len(curve) - 1),
                tol=settings.tol if slack == 1.0 else max(settings.tol, slack * _SLACK_GRADIENT),
                learning_rate=settings.learning_rate,
                callback=partial(_shifted, callback, len(curve)),
                state=state,
                keep=_keep_also(keep, partial(_stage, objective, curve, n_left)),
            )
            theta, curve = found.theta, curve[:-1] + found.loss_curve
            if found.stopped or len(curve) > iterations:
                break
            state, n_left = None, n_left - 1
        return Optimum(theta, curve, len(curve) - 1)

    def follow(
        self,
        gamma: float,
        iterations: int,
        out: LocalRows,
        judge: float,
        callback: Callable[[int, Array, Evaluation], Any],
        state: State | None = None,
        keep: Keep | None = None,
    ) -> State:
        """Descend until the loss or the held-out points say that it is enough, in at most `iterations` iterations.

        Returns the "scores" of the held-out points, (k, n), at the start and after each iteration, and "theta", that
        of the latest iteration whose mean score is the best or loses at most `STEP_LOSS` to it.
        """
        held_out = self.objective(judge, LocalRows(out.X, out.y, None, out.n_jobs, out.budget))
        held_out.slack = _SCORES_SLACK * self.geometry.slacks[0]
        rows: list[Array] = []
        losses: list[float] = []
        chosen = self.chart.to_theta(self.start.points)
        if state is not None:
            rows, losses, chosen = list(state["scores"]), state["losses"].tolist(), state["chosen"]
            held_out.restore(state["theta"], unpack("held_out", state), scored=True)

        def look(k: int, theta: Array, evaluation: Evaluation) -> bool:
            nonlocal chosen
            rows.append(held_out.scores(theta))
            losses.append(evaluation.loss)
            curve = [float(row.mean()) for row in rows]
            if curve[k] <= min(curve) + STEP_LOSS:
                chosen = theta
            lost = k - int(np.argmin(curve)) >= _PATIENCE
            flat = k >= _SPAN and losses[k - _SPAN] - losses[k] < _FLAT * (losses[0] - losses[k])
            return bool(callback(k, theta, evaluation)) or lost or flat

        def seen() -> State:
            now = {"scores": np.array(rows), "losses": np.array(losses), "chosen": chosen}
            return {**now, **pack("held_out", held_out.state())}

        self.learn(gamma, iterations, look, state, _keep_also(keep, seen))
        return {"scores": np.array(rows), "theta": chosen}


def _by_distance(
    function: Callable[[Array, Array], Array], geometry: SmoothGeometry, points: Array, labels: Labels
) -> Work:
    linearize = geometry.linearize_at(points, geometry.slacks[0])  # which is nearest, and by how much, roughly
    return lambda X, y, *_: (function(linearize(X).D, y[:, None] == labels), None)


def _gaps(D: Array, same: Array) -> Array:
    own, other = (np.where(mask, D, np.inf).min(axis=1) for mask in (same, ~same))
    return np.abs(other - own)


def _own(D: Array, same: Array) -> Indices:
    return np.where(same, D, np.inf).argmin(axis=1)


def _keep_also(keep: Keep | None, more: Callable[[], State]) -> Keep | None:
    """Keep more with each state."""
    return None if keep is None else lambda read: keep(lambda: {**read(), **more()})


def _stage(objective: Objective, earlier: list[float], n_left: int) -> State:
    """What a stage of `Problem.learn` has to know to go on."""
    return {"earlier": np.array(earlier), "n_left": np.array(n_left), **_memories([objective])}


def _memories(objectives: list[Objective]) -> State:
    return {key: array for k, one in enumerate(objectives) for key, array in pack(f"memory {k}", one.state()).items()}


def _restore(objectives: list[Objective], state: State) -> None:
    for k, one in enumerate(objectives):
        one.restore(state["theta"], unpack(f"memory {k}", state))


def _shifted(
    callback: Callable[[int, Array, Evaluation], Any], done: int, k: int, theta: Array, now: Evaluation
) -> Any:
    """Number the iterations of a later stage on; its start was the end of the stage before."""
    return callback(k + max(0, done - 1), theta, now) if k > 0 or done == 0 else None


def held_out_parts(y: Labels, fraction: float, rng: np.random.Generator) -> list[Indices]:
    """Rows to hold out, one part after the other: a share of each class, never all of it (a class of one stays whole).

    One part where it is large enough to judge by, several disjoint ones where it is small, none where it would be tiny.
    """
    shuffled = [rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y)]
    sizes = [min(round(fraction * len(rows)), len(rows) - 1) for rows in shuffled]
    if sum(sizes) < _LEAST_HELD_OUT:
        return []
    room = min(len(rows) // size for rows, size in zip(shuffled, sizes, strict=True) if size)
    n_parts = min(room, int(1 / fraction), -(-_ENOUGH_HELD_OUT // sum(sizes)))
    return [
        np.sort(np.concatenate([rows[k * size : (k + 1) * size] for rows, size in zip(shuffled, sizes, strict=True)]))
        for k in range(n_parts)
    ]
