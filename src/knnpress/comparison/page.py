"""A comparison as HTML: one page that needs nothing else, no script either."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

__all__ = ["make_page", "make_table"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2529; --soft: #5c676d; --line: #d5dbde; --page: #fff; --mark: #0b6e69;
  --tint: #e4f2f0 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaec; --soft: #a3adb3; --line: #3a4449; --page: #14191c;
  --mark: #5cc4bb; --tint: #16312f } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; line-height: 1.3; margin: 0 0 .5rem }
pre { background: var(--tint); padding: .8rem 1rem; overflow-x: auto; border-left: 4px solid var(--mark) }
.scroll { overflow-x: auto }
"""
_TABLE_STYLE = """
.knnpress-comparison table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
.knnpress-comparison th, .knnpress-comparison td { padding: .25rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #8884 }
.knnpress-comparison .words { text-align: left }
.knnpress-comparison .best td { font-weight: 600; background: #0b6e6922 }
.knnpress-comparison svg { display: block }
"""
_WORDS = {"", "descriptor", "metric", "model"}
_WIDTH = 160


def make_page(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    sentences: Sequence[str],
    command: str | None,
    table: Sequence[dict[str, Any]],
) -> str:
    """The page: the recommendation, the command that follows it, the table."""
    first, *rest = sentences
    told = "" if command is None else f"<pre><code>{escape(command)}</code></pre>\n"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>What works on these data</title>\n<style>{_STYLE}{_TABLE_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(first)}</h1>\n{told}"
        f'<div class="scroll knnpress-comparison" tabindex="0">{_table(header, rows, table)}</div>\n'
        + "".join(f"<p>{escape(sentence)}</p>\n" for sentence in rest)
        + "</main>\n</body>\n</html>\n"
    )


def make_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], sentences: Sequence[str], table: Sequence[dict[str, Any]]
) -> str:
    """The same for a notebook."""
    first, *rest = sentences
    return (
        f'<div class="knnpress-comparison"><style>{_TABLE_STYLE}</style><p><b>{escape(first)}</b></p>'
        f"{_table(header, rows, table)}<p>{escape(' '.join(rest))}</p></div>"
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], table: Sequence[dict[str, Any]]) -> str:
    place = list(header).index("95 %")
    top = max(row["high"] for row in table)
    kinds = [' class="words"' if name in _WORDS else "" for name in header]
    heads = [f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(header, kinds, strict=True)]
    heads[place] = f'<th scope="col" class="words">0 to {100 * top:.0f} %</th>'
    heads[0], heads[-1] = '<th scope="col">choice</th>', '<th scope="col" class="words">note</th>'
    body = []
    for cells, row in zip(rows, table, strict=True):
        made = [f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(cells, kinds, strict=True)]
        made[place] = f"<td>{_picture(row, top, cells[place])}</td>"
        kind = ' class="best"' if row["recommended"] else ""
        body.append(f"<tr{kind}>{''.join(made)}</tr>\n")
    return f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>\n{''.join(body)}</tbody></table>"


def _picture(row: dict[str, Any], top: float, words: str) -> str:
    """The error as a dot, its interval as a line."""
    low, middle, high = (4 + (_WIDTH - 8) * row[name] / max(top, 1e-9) for name in ("low", "error", "high"))
    return (
        f'<svg width="{_WIDTH}" height="14" role="img" aria-label="95 % interval {escape(words)} %">'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="7" y2="7" stroke="currentColor" stroke-width="2" opacity=".45"/>'
        f'<circle cx="{middle:.1f}" cy="7" r="4" fill="currentColor"/></svg>'
    )
