"""Error against size, ready to be drawn."""

from __future__ import annotations

from dataclasses import dataclass

from knnpress.report import formatting
from knnpress.report.analysis import Case
from knnpress.report.looks import Look, is_full, looks, title_of
from knnpress.report.statistics import Summary


@dataclass(frozen=True)
class Series:
    """One method in a chart; shares and errors are in per cent.

    Attributes
    ----------
    name, title : str
    look : Look
    strong : bool
        Ours and the full set.
    hidden : bool
        Not shown at first: other distances on the full set.
    curve : list of (share, mean, std)
    own : (share, mean, std) or None
        The size at which a method stops by itself.
    line : (mean, std) or None
        Of a method that has no sizes.
    """

    name: str
    title: str
    look: Look
    strong: bool
    hidden: bool
    curve: list[tuple[float, float, float | None]]
    own: tuple[float, float, float | None] | None
    line: tuple[float, float | None] | None


def curves_of(case: Case) -> list[Series]:
    """All methods of a case."""
    found = []
    for method, look in looks(case.methods).items():
        curve = []
        for ratio in case.ratios:
            summary = case.summary(method, ratio)
            if summary is not None:
                curve.append((_round(100 * (case.smaller(method, ratio) or ratio)), *_percent(summary)))
        alone, own, line = case.summary(method, None), None, None
        if alone is not None:
            share = case.share(method, None)
            if curve and share is not None:
                own = (_round(100 * share), *_percent(alone))
            else:
                line = _percent(alone)
        strong = method in ("full", case.ours)
        hidden = is_full(method) and method not in ("full", "full k")
        found.append(Series(method, title_of(method), look, strong, hidden, curve, own, line))
    return found


def alt_text(case: Case) -> str:
    """The chart in a sentence or two."""
    parts = []
    full = case.summary("full", None)
    if full is not None:
        parts.append(f"the full training set errs in {formatting.spread(full)} %")
    if case.ours:
        ends = [(r, case.summary(case.ours, r)) for r in case.ratios]
        known = [(r, s) for r, s in ends if s is not None]
        parts += [
            f"ours in {formatting.spread(s)} % at {formatting.ratio_of(r)}" for r, s in (known[:1] + known[1:][-1:])
        ]
    others = len([method for method in case.methods if method not in ("full", case.ours)])
    name = case.data.title + (f", {case.variant}" if case.variant else "")
    facts = f": {'; '.join(parts)}" if parts else ""
    beside = formatting.count(others, "other method")
    return f"Test error against the share of the training set kept, {name}{facts}; {beside}."


def _percent(summary: Summary) -> tuple[float, float | None]:
    return _round(100 * summary.mean), None if summary.std is None else _round(100 * summary.std)


def _round(value: float) -> float:
    return float(f"{value:.6g}")
