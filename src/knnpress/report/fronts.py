"""Error against size and against time: every method on a data set, and which of them nothing else is ahead of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from knnpress.report import formatting
from knnpress.report.analysis import AgainstFull, Case, Sized, cells_of
from knnpress.report.looks import family_of, title_of
from knnpress.report.statistics import Comparison


@dataclass(frozen=True)
class Point:
    """A method at a size: its error and the share of the training set kept, in per cent, and seconds per query."""

    method: str
    family: str
    title: str
    error: float
    share: float | None
    seconds: float | None


@dataclass(frozen=True)
class Win:
    """A cell in which another method errs significantly less than ours."""

    case: Case
    ratio: float
    method: str
    its_ratio: float | None
    comparison: Comparison


def points_of(case: Case) -> list[Point]:
    """All that can be compared on a data set."""
    found = []
    for method in case.methods:
        for ratio in (*case.ratios, None):
            error = case.summary(method, ratio)
            if error is None or not case.comparable(method, ratio):
                continue
            share, query = case.share(method, ratio), case.summary(method, ratio, lambda record: record.query_seconds)
            title = title_of(method) + (f", {formatting.ratio_of(ratio)}" if ratio is not None else "")
            kept = None if share is None else 100 * share
            seconds = query.mean if query else None
            found.append(Point(method, family_of(method), title, 100 * error.mean, kept, seconds))
    return found


def front(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The pairs (cost, error) to which no other has less error at no more cost.

    Examples
    --------
    >>> front([(2, 5.0), (1, 7.0), (3, 6.0), (4, 1.0), (1, 8.0)])
    [(1, 7.0), (2, 5.0), (4, 1.0)]
    """
    ahead: list[tuple[float, float]] = []
    for cost, error in sorted(places):
        if not ahead or error < ahead[-1][1]:
            ahead.append((cost, error))
    return ahead


def wins_of(case: Case) -> list[Win]:
    """Where another method errs significantly less than ours: of the same size, or of a size of its own."""
    found = []
    for ratio in case.ratios if case.ours else ():
        for method, its_ratio in _others(case, ratio):
            comparison = case.compare((str(case.ours), ratio), (method, its_ratio))
            if comparison is not None and comparison.worse:
                found.append(Win(case, ratio, method, its_ratio, comparison))
    return found


def wins_said(wins: list[Win], cells: list[AgainstFull]) -> str:
    """In how many cells another method wins, and which ones how often; empty where nothing can be told."""
    n = sum(cell.comparison.judged for cell in cells)
    if not n:
        return ""
    if not wins:
        return f"No other method errs significantly less than ours in any of {n} cells."
    lost = {(win.case.data.name, win.ratio) for win in wins}
    counts = Counter(title_of(win.method) for win in wins)
    who = "; ".join(f"{name} in {count}" for name, count in counts.most_common())
    return f"Another method errs significantly less than ours in {len(lost)} of {n} cells: {who}."


def _others(case: Case, ratio: float) -> Iterator[Sized]:
    """All but ours at a size, and those without sizes."""
    for method in case.methods:
        if family_of(method) != "ours":
            yield from ((method, one) for one in (ratio, None) if case.comparable(method, one))


def sentences(plain: list[Case]) -> list[str]:
    """What the fronts say, in a sentence or two."""
    cells = [cell for case in plain for cell in cells_of(case)]
    judged = [cell for cell in cells if cell.comparison.judged]
    said = []
    if judged:
        small = quick = 0
        for cell in judged:
            ours = str(cell.case.ours), cell.ratio
            ahead = [(win.method, win.its_ratio) for win in wins_of(cell.case) if win.ratio == cell.ratio]
            small += not any(_no_larger(cell.case, one, ours) for one in ahead)
            quick += not any(_at_most(_seconds(cell.case, one), _seconds(cell.case, ours)) for one in ahead)
        n = len(judged)
        said.append(
            f"In {small} of {n} cells (a cell is one data set at one size of our model), nothing that keeps as few "
            f"points errs significantly less than ours; in {quick} of {n}, nothing that answers at least as fast does."
        )
    shares = [share for cell in cells if (share := cell.case.share(str(cell.case.ours), cell.ratio))]
    factors = []
    for cell in cells:
        full = cell.case.summary(
            "full", None, lambda r: r.full_search_seconds or r.full_query_seconds or r.query_seconds
        )
        ours_seconds = _seconds(cell.case, (str(cell.case.ours), cell.ratio))
        if full and ours_seconds:
            factors.append(full.mean / ours_seconds)
    if shares and factors:
        said.append(
            f"The median cell keeps {formatting.percent(median(shares))} % of the training set and answers "
            f"{median(factors):.1f} times as fast as an exact search of all of it."
        )
    return said


def _seconds(case: Case, one: Sized) -> float | None:
    query = case.summary(*one, lambda record: record.query_seconds)
    return query.mean if query else None


def _no_larger(case: Case, one: Sized, ours: Sized) -> bool:
    share = case.share(*one)
    return share is None or _at_most(share, case.share(*ours))


def _at_most(theirs: float | None, ours: float | None) -> bool:
    return theirs is not None and ours is not None and theirs <= 1.02 * ours
