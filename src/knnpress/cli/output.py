"""What the user sees."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_COLOURS = {"problem": "bold red", "note": "yellow"}


def open_streams() -> None:
    """Make sure that output can go somewhere: closed streams lead nowhere, and any file name can be printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # or the next file that is opened would get this number, and the output
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names need not be UTF-8


def drop_output() -> None:
    """Forget what standard output still holds, which would fail again when Python ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def check_apart(output: Path | None, *inputs: Path | None) -> None:
    """Refuse an output that would replace what is read: an input itself, or an image in a folder of them."""
    if output is None or not output.exists():
        return
    if any(one is not None and one.exists() and _is_read(output, one) for one in inputs):
        raise ValueError(f"{output} is read by this command; give another name for what it writes")


def _is_read(output: Path, one: Path) -> bool:
    if not one.is_dir():
        return output.samefile(one)
    from knnpress.datasets.folder import is_image_file

    below = one.resolve() in output.resolve().parents or one.absolute() in output.absolute().parents
    return below and is_image_file(output)


def notice(text: str) -> None:
    """Tell the user something on standard error, in a line; where nobody listens, that is no error."""
    with suppress(OSError):
        print(f"knnpress: {_printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def print_facts(facts: dict[str, str]) -> None:
    """Print facts, one per line."""
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


def print_paragraph(kind: str, title: str, lines: Sequence[str]) -> None:
    """Print a problem or a note: what it is, and lines about it, indented; coloured on a terminal."""
    lines = [_printable(line) for line in lines]
    if not sys.stdout.isatty():
        print(f"\n{kind}: {_printable(title)}", *(f"  {line}" for line in lines), sep="\n")
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console()
    console.print(Text(f"\n{kind}", style=_COLOURS.get(kind, "")) + Text(f": {_printable(title)}", style="bold"))
    for line in lines:
        console.print(Padding(Text(line), (0, 0, 0, 2)))


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
