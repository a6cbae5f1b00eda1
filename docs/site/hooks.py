"""What the site's pages need beyond Markdown: formulas as MathML, the help of every command, and which code is not run.

Browsers draw MathML by themselves, so that no script and no font has to be fetched for a formula.
"""

from __future__ import annotations

import argparse
import html
import os
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_COMMANDS = "<!-- the help of every command -->"
_NOT_RUN = re.compile(r"<!-- not run: (.*?) -->")  # tests/project/test_docs.py leaves out the block after it


def on_page_content(content: str, **_: Any) -> str:
    """Draw the formulas of a page."""
    return _FORMULA.sub(_formula, content)


def _formula(found: re.Match[str]) -> str:
    display = "block" if found[2] == "[" else "inline"
    return convert(html.unescape(found[3]).strip(), display=display)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write the help of every command where a page asks for it, and say which code the tests do not run."""
    markdown = _NOT_RUN.sub(r"*Not run by the tests: \1.*", markdown)
    return markdown.replace(_COMMANDS, _help()) if _COMMANDS in markdown else markdown


def _help() -> str:
    from knnpress.cli import _parser

    os.environ["COLUMNS"] = "90"
    actions = [a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction)]
    parts = []
    for name, parser in actions[0].choices.items():
        parts.append(f"## {name}\n\n```text\n{parser.format_help().strip()}\n```")
    return "\n\n".join(parts)
