"""What the runs on a data set say, in a sentence or two."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from knnpress.experiments.records import Record
from knnpress.report.analysis import AgainstFull, Case, cells_of
from knnpress.report.looks import metric_words
from knnpress.report.statistics import MIN_SPLITS, Summary

_NOUNS = {"covariance": "covariances", "histogram": "histograms"}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Message:
    """Learned prototypes against the full training set.

    Attributes
    ----------
    ratio : float
        The size spoken of: the smallest that does as well as the full set, or else that with the fewest errors.
    headline : str
        How many points, errors and how fast, beside the full set.
    judgement : str
        Whether the difference in errors could be luck.
    speed : str
        What the times are of; empty where there are none.
    """

    ratio: float
    headline: str
    judgement: str
    speed: str


def message_of(case: Case) -> Message | None:
    """The message of a case; None where ours or the full set is missing."""
    cells = cells_of(case)
    if not cells:
        return None
    as_good = [cell for cell in cells if cell.within and cell.comparison.worse is not True]
    cell = as_good[0] if as_good else min(cells, key=lambda one: one.ours.mean)
    headline = f"{_sizes(cell)}: {_percent(cell.ours)} errors instead of {_percent(cell.full)}{_speed(cell)}."
    return Message(cell.ratio, headline, _judgement(cell), _timed(cell))


def _sizes(cell: AgainstFull) -> str:
    runs = cell.case.records(str(cell.case.ours), cell.ratio)
    few, many = ({n for n in values if n} for values in ([r.n_prototypes for r in runs], [r.n_train for r in runs]))
    noun = _NOUNS.get(cell.case.data.kind, "points")
    return f"{_range(few)} learned {noun} instead of {_range(many)}" if few and many else f"Learned {noun}"


def _range(values: set[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if high <= 1.01 * low else f"{low:,} to {high:,}"


def _percent(summary: Summary) -> str:
    value = 100 * summary.mean
    return f"{value:.1f} %" if value >= 0.95 or value == 0 else f"{value:.2f} %"


def _full_seconds(record: Record) -> float | None:
    return record.full_search_seconds or record.full_query_seconds


def _speed(cell: AgainstFull) -> str:
    """How much faster queries are, by the mean times of all splits."""
    ours, ratio = str(cell.case.ours), cell.ratio
    query, full = (cell.case.summary(ours, ratio, figure) for figure in (lambda r: r.query_seconds, _full_seconds))
    if query is None or full is None or not query.mean or not full.mean:
        return ""
    factor = full.mean / query.mean
    if 0.87 < factor < 1.15:
        return ", as fast"
    how, factor = ("faster", factor) if factor > 1 else ("slower", 1 / factor)
    return f", {factor:.0f} times {how}" if factor >= 9.5 else f", {f'{factor:.1f}'.removesuffix('.0')} times {how}"


def _judgement(cell: AgainstFull) -> str:
    """Whether chance could make the difference in errors, by test points where the records name them."""
    comparison, n = cell.comparison, cell.comparison.n
    splits = f"{_NUMBERS[n] if n < len(_NUMBERS) else n} split{'s' * (n > 1)} into training and test points"
    if n < MIN_SPLITS:
        return (
            f"Measured on {splits}: too few to tell a real difference from luck; "
            f"{_NUMBERS[MIN_SPLITS]} or more would be needed."
        )
    pooled = cell.case.pooled((str(cell.case.ours), cell.ratio), ("full", None))
    if pooled is not None:
        luck = "that could be luck" if pooled.luck else "more than luck would explain"
        return (
            f"Over {splits}, the learned ones were right more often on {pooled.better:,} test points and the full "
            f"training set on {pooled.worse:,}: {luck}."
        )
    if comparison.better or comparison.worse:
        return f"Over {splits}, that is {'fewer' if comparison.better else 'more'} errors than luck would explain."
    if not comparison.judged:
        return f"Over {splits}, errors differ so much from split to split that nothing can be said of the difference."
    return f"Over {splits}, the difference in errors could be luck."


def _timed(cell: AgainstFull) -> str:
    runs = cell.case.records(str(cell.case.ours), cell.ratio)
    if not _speed(cell):
        return ""
    pruned = all(record.full_search_seconds for record in runs)
    usual = metric_words(cell.case.data.geometry) or "the usual distance"
    said = f"Times are of one query through predict; that of the full set is an exact search under {usual}" + (
        ", which skips points that cannot be the nearest." if pruned else " through all distances."
    )
    chosen = Counter(record.metric for record in runs if record.metric)
    for name, count in chosen.most_common():
        if name != cell.case.data.geometry:
            said += f" In {count} of {len(runs)} splits, the learned model chose {metric_words(name)} instead."
    return said
