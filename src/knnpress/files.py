"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["check_output", "replacing"]


def check_output(path: Path | None) -> None:
    """Refuse a file that could not be written: before the work rather than after."""
    if path is None:
        return
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; make it first")
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
