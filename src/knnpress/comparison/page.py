"""A comparison as HTML: one page that needs nothing else, no script either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from knnpress.html import render

_WORDS = {"", "descriptor", "points", "metric", "model", "folds"}
_WIDTH = 160


def make_page(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    sentences: Sequence[str],
    command: str | None,
    table: Sequence[dict[str, Any]],
) -> str:
    """The page: the recommendation, the command that follows it, the table."""
    shown = _table(header, rows, table)
    return render("knnpress.comparison", "page.html", sentences=sentences, command=command, **shown)


def make_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], sentences: Sequence[str], table: Sequence[dict[str, Any]]
) -> str:
    """The same for a notebook."""
    return render("knnpress.comparison", "notebook.html", sentences=sentences, **_table(header, rows, table))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], table: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the template of the table needs: columns (title, class of the heading, whether of words) and lines."""
    place = list(header).index("95 %")
    top = max(row["high"] for row in table)
    columns = [(name, "words" if name in _WORDS else "", name in _WORDS) for name in header]
    columns[place] = (f"0 to {100 * top:.0f} %", "words", False)
    columns[0] = ("choice", "", True)
    lines = []
    for cells, row in zip(rows, table, strict=True):
        shown: list[Any] = list(cells)
        shown[place] = _interval(row, top) | {"words": cells[place]}
        lines.append({"cells": shown, "best": row["recommended"]})
    return {"columns": columns, "lines": lines, "width": _WIDTH}


def _interval(row: dict[str, Any], top: float) -> dict[str, str]:
    """Where the error is drawn as a dot, and its interval as a line."""
    places = {"low": row["low"], "middle": row["error"], "high": row["high"]}
    return {name: f"{4 + (_WIDTH - 8) * value / max(top, 1e-9):.1f}" for name, value in places.items()}
