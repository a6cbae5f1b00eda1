"""A bar on standard error that follows long work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from knnpress.typing import Callback


@contextmanager
def progress_bar(title: str, shown: bool = True) -> Iterator[Callback | None]:
    """Yield a `Callback` that draws a bar while the block runs, or None where nothing is to be shown.

    Drawn on standard error: in place on a terminal, once, at the end, elsewhere.
    """
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[facts]}"),
    )
    with Progress(*columns, console=Console(file=cast(IO[str], _ForgivingStream(sys.stderr)))) as bar:
        task = bar.add_task(title, total=None, facts="")

        def follow(step: int, total: int | None, facts: dict[str, Any]) -> None:
            if "note" in facts:
                bar.console.print(facts["note"], highlight=False)
            facts = {k: v for k, v in facts.items() if k != "note"}
            told = "  ".join(v if isinstance(v, str) else f"{k} {v:.4g}" for k, v in facts.items())
            bar.update(task, completed=step, total=total, facts=told)

        yield follow


class _ForgivingStream:
    """A stream that ignores a full disk or a reader who has left: the work matters more than its bar."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
