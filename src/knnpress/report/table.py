"""A table, as HTML, CSV and Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from knnpress.files import csv_text

__all__ = ["Cell", "Column", "Table", "as_csv", "as_html", "as_markdown", "markdown_text"]


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
    html : str or None
        Ready HTML to show in place of the text.
    """

    text: str
    values: tuple[object, ...] | None = None
    mark: str = ""
    html: str | None = None


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


def as_html(table: Table, fold: bool = False) -> str:
    """A table that scrolls inside its own frame and can be reached by keyboard; only its title at first, if `fold`."""
    heads = "".join(f'<th scope="col"{_left(c)}>{escape(c.title)}</th>' for c in table.columns)
    bodies = []
    for title, rows in table.groups:
        head = f'<tr class="group"><th scope="rowgroup" colspan="{len(table.columns)}">{escape(title)}</th></tr>'
        lines = "".join(
            f"<tr>{''.join(_html_cell(table, k, cell) for k, cell in enumerate(row))}</tr>\n" for row in rows
        )
        bodies.append(f"<tbody>{head if title else ''}{lines}</tbody>")
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    tag, heading = "section", f"<h3>{escape(table.title)}</h3>"
    if fold:
        tag, heading = "details", f"<summary>{heading}</summary>"
    return (
        f'<{tag} class="table" id="table-{_plain(table.name)}">{heading}'
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(table.title)}"><table>'
        f'<caption class="hidden">{escape(table.title)}</caption>'
        f"<thead><tr>{heads}</tr></thead>{''.join(bodies)}</table></div>{note}</{tag}>\n"
    )


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text)


def _html_cell(table: Table, k: int, cell: Cell) -> str:
    classes = " ".join(filter(None, (cell.mark, "left" if table.columns[k].left else "")))
    kind = f' class="{classes}"' if classes else ""
    content = escape(cell.text) if cell.html is None else cell.html
    return f'<th scope="row"{kind}>{content}</th>' if k == 0 else f"<td{kind}>{content}</td>"


def _left(column: Column) -> str:
    return ' class="left"' if column.left else ""


def as_csv(table: Table) -> str:
    """One line a row, numbers as numbers, and no cell that a spreadsheet would take for a formula."""
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
