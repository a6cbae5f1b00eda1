"""Charts as SVG, for the page and for files: error against size, and ours minus the full training set."""

from __future__ import annotations

import math

from markupsafe import Markup

from knnpress.report import formatting
from knnpress.report.analysis import AgainstFull, Case, margin
from knnpress.report.axes import Box, Scale, error_scale, share_scale, x_axis, y_axis
from knnpress.report.curves import Series, alt_text, curves_of
from knnpress.report.statistics import COVERED_TEXT
from knnpress.report.svg import element, label, marker, swatch_marks

#: Width of a chart on a screen and on a phone: text has the same size on both
WIDTHS = (1000, 346)
_LINE = 19  # pixels from one line of a key to the next


def curves(case: Case, width: int = WIDTHS[0], key: bool = False) -> Markup:
    """Error against the share of the training set that is kept.

    Parameters
    ----------
    case : Case
    width : int
    key : bool
        Whether to draw the key and the title, too; other full sets are left out then.
    """
    shown = [one for one in curves_of(case) if not (key and one.hidden)]
    height = round(min(440, max(280, width * 0.54)))
    box = Box(46, 34 if key else 12, width - 14, height - 46)
    points = [point for one in shown for point in [*one.curve, *([one.own] if one.own else [])]]
    seen = [*((mean, std) for _, mean, std in points), *(one.line for one in shown if one.line)]
    highest = max((mean + (std or 0.0) for mean, std in seen), default=1.0)
    y = error_scale([mean for mean, _ in seen], highest, box)
    x = share_scale([100 * ratio for ratio in case.ratios] + [point[0] for point in points], box)
    ticks = [100 * ratio for ratio in case.ratios]
    while ticks and 2 * ticks[-1] <= x.high:
        ticks.append(2 * ticks[-1])
    title = case.data.title + (f", {case.variant}" if case.variant else "")
    turned = f"translate(12 {(box.top + box.bottom) / 2:g}) rotate(-90)"
    parts = [
        *([label(title, box.left, 20, 14, "start", "var(--ink)")] if key else []),
        y_axis(y, box),
        x_axis(x, box, ticks, " %"),
        label("share of the training set kept", (box.left + box.right) / 2, height - 8, 12),
        element("text", "test error, %", transform=turned, text_anchor="middle", font_size=12, fill="var(--ink)"),
        *(_series(one, x, y, box) for one in reversed(shown)),
    ]
    full = width + 260 if key else width
    for k, one in enumerate(shown if key else []):
        mark = element(
            "g", swatch_marks(one.look, one.strong), transform=f"translate({width + 6} {box.top + k * _LINE})"
        )
        parts += [mark, label(one.title, width + 48, box.top + k * _LINE + 11, 12, "start", "var(--ink)")]
    height = max(height, round(box.top + _LINE * len(shown) + 10) if key else 0)
    return element(
        "svg", *parts, viewBox=f"0 0 {full} {height}", width=full, height=height, role="img", aria_label=alt_text(case)
    )


def _series(series: Series, x: Scale, y: Scale, box: Box) -> Markup:
    """One method: a line across, a curve with its band, the size at which it stops by itself."""
    look, colour = series.look, f"var(--m-{series.look.colour})"
    width = 3.0 if series.strong else 2.0
    dash = look.dash or None
    parts = []

    def place(share: float, error: float) -> str:
        return f"{x(share):.1f} {y(error):.1f}"

    if series.line:
        mean, std = series.line
        if series.strong and std is not None:
            edges = f"M{box.left} {y(mean + std):.1f}H{box.right}V{y(mean - std):.1f}H{box.left}Z"
            parts.append(element("path", d=edges, fill=colour, opacity=0.13))
        said = element("title", f"{series.title}: {_error(mean, std)}")
        across = f"M{box.left} {y(mean):.1f}H{box.right}"
        parts.append(
            element("path", said, d=across, stroke=colour, stroke_dasharray=dash, stroke_width=width, fill="none")
        )
    if series.curve:
        upper = [place(share, mean + (std or 0.0)) for share, mean, std in series.curve]
        lower = [place(share, mean - (std or 0.0)) for share, mean, std in reversed(series.curve)]
        if len(upper) > 1:
            band = f"M{'L'.join(upper)}L{'L'.join(lower)}Z"
            parts.append(element("path", d=band, fill=colour, opacity=0.1))
        line = "M" + "L".join(place(share, mean) for share, mean, _ in series.curve)
        parts.append(element("path", d=line, stroke=colour, stroke_dasharray=dash, stroke_width=width, fill="none"))
        for share, mean, std in series.curve:
            said_at = f"{series.title}, {share:.3g} %: {_error(mean, std)}"
            parts.append(marker(look, x(share), y(mean), said=said_at))
    if series.own:
        share, mean, std = series.own
        if std is not None:
            bar = f"M{x(share):.1f} {y(mean - std):.1f}V{y(mean + std):.1f}"
            parts.append(element("path", d=bar, stroke=colour, stroke_width=1.5))
        said_at = f"{series.title}, its own size, {share:.3g} %: {_error(mean, std)}"
        parts.append(marker(look, x(share), y(mean), hollow=True, said=said_at))
    hidden = "series off" if series.hidden else "series"
    return element("g", *parts, class_=hidden, data_method=series.name)


