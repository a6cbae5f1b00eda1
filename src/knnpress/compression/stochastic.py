"""Learning prototypes by the soft nearest-neighbour loss: SCC, SHC and SNC are this compressor on three geometries."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from knnpress.compression.checkpoint import Checkpoint, Keep, State, checkpoint_at, pack, unpack
from knnpress.compression.fingerprint import describe_all
from knnpress.compression.objective import Evaluation, Objective
from knnpress.compression.optimize import Optimum, minimize, minimize_batches
from knnpress.compression.prototypes import Compressor, Prototypes
from knnpress.compression.selection import ClassCentroids
from knnpress.geometries import Geometry, SmoothGeometry, SquaredEuclidean
from knnpress.geometries.base import Chart
from knnpress.parallel import MEMORY_BYTES
from knnpress.rows import LocalRows, Rows, Work, digest, local_rows
from knnpress.typing import Array, Callback, Indices, Labels

__all__ = ["Problem", "StochasticCompression"]

#: gamma^2 in units of 1 / `Problem.margin`: the one that suited most data, and the factors tried by ``gamma="auto"``
_SHARPNESS = 5.0
_FACTORS = (0.5, 1.0, 2.0)
_SEARCH_SHARE = 0.4  # of max_iter, for each gamma tried
_STEP_LOSS = 0.01  # held-out score that a later iteration may lose to the best: descents are cut short by chance
_PATIENCE = 25  # iterations since the best held-out score after which one that loses more ends the search
_LEAST_HELD_OUT = 20  # points below which a held-out part says nothing
_ENOUGH_HELD_OUT = 100  # points; smaller parts are held out in turn until so many have been
_SAMPLE = 20_000  # points, of a set that is not in memory, that the start, gamma and the number of iterations go by
_SLACK_GRADIENT = 1e-5  # distances are solved more tightly once the gradient is below this times their slack


class StochasticCompression(BaseEstimator):
    """Learn prototypes by descent on the soft nearest-neighbour loss.

    Parameters
    ----------
    gamma : float, "scale" or "auto"
        Sharpness of the soft neighbourhood. "scale": the usual one, by how far the classes are apart at the start.
        "auto": the best of a few around it on a held-out part of the training set.
    init : Compressor or None
        Where to start; None: `ClassCentroids` (for histograms, of Euclidean k-means).
    optimizer : {"auto", "lbfgs", "cg", "descent", "adam"}
        "auto": "lbfgs"; "adam" where `batch_size` is given; "descent" where the gradient is approximate.
    max_iter : int
        Iterations of the optimiser; for "adam", passes over the data.
    tol : float
        Stop when no entry of the gradient exceeds it.
    learning_rate : float
        First step of "descent" and "adam", relative to their own choice.
    batch_size : int or None
        Points in a step of "adam"; None: all.
    label_noise : float
        Share of labels that may be wrong. It bounds the loss of a single point (see `neighbor_loss`), so that wrong
        labels and outliers do not draw prototypes to them; 0 is the paper's loss.
    smoothing : float
        Share of the loss that keeps all prototypes within reach of all points (see `neighbor_loss`), which is what
        makes them serve new points as well as old; 0 is the paper's loss.
    early_stopping : bool
        Keep as many iterations as served a held-out part best, or within a point of it, none at all included, so
        that learning does not lose to its own start. Where the classes are too small to hold a part out, all are kept.
    validation_fraction : float
        Size of the held-out part.
    checkpoint : str, path or None
        A file that `compress` keeps its state in, rewritten every few seconds and deleted at the end. The same call
        goes on from it where an earlier one was broken off, and ends with the same prototypes to the last bit. A file
        of other data, parameters or version is refused. `random_state` None: as it was drawn then; a Generator must
        be in the same state as it was. `callback` is not called again for iterations that are done. The file may be
        large where distances are solved for (Sinkhorn): it holds the potentials of all pairs.
    """

    def __init__(
        self,
        gamma: float | Literal["scale", "auto"] = "auto",
        init: Compressor | None = None,
        optimizer: Literal["auto", "lbfgs", "cg", "descent", "adam"] = "auto",
        max_iter: int = 100,
        tol: float = 1e-6,
        learning_rate: float = 1.0,
        batch_size: int | None = None,
        label_noise: float = 0.2,
        smoothing: float = 0.05,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.gamma = gamma
        self.init = init
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.label_noise = label_noise
        self.smoothing = smoothing
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.checkpoint = checkpoint

    def compress(
        self,
        X: Array,
        y: Labels,
        *,
        geometry: Geometry,
        n_prototypes: int | None = None,
        sample_weight: Array | None = None,
        random_state: np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
    ) -> Prototypes:
        """Return `n_prototypes` learned prototypes (one a class, if None).

        `callback` is called after each iteration of every descent, the last one being that on all points, with the
        facts "loss" and "error" (of the training set); a true answer ends that descent.
        """
        smooth = self._check(geometry)
        rng = np.random.default_rng() if random_state is None else random_state
        seed = int(rng.integers(2**31))
        classes = np.unique(y)
        m = len(classes) if n_prototypes is None else n_prototypes
        rows = local_rows(X, y, sample_weight, n_jobs)
        with closing(rows):
            return self._compress(rows, smooth, classes, m, rng, seed, random_state is None, n_jobs, callback)

    def _compress(
        self,
        rows: Rows,
        geometry: SmoothGeometry,
        classes: Labels,
        m: int,
        rng: np.random.Generator,
        seed: int,
        unseeded: bool,
        n_jobs: int | None,
        callback: Callback | None,
    ) -> Prototypes:
        blocks = rows.cut(m, self.batch_size)
        some = _sample(rows, blocks, seed, n_jobs)
        wants_parts = self.early_stopping or self.gamma == "auto"
        held_out = held_out_parts(some.y, self.validation_fraction, rng) if wants_parts else []

        def about() -> dict[str, str]:
            X = some.X if rows.in_memory else digest(rows, blocks)
            data = {"X": X, "y": rows.y, "sample_weight": rows.weight, "geometry": geometry, "n_prototypes": m}
            params = {name: value for name, value in self.get_params(deep=False).items() if name != "checkpoint"}
            drawn = "None" if unseeded else f"one that draws {seed}"
            return {**describe_all({**data, **params}), "random_state": drawn}

        with checkpoint_at(self.checkpoint, about) as checkpoint:
            drawn = checkpoint.step(
                lambda *_: {"seed": np.array(seed), **{f"part {k}": part for k, part in enumerate(held_out)}}
            )
            if int(drawn["seed"]) != seed:  # an unseeded fit goes on as it was drawn then
                seed, held_out = int(drawn["seed"]), [drawn[f"part {k}"] for k in range(len(drawn) - 1)]
                some = _sample(rows, blocks, seed, n_jobs)

            def problem(shown: LocalRows, rows: Rows, blocks: Sequence[slice]) -> Problem:
                """The problem of learning `rows`, which starts from those that are shown."""
                X = shown.X

                def start(*_: Any) -> State:
                    random = np.random.default_rng(seed)
                    found = self.start(X, shown.y, geometry, m, random, n_jobs, shown.weight)
                    codes = np.searchsorted(classes, found.labels)
                    return {"points": np.ascontiguousarray(found.points), "labels": codes}

                kept = checkpoint.step(start)
                begin = Prototypes(kept["points"], classes[kept["labels"]])
                return Problem(self, geometry, geometry.chart(X), rows, blocks, begin, seed)

            def part(out: Indices) -> tuple[Problem, LocalRows]:
                rest = _some_of(some, np.setdiff1d(np.arange(len(some.y)), out))
                return problem(rest, rest, rest.cut(m)), _some_of(some, out)

            whole = problem(some, rows, blocks)
            parts = [part(out) for out in held_out]
            tracker = _Tracker(callback, self.max_iter)
            usual = whole.usual_gamma()
            gamma = usual if isinstance(self.gamma, str) else float(self.gamma)
            steps, trace = self.max_iter, dict[str, Any]()
            if parts:
                gamma, steps, trace = self._choose(parts, gamma, usual, tracker, checkpoint)

            def descend(state: State | None, keep: Keep | None) -> State:
                found = whole.learn(gamma, steps, tracker.descent(steps), state, keep)
                return {"theta": found.theta, "curve": np.array(found.loss_curve)}

            found = checkpoint.step(descend)
            points = whole.chart.to_point(found["theta"])
            weights = np.bincount(whole.represented(points), rows.weight, minlength=m).astype(np.float64)
        curve = found["curve"].tolist()
        n_iter = len(curve) - 1
        if not self.early_stopping and n_iter == self.max_iter and still_falling(curve):
            warnings.warn(
                f"the loss was still falling after max_iter={self.max_iter} iterations; raise max_iter",
                ConvergenceWarning,
                stacklevel=2,
            )
        trace |= {"loss_curve": curve, "n_iter": n_iter, "weights": weights}
        return Prototypes(points, whole.start.labels, gamma=gamma, trace=trace)

    def _check(self, geometry: Geometry) -> SmoothGeometry:
        if not isinstance(geometry, SmoothGeometry):
            raise TypeError(f"{type(geometry).__name__} has no derivatives; learn with JBLD, LogEuclidean, Sinkhorn, …")
        if self.optimizer in ("lbfgs", "cg") and not geometry.exact_gradient:
            raise ValueError(
                f"optimizer={self.optimizer!r} needs an exact gradient, which value='transport' has not; use "
                "optimizer='descent', or learn on value='divergence' or 'dual'"
            )
        if self.batch_size is not None and self.optimizer not in ("auto", "adam"):
            raise ValueError(f"batch_size is for optimizer='adam', not {self.optimizer!r}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size!r}; give a positive number of points, or None for all")
        if not 0 <= self.label_noise < 1:
            raise ValueError(f"label_noise is {self.label_noise!r}; give a share of the labels, from 0 to below 1")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing!r}; give a share of the loss, from 0 to below 1")
        known = self.gamma in ("scale", "auto") if isinstance(self.gamma, str) else 0 < self.gamma < np.inf
        if not known:
            raise ValueError(f"gamma is {self.gamma!r}; give a positive number, 'scale' or 'auto'")
        return geometry

    def start(
        self,
        X: Array,
        y: Labels,
        geometry: Geometry,
        n_prototypes: int,
        rng: np.random.Generator,
        n_jobs: int | None = None,
        sample_weight: Array | None = None,
    ) -> Prototypes:
        """Where the descent starts."""
        euclidean = SquaredEuclidean() if geometry.point_ndim == 1 else None
        init = ClassCentroids(euclidean) if self.init is None else self.init
        return init.compress(
            X,
            y,
            geometry=geometry,
            n_prototypes=n_prototypes,
            sample_weight=sample_weight,
            random_state=rng,
            n_jobs=n_jobs,
        )

    def _choose(
        self,
        parts: list[tuple[Problem, LocalRows]],
        gamma: float,
        usual: float,
        tracker: _Tracker,
        checkpoint: Checkpoint,
    ) -> tuple[float, int, dict[str, Any]]:
        """gamma and the number of iterations that serve the held-out points best.

        A held-out part is small and its score noisy. So the usual gamma wins where others make no fewer errors, and the
        latest iteration where it loses little.
        """

        def follow_one(gamma: float, iterations: int, problem: Problem, out: LocalRows) -> Array:
            report = tracker.descent(iterations)
            # judged by one sharpness for all: the sharper look the better to themselves
            found = checkpoint.step(
                lambda state, keep: {"scores": problem.follow(gamma, iterations, out, usual, report, state, keep)}
            )
            return found["scores"]

        def follow(gamma: float, iterations: int) -> Array:
            curves = [follow_one(gamma, iterations, *part) for part in parts]
            return np.concatenate([np.pad(c, ((0, iterations + 1 - len(c)), (0, 0)), "edge") for c in curves], axis=1)

        trace: dict[str, Any] = {}
        if self.gamma == "auto":
            tried = [usual * float(np.sqrt(factor)) for factor in _FACTORS]
            tracker.expect(len(parts) * len(tried) * round(_SEARCH_SHARE * self.max_iter))
            errors = {}
            for g in tried:
                scores = follow(g, max(1, round(_SEARCH_SHARE * self.max_iter)))
                # by errors alone: what a softer gamma learns lies farther apart, and looks better to a soft neighbour
                errors[g] = float(np.floor(scores[scores.mean(axis=1).argmin()]).mean())
            gamma = min(tried, key=lambda g: (errors[g], g != usual))
            trace["gamma_errors"] = errors
        if not self.early_stopping:
            return gamma, self.max_iter, trace
        tracker.expect(len(parts) * self.max_iter)
        curve = follow(gamma, self.max_iter).mean(axis=1)
        steps = int(np.flatnonzero(curve <= curve.min() + _STEP_LOSS)[-1])
        return gamma, steps, trace | {"held_out_curve": curve.tolist()}


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
    ) -> Array:
        """Scores of held-out points, (k, n), at the start and after each of at most `iterations` iterations."""
        held_out = self.objective(judge, LocalRows(out.X, out.y, None, out.n_jobs, out.budget))
        held_out.slack = self.geometry.slacks[0]
        rows: list[Array] = []
        if state is not None:
            rows = list(state["scores"])
            held_out.restore(state["theta"], unpack("held_out", state), scored=True)

        def look(k: int, theta: Array, evaluation: Evaluation) -> bool:
            rows.append(held_out.scores(theta))
            curve = [float(row.mean()) for row in rows]
            lost = k - int(np.argmin(curve)) >= _PATIENCE and curve[k] > min(curve) + _STEP_LOSS
            return bool(callback(k, theta, evaluation)) or lost

        def seen() -> State:
            return {"scores": np.array(rows), **pack("held_out", held_out.state())}

        self.learn(gamma, iterations, look, state, _keep_also(keep, seen))
        return np.array(rows)


def _by_distance(function: Callable[[Array, Array], Array], geometry: Geometry, points: Array, labels: Labels) -> Work:
    distances = geometry.distances_to(points)
    return lambda X, y, *_: (function(distances(X), y[:, None] == labels), None)


def _gaps(D: Array, same: Array) -> Array:
    own, other = (np.where(mask, D, np.inf).min(axis=1) for mask in (same, ~same))
    return np.abs(other - own)


def _own(D: Array, same: Array) -> Indices:
    return np.where(same, D, np.inf).argmin(axis=1)


def _sample(rows: Rows, blocks: Sequence[slice], seed: int, n_jobs: int | None) -> LocalRows:
    """At most `_SAMPLE` of the rows, all of them if they are in memory, with a share of each class; in memory."""
    if isinstance(rows, LocalRows) and rows.in_memory:
        return rows
    chosen = np.arange(len(rows.y))
    if len(chosen) > _SAMPLE:
        share, rng = _SAMPLE / len(chosen), np.random.default_rng(seed)
        members = [np.flatnonzero(rows.y == c) for c in np.unique(rows.y)]
        drawn = [rng.choice(rows_c, max(1, round(share * len(rows_c))), replace=False) for rows_c in members]
        chosen = np.sort(np.concatenate(drawn))
    X = rows.take(chosen, blocks)
    weight = None if rows.weight is None else rows.weight[chosen]
    return LocalRows(X, rows.y[chosen], weight, n_jobs, MEMORY_BYTES)


def _some_of(rows: LocalRows, k: Indices) -> LocalRows:
    weight = None if rows.weight is None else rows.weight[k]
    return LocalRows(rows.X[k], rows.y[k], weight, rows.n_jobs, rows.budget)


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


class _Tracker:
    """One count of iterations over several descents, for a user's callback."""

    def __init__(self, callback: Callback | None, expected: int) -> None:
        self.callback, self.expected, self.done = callback, expected, 0

    def expect(self, iterations: int) -> None:
        self.expected += iterations

    def descent(self, iterations: int) -> Callable[[int, Array, Evaluation], Any]:
        before = self.done
        self.done += iterations

        def report(k: int, theta: Array, now: Evaluation) -> Any:
            facts = {"loss": now.loss, "error": now.error}
            return self.callback is not None and self.callback(before + k, max(self.expected, self.done), facts)

        return report


def still_falling(curve: list[float]) -> bool:
    """Whether the last tenth of a descent took off more than a hundredth of what all of it did."""
    tenth = max(1, len(curve) // 10)
    return len(curve) > 1 and curve[-1 - tenth] - curve[-1] > 0.01 * (curve[0] - curve[-1])


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
