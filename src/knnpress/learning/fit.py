"""The whole of learning, in the order it happens: start, candidates, cross-validation, one fit on all points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from knnpress.geometries.base import SmoothGeometry
from knnpress.learning.checkpoint import Checkpoint, Keep, State
from knnpress.learning.descent import Descent, Problem, Start, represented
from knnpress.learning.objective import Evaluation
from knnpress.learning.optim import Follow
from knnpress.learning.selection import (
    DEFAULT,
    Seen,
    Setting,
    Vote,
    better_vote,
    candidates,
    chosen,
    class_scores,
    is_hopeless,
    make_folds,
)
from knnpress.parallel import MEMORY_BYTES
from knnpress.rows import LocalRows, Rows
from knnpress.typing import Array, Callback, Indices, Labels

__all__ = ["Learned", "Wishes", "learn"]

#: From points in memory with their labels and a number of prototypes to a start
MakeStart = Callable[[LocalRows, int], Start]

_SAMPLE = 20_000  # points, at most, that the start and the setting are chosen by
_FOLD_ITERATIONS, _FOLD_TOL = 40, 2e-2  # settings can be told apart before a descent has quite ended
_GROW = 0.1  # how far towards the centroids of its groups a learned prototype is grown apart


@dataclass(frozen=True)
class Wishes:
    """What the user has fixed; all else is chosen by cross-validation.

    Attributes
    ----------
    settings : dict
        Of names and values of `Setting`.
    gamma : float or None
    vote : {"nearest", "soft"} or None
    """

    settings: dict[str, Any] = field(default_factory=dict)
    gamma: float | None = None
    vote: Vote | None = None

    @property
    def default(self) -> Setting:
        """The setting to take unless the data speak against it."""
        return replace(DEFAULT, **self.settings)

    @property
    def leaves_open(self) -> bool:
        """Whether anything is to be chosen."""
        return len(self.settings) < len(vars(DEFAULT)) or self.vote is None


@dataclass(frozen=True)
class Learned:
    """What was learned, and how it came about.

    Attributes
    ----------
    points, labels
        Prototypes.
    gamma : float
    setting : Setting
    vote : {"nearest", "soft"}
    temperature : float
        By which log-odds are to be multiplied so that probabilities are those of held-out points.
    loss_curve : list of float
    reason : str
        Why the last descent ended.
    weights : ndarray of shape (m,)
        Weight of the training points that each prototype stands for.
    selection : list of dict
        What held-out points said of each setting.
    """

    points: Array
    labels: Labels
    gamma: float
    setting: Setting
    vote: Vote
    temperature: float
    loss_curve: list[float]
    reason: str
    weights: Array
    selection: list[dict[str, Any]]


def learn(
    rows: Rows,
    blocks: Sequence[slice],
    geometry: SmoothGeometry,
    n_prototypes: int,
    make_start: MakeStart,
    descent: Descent,
    wishes: Wishes,
    *,
    groups: Array | None = None,
    checkpoint: Checkpoint,
    callback: Callback | None = None,
) -> Learned:
    """Learn prototypes: choose the setting by cross-validation, then descend once on all points.

    `rows` has class indices for labels, none of them without a point.
    """
    sample, sample_groups = _sample(rows, blocks, groups, descent.seed)
    progress = _Progress(callback, descent.max_iter)
    seen: list[Seen] = []
    setting, vote, temperature = wishes.default, wishes.vote or "nearest", 1.0
    folds = make_folds(sample.y, sample_groups, descent.seed) if wishes.leaves_open else []
    if folds:
        seen = _cross_validate(sample, folds, geometry, n_prototypes, make_start, descent, wishes, checkpoint, progress)
        best = chosen(seen, wishes.default, descent.label_noise)
        setting = best.setting
        vote = wishes.vote or better_vote(best, descent.label_noise)
        temperature = best.losses(vote, descent.label_noise)[1]
    whole = _Part(sample, geometry, n_prototypes, make_start, descent, checkpoint, progress, rows, blocks)
    problem = whole.problem(setting, wishes)
    gamma = whole.gamma(setting, wishes)

    def descend(state: State | None, keep: Keep | None) -> State:
        found = problem.learn(
            gamma, setting.prior, setting.smoothing, callback=progress.of_descent(), state=state, keep=keep
        )
        curve, reason = np.array(found.loss_curve), np.frombuffer(found.reason.encode(), np.uint8)
        return {"u": found.theta, "curve": curve, "reason": reason}

    found = checkpoint.step(descend)
    learned = Start(problem.scale.points(found["u"]), problem.start.labels)
    own = represented(rows, blocks, geometry, learned)
    weights = np.bincount(own, rows.weight, minlength=len(learned.points)).astype(np.float64)
    summaries = [one.summary(descent.label_noise) | {"chosen": one.setting == setting} for one in seen]
    curve, reason = found["curve"].tolist(), found["reason"].tobytes().decode()
    return Learned(learned.points, learned.labels, gamma, setting, vote, temperature, curve, reason, weights, summaries)


def _cross_validate(
    sample: LocalRows,
    folds: list[tuple[Indices, Indices]],
    geometry: SmoothGeometry,
    n_prototypes: int,
    make_start: MakeStart,
    descent: Descent,
    wishes: Wishes,
    checkpoint: Checkpoint,
    progress: _Progress,
) -> list[Seen]:
    """What the held-out points of the folds say of each candidate; the hopeless are left after their first folds."""
    in_folds = replace(
        descent,
        optimizer="auto" if descent.optimizer == "adam" else descent.optimizer,
        batch_size=None,
        max_iter=min(descent.max_iter, _FOLD_ITERATIONS),
        tol=max(descent.tol, _FOLD_TOL),
    )
    n_classes = int(sample.y.max()) + 1
    shared = (geometry, n_prototypes, make_start, in_folds, checkpoint, progress)
    parts = [_Part(sample.some(kept), *shared) for kept, _ in folds]
    seen: list[Seen] = []

    def best() -> Seen:
        return chosen(seen, wishes.default, descent.label_noise)

    def went_on() -> bool:
        return seen[-1].n_folds == len(folds)

    can_grow = n_prototypes > n_classes
    for setting in candidates(wishes.settings, can_grow, lambda: best().setting, went_on):
        if any(one.setting == setting for one in seen):
            continue
        one = Seen(setting)
        for part, (_, out) in zip(parts, folds, strict=True):
            held_out = sample.some(out)
            nearest, soft = part.scores(setting, wishes, held_out, n_classes)
            weight = np.ones(len(out)) if held_out.weight is None else held_out.weight
            one.add(nearest, soft, held_out.y, weight)
            if seen and one.n_folds < len(folds) and is_hopeless(one, best(), descent.label_noise):
                break
        seen.append(one)
        progress.note(one.summary(descent.label_noise))
    return seen


class _Part:
    """A training set, whole or without a fold: its starts and what was learned from them, each made once.

    `rows` and `blocks` are given where the points to learn from are more than the sample in memory.
    """

    def __init__(
        self,
        sample: LocalRows,
        geometry: SmoothGeometry,
        n_prototypes: int,
        make_start: MakeStart,
        descent: Descent,
        checkpoint: Checkpoint,
        progress: _Progress,
        rows: Rows | None = None,
        blocks: Sequence[slice] | None = None,
    ) -> None:
        self.sample, self.geometry, self.n_prototypes, self.make_start = sample, geometry, n_prototypes, make_start
        self.descent, self.checkpoint, self.progress = descent, checkpoint, progress
        self.rows: Rows = sample if rows is None else rows
        self.blocks = sample.cut(n_prototypes) if blocks is None else blocks
        self.starts: dict[int, Start] = {}
        self.problems: dict[Any, Problem] = {}
        self.ended: dict[tuple[float, str], Array] = {}  # where the last descent of a path ended

    def start(self, n_prototypes: int) -> Start:
        """Centroids of k-means within each class."""
        if n_prototypes not in self.starts:

            def compute(*_: Any) -> State:
                made = self.make_start(self.sample, n_prototypes)
                return {"points": np.ascontiguousarray(made.points), "labels": np.asarray(made.labels, dtype=np.int64)}

            kept = self.checkpoint.step(compute)
            self.starts[n_prototypes] = Start(kept["points"], kept["labels"])
        return self.starts[n_prototypes]

    def problem(self, setting: Setting, wishes: Wishes) -> Problem:
        """The training set with the start that the setting asks for."""
        plain = self._plain(self.n_prototypes)
        return self._grown(plain, setting, wishes) if setting.start == "grown" else plain

    def gamma(self, setting: Setting, wishes: Wishes) -> float:
        """The sharpness that the setting stands for here."""
        usual = self._plain(self.n_prototypes).usual_gamma
        return wishes.gamma if wishes.gamma is not None else usual * float(np.sqrt(setting.sharpness))

    def scores(self, setting: Setting, wishes: Wishes, held_out: LocalRows, n_classes: int) -> tuple[Array, Array]:
        """What the classes score with held-out points, by the nearest and by the soft vote, (n, C) each."""
        problem, gamma = self.problem(setting, wishes), self.gamma(setting, wishes)
        path = (setting.sharpness, setting.start)

        def descend(state: State | None, keep: Keep | None) -> State:
            found = problem.learn(
                gamma,
                setting.prior,
                setting.smoothing,
                begin=None if np.isinf(setting.prior) else self.ended.get(path),
                callback=self.progress.of_descent(),
                state=state,
                keep=keep,
            )
            Z, labels = problem.scale.points(found.theta), problem.start.labels
            D = _distances(held_out, self.geometry, Z)
            nearest, soft = class_scores(D, labels, gamma, n_classes)
            return {"u": found.theta, "nearest": nearest, "soft": soft}

        found = self.checkpoint.step(descend)
        if not np.isinf(setting.prior):
            self.ended[path] = found["u"]
        return found["nearest"], found["soft"]

    def _plain(self, n_prototypes: int) -> Problem:
        if n_prototypes not in self.problems:
            start = self.start(n_prototypes)
            self.problems[n_prototypes] = Problem(
                self.rows, self.blocks, self.geometry, start, self.descent, self.sample
            )
        return self.problems[n_prototypes]

    def _grown(self, plain: Problem, setting: Setting, wishes: Wishes) -> Problem:
        """One prototype per class is learned, then grown apart a little, towards the centroids of the plain start."""
        if setting not in self.problems:
            single = self._plain(int(plain.start.labels.max()) + 1)
            gamma = wishes.gamma if wishes.gamma is not None else single.usual_gamma * float(np.sqrt(setting.sharpness))

            def descend(state: State | None, keep: Keep | None) -> State:
                found = single.learn(
                    gamma,
                    setting.prior,
                    setting.smoothing,
                    callback=self.progress.of_descent(),
                    state=state,
                    keep=keep,
                )
                return {"u": found.theta}

            learned = single.scale.points(self.checkpoint.step(descend)["u"])
            start = _grow(self.geometry, plain.start, single.start, learned)
            self.problems[setting] = Problem(
                self.rows, self.blocks, self.geometry, start, self.descent, self.sample, unit=plain.scale.unit
            )
        return self.problems[setting]


def _grow(geometry: SmoothGeometry, groups: Start, centroids: Start, learned: Array) -> Start:
    """Learned prototypes, one per class, moved apart by a tenth of how the class's groups lie round its centroid."""
    of_class = np.argsort(centroids.labels)[groups.labels]
    middle = centroids.points[of_class]
    around = geometry.chart(middle)
    offset = around.to_theta(groups.points) - around.to_theta(middle)
    at_learned = geometry.chart(learned[of_class])
    return Start(at_learned.to_point(at_learned.to_theta(learned[of_class]) + _GROW * offset), groups.labels)


