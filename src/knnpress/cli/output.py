"""What the user sees, and files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["check_output", "notice", "print_facts", "print_table", "replacing"]


def notice(text: str) -> None:
    """Tell the user something on standard error, in a line."""
    print(f"knnpress: {_printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def print_facts(facts: dict[str, str]) -> None:
    """Print what is known, a line each."""
    print_table(["", ""], [[name, value] for name, value in facts.items()])


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print a table: ruled on a terminal, aligned text elsewhere. Columns in `right` are flush right."""
    cells = [[_printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _print_aligned([[*header], *cells] if any(header) else cells, right)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=any(header))
    for k, name in enumerate(header):
        table.add_column(Text(name), justify="right" if k in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))  # not as markup: a class may be called [red]
    Console().print(table)


def _print_aligned(rows: list[list[str]], right: Sequence[int]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = [
            cell.rjust(width) if k in right else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(padded).rstrip())


def _printable(text: str) -> str:
    """The text without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def check_output(path: Path | None) -> None:
    """Refuse a file that could not be written: before the work rather than after."""
    if path is None:
        return
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for {path.name}; make it first")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a folder or a device; give the name of a file")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of `path` when the block ends well, and vanishes when it does not."""
    check_output(path)
    path = path.resolve()  # through a link, to the file it stands for
    temporary = path.parent / f".knnpress-{secrets.token_hex(8)}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C, too
        temporary.unlink(missing_ok=True)
        raise
