"""What a fit works on, what the user has fixed, and who follows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from knnpress.execution.rows import LocalRows, Rows
from knnpress.geometries.base import SmoothGeometry
from knnpress.learning.checkpoint import Checkpoint
from knnpress.learning.descent import DescentOptions, LabelledPrototypes
from knnpress.learning.objective import Evaluation
from knnpress.learning.optim import Follow
from knnpress.learning.selection import DEFAULT, Setting, Vote
from knnpress.typing import Array, Callback

#: From points in memory with their labels and a number of prototypes to a start
MakeStart = Callable[[LocalRows, int], LabelledPrototypes]


@dataclass(frozen=True)
class View:
    """A training set under one geometry.

    Attributes
    ----------
    name : str
    geometry : SmoothGeometry
    sample : LocalRows
        At most 20,000 points, in memory, that the start and the setting are chosen by.
    rows : Rows
        All points, with class indices for labels, each of which has a point. In a view that only serves the search for
        settings: the sample.
    blocks : list of slice
        Of rows.
    make_start : callable
        From points in memory with their labels and a number of prototypes to a start.
    to_points : callable or None
        From prototypes of this view to prototypes under the geometry for which this is the quick view.
    """

    name: str
    geometry: SmoothGeometry
    sample: LocalRows
    rows: Rows
    blocks: Sequence[slice]
    make_start: MakeStart
    to_points: Callable[[Array], Array] | None = None


@dataclass(frozen=True)
class Constraints:
    """What the user has fixed; all else is chosen by cross-validation.

    Attributes
    ----------
    settings : dict
        Fields of `Setting` that are fixed, with their values.
    gamma : float or None
    vote : {"nearest", "soft"} or None
    allow_one_per_class : bool
        Whether one prototype per class will do, where it serves better.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    gamma: float | None = None
    vote: Vote | None = None
    allow_one_per_class: bool = False

    @property
    def default(self) -> Setting:
        """The setting to take unless the data speak against it."""
        return replace(DEFAULT, **self.settings)

    @property
    def comparison_vote(self) -> Vote:
        """The vote that settings are compared by: the user's, or the soft one, whose loss is what is learned."""
        return self.vote or "soft"

    def gamma_at(self, usual: float, setting: Setting) -> float:
        """The user's gamma, or else the usual one, changed as the setting's sharpness says."""
        return usual * setting.sharpness**0.5 if self.gamma is None else self.gamma

    @property
    def leave_anything_open(self) -> bool:
        """Whether anything is to be chosen by cross-validation."""
        return len(self.settings) < len(vars(DEFAULT)) or self.vote is None


@dataclass(frozen=True)
class Job:
    """What stays the same through all descents of a fit."""

    n_prototypes: int
    descent: DescentOptions
    constraints: Constraints
    checkpoint: Checkpoint
    progress: Progress


class Progress:
    """One count of iterations over all descents, for a user's callback; `reported` is kept in the checkpoint."""

    def __init__(self, callback: Callback | None, reported: dict[str, int]) -> None:
        self.callback, self.reported, self.n_notes = callback, reported, 0
        self.last: dict[str, Any] = {}

    def of_descent(self) -> Follow | None:
        """A callback for one descent, whose true answer ends it."""
        if self.callback is None:
            return None

        def report(k: int, u: Array, now: Evaluation) -> Any:
            self.reported["iterations"] += k > 0
            self.last = {"loss": now.loss, "error": now.error}
            assert self.callback is not None
            return self.callback(self.reported["iterations"], None, self.last)

        return report

    def note(self, metric: str, summary: dict[str, Any]) -> None:
        """Report a setting's held-out error, unless that was done before an interruption."""
        self.n_notes += 1
        if self.callback is not None and self.n_notes > self.reported["notes"]:
            self.reported["notes"] = self.n_notes
            names = ("sharpness", "prior", "smoothing", "start")
            setting = f"{metric}: " + ", ".join(f"{name} {summary[name]}" for name in names)
            text = f"{setting}: held-out error {summary['error']:.2%} ± {summary['standard_error']:.2%}"
            self.callback(self.reported["iterations"], None, {**self.last, "note": text})
