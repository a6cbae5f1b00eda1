"""MATLAB files, looked through before scipy reads them: it believes whatever sizes they state.

Half a megabyte of zeros, compressed, takes it a gigabyte.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any

from knnpress.files import check_unpacked, most_unpacked

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15  # kinds of elements
_SPARSE = 5  # the class of matrices whose dimensions are no matter of bytes
_DEEPEST = 20


def read_mat(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The variables of a MATLAB file of versions 5 to 7, by name.

    Raises
    ------
    Exception
        Of many kinds, where the file is damaged; NotImplementedError for version 7.3.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import matfile_version

    version = matfile_version(path)[0]
    if version == 0:
        raise ValueError("it is of version 4, or damaged; save it with save(..., '-v7')")
    if version == 1:
        content = Path(path).read_bytes()
        order = "<" if content[126:128] == b"IM" else ">"
        _check_elements(memoryview(content)[_HEADER:], order, len(content), 0)
        del content
    return {name: value for name, value in loadmat(path).items() if not name.startswith("__")}


def _check_elements(data: memoryview, order: str, packed: int, depth: int) -> None:
    """Refuse elements that state more than there is."""
    if depth > _DEEPEST:
        raise ValueError("its cells are nested too deep")
    while len(data) >= 8:
        kind, size, begin = _tag(data, order)
        if size > len(data) - begin:
            raise ValueError(f"it states {size:,} bytes where {len(data) - begin:,} are left")
        body = data[begin : begin + size]
        if kind == _COMPRESSED:
            _check_elements(_inflate(body, packed), order, packed, depth)
        elif kind == _MATRIX:
            _check_matrix(body, order, packed, depth)
        end = 8 if begin == 4 else begin + size
        data = data[end if kind == _COMPRESSED else -(-end // 8) * 8 :]  # only these are not padded


def _tag(data: memoryview, order: str) -> tuple[int, int, int]:
    """Kind and size of an element, and where its bytes begin."""
    kind, size = struct.unpack(f"{order}II", data[:8])
    return (kind & 0xFFFF, kind >> 16, 4) if kind >> 16 else (kind, size, 8)


def _inflate(body: memoryview, packed: int) -> memoryview:
    stream = zlib.decompressobj()
    content = stream.decompress(body, most_unpacked(packed) + 1)
    check_unpacked(len(content), packed)
    return memoryview(content)


def _check_matrix(body: memoryview, order: str, packed: int, depth: int) -> None:
    if not len(body):
        return
    parts: list[bytes] = []
    rest = body
    while len(rest) >= 8 and len(parts) < 2:  # flags, then dimensions
        _, size, begin = _tag(rest, order)
        if size > len(rest) - begin:
            raise ValueError(f"it states {size:,} bytes where {len(rest) - begin:,} are left")
        parts.append(bytes(rest[begin : begin + size]))
        rest = rest[8 if begin == 4 else -(-(begin + size) // 8) * 8 :]
    if len(parts) < 2 or len(parts[0]) < 4:
        raise ValueError("one of its matrices has no dimensions")
    cls = struct.unpack(f"{order}I", parts[0][:4])[0] & 0xFF
    dims = struct.unpack(f"{order}{len(parts[1]) // 4}i", parts[1][: len(parts[1]) // 4 * 4])
    if min(dims, default=0) < 0 or (cls != _SPARSE and math.prod(dims) > len(body)):
        raise ValueError(f"it states a matrix of {' x '.join(map(str, dims))} in {len(body):,} bytes")
    _check_elements(rest, order, packed, depth + 1)
