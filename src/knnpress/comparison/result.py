"""What a comparison found: a table, a recommendation, and how they are shown."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from knnpress.comparison.candidates import RECENTERED
from knnpress.comparison.page import make_page, make_table
from knnpress.comparison.trials import FAR_BEHIND, NO_TIME, Points, Trial, Trials, clearly_worse, error_of
from knnpress.files import check_output, replacing
from knnpress.typing import Labels

_NOTES = {NO_TIME: "out of time"}
_METHODS = {"learned": "learned", "full": "full 1-NN", "means": "class means"}


class Comparison:
    """What `knnpress.compare` found.

    Attributes
    ----------
    best_ : classifier or None
        The recommended model, learned from all data; for images and re-centred matrices, a `DescriptorClassifier`.
        None with ``refit=False``.
    recommended_ : dict
        Its row of the table.
    table_ : list of dict
        What was seen of each candidate, best first: "descriptor" (of points None, or "re-centred"), "metric", "method"
        ("learned", "full" or "means"), "n_prototypes", "kilobytes" of the model's file, held-out "error" with its 95 %
        interval "low" and "high", "n_folds" and "n_held_out", "microseconds_per_query", "seconds_to_describe" and
        "seconds_to_learn", "recommended", and in "note" why it was not tried on all folds, where it was not.
    left_out_ : list of (str, str)
        What was not tried, and why.
    classes_ : ndarray of shape (n_classes,)
    seconds_ : float
        How long the comparison took.
    """

    def __init__(
        self,
        table: list[dict[str, Any]],
        *,
        classes: Labels,
        n_points: int,
        n_compared: int,
        n_folds: int,
        kind: str,
        guessing: float,
        has_groups: bool,
        left_out: list[tuple[str, str]],
        seconds: float,
        options: list[str],
    ) -> None:
        self.best_: Any = None
        self.table_ = table
        self.recommended_ = next(row for row in table if row["recommended"])
        self.left_out_ = left_out
        self.classes_ = classes
        self.seconds_ = seconds
        self._n_points, self._n_compared, self._n_folds = n_points, n_compared, n_folds
        self._has_groups, self._options = has_groups, options
        self._kind, self._guessing = kind, guessing
        self._has_descriptors = any(row["descriptor"] is not None for row in table)

    def command(self, data: str | os.PathLike[str], output: str = "model.knnp", more: Sequence[str] = ()) -> str:
        """The command that learns the recommended model from a folder or a file, with further options `more`."""
        return shlex.join(["knnpress", "compress", os.fspath(data), "-o", output, *self._options, *more])

    def save_page(self, path: str | os.PathLike[str], command: str | None = None) -> None:
        """Write one HTML page that needs nothing else; it shows the command, where one is given."""
        check_output(Path(path))
        with replacing(Path(path)) as file:
            file.write(make_page(self.header(), self.rows(), self.sentences(), command, self.table_).encode())

    def header(self) -> list[str]:
        """Names of the columns of the table, as it is shown."""
        images = self._kind == "images"
        first = ["descriptor"] if images else ["points"] if self._has_descriptors else []
        last = ["describe s"] if images else []
        last = [*last, "learn s", "folds"]
        return ["", *first, "metric", "model", "error %", "95 %", "prototypes", "kB", "µs/query", *last]

    def rows(self) -> list[list[str]]:
        """The table as it is shown."""
        images = self._kind == "images"
        shown = []
        for row in self.table_:
            first = [row["descriptor"] or "as given"] if self._has_descriptors else []
            last = [_short(row["seconds_to_describe"])] if images else []
            shown.append(
                [
                    "→" if row["recommended"] else "",
                    *first,
                    row["metric"],
                    _METHODS[row["method"]],
                    f"{100 * row['error']:.1f}",
                    f"{100 * row['low']:.1f}–{100 * row['high']:.1f}",
                    str(row["n_prototypes"]),
                    _short(row["kilobytes"]),
                    _short(row["microseconds_per_query"]),
                    *last,
                    _short(row["seconds_to_learn"]),
                    f"{row['n_folds']}/{self._n_folds} {_NOTES.get(row['note'], row['note'])}".rstrip(),
                ]
            )
        return shown

    def sentences(self) -> list[str]:
        """The recommendation, the reason for it, and what to keep in mind."""
        row = self.recommended_
        beside = {
            other["method"]: other
            for other in reversed(self.table_)
            if other["descriptor"] == row["descriptor"] and other["method"] != "learned"
        }
        what = {
            "learned": f"{row['n_prototypes']} learned prototypes",
            "full": f"all {row['n_prototypes']} points, uncompressed",
            "means": "the mean of each class",
        }[row["method"]]
        what_of = "points" if self._kind != "images" else "descriptors"
        where = "" if row["descriptor"] is None else f"{row['descriptor']} {what_of}, "
        rivals = [
            f"{_METHODS[name]} {100 * other['error']:.1f} %" for name, other in beside.items() if name != row["method"]
        ]
        said = [
            f"Recommended: {where}{row['metric']} metric, {what}: {100 * row['error']:.1f} % of held-out points wrong"
            + (f" ({', '.join(rivals)})." if rivals else ".")
        ]
        best = self.table_[0]
        if best["n_folds"] < row["n_folds"]:
            said.append(f"The first row was tried on {best['n_folds']} of {self._n_folds} folds, too few to go by.")
        elif best is not row:
            said.append(
                f"The first row errs {100 * (row['error'] - best['error']):.1f} points less, which may be chance, and "
                f"takes {_short(best['kilobytes'])} kB instead of {_short(row['kilobytes'])}."
            )
        held = "groups never learned from" if self._has_groups else f"{row['n_held_out']} points never learned from"
        n = len(self.table_)
        best_of = f"; the best of {n} candidates looks a little better than it is" if n > 1 else ""
        said.append(f"Errors are of {held}{best_of}.")
        if all(other["method"] != "learned" for other in self.table_):
            said.append("There was no time for a model that learns: give more minutes.")
        if row["high"] >= self._guessing:
            said.append(
                f"That is hardly better than guessing: always saying the most frequent class is wrong in "
                f"{100 * self._guessing:.0f} %."
            )
        if row["descriptor"] == RECENTERED:
            said.append(
                "Re-centring moves the mean of each group to the identity, and needs no labels. To classify a new "
                "group, give many of its points at once, and its name as --groups."
            )
        if self._n_compared < self._n_points:
            said.append(f"Compared on a sample of {self._n_compared} of {self._n_points} points.")
        if self.left_out_:
            said.append("Not tried: " + "; ".join(f"{what}: {why}" for what, why in _merged(self.left_out_)) + ".")
        return said

    def __repr__(self) -> str:
        lines = [self.header(), *self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        return "\n".join([*aligned, "", *self.sentences()])

    def _repr_html_(self) -> str:
        return make_table(self.header(), self.rows(), self.sentences(), self.table_)


def recommend(trials: Trials) -> Trial:
    """The smallest model that is not worse than the best by more than noise, on the same held-out points.

    Those that were cut short by the clock are judged, too, by the folds that all contenders have been through; but one
    that saw less than half as many folds as another that learns is not known well enough. Full 1-NN and class means
    are quick, and see many folds where there is no time to learn.
    """
    contenders = [trial for trial in trials.tried if trial.stopped != FAR_BEHIND]
    most = max((len(trial.wrong) for trial in contenders if trial.candidate.method == "learned"), default=1)
    contenders = [trial for trial in contenders if 2 * len(trial.wrong) >= most]
    common = set.intersection(*(set(trial.wrong) for trial in contenders))
    best = min(contenders, key=lambda trial: (trial.error_on(common), trial.kilobytes))
    good = [trial for trial in contenders if trial is best or not clearly_worse(trial, best, trials)]
    return min(good, key=lambda trial: (trial.kilobytes, trial.error_on(common)))


def table_of(trials: Trials, views: dict[str | None, Points], chosen: Trial) -> list[dict[str, Any]]:
    """A row for each candidate, by its error; last those that were tried no further, since they were far behind."""
    ranked = sorted(trials.tried, key=lambda trial: (trial.stopped == FAR_BEHIND, trial.error, trial.kilobytes))
    rows = []
    for trial in ranked:
        error, low, high = error_of(trial, trials)
        rows.append(
            {
                "descriptor": trial.candidate.descriptor,
                "metric": trial.candidate.metric,
                "method": trial.candidate.method,
                "n_prototypes": trial.candidate.n_prototypes,
                "kilobytes": trial.kilobytes,
                "error": error,
                "low": low,
                "high": high,
                "n_folds": len(trial.wrong),
                "n_held_out": sum(map(len, trial.wrong.values())),
                "microseconds_per_query": 1e6 * min(trial.querying),
                "seconds_to_describe": views[trial.candidate.descriptor].seconds,
                "seconds_to_learn": sum(trial.learning) / len(trial.learning),
                "recommended": trial is chosen,
                "note": trial.stopped,
            }
        )
    return rows


def _short(number: float) -> str:
    """Two digits that matter, no exponent."""
    return f"{number:.0f}" if number >= 9.95 else f"{number:.1f}" if number >= 0.95 else f"{number:.2g}"


def _merged(left_out: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What was left out, by the reason; each descriptor and metric once, with what was not tried of it."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for what, why in left_out:
        where, _, model = what.rpartition(", ")
        models = reasons.setdefault(why, {}).setdefault(where or model, [])
        if where and model not in models:
            models.append(model)
    return [
        (
            ", ".join(
                f"{where.replace(', ', ' under ')} ({', '.join(models)})" if models else where
                for where, models in places.items()
            ),
            why,
        )
        for why, places in reasons.items()
    ]
