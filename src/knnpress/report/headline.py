"""The figures that a report of many data sets begins with: error against size and time, and mean ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from markupsafe import Markup

from knnpress.report.analysis import Case
from knnpress.report.axes import Box, Scale, error_scale, share_scale, x_axis, y_axis
from knnpress.report.formatting import brief
from knnpress.report.fronts import Point, front, points_of
from knnpress.report.looks import FAMILIES, common_name
from knnpress.report.pooled import Ranks
from knnpress.report.svg import element, label, marker, swatch_marks

_PANEL = 168  # pixels, across and down
_COSTS: dict[str, tuple[str, Callable[[Point], float | None]]] = {
    "size": ("Error against size: test error in %, share of the training set kept in %", lambda point: point.share),
    "time": (
        "Error against time: test error in %, microseconds a query",
        lambda point: 1e6 * point.seconds if point.seconds else None,
    ),
}


def fronts(cases: Iterable[Case], width: int) -> Markup:
    """A small panel for each data set and cost: methods as points, and the Pareto front of each family as a line."""
    shown = [(case, points) for case in cases if (points := points_of(case))]
    present = [name for name in FAMILIES if any(point.family == name for _, points in shown for point in points)]
    rows = math.ceil(len(shown) / max(1, width // _PANEL))
    across = math.ceil(len(shown) / max(1, rows))
    step = width / max(1, across)
    titles = brief([case.data.title for case, _ in shown])
    parts, top = [], 6.0
    x = 4.0
    for name in present:
        length = 46 + 6.3 * len(FAMILIES[name].title)
        if x > 4 and x + length > width:
            x, top = 4.0, top + 20
        parts.append(
            element("g", swatch_marks(FAMILIES[name].look, name == "ours"), transform=f"translate({x:.0f} {top:.0f})")
        )
        parts.append(label(FAMILIES[name].title, x + 40, top + 11, 12, "start"))
        x += length
    top += 26
    said = []
    for cost, (title, of) in _COSTS.items():
        if width < 500:
            title = title.partition(":")[0] + ": %, " + ("% kept" if cost == "size" else "µs a query")
        said.append(title)
        parts.append(label(title, 4, top + 14, 13, "start", bold=True))
        top += 24
        for k, (_, points) in enumerate(shown):
            left, up = (k % across) * step, top + k // across * _PANEL
            box = Box(left + 32, up + 22, left + step - 8, up + _PANEL - 28)
            parts += [label(_fitting(titles[k], step), left + 4, up + 14, 12, "start"), _panel(points, of, box)]
        top += rows * _PANEL + 8
    height = round(top)
    told = f"{'; '.join(said)}. {len(shown)} data sets, a panel each; the tables have the figures."
    return element(
        "svg", *parts, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", aria_label=told
    )


def _fitting(title: str, step: float) -> str:
    most = int(step / 6.8)
    return title if len(title) <= most else f"{title[: most - 1]}…"


def _panel(points: list[Point], cost: Callable[[Point], float | None], box: Box) -> Markup:
    placed = [(point, value) for point in points if (value := cost(point))]
    alone = [point for point in points if not cost(point)]
    y = error_scale([point.error for point in points], max(point.error for point in points), box)
    x = share_scale([value for _, value in placed], box)
    parts = [y_axis(y, box, 10, 3), x_axis(x, box, _decades(x), "", 10)]
    if alone:  # no size to speak of: the best of them is a line across
        best = min(alone, key=lambda point: point.error)
        colour = f"var(--m-{FAMILIES[best.family].look.colour})"
        title = element("title", f"{best.title}: {best.error:.3g} %")
        across = f"M{box.left:.1f} {y(best.error):.1f}H{box.right:.1f}"
        parts.append(element("path", title, d=across, stroke=colour, stroke_dasharray="1 3", stroke_width=1.5))
    for name in reversed(FAMILIES):
        mine = [(point, value) for point, value in placed if point.family == name]
        look = FAMILIES[name].look
        line = [f"{x(value):.1f} {y(error):.1f}" for value, error in front([(v, p.error) for p, v in mine])]
        if len(line) > 1:
            stroke = {"stroke": f"var(--m-{look.colour})", "stroke_dasharray": look.dash or None}
            parts.append(
                element(
                    "path", d="M" + "L".join(line), fill="none", stroke_width=2 if name == "ours" else 1.4, **stroke
                )
            )
        for point, value in mine:
            told = f"{point.title}: {point.error:.3g} % at {value:.3g}"
            parts.append(
                marker(look, x(value), y(point.error), said=told, scale={"ours": 0.72, "full": 1.0}.get(name, 0.55))
            )
    return Markup("").join(parts)


def _decades(scale: Scale) -> list[float]:
    """Powers of ten on a scale, or all its ticks where there are too few."""
    powers = [tick for tick in scale.ticks(99) if f"{tick:e}"[0] == "1"]
    return powers if len(powers) > 1 else scale.ticks(99)


def ranks_figure(ranks: Ranks, width: int = 760) -> Markup:
    """Mean ranks on a line; bars join those that Nemenyi's critical difference does not tell apart."""
    names, values = list(ranks.ranks), list(ranks.ranks.values())
    k = len(names)
    narrow = width < 500
    side = 14 if narrow else max(180, 50 + 7 * max(map(len, names)))
    box = Box(side, 66, width - side, 0)

    def x(rank: float) -> float:
        return box.left + (rank - 1) / max(k - 1, 1) * (box.right - box.left)

    parts = [element("path", d=f"M{x(1):.1f} {box.top}H{x(k):.1f}", stroke="var(--ink)")]
    for rank in range(1, k + 1):
        parts.append(element("path", d=f"M{x(rank):.1f} {box.top}v-6", stroke="var(--ink)"))
        parts.append(label(str(rank), x(rank), box.top - 10, 12, fill="var(--soft)"))
    end = min(x(1 + ranks.critical), box.right)
    parts.append(element("path", d=f"M{x(1):.1f} 26H{end:.1f}M{x(1):.1f} 22v8M{end:.1f} 22v8", stroke="var(--ink)"))
    parts.append(label(f"critical difference {ranks.critical:.2f}", x(1), 14, 12, "start"))
    level = box.top + 10
    for first, last in _groups(values, ranks.critical):
        bar = f"M{x(values[first]) - 3:.1f} {level}H{x(values[last]) + 3:.1f}"
        parts.append(element("path", d=bar, stroke="var(--ink)", stroke_width=4))
        level += 8
    for place, (name, value) in enumerate(ranks.ranks.items()):
        better = narrow or place < math.ceil(k / 2)
        row = place if better else k - 1 - place
        down = level + 14 + 20 * row
        end = box.left if better else box.right
        ours = name in (common_name("SCC"), common_name("SCC jbld"))
        colour = "var(--m-ours)" if ours else "var(--ink)"
        at = x(value)
        if narrow:
            down = level + 14 + 20 * place
            parts.append(element("path", d=f"M{at:.1f} {box.top}V{level + 2}", stroke=colour))
            parts.append(label(f"{value:.2f}  {name}", box.left, down, 12, "start", fill=colour, bold=ours))
        else:
            parts.append(element("path", d=f"M{at:.1f} {box.top}V{down - 4}H{end:.1f}", stroke=colour, fill="none"))
            anchor, text = ("end", f"{name}  {value:.2f}") if better else ("start", f"{value:.2f}  {name}")
            parts.append(label(text, end + (-6 if better else 6), down, 12, anchor, fill=colour, bold=ours))
    height = round(level + 24 + 20 * (k if narrow else math.ceil(k / 2)))
    listed = ", ".join(f"{name} {value:.2f}" for name, value in ranks.ranks.items())
    said = f"Mean ranks over {len(ranks.data)} data sets: {listed}. Critical difference {ranks.critical:.2f}."
    return element(
        "svg", *parts, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", aria_label=said
    )


def _groups(values: list[float], critical: float) -> list[tuple[int, int]]:
    """The longest runs of ranks, in order, that lie within the critical difference.

    Examples
    --------
    >>> _groups([1.0, 1.5, 2.2, 4.0], 1.0)
    [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first, value in enumerate(values):
        last = max(k for k, other in enumerate(values) if other - value <= critical)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
