"""Parts of cells: figures with their deviations, signs, and small drawings of intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup

from knnpress.experiments.records import Record
from knnpress.report import formatting
from knnpress.report.analysis import AgainstFull, Case, margin
from knnpress.report.statistics import MIN_SPLITS, Comparison, Summary
from knnpress.report.svg import element
from knnpress.report.table import Cell, Column

TEST = (
    "corrected resampled t-test (Nadeau and Bengio 2003: variance (1/k + n_test/n_train) s² of the mean over k splits, "
    "k − 1 degrees of freedom)"
)

#: The columns of the spreadsheet for one method minus another
VERSUS = ("difference", "low", "high", "p worse", "p better")


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
    return Cell(formatting.spread(summary), mean_std(summary))


def empty_cell(parts: int) -> Cell:
    """An empty cell that fills this many columns of the spreadsheet."""
    return Cell(formatting.MISSING, (None,) * parts)


def quotient(full: str, ours: str) -> Callable[[Record], float | None]:
    """The quotient of two figures of a run."""

    def figure(record: Record) -> float | None:
        above, below = getattr(record, full), getattr(record, ours)
        return above / below if above and below else None

    return figure


def variant_title(case: Case) -> str:
    """What a group of rows is called."""
    return case.variant or "as planned"


def columns_at(ratios: Iterable[float], parts: Sequence[str], title: str = "at {}") -> list[Column]:
    """A column for each ratio; in the spreadsheet, several."""
    names = map(formatting.ratio_of, ratios)
    return [Column(title.format(name), tuple(f"{part} at {name}" for part in parts)) for name in names]


def versus_cell(comparison: Comparison | None) -> Cell:
    """Ours minus another, and whether that is significant, with the parts `VERSUS`."""
    if comparison is None:
        return empty_cell(len(VERSUS))
    c = comparison
    sign = "" if c.worse is None else "▲" if c.worse else "▼" if c.better else "≈"
    said = {"▲": "significantly more", "▼": "significantly less", "≈": "no significant difference", "": "not judged"}[
        sign
    ]
    text = f"{sign} {formatting.points(c.difference)} {formatting.interval(c) if c.judged else ''}".strip()
    below = formatting.interval(c) if c.judged else f"on {formatting.count(c.n, 'split')}: {_unjudged(c)} to judge"
    html = Markup('<span aria-hidden="true">{}</span><span class="hidden">{}</span> {}<br><small>{}</small>').format(
        sign, said, formatting.points(c.difference), below
    )
    values = (100 * c.difference, in_percent(c.low), in_percent(c.high), c.p_worse, c.p_better)
    return Cell(text, values, {"▲": "bad", "▼": "good"}.get(sign, ""), html)


def marks(cell: AgainstFull) -> tuple[bool | None, bool]:
    """Not significantly worse, within the margin: for spreadsheets."""
    return None if cell.comparison.worse is None else cell.not_worse, cell.within


def _margin(cell: AgainstFull) -> str:
    return f"{100 * margin(cell.full):g}"


def grade(cell: AgainstFull) -> str:
    """The colour of a verdict; none where there is none."""
    return "" if cell.comparison.worse is None else "good" if cell.held else "bad"


def signs(cell: AgainstFull) -> str:
    """✓ or ✗, ≤ or >: for those who see them; where nothing can be told, why."""
    if cell.comparison.worse is None:
        return _unjudged(cell.comparison)
    return f"{'✓' if cell.not_worse else '✗'} {'≤' if cell.within else '>'} {_margin(cell)}"


def _unjudged(comparison: Comparison) -> str:
    return "too few splits" if comparison.n < MIN_SPLITS else "splits too unlike"


def signs_html(cell: AgainstFull) -> Markup:
    """The signs, and in words for those who hear the page."""
    both = Markup('<span aria-hidden="true" class="signs">{}</span><span class="hidden">{}</span>')
    return both.format(signs(cell), verdict(cell))


def verdict(cell: AgainstFull) -> str:
    """The signs in words."""
    if cell.comparison.worse is None:
        return f"{_unjudged(cell.comparison)} to judge"
    tested = "✗ worse" if cell.comparison.worse else "✓ not worse"
    return f"{tested}, {'within' if cell.within else 'beyond'} {_margin(cell)}"


def reach_of(cells: list[AgainstFull]) -> float:
    """How far from zero the intervals go."""
    return max((abs(end) for cell in cells for end in (cell.comparison.difference, *_ends(cell))), default=0.0)


def _ends(cell: AgainstFull) -> tuple[float, float]:
    """The interval; where there are too few splits for one, just the difference."""
    c = cell.comparison
    if c.low is None or c.high is None or not c.judged:
        return c.difference, c.difference
    return c.low, c.high


def whisker(cell: AgainstFull, reach: float) -> Markup:
    """A small drawing of the interval: zero in the middle, the margin shaded."""
    c, half = cell.comparison, 68
    reach = max(reach, 1.2 * margin(cell.full))

    def x(value: float) -> str:
        return f"{70 + half * value / reach:.1f}"

    low, high = (x(end) for end in _ends(cell))
    return element(
        "svg",
        element("rect", x=2, y=1, width=f"{float(x(margin(cell.full))) - 2:.1f}", height=18, class_="margin"),
        element("path", d="M70 1V19", class_="zero"),
        element("path", d=f"M{low} 10H{high}M{low} 6V14M{high} 6V14", class_="reach"),
        element("circle", cx=x(c.difference), cy=10, r=4),
        class_="whisker",
        viewBox="0 0 140 20",
        role="img",
        aria_label=f"{formatting.points(c.difference)} {formatting.interval(c)}",
    )


def kept_text(case: Case, method: str, ratio: float | None) -> str:
    """How many points a model keeps, and their share of the training set."""
    size, share = case.summary(method, ratio, lambda record: record.n_prototypes), case.share(method, ratio)
    return f"{size.mean:,.0f} ({formatting.percent(share)} %)" if size and share else formatting.MISSING


def kept_cell(case: Case, method: str, ratio: float | None) -> Cell:
    """The same, and both numbers."""
    size = case.summary(method, ratio, lambda record: record.n_prototypes)
    return Cell(kept_text(case, method, ratio), (size.mean if size else None, in_percent(case.share(method, ratio))))


def query_cell(seconds: Summary | None) -> Cell:
    """The time of a query."""
    text = f"{formatting.microseconds(seconds.mean)} µs" if seconds else formatting.MISSING
    return Cell(text, (mean_in(seconds, 1e6),))