def _distances(rows: LocalRows, geometry: SmoothGeometry, Z: Array) -> Array:
    """Distances of points in memory to prototypes, as loosely as which is nearest allows."""
    linearize = geometry.linearize_at(Z, geometry.slacks[0])
    return np.concatenate(rows.map(lambda: lambda X, *_: (linearize(X).D, None), rows.cut(len(Z))))


def _sample(rows: Rows, blocks: Sequence[slice], groups: Array | None, seed: int) -> tuple[LocalRows, Array | None]:
    """At most `_SAMPLE` of the rows, with a share of each class, in memory."""
    n = len(rows.y)
    if n <= _SAMPLE and isinstance(rows, LocalRows) and rows.in_memory:
        return rows, groups
    kept = np.arange(n)
    if n > _SAMPLE:
        share, rng = _SAMPLE / n, np.random.default_rng(seed)
        members = [np.flatnonzero(rows.y == c) for c in np.unique(rows.y)]
        drawn = [rng.choice(rows_c, max(1, round(share * len(rows_c))), replace=False) for rows_c in members]
        kept = np.sort(np.concatenate(drawn))
    weight = None if rows.weight is None else rows.weight[kept]
    X = rows.X[kept] if isinstance(rows, LocalRows) and rows.in_memory else rows.take(kept, blocks)
    n_jobs = getattr(rows, "n_jobs", None)
    return LocalRows(X, rows.y[kept], weight, n_jobs, MEMORY_BYTES), None if groups is None else groups[kept]


class _Progress:
    """One count of iterations over all descents, for a user's callback."""

    def __init__(self, callback: Callback | None, max_iter: int) -> None:
        self.callback, self.max_iter, self.done = callback, max_iter, 0
        self.last: dict[str, Any] = {}

    def of_descent(self) -> Follow | None:
        """A callback for one descent, whose true answer ends it."""
        if self.callback is None:
            return None

        def report(k: int, theta: Array, now: Evaluation) -> Any:
            self.done += k > 0
            self.last = {"loss": now.loss, "error": now.error}
            assert self.callback is not None
            return self.callback(self.done, None, self.last)

        return report

    def note(self, summary: dict[str, Any]) -> None:
        """Tell what held-out points said of a setting."""
        if self.callback is not None:
            names = ("sharpness", "prior", "smoothing", "start")
            setting = ", ".join(f"{name} {summary[name]}" for name in names)
            told = f"{setting}: held-out error {summary['error']:.2%} ± {summary['standard_error']:.2%}"
            self.callback(self.done, None, {**self.last, "note": told})
