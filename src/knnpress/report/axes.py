"""Scales and ticks of charts, and the frame that they are drawn in."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from knnpress.report.svg import element


@dataclass(frozen=True)
class Box:
    """The inside of a chart, in pixels."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Scale:
    """From values between `low` and `high` to pixels between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; one beyond the ends is drawn at the end."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values on the scale."""
        found = log_ticks(self.low, self.high) if self.log else linear_ticks(self.high, most)
        return found if len(found) <= 2 * most else [v for v in found if str(f"{v:e}")[0] == "1"]


def error_scale(means: Iterable[float], highest: float, box: Box) -> Scale:
    """The vertical axis of errors in per cent: logarithmic where they differ more than eightfold."""
    means = [mean for mean in means if mean > 0]
    if means and max(means) > 8 * min(means):
        return Scale(min(means) / 1.5, max(highest, *means) * 1.15, box.bottom, box.top, log=True)
    return Scale(0.0, max([highest, 0.01, *means]) * 1.05, box.bottom, box.top)


def share_scale(values: Iterable[float], box: Box) -> Scale:
    """A logarithmic horizontal axis with a little room on both sides."""
    values = [value for value in values if value > 0] or [1.0]
    room = max(1.1, (max(values) / min(values)) ** 0.05)
    return Scale(min(values) / room, max(values) * room, box.left, box.right, log=True)


def linear_ticks(top: float, most: int = 6) -> list[float]:
    """From zero to `top`, in steps of 1, 2, 2.5 or 5 times a power of ten.

    Examples
    --------
    >>> linear_ticks(31.0)
    [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
    """
    rough = top / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(k * unit for k in (1, 2, 2.5, 5, 10) if k * unit >= 0.85 * rough)
    return [k * step for k in range(int(top * 1.0001 / step) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten.

    Examples
    --------
    >>> log_ticks(0.4, 12)
    [0.5, 1.0, 2.0, 5.0, 10.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [float(f"{k}e{power}") for power in powers for k in (1, 2, 5)]
    return [value for value in every if low * 0.999 <= value <= high * 1.001]


def plain(value: float) -> str:
    """A tick in words: 1,000 and 0.05."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def y_axis(scale: Scale, box: Box, size: float = 12, most: int = 6) -> Markup:
    """Lines across and their values."""
    parts = []
    for tick in scale.ticks(most):
        y = round(scale(tick), 1)
        parts.append(element("path", d=f"M{box.left:g} {y}H{box.right:g}", stroke="var(--line)"))
        parts.append(_label(plain(tick), size, box.left - 6, y + size / 3, "end"))
    base = element("path", d=f"M{box.left:g} {box.bottom:g}H{box.right:g}", stroke="var(--soft)")
    return Markup("").join([*parts, base])


def x_axis(scale: Scale, box: Box, ticks: Iterable[float], unit: str = "", size: float = 12) -> Markup:
    """Small marks below and their values; those that would run into one another are left out."""
    parts, last = [], -math.inf
    for tick in ticks:
        x, text = round(scale(tick), 1), f"{plain(tick)}{unit}"
        parts.append(element("path", d=f"M{x} {box.bottom:g}v5", stroke="var(--soft)"))
        half = 0.31 * size * len(text)
        if x - half > last + 3:
            parts.append(_label(text, size, x, box.bottom + 6 + size, "middle"))
            last = x + half
    return Markup("").join(parts)


def _label(text: str, size: float, x: float, y: float, anchor: str) -> Markup:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, font_size=size, fill="var(--soft)")
