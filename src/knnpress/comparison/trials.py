"""Candidates tried on parts of the data that were held out, against the clock."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from knnpress.comparison.candidates import Candidate
from knnpress.estimators.described import joined
from knnpress.learning.selection import HeldOut, is_better, mean_and_standard_error
from knnpress.typing import Array, Indices, Labels

FAR_BEHIND = "far behind"
NO_TIME = "no time was left"
_TOO_SLOW = "too slow for the time given"
_HOPELESS = 2.0  # standard errors behind the best at which a candidate is tried no further
_FEW = 8  # queries that show how long all would take
_NORMAL = 1.96  # standard errors to either side: 95 %


class OutOfTimeError(Exception):
    """Raised within a fit that takes too long."""


class Clock:
    """How much of the time is used up; `extra` is what a fit under way may take beyond."""

    def __init__(self, seconds: float) -> None:
        self.start, self.seconds, self.extra = time.monotonic(), seconds, 0.1 * seconds

    @property
    def used(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def has(self, seconds: float = 0.0, share: float = 1.0) -> bool:
        """Whether that share of the time has this many seconds left."""
        return self.used + seconds < share * self.seconds


@dataclass
class Points:
    """One description of the data: points, their kind and ground cost, and the fitted descriptor that made them.

    X is None where the points were forgotten, since they will not be looked at any more.
    """

    X: Array | None
    kind: str
    ground_cost: Array | None
    descriptor: Any = None
    seconds: float = 0.0  # to describe all


@dataclass
class Trial:
    """What was seen of a candidate.

    Attributes
    ----------
    wrong : dict
        For each fold, whether each held-out point got another class than its own.
    learning, querying : list of float
        Seconds to learn, and per query.
    kilobytes : float
        Of the model as a file.
    stopped : str
        Why it was not tried on every fold, where it was not.
    """

    candidate: Candidate
    wrong: dict[int, Array] = field(default_factory=dict)
    learning: list[float] = field(default_factory=list)
    querying: list[float] = field(default_factory=list)
    kilobytes: float = 0.0
    stopped: str = ""

    @property
    def error(self) -> float:
        """Share of the held-out points that got a wrong class."""
        return self.error_on(self.wrong)

    def error_on(self, folds: Iterable[int]) -> float:
        """The same, for the points of some folds."""
        return float(np.concatenate([self.wrong[k] for k in folds]).mean())


class Trials:
    """All that has been tried, on the same folds.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Classes, 0-based.
    groups : ndarray of shape (n,) or None
    folds : list of (rows to learn from, rows held out)
    n_all : int
        Points of all data, of which these n may be a sample.
    clock : Clock
    seed, n_jobs : int
    tell : callable
        Called with a line about each result.
    """

    def __init__(
        self,
        y: Labels,
        groups: Labels | None,
        folds: list[tuple[Indices, Indices]],
        n_all: int,
        clock: Clock,
        seed: int,
        n_jobs: int | None,
        tell: Callable[[str], None],
    ) -> None:
        self.y, self.groups, self.folds, self.n_all = y, groups, folds, n_all
        self.clock, self.seed, self.n_jobs, self.tell = clock, seed, n_jobs, tell
        self.tried: list[Trial] = []
        self.left_out: list[tuple[str, str]] = []
        self._too_slow: list[Candidate] = []

    def held_out(self, numbers: Iterable[int]) -> HeldOut:
        """The points of some folds."""
        rows = np.concatenate([self.folds[k][1] for k in numbers])
        return HeldOut(self.y[rows], np.ones(len(rows)), rows if self.groups is None else self.groups[rows])

    def add(self, candidate: Candidate, points: Points, share: float = 1.0) -> Trial | None:
        """Try a candidate on the first fold, unless that share of the time is used up and others were tried.

        Until one that learns has been tried, all of the time may be used: nothing else is worth recommending.
        """
        learned = any(trial.candidate.method == "learned" for trial in self.tried)
        if self.tried and not self.clock.has(share=share if learned else 1.0):
            self.left_out.append((candidate.words, NO_TIME))
            return None
        if any(candidate.takes_no_less_than(slow) for slow in self._too_slow):
            self.left_out.append((candidate.words, _TOO_SLOW))
            return None
        trial = Trial(candidate)
        self.go_on(trial, points, 0, self.clock.seconds / 4 if self.tried else np.inf)
        if trial.wrong:
            self.tried.append(trial)
        else:
            self.left_out.append((candidate.words, trial.stopped))
            self._too_slow += [candidate] if trial.stopped == _TOO_SLOW else []
        return trial if trial.wrong else None

    def go_on(self, trial: Trial, points: Points, number: int, most: float = np.inf) -> None:
        """Try a candidate on one more fold, for `most` seconds and no longer than the clock allows."""
        kept, out = self.folds[number]
        X = points.X
        assert X is not None
        # something must be tried, however long that takes; but learning can take very long
        needed = not self.tried and trial.candidate.method != "learned"
        limit = np.inf if needed else min(self.clock.used + most, self.clock.seconds + self.clock.extra)

        def watch(*_: Any) -> None:
            if self.clock.used > limit:
                raise OutOfTimeError

        model = trial.candidate.build(points.ground_cost, self.seed, self.n_jobs, len(kept))
        groups = {} if self.groups is None else {"groups": self.groups[kept]}
        if trial.candidate.method == "learned":
            model.set_params(callback=watch)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                start = time.perf_counter()
                model.fit(X[kept], self.y[kept], **groups)
                learning = time.perf_counter() - start
                if self.clock.used + _seconds(model, X[out[:_FEW]]) * len(out) / _FEW > limit:
                    raise OutOfTimeError
                start = time.perf_counter()
                predicted = model.predict(X[out])
                querying = (time.perf_counter() - start) / len(out)
                if not trial.wrong:
                    trial.kilobytes = self._kilobytes(model, points)
        except OutOfTimeError:
            trial.stopped = _TOO_SLOW
        except (ValueError, ArithmeticError) as error:
            trial.stopped = f"failed: {error}"
        else:
            trial.wrong[number] = predicted != self.y[out]
            trial.learning.append(learning)
            trial.querying.append(querying)
            self.tell(f"{trial.candidate.words}: {trial.error:.1%} wrong")

    def _kilobytes(self, model: Any, points: Points) -> float:
        """Size of a file with the model; a model that keeps all points grows with them."""
        times = self.n_all / len(model.prototypes_) if model.compression_ratio_ == 1.0 else 1.0
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.knnp"
            model.set_params(n_jobs=None)
            (model if points.descriptor is None else joined(points.descriptor, model)).save(path)
            model.set_params(n_jobs=self.n_jobs)
            return times * path.stat().st_size / 1000


def _seconds(model: Any, X: Array) -> float:
    start = time.perf_counter()
    model.predict(X)
    return time.perf_counter() - start


def clearly_worse(one: Trial, other: Trial, trials: Trials, by: float = 1.0) -> bool:
    """Whether one errs more often than the other on the points both were tried on, by more than noise."""
    common = sorted(one.wrong.keys() & other.wrong.keys())
    mine, its = (np.concatenate([trial.wrong[k] for k in common]).astype(float) for trial in (one, other))
    return is_better(its, mine, trials.held_out(common), by)


def hopeless(one: Trial, other: Trial, trials: Trials) -> bool:
    """Whether one is so far behind the other that it need not be tried any further."""
    return clearly_worse(one, other, trials, _HOPELESS)


def error_of(trial: Trial, trials: Trials) -> tuple[float, float, float]:
    """Held-out error and its 95 % interval: Wilson's, for as many independent points as the groups leave."""
    points = trials.held_out(trial.wrong)
    wrong = np.concatenate([*trial.wrong.values()]).astype(float)
    mean, error = mean_and_standard_error(wrong, points)
    independent = float(len(np.unique(points.group)))
    if error > 0:
        independent = float(np.clip(mean * (1 - mean) / error**2, 1, len(wrong)))
    z2 = _NORMAL**2 / independent
    middle, half = mean + z2 / 2, np.sqrt(z2 * (mean * (1 - mean) + z2 / 4))
    low, high = ((middle + sign * half) / (1 + z2) for sign in (-1, 1))
    return mean, max(0.0, float(low)), min(1.0, float(high))
