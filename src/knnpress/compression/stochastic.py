"""Learning prototypes by the soft nearest-neighbour loss: SCC, SHC and SNC are this compressor on three geometries."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from knnpress.compression.checkpoint import Checkpoint, Keep, State, checkpoint_at
from knnpress.compression.fingerprint import describe_all
from knnpress.compression.objective import Evaluation
from knnpress.compression.problem import STEP_LOSS, Problem, held_out_parts
from knnpress.compression.prototypes import Compressor, Prototypes
from knnpress.compression.selection import ClassCentroids
from knnpress.geometries import Geometry, Sinkhorn, SmoothGeometry, SquaredEuclidean
from knnpress.parallel import MEMORY_BYTES
from knnpress.rows import LocalRows, Rows, digest, local_rows
from knnpress.typing import Array, Callback, Indices, Labels

__all__ = ["PLENTY", "StochasticCompression"]

#: Points a prototype, or fewer, with which those held out are missed, and all points begin anew
PLENTY = 5

_FACTORS = (0.25, 0.5, 1.0)  # of the usual gamma^2, tried by ``gamma="auto"``
_HEAD_START = 1.5  # held-out errors that count for nothing against the usual: a single one may be chance
_SEARCH_SHARE = 0.4  # of max_iter, for each gamma tried
_GO_ON = 2  # all points go on from what the others learned, with one over this of the iterations
_SMALL, _ANEW = 1000, 2  # histograms, or fewer, that begin anew, with so many times the iterations
_ATTRACTION = 0.1  # tried by ``attraction="auto"``
_SAMPLE = 20_000  # points, of a set that is not in memory, that the start, gamma and the number of iterations go by


class StochasticCompression(BaseEstimator):
    """Learn prototypes by descent on the soft nearest-neighbour loss.

    Parameters
    ----------
    gamma : float, "scale" or "auto"
        Sharpness of the soft neighbourhood. "scale": the usual one, by how far the classes are apart at the start.
        "auto": that one, or a softer one if it makes fewer errors on a held-out part of the training set.
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
    attraction : float or "auto"
        How much of the loss is added that holds prototypes among the points of their class (see `neighbor_loss`); 0
        is the paper's loss. "auto": 0; with at most five points a prototype 0.1, unless 0 makes clearly fewer errors
        on a held-out part.
    early_stopping : bool
        Learn until the loss has gone flat, keep as many iterations as served a held-out part best, or within a point of
        it, none at all included, so that learning does not lose to its own start, and go on from there with all points
        (from the start, where parts are small and several, points at most five a prototype, or histograms at most a
        thousand, which then take twice the iterations if the last followed was among the best). Where the classes are
        too small to hold a part out, all iterations are kept.
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
        attraction: float | Literal["auto"] = 0.0,
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
        self.attraction = attraction
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
                attraction = 0.0 if isinstance(self.attraction, str) else float(self.attraction)
                return Problem(self, geometry, geometry.chart(X), rows, blocks, begin, seed, attraction)

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
                chosen = self._choose(parts, gamma, usual, tracker, checkpoint)
                gamma, steps, trace = chosen.gamma, chosen.steps, chosen.trace
                whole = replace(whole, attraction=chosen.attraction)
                if chosen.begin is not None:
                    whole, steps = replace(whole, start=chosen.begin), -(-steps // _GO_ON)

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
        known = self.attraction == "auto" if isinstance(self.attraction, str) else 0 <= self.attraction < np.inf
        if not known:
            raise ValueError(f"attraction is {self.attraction!r}; give 0 or a positive number, or 'auto'")
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
        usual = ClassCentroids(euclidean, quotas="size" if euclidean is None else "need")
        init = usual if self.init is None else self.init
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
    ) -> _Choice:
        """What serves the held-out points best.

        A held-out part is small and its score noisy. So the usual gamma wins unless another makes at least two
        errors fewer, attraction (where it is tried) unless none makes fewer by more than a standard error, and the
        latest iteration where it loses little. What several parts learned does not fit together, what few points
        learned serves the others badly, and Adam's first steps would lose it: then there is nothing to begin from.
        """

        def follow_one(gamma: float, iterations: int, problem: Problem, out: LocalRows) -> State:
            report = tracker.descent(iterations)
            # judged by one sharpness for all: the sharper look the better to themselves
            return checkpoint.step(
                lambda state, keep: problem.follow(gamma, iterations, out, usual, report, state, keep)
            )

        def follow(gamma: float, attraction: float, iterations: int) -> tuple[Array, list[Array]]:
            held = [(replace(problem, attraction=attraction), out) for problem, out in parts]
            found = [follow_one(gamma, iterations, *part) for part in held]
            longest = max(len(one["scores"]) for one in found)
            padded = [np.pad(c, ((0, longest - len(c)), (0, 0)), "edge") for c in (one["scores"] for one in found)]
            return np.concatenate(padded, axis=1), [one["theta"] for one in found]

        problem, out = parts[0]
        n_points = len(problem.rows.y) + len(out.y)
        few = n_points <= PLENTY * len(problem.start.labels)
        small = isinstance(problem.geometry, Sinkhorn) and n_points <= _SMALL
        attraction, trace = problem.attraction, dict[str, Any]()
        if self.gamma == "auto":
            tried = [usual * float(np.sqrt(factor)) for factor in _FACTORS]
            tracker.expect(len(parts) * len(tried) * round(_SEARCH_SHARE * self.max_iter))
            # by errors alone: what a softer gamma learns lies farther apart, and looks better to a soft neighbour
            errors = {g: _errors(follow(g, attraction, max(1, round(_SEARCH_SHARE * self.max_iter)))[0]) for g in tried}
            gamma = min(tried, key=lambda g: errors[g] - (_HEAD_START if g == usual else 0.0))
            trace["gamma_errors"] = errors
        if not self.early_stopping:
            return _Choice(gamma, attraction, self.max_iter, None, trace)
        candidates = [0.0, _ATTRACTION] if self.attraction == "auto" and few else [attraction]
        tracker.expect(len(parts) * len(candidates) * self.max_iter)
        followed = {a: follow(gamma, a, self.max_iter) for a in candidates}
        if len(followed) > 1:
            without, held = (_errors(followed[a][0]) for a in candidates)
            attraction = candidates[int(without >= held - np.sqrt(held))]
            trace["attraction_errors"] = {candidates[0]: without, candidates[1]: held}
        scores, thetas = followed[attraction]
        curve = scores.mean(axis=1)
        steps = int(np.flatnonzero(curve <= curve.min() + STEP_LOSS)[-1])
        trace["held_out_curve"] = curve.tolist()
        if small and not few and steps == len(curve) - 1:  # nobody was against more
            steps *= _ANEW
        begin = None
        if steps and not few and not small and len(parts) == 1 and self.optimizer != "adam" and self.batch_size is None:
            begin = Prototypes(problem.chart.to_point(thetas[0]), problem.start.labels)
        return _Choice(gamma, attraction, steps, begin, trace)


@dataclass(frozen=True)
class _Choice:
    """What held-out parts speak for.

    Attributes
    ----------
    gamma, attraction : float
    steps : int
        Iterations.
    begin : Prototypes or None
        What was learned with them, to go on from; None: begin anew.
    trace : dict
    """

    gamma: float
    attraction: float
    steps: int
    begin: Prototypes | None
    trace: dict[str, Any]


def _errors(scores: Array) -> int:
    """Held-out errors where the mean score, (k, n), is best."""
    return int(np.floor(scores[scores.mean(axis=1).argmin()]).sum())


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
