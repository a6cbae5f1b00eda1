"""Learning with any setting on one training set, whole or without a fold: where descents begin, and where they end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from knnpress.execution.rows import LocalRows
from knnpress.geometries.base import SmoothGeometry
from knnpress.learning.descent import LabelledPrototypes, Problem
from knnpress.learning.job import Job, View
from knnpress.learning.optim import Optimum
from knnpress.learning.selection import Setting
from knnpress.learning.state import Arrays, DescentState, SaveState
from knnpress.neighbors import ByClass
from knnpress.typing import Array

_GROW = 0.1  # how far towards the centroids of its groups a learned prototype is grown apart


class Trainer:
    """Learns any setting on one training set, whole or without a fold; each start is made once, for all settings.

    Parameters
    ----------
    view : View
    job : Job
    quick : Trainer or None
        The same points in the quick geometry. Where there is one, its start is the centre of the prior, and descents
        are warm-started where its own ended, which halves their number of iterations.
    """

    def __init__(self, view: View, job: Job, quick: Trainer | None = None) -> None:
        self.view, self.job, self.quick = view, job, quick
        self.starts: dict[int, LabelledPrototypes] = {}
        self.problems: dict[Any, Problem] = {}
        self.ends: dict[Setting, Array] = {}  # where each descent ended

    def start(self, n_prototypes: int) -> LabelledPrototypes:
        """Where descents begin: centroids of k-means within each class, unless the user gave another start."""
        if n_prototypes not in self.starts and self.quick is not None:
            self.starts[n_prototypes] = self._from_quick(self.quick.start(n_prototypes))
        if n_prototypes not in self.starts:

            def compute(*_: Any) -> Arrays:
                made = self.view.make_start(self.view.sample, n_prototypes)
                return {"points": np.ascontiguousarray(made.points), "labels": np.asarray(made.labels, dtype=np.int64)}

            kept = self.job.checkpoint.step(compute)
            self.starts[n_prototypes] = LabelledPrototypes(kept["points"], kept["labels"])
        return self.starts[n_prototypes]

    def problem(self, setting: Setting) -> Problem:
        """The training set with the start that the setting asks for."""
        plain = self._problem_from_centroids(self.job.n_prototypes)
        if setting.start == "single":
            return self._single(plain)
        return self._grown(plain, setting) if setting.start == "grown" else plain

    def gamma(self, setting: Setting) -> float:
        """The gamma of a setting on this training set."""
        plain = self._problem_from_centroids(self.job.n_prototypes)
        start = self._single(plain) if setting.start == "single" else plain
        return self.job.constraints.gamma_at(start.usual_gamma, setting)

    def descend(
        self,
        problem: Problem,
        setting: Setting,
        gamma: float,
        begin: Array | None,
        state: DescentState | None,
        keep: SaveState | None,
    ) -> Optimum:
        """One descent, followed by the user's callback; None for `begin`: from the start."""
        follow = self.job.progress.of_descent()
        return problem.learn(
            gamma, setting.prior, setting.smoothing, begin=begin, callback=follow, state=state, keep=keep
        )

    def scores(self, setting: Setting, held_out: LocalRows, n_classes: int) -> tuple[Array, Array]:
        """Scores of the classes for held-out points, by the nearest and by the soft vote, (n, C) each."""
        problem, gamma = self.problem(setting), self.gamma(setting)

        def descend(state: DescentState | None, keep: SaveState | None) -> Arrays:
            begin = self._warm_start(problem, setting, gamma)
            found = self.descend(problem, setting, gamma, begin, state, keep)
            Z, labels = problem.scale.points(found.u), problem.start.labels
            D = _distances(held_out, self.view.geometry, Z)
            nearest, soft = ByClass.of(labels, n_classes).scores(D, gamma)
            return {"u": found.u, "nearest": nearest, "soft": soft}

        found = self.job.checkpoint.step(descend)
        self.ends[setting] = found["u"]
        return found["nearest"], found["soft"]

    def _warm_start(self, problem: Problem, setting: Setting, gamma: float) -> Array | None:
        """A warm start: where the descent of the last prior ended, or that in the quick geometry.

        None: the start itself, for want of one, or because its loss is lower than in the quick geometry's end.
        """
        if np.isinf(setting.prior):
            return None
        if self.quick is None or setting not in self.quick.ends:
            earlier = [
                one for one in self.ends if np.isfinite(one.prior) and replace(one, prior=setting.prior) == setting
            ]
            return self.ends[min(earlier, key=lambda one: one.prior)] if earlier else None
        there = self.quick.problem(setting)
        learned = self._from_quick(LabelledPrototypes(there.scale.points(self.quick.ends[setting]), there.start.labels))
        objective, begin = problem.objective(gamma, setting.prior, setting.smoothing), problem.scale.u(learned.points)
        objective.slack = self.view.geometry.slacks[0]  # roughly is enough
        return begin if objective(begin).loss < objective(problem.first).loss else None

    def _from_quick(self, start: LabelledPrototypes) -> LabelledPrototypes:
        assert self.quick is not None
        assert self.quick.view.to_points is not None
        return LabelledPrototypes(self.quick.view.to_points(start.points), start.labels)

    def _problem_from_centroids(self, n_prototypes: int) -> Problem:
        if n_prototypes not in self.problems:
            start, unit = self.start(n_prototypes), None
            n_classes = int(start.labels.max()) + 1
            if n_prototypes > n_classes and self.job.constraints.settings.get("start") != "given":
                # so that a prior means the same however many prototypes there are
                unit = self._problem_from_centroids(n_classes).scale.unit
            self.problems[n_prototypes] = self._problem(start, unit)
        return self.problems[n_prototypes]

    def _problem(self, start: LabelledPrototypes, unit: float | None = None) -> Problem:
        view = self.view
        return Problem(view.rows, view.blocks, view.geometry, start, self.job.descent, view.sample, unit)

    def _single(self, plain: Problem) -> Problem:
        """One prototype per class."""
        return self._problem_from_centroids(int(plain.start.labels.max()) + 1)

    def _grown(self, plain: Problem, setting: Setting) -> Problem:
        """One prototype per class is learned, then grown apart a little, towards the centroids of the plain start."""
        if setting not in self.problems and self.quick is not None:
            self.problems[setting] = self._problem(
                self._from_quick(self.quick.problem(setting).start), plain.scale.unit
            )
        if setting not in self.problems:
            single = self._single(plain)
            gamma = self.job.constraints.gamma_at(single.usual_gamma, setting)

            def descend(state: DescentState | None, keep: SaveState | None) -> Arrays:
                return {"u": self.descend(single, setting, gamma, None, state, keep).u}

            learned = single.scale.points(self.job.checkpoint.step(descend)["u"])
            start = _grow(self.view.geometry, plain.start, single.start, learned)
            self.problems[setting] = self._problem(start, plain.scale.unit)
        return self.problems[setting]


def _grow(
    geometry: SmoothGeometry, groups: LabelledPrototypes, centroids: LabelledPrototypes, learned: Array
) -> LabelledPrototypes:
    """Learned prototypes, one per class, moved apart by a tenth of how the class's groups lie round its centroid."""
    of_class = np.argsort(centroids.labels)[groups.labels]
    middle = centroids.points[of_class]
    around = geometry.chart(middle)
    offset = around.to_theta(groups.points) - around.to_theta(middle)
    at_learned = geometry.chart(learned[of_class])
    return LabelledPrototypes(
        at_learned.to_point(at_learned.to_theta(learned[of_class]) + _GROW * offset), groups.labels
    )


def _distances(rows: LocalRows, geometry: SmoothGeometry, Z: Array) -> Array:
    """Distances of points in memory to prototypes, as loosely as which is nearest allows."""
    linearize = geometry.linearize_at(Z, geometry.slacks[0])
    return np.concatenate(rows.map(lambda: lambda X, *_: (linearize(X).D, None), rows.cut(len(Z))))
