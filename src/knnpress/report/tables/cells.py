"""What the tables of a report say in one place."""

from __future__ import annotations

from collections.abc import Callable

from knnpress.report import words
from knnpress.report.analysis import Case, margin
from knnpress.report.analysis import Cell as Against
from knnpress.report.records import Record
from knnpress.report.statistics import Comparison, Summary
from knnpress.report.table import Cell

__all__ = [
    "TEST",
    "empty_cell",
    "grade",
    "in_percent",
    "marks",
    "mean_in",
    "mean_std",
    "quotient",
    "reach_of",
    "share_kept",
    "signs",
    "signs_html",
    "summary_cell",
    "value_in",
    "variant_title",
    "verdict",
    "versus_cell",
    "whisker",
]

TEST = (
    "corrected resampled t-test (Nadeau and Bengio 2003: variance (1/k + n_test/n_train) s² of the mean over k splits, "
    "k − 1 degrees of freedom)"
)


def in_percent(share: float | None) -> float | None:
    """A share in per cent."""
    return None if share is None else 100 * share


def mean_in(summary: Summary | None, factor: float) -> float | None:
    """The mean, in another unit."""
    return None if summary is None else factor * summary.mean


def value_in(value: float | None, factor: float) -> float | None:
    """A figure in another unit."""
    return None if value is None else factor * value


def mean_std(summary: Summary | None, factor: float = 100) -> tuple[float | None, float | None]:
    """Mean and standard deviation, in per cent or another unit."""
    if summary is None:
        return None, None
    return factor * summary.mean, None if summary.std is None else factor * summary.std


def summary_cell(summary: Summary | None) -> Cell:
    """Mean ± standard deviation of an error."""
    return Cell(words.spread(summary), mean_std(summary))


def empty_cell(parts: int) -> Cell:
    """Nothing, in as many columns of the spreadsheet."""
    return Cell(words.MISSING, (None,) * parts)


def share_kept(record: Record) -> float | None:
    """δ of one run."""
    return record.n_prototypes / record.n_train if record.n_prototypes and record.n_train else None


def quotient(full: str, ours: str) -> Callable[[Record], float | None]:
    """Of two figures of a run."""

    def figure(record: Record) -> float | None:
        above, below = getattr(record, full), getattr(record, ours)
        return above / below if above and below else None

    return figure


def variant_title(case: Case) -> str:
    """What a group of rows is called."""
    return case.variant or "as planned"


def versus_cell(comparison: Comparison | None, parts: int) -> Cell:
    """Ours minus another, and whether it is significant."""
    if comparison is None:
        return empty_cell(parts)
    c = comparison
    sign = "" if c.worse is None else "▲" if c.worse else "▼" if c.better else "≈"
    said = {"▲": "significantly more", "▼": "significantly less", "≈": "no significant difference", "": "not judged"}[
        sign
    ]
    text = f"{sign} {words.points(c.difference)} {words.interval(c) if c.judged else ''}".strip()
    below = words.interval(c) if c.judged else f"on {words.count(c.n, 'split')}: too few to judge"
    html = (
        f'<span aria-hidden="true">{sign}</span><span class="hidden">{said}</span> {words.points(c.difference)}'
        f"<br><small>{below}</small>"
    )
    values = (100 * c.difference, in_percent(c.low), in_percent(c.high), c.p_worse, c.p_better)
    return Cell(text, values, {"▲": "bad", "▼": "good"}.get(sign, ""), html)


def marks(cell: Against) -> tuple[bool | None, bool]:
    """Not significantly worse, within the margin: for spreadsheets."""
    return None if cell.comparison.worse is None else cell.not_worse, cell.within


def _margin(cell: Against) -> str:
    return f"{100 * margin(cell.full):g}"


def grade(cell: Against) -> str:
    """The colour of a verdict; none where there is none."""
    return "" if cell.comparison.worse is None else "good" if cell.not_worse and cell.within else "bad"


def signs(cell: Against) -> str:
    """✓ or ✗, ≤ or >: for those who see them; where there are too few splits, that there are."""
    if cell.comparison.worse is None:
        return "too few splits"
    return f"{'✓' if cell.not_worse else '✗'} {'≤' if cell.within else '>'} {_margin(cell)}"


def signs_html(cell: Against) -> str:
    """The signs, and in words for those who hear the page."""
    return f'<span aria-hidden="true" class="signs">{signs(cell)}</span><span class="hidden">{verdict(cell)}</span>'


def verdict(cell: Against) -> str:
    """The signs in words."""
    if cell.comparison.worse is None:
        return "too few splits to judge"
    tested = "✗ worse" if cell.comparison.worse else "✓ not worse"
    return f"{tested}, {'within' if cell.within else 'beyond'} {_margin(cell)}"


def reach_of(cells: list[Against]) -> float:
    """How far from zero the intervals go."""
    return max((abs(end) for cell in cells for end in (cell.comparison.difference, *_ends(cell))), default=0.0)


def _ends(cell: Against) -> tuple[float, float]:
    """The interval; where there are too few splits for one, just the difference."""
    c = cell.comparison
    if c.low is None or c.high is None or not c.judged:
        return c.difference, c.difference
    return c.low, c.high


def whisker(cell: Against, reach: float) -> str:
    """A small drawing of the interval: zero in the middle, the margin shaded."""
    c, half = cell.comparison, 68
    reach = max(reach, 1.2 * margin(cell.full))

    def x(value: float) -> str:
        return f"{70 + half * value / reach:.1f}"

    edge = float(x(margin(cell.full)))
    low, high = _ends(cell)
    text = f"{words.points(c.difference)} {words.interval(c)}"
    return (
        f'<svg class="whisker" viewBox="0 0 140 20" role="img" aria-label="{text}">'
        f'<rect x="2" y="1" width="{edge - 2:.1f}" height="18" class="margin"/><path d="M70 1V19" class="zero"/>'
        f'<path d="M{x(low)} 10H{x(high)}M{x(low)} 6V14M{x(high)} 6V14" class="reach"/>'
        f'<circle cx="{x(c.difference)}" cy="10" r="4"/></svg>'
    )
