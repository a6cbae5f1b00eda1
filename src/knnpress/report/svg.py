"""Elements of SVG, in which text can never be taken for markup."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from knnpress.report.looks import PALETTE, Look

_PAGE = {"paper": "#ffffff", "card": "#ffffff", "ink": "#1c1c22", "soft": "#5d5d68", "line": "#e3e0da"}
_MARKERS = {
    "circle": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0Z",
    "square": "M-4-4H4V4H-4Z",
    "diamond": "M0-5.5L5.5 0L0 5.5L-5.5 0Z",
    "up": "M0-5L5 4H-5Z",
    "down": "M0 5L5-4H-5Z",
    "left": "M-5 0L4-5V5Z",
    "right": "M5 0L-4-5V5Z",
    "cross": "M-4-4L4 4M4-4L-4 4",
    "plus": "M0-5V5M-5 0H5",
    "star": "M0-5V5M-5 0H5M-3.5-3.5L3.5 3.5M3.5-3.5L-3.5 3.5",
    "hexagon": "M-5 0L-2.5-4.3H2.5L5 0L2.5 4.3H-2.5Z",
}
_OPEN = {"cross", "plus", "star"}


def element(name: str, *inside: object, **attributes: object) -> Markup:
    """An element; ``stroke_width`` is stroke-width, ``class_`` is class, and what is None is left out.

    Examples
    --------
    >>> element("text", "a < b", x=3, text_anchor="end", fill=None)
    Markup('<text x="3" text-anchor="end">a &lt; b</text>')
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    said = "".join(f' {key}="{escape(_plain(value))}"' for key, value in given.items())
    return Markup(f"<{name}{said}>{''.join(map(escape, inside))}</{name}>")


def _plain(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def marker(look: Look, x: float, y: float, hollow: bool = False, said: str = "", scale: float = 1.0) -> Markup:
    """The marker of a method at a place; `said` is shown to whoever points at it."""
    shape = look.marker if look.marker in _MARKERS else "circle"
    colour = f"var(--m-{look.colour})"
    is_open = shape in _OPEN
    moved = f"translate({x:.1f} {y:.1f})" + (f" scale({scale:g})" if scale != 1 else "")
    return element(
        "path",
        *([element("title", said)] if said else []),
        d=_MARKERS[shape],
        transform=moved,
        stroke=colour,
        fill="none" if is_open else "var(--card)" if hollow else colour,
        stroke_width=2 if is_open or hollow else 1,
    )


def label(
    text: str, x: float, y: float, size: float, anchor: str = "middle", fill: str = "var(--ink)", bold: bool = False
) -> Markup:
    """A line of text."""
    weight = 600 if bold else None
    return element("text", text, x=x, y=y, text_anchor=anchor, font_size=size, fill=fill, font_weight=weight)


def swatch(look: Look, strong: bool) -> Markup:
    """A piece of line and the marker, for a key; an SVG of its own, 34 by 14."""
    return element("svg", swatch_marks(look, strong), viewBox="0 0 34 14", width=34, height=14, aria_hidden="true")


def swatch_marks(look: Look, strong: bool) -> Markup:
    """What a swatch consists of."""
    line = element(
        "path",
        d="M1 7H33",
        stroke=f"var(--m-{look.colour})",
        stroke_dasharray=look.dash or None,
        stroke_width=3 if strong else 2,
    )
    return line + (marker(look, 17, 7) if look.marker != "none" else Markup(""))


def as_file(svg: str) -> str:
    """The same drawing as a file: on white, with colours that need no page around them."""
    light = {**{f"m-{name}": pair[0] for name, pair in PALETTE.items()}, **_PAGE}
    plain = re.sub(r"var\(--([a-z-]+)\)", lambda found: light.get(found[1], found[0]), svg)
    head, inside = plain.split(">", 1)
    return (
        f'{head} xmlns="http://www.w3.org/2000/svg" font-family="DejaVu Sans, Verdana, sans-serif">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{inside}\n'
    )
