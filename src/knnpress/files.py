"""Files that are written whole or not at all, and arrays from files of strangers."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import secrets
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from knnpress.typing import Array

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")
_LATER_FORMULA = re.compile(r"([;|\t\r\n]\s*)([=+\-@＝＋－＠])")
_QUOTE = '"'
_LONGEST_STEM = 100  # letters; most systems take 255 bytes
_UNPACKED_BYTES, _UNPACKED_TIMES = 2**28, 100  # what a compressed file may grow to


def check_output(path: Path | None) -> None:
    """Refuse a file that could not be written: before the work rather than after."""
    if path is not None:
        _check_place(path)
        _try_folder(path.resolve().parent)


def check_folder(path: Path) -> None:
    """Refuse a folder that could not be made or written to, likewise; it is not made."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ValueError(f"{there} is not a folder; give another place")
    _try_folder(there)


def _check_place(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; make it first")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a folder or a device; give the name of a file")
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{path} is a link that leads back to itself; remove it") from error


def _try_folder(folder: Path) -> None:
    """Write a file of no bytes and remove it: permissions alone do not tell."""
    trial = _temporary(folder)
    try:
        trial.open("xb").close()
    except OSError as error:
        raise OSError(f"the folder {folder} cannot be written to ({error.strerror}); give another place") from error
    trial.unlink()


def _temporary(folder: Path) -> Path:
    return folder / f".knnpress-{secrets.token_hex(8)}.tmp"


def file_stem(name: str) -> str:
    """Any name as a file name that cannot lead elsewhere; usual names stay as they are.

    What a path or a system could take for something else is written as ``%`` and its code. Names that differ stay
    different: a long one is cut, and ends in a hash of all of it.
    """
    kept = "".join(
        letter if letter.isprintable() and letter not in '/\\:*?"<>|%' else f"%{ord(letter):02X}" for letter in name
    )
    kept = f"%2E{kept[1:]}" if kept.startswith(".") else kept or "%"
    if len(kept) <= _LONGEST_STEM and len(kept.encode()) <= 2 * _LONGEST_STEM:
        return kept
    code = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{kept[: _LONGEST_STEM // 2]}%{code}"


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    """Rows as CSV of which no spreadsheet takes a part for a formula, whatever it thinks parts cells; numbers are none.

    An apostrophe goes before what looks like a formula. Where semicolons or tabs part cells, quotes count in the first
    cell of a line alone, so there they are enough.
    """
    return "".join(",".join(_csv_cell(cell, k > 0) for k, cell in enumerate(row)) + "\n" for row in rows)


def _csv_cell(cell: str, later: bool) -> str:
    if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        cell = f"'{cell}"
    if later:
        cell = _LATER_FORMULA.sub(r"\1'\2", cell)
    return f'"{cell.replace(_QUOTE, 2 * _QUOTE)}"' if re.search(r'[",;|\t\r\n]', cell) else cell


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of `path` when the block ends well, and vanishes when it does not."""
    _check_place(path)
    path = path.resolve()  # through a link, to the file it stands for
    temporary = _temporary(path.parent)
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        os.replace(temporary, path)
    except BaseException as error:  # Ctrl-C, too
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            name_file(error, path)
        raise


def name_file(error: OSError, path: Path) -> None:
    """Let an error say which file could not be written, which it does not where the disk is full."""
    if error.errno is not None and error.filename is None:
        error.filename = str(path)


def read_npy(path: str | os.PathLike[str]) -> Array:
    """The array of a .npy file; refuses objects, and a header that promises more than the file holds.

    Raises
    ------
    Exception
        Of many kinds, where the file is damaged.
    """
    with open(path, "rb") as file:
        return _read_array(file, Path(path).stat().st_size)


def read_npz(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of a .npz file, likewise; nothing is written, whatever the names inside look like.

    Raises
    ------
    Exception
        Of many kinds, where the file is damaged.
    """
    with zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        check_unpacked(sum(info.file_size for info in members), Path(path).stat().st_size)
        arrays = {}
        for info in members:
            with archive.open(info) as file:
                arrays[info.filename.removesuffix(".npy")] = _read_array(file, info.file_size)
        return arrays


def most_unpacked(packed: int) -> int:
    """How many bytes a compressed file of this size may grow to."""
    return max(_UNPACKED_BYTES, _UNPACKED_TIMES * packed)


def check_unpacked(unpacked: int, packed: int) -> None:
    """Refuse what would grow beyond all measure, before it does."""
    if unpacked > most_unpacked(packed):
        raise ValueError(f"{packed:,} bytes would become {unpacked:,}; if you trust the file, save it uncompressed")


def check_room(array: Array) -> None:
    """Refuse an array that does not fit into memory as float64, before it is taken."""
    needed, free = 8 * array.size, free_memory()
    if array.dtype != np.float64 and free is not None and needed > free:
        raise ValueError(
            f"would take {needed:,} bytes as float64, and {free:,} are free; give fewer points, or keep them in a zarr "
            "store, which is read block by block"
        )


def free_memory() -> int | None:
    """Bytes that can be taken without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _read_array(file: IO[bytes], size: int) -> Array:
    version = np.lib.format.read_magic(file)
    headers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in headers:  # 3.0 is for names of fields, and points have none
        raise ValueError(f"format {version} of NumPy is not for arrays of numbers or text")
    shape, _, dtype = headers[version](file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    promised = math.prod(shape) * dtype.itemsize
    if promised > size - file.tell() or min(shape, default=0) < 0:
        raise ValueError(f"its header promises {promised:,} bytes, and {size - file.tell():,} are there")
    file.seek(0)
    array = np.lib.format.read_array(file, allow_pickle=False)
    if dtype.kind == "U" and array.size and dtype.itemsize:
        letters = np.frombuffer(array.tobytes(), dtype.byteorder.replace("|", "=") + "u4")
        if letters.max() > 0x10FFFF:  # Python itself breaks on such letters
            raise ValueError("its text is not Unicode")
    return array
