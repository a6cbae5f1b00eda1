"""A table, as HTML, CSV and Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from knnpress.files import csv_text
from knnpress.html import render


@dataclass(frozen=True)
class Cell:
    """What a table says in one place.

    Attributes
    ----------
    text : str
        For people.
    values : tuple
        For spreadsheets: as many as the column has `parts`. By default the text.
    mark : str
        "good", "bad" or nothing. It only colours the cell: the text must say it, too.
    html : Markup or None
        HTML to show in place of the text.
    """

    text: str
    values: tuple[object, ...] | None = None
    mark: str = ""
    html: Markup | None = None


@dataclass(frozen=True)
class Column:
    """A heading; `parts` names the columns of the spreadsheet, where they differ from it."""

    title: str
    parts: tuple[str, ...] = ()
    left: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells in groups. The first column names the row.

    Attributes
    ----------
    name : str
        Of its files.
    title : str
    columns : sequence of Column
    groups : list of (str, rows)
        The heading of a group may be empty.
    group_title : str
        What the headings of the groups are, for the spreadsheet.
    note : str
    """

    name: str
    title: str
    columns: Sequence[Column]
    groups: list[tuple[str, list[list[Cell]]]]
    group_title: str = ""
    note: str = ""

    def __bool__(self) -> bool:
        return any(rows for _, rows in self.groups)


def as_html(table: Table, fold: bool = False) -> Markup:
    """A table that scrolls inside its own frame and can be reached by keyboard; only its title at first, if `fold`."""
    anchor = re.sub(r"[^A-Za-z0-9]+", "-", table.name)
    return render("knnpress.report", "table.html", table=table, anchor=anchor, tag="details" if fold else "section")


def as_csv(table: Table) -> str:
    """A line per row, numbers as numbers, and no cell that a spreadsheet would take for a formula."""
    group = [table.group_title] if table.group_title else []
    heads = [part for column in table.columns for part in column.parts or (column.title,)]
    lines = [[_csv_cell(head) for head in (*group, *heads)]]
    for title, rows in table.groups:
        for row in rows:
            values = [value for cell, column in zip(row, table.columns, strict=True) for value in _values(cell, column)]
            lines.append([_csv_cell(value) for value in ([title] if group else []) + values])
    return csv_text(lines)


def _values(cell: Cell, column: Column) -> tuple[object, ...]:
    n = max(1, len(column.parts))
    values = cell.values if cell.values is not None else (cell.text, *[""] * (n - 1))
    assert len(values) == n, f"{column.title}: {values} for {column.parts}"
    return values


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else str(value)
    text = " ".join(str(value).split())
    return f"'{text}" if text.startswith(("+", "-")) else text  # text, even where it looks like a number


def as_markdown(table: Table) -> str:
    """The title, the table and its note."""
    columns = ([Column(table.group_title, left=True)] if table.group_title else []) + [*table.columns]
    rules = ["---" if column.left or k == 0 else "---:" for k, column in enumerate(columns)]
    lines = [[markdown_text(column.title) for column in columns], rules]
    for title, rows in table.groups:
        for row in rows:
            lines.append(
                [markdown_text(text) for text in ([title] if table.group_title else []) + [c.text for c in row]]
            )
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    note = f"\n{markdown_text(table.note)}\n" if table.note else ""
    return f"### {markdown_text(table.title)}\n\n{body}\n{note}"


def markdown_text(text: str) -> str:
    """Text that Markdown and HTML leave alone."""
    return re.sub(r"([\\`*_\[\]|<>#~])", r"\\\1", " ".join(text.split()))
