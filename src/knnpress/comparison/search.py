"""Which candidates are tried, in which order, and which are given up."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnpress.comparison.candidates import COLOUR, GRAY, KINDS, RECENTERED, Candidate, descriptor_of, sizes_of
from knnpress.comparison.trials import FAR_BEHIND, NO_TIME, Points, Trials, hopeless
from knnpress.descriptors.images import are_gray, as_picture
from knnpress.typing import Array, Indices, Labels

_LAST = 3  # descriptors that are looked at closely
_SCREENING, _FIRST = 0.5, 0.65  # shares of the time for a first look at descriptors, and for first folds in all
_PROBES = 4  # images by which descriptors are timed


class Search:
    """A search among candidates: a first look at every description of the data, then a closer one at the best.

    Parameters
    ----------
    trials : Trials

    Attributes
    ----------
    views : dict
        The data by the name of the descriptor; None: as they were given.
    """

    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self.views: dict[str | None, Points] = {}

    def run_on_points(self, views: dict[str | None, Points]) -> None:
        """Search on points as they were given, and perhaps re-centred."""
        self.views.update(views)
        self._look_at(list(views), _FIRST)
        self._go_on()

    def run_on_images(self, images: list[Any], rows: Indices, names: Sequence[str] | None) -> None:
        """Search on images under each of some descriptors; `rows` are the places of these images among all."""
        self._screen(images, rows, names)
        self._go_on()

    def _go_on(self) -> None:
        if not self.trials.tried:
            reasons = "; ".join(f"{what}: {why}" for what, why in self.trials.left_out)
            raise ValueError(f"nothing could be tried: {reasons}; give more minutes, or see to what failed")
        self._look_closer()
        self._go_through_folds()

    def _look_at(self, names: list[str | None], share: float) -> None:
        """Try the quickest metric and one size; learn only where the quicker models leave hope."""
        for number in range(3):
            hopeful = names if len(names) == 1 or number < 2 else self._best_names()
            for name in hopeful:
                candidates = self._candidates(name, _metrics(self.views[name])[0])
                if number < len(candidates):
                    self.trials.add(candidates[number], self.views[name], share)

    def _screen(self, images: list[Any], rows: Indices, names: Sequence[str] | None) -> None:
        """Look at each descriptor, the cheapest first."""
        trials, everything = self.trials, np.arange(len(images))
        few = np.linspace(0, len(images) - 1, min(_PROBES, len(images))).astype(int)
        if names is None:
            names = GRAY if are_gray(images) else COLOUR
        for name in sorted(names, key=COLOUR.index):
            if trials.tried and not trials.clock.has(share=_SCREENING):
                trials.left_out.append((name, NO_TIME))
                continue
            described = few
            try:  # costly ones take long even to probe: only when it is their turn
                seconds = len(images) * _probe(name, [images[k] for k in few], trials.seed, trials.n_jobs)
                if trials.tried and not trials.clock.has(seconds, _SCREENING):
                    why = f"describing {len(images)} images by it takes about {seconds:.0f} s"
                    trials.left_out.append((name, why))
                    continue
                described = everything
                self.views[name] = self._described(name, images)
            except ValueError as error:
                trials.left_out.append((name, _why_not(error, images, described, rows)))
                continue
            self._look_at([name], _SCREENING)
            self._drop_worst()

    def _described(self, name: str, images: list[Any]) -> Points:
        trials = self.trials
        descriptor, start = descriptor_of(name, trials.seed, trials.n_jobs), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            X = descriptor.fit_transform(images)
        seconds = time.perf_counter() - start
        trials.tell(f"{name}: {len(images)} images described in {seconds:.1f} s")
        ground_cost = getattr(descriptor, "ground_cost_", None)
        return Points(X, "matrices" if X.ndim == 3 else "histograms", ground_cost, descriptor, seconds)

    def _drop_worst(self) -> None:
        """Forget the points of descriptors that will not be looked at any more; they may be large."""
        for name in self.views.keys() - {*self._best_names()}:
            self.views[name].X = None

    def _best_names(self) -> list[str | None]:
        """Descriptors that are worth a closer look, the best first."""
        there = [trial for trial in self.trials.tried if self.views[trial.candidate.descriptor].X is not None]
        ranked = sorted(there, key=lambda trial: trial.error)
        close = [trial for trial in ranked if not hopeless(trial, ranked[0], self.trials)]
        return list(dict.fromkeys(trial.candidate.descriptor for trial in close))[:_LAST]

    def _look_closer(self) -> None:
        """Try other sizes and metrics of what did best."""
        names = self._best_names()
        for number in range(max(len(_metrics(self.views[name])) for name in names)):
            for name in names:
                metrics = _metrics(self.views[name])
                if number < len(metrics):
                    candidates = self._candidates(name, metrics[number])
                    for candidate in candidates[3:] if number == 0 else candidates:
                        if candidate.method == "means" and self._means_are_hopeless(name):
                            continue  # barycenters in the costlier metric may take longer than all else
                        self.trials.add(candidate, self.views[name], _FIRST)

    def _means_are_hopeless(self, name: str | None) -> bool:
        """Whether the means of classes under a quicker metric, of the same points, are far behind."""
        best = min(self.trials.tried, key=lambda trial: trial.error)
        means = [t for t in self.trials.tried if t.candidate.descriptor == name and t.candidate.method == "means"]
        return any(hopeless(trial, best, self.trials) for trial in means)

    def _go_through_folds(self) -> None:
        """Try what is not far behind on the other folds, and class means and all points beside the best."""
        trials = self.trials
        for number in range(1, len(trials.folds)):
            running = [trial for trial in trials.tried if len(trial.wrong) == number]
            if not running:  # the time was up
                break
            best = min(running, key=lambda trial: trial.error)
            for trial in sorted(running, key=lambda trial: trial.error):
                points = self.views[trial.candidate.descriptor]
                beside = trial.candidate.method != "learned" and trial.candidate.descriptor == best.candidate.descriptor
                if points.X is None or (hopeless(trial, best, trials) and not beside):
                    trial.stopped = FAR_BEHIND
                elif not trials.clock.has(trial.learning[-1]):
                    trial.stopped = NO_TIME
                else:
                    trials.go_on(trial, points, number)

    def _candidates(self, name: str | None, metric: str) -> list[Candidate]:
        """Means, all points, and learned models, the middle size first; without means, the smallest first."""
        points, n_all = self.views[name], self.trials.n_all
        n_classes = len(np.unique(self.trials.y))
        first, *more = sizes_of(len(self.trials.y), n_classes)
        full = Candidate(name, points.kind, "full", metric, n_all)
        sizes = [more[0], first, *more[1:]] if more and KINDS[points.kind].has_means else [first, *more]
        smallest, *learned = (Candidate(name, points.kind, "learned", metric, size) for size in sizes)
        if not KINDS[points.kind].has_means:
            return [smallest, full, *learned]
        return [Candidate(name, points.kind, "means", metric, n_classes), full, smallest, *learned]


def are_mixed(y: Indices, groups: Labels) -> bool:
    """Whether groups hold points of several classes, so that re-centring each of them can leave the classes apart."""
    codes = np.unique(groups, return_inverse=True)[1]
    return len(np.unique(np.column_stack([codes, y]), axis=0)) > codes.max() + 1


def recentered(X: Array, groups: Labels, seed: int, n_jobs: int | None) -> Points:
    """Matrices of which each group was re-centred by its own mean, also those held out: that takes no labels."""
    descriptor, start = descriptor_of(RECENTERED, seed, n_jobs), time.perf_counter()
    Z = descriptor.fit_transform(X, groups=groups)
    return Points(Z, "matrices", None, descriptor.set_params(n_jobs=None), time.perf_counter() - start)


def _why_not(error: ValueError, images: list[Any], described: Indices, rows: Indices) -> str:
    """Why a descriptor cannot describe these images; an image that cannot be read is bad for all, and raised.

    The error names an image by its place among those `described`, and the user knows it by its place among `rows`.
    """
    place = re.match(r"images\[(\d+)\]", str(error))
    if place is None:
        return f"failed: {error}"
    k = int(described[int(place[1])])
    why = f"images[{rows[k]}]{str(error)[place.end() :]}"
    try:
        as_picture(images[k], "alpha", max_side=64)
    except ValueError:
        raise ValueError(why) from error
    return why


def _probe(name: str, few: list[Any], seed: int, n_jobs: int | None) -> float:
    """Seconds to describe an image, by a few of them."""
    descriptor = descriptor_of(name, seed, n_jobs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        descriptor.fit_transform(few[:1] if "n_words" not in descriptor.get_params() else few)  # imports come first
        start = time.perf_counter()
        descriptor.fit_transform(few)
    return (time.perf_counter() - start) / len(few)


def _metrics(points: Points) -> list[str]:
    """Metrics for points of this kind, the quickest first; without a ground cost there is no transport."""
    names = list(KINDS[points.kind].metrics)
    return names[:1] if points.kind == "histograms" and points.ground_cost is None else names
