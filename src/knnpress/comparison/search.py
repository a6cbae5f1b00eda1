"""Which candidates are tried, in which order, and which are given up."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnpress.comparison.candidates import COLOUR, GRAY, KINDS, Candidate, sizes_of
from knnpress.comparison.trials import FAR_BEHIND, Points, Trials, hopeless
from knnpress.descriptors.by_name import make_descriptor
from knnpress.descriptors.images import are_gray

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

    def run(self, data: Points | list[Any], descriptors: Sequence[str] | None) -> None:
        """Search on points as they were given, or on images under each of some descriptors."""
        if isinstance(data, Points):
            self.look_at(None, data)
        else:
            self.screen(data, descriptors)
        if not self.trials.tried:
            reasons = "; ".join(f"{what}: {why}" for what, why in self.trials.left_out)
            raise ValueError(f"nothing could be tried: {reasons}; give more minutes, or see to what failed")
        self.look_closer()
        self.go_through_folds()

    def look_at(self, name: str | None, points: Points, share: float = _FIRST) -> None:
        """Try the quickest metric and one size on a description of the data."""
        self.views[name] = points
        for candidate in self._candidates(name, _metrics(points)[0])[:3]:
            self.trials.add(candidate, points, share)

    def screen(self, images: list[Any], names: Sequence[str] | None) -> None:
        """Look at each descriptor, the cheapest first."""
        trials = self.trials
        if names is None:
            names = GRAY if are_gray(images) else COLOUR
        for name in sorted(names, key=COLOUR.index):
            if trials.tried and not trials.clock.has(share=_SCREENING):
                trials.left_out.append((name, "no time was left"))
                continue
            try:  # costly ones take long even to probe: only when it is their turn
                seconds = len(images) * _probe(name, images, trials.seed, trials.n_jobs)
            except ValueError as error:
                if str(error).startswith("images["):
                    raise  # a bad image is bad for all
                trials.left_out.append((name, f"failed: {error}"))
                continue
            if trials.tried and not trials.clock.has(seconds, _SCREENING):
                trials.left_out.append((name, f"describing {len(images)} images by it takes about {seconds:.0f} s"))
                continue
            self.look_at(name, self._described(name, images), _SCREENING)
            self._drop_worst()

    def _described(self, name: str, images: list[Any]) -> Points:
        trials = self.trials
        descriptor, start = make_descriptor(name, trials.seed, trials.n_jobs), time.perf_counter()
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

    def look_closer(self) -> None:
        """Try other sizes and metrics of what did best."""
        names = self._best_names()
        for number in range(max(len(_metrics(self.views[name])) for name in names)):
            for name in names:
                metrics = _metrics(self.views[name])
                if number < len(metrics):
                    candidates = self._candidates(name, metrics[number])
                    for candidate in candidates[3:] if number == 0 else candidates:
                        self.trials.add(candidate, self.views[name], _FIRST)

    def go_through_folds(self) -> None:
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
                    trial.stopped = "no time was left"
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


def _probe(name: str, images: list[Any], seed: int, n_jobs: int | None) -> float:
    """Seconds to describe an image, by a few of them."""
    few = [images[int(k)] for k in np.linspace(0, len(images) - 1, min(_PROBES, len(images)))]
    descriptor = make_descriptor(name, seed, n_jobs)
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