def _error(mean: float, std: float | None) -> str:
    return formatting.percent(mean / 100) + ("" if std is None else f" ± {formatting.percent(std / 100)}") + " % errors"


def differences(cells: list[AgainstFull]) -> Markup:
    """Ours minus the full set in all cells, with intervals and the margin."""
    width, step = 760, 22
    height = 30 + step * len(cells) + 52
    box = Box(250, 30, width - 20, height - 50)
    ends = [end for cell in cells for end in (cell.comparison.difference, *_interval(cell))]
    reach = 100 * max([0.012, *map(abs, ends)])

    def x(points: float) -> float:  # half a point counts, ten points or twelve are much the same
        bent = math.asinh(2 * points) / math.asinh(2 * reach)
        return box.left + (bent + 1) / 2 * (box.right - box.left)

    parts = [label("Ours minus the full training set", 12, 18, 14, "start")]
    for tick in (-50, -20, -10, -5, -2, -1, -0.5, 0, 0.5, 1, 2, 5, 10, 20, 50):
        if abs(tick) <= reach and (tick == 0 or abs(tick) in (1, 5, 20) or reach < 6):
            parts.append(element("path", d=f"M{x(tick):.1f} {box.top}V{box.bottom}", stroke="var(--line)"))
            parts.append(label(f"{tick:g}".replace("-", "−"), x(tick), box.bottom + 18, 12, fill="var(--soft)"))
    names = dict.fromkeys(cell.case.data.title for cell in cells)
    short = dict(zip(names, formatting.brief(list(names)), strict=True))
    for k, cell in enumerate(cells):
        middle = box.top + (k + 0.5) * step
        low, high = (100 * end for end in _interval(cell))
        difference, held = 100 * cell.comparison.difference, cell.held
        judged = cell.comparison.judged
        colour = "var(--m-ours)" if held else "var(--m-red)" if judged else "var(--m-grey)"
        limit = x(100 * margin(cell.full))
        parts += [
            element("rect", x=x(0), y=middle - 9, width=limit - x(0), height=18, fill="var(--m-ours)", opacity=0.1),
            element("path", d=f"M{x(low):.1f} {middle}H{x(high):.1f}", stroke=colour, stroke_width=1.6),
            element(
                "circle", cx=x(difference), cy=middle, r=4.5, fill=colour if judged else "var(--card)", stroke=colour
            )
            if held or not judged
            else element(
                "path",
                d=f"M{x(difference) - 4.5:.1f} {middle - 4.5}l9 9m0 -9l-9 9",
                stroke=colour,
                stroke_width=2.4,
            ),
            label(_short(short[cell.case.data.title], cell), box.left - 8, middle + 4, 12, "end"),
        ]
    parts.append(element("path", d=f"M{x(0):.1f} {box.top}V{box.bottom}", stroke="var(--ink)"))
    key = f"{COVERED_TEXT} interval; shaded: the margin; ×: not held; hollow: not judged"
    parts.append(label(f"points of error more than the full set ({key})", width / 2, height - 10, 12))
    said = f"Ours minus the full training set in {formatting.count(len(cells), 'cell')}; the tables have the figures."
    return element(
        "svg", *parts, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", aria_label=said
    )


def _short(title: str, cell: AgainstFull, most: int = 30) -> str:
    brief = title if len(title) <= most else f"{title[: most - 1]}…"
    return f"{brief}, {formatting.ratio_of(cell.ratio)}"


def _interval(cell: AgainstFull) -> tuple[float, float]:
    c = cell.comparison
    return (c.difference, c.difference) if c.low is None or c.high is None else (c.low, c.high)
