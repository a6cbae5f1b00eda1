"""Arrays as pictures that fit into a page."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape

import numpy as np

from knnpress.typing import Array

_LARGEST = 96  # pixels of a side; larger pictures are averaged down

#: From −1 over 0 to 1: teal, nearly white, rust; told apart by the colour-blind, too
_DIVERGING = np.array(
    [[0, 77, 92], [47, 142, 156], [158, 208, 211], [246, 244, 240], [244, 184, 130], [212, 102, 24], [122, 46, 0]]
)


def png(pixels: Array) -> bytes:
    """A PNG file.

    Parameters
    ----------
    pixels : array of uint8, (h, w) or (h, w, 3)
    """
    height, width = pixels.shape[:2]
    colour = 2 if pixels.ndim == 3 else 0
    rows = np.ascontiguousarray(pixels, dtype=np.uint8).reshape(height, -1)
    if colour:  # differences from the row above pack better
        rows = np.diff(rows, axis=0, prepend=np.zeros((1, rows.shape[1]), np.uint8))
    lines = np.hstack([np.full((height, 1), 2 if colour else 0, np.uint8), rows]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def image_tag(pixels: Array, alt: str, kind: str = "") -> str:
    """An <img> that carries its picture along."""
    source = base64.b64encode(png(pixels)).decode()
    height, width = pixels.shape[:2]
    classes = f' class="{kind}"' if kind else ""
    return f'<img{classes} src="data:image/png;base64,{source}" alt="{escape(alt)}" width="{width}" height="{height}">'


def image(pixels: Array) -> Array | None:
    """A data image as uint8, (h, w) or (h, w, 3), not too large for a page; None for what is not an image."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or not pixels.size:
        return None
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim == 3 and pixels.shape[2] != 3:
        return None
    step = -(-max(pixels.shape[:2]) // _LARGEST)
    if step == 1:
        return pixels
    height, width = (max(1, side // step) for side in pixels.shape[:2])
    blocks = pixels[: height * step, : width * step]
    if not blocks.size:
        return None
    return blocks.reshape(height, step, width, step, *pixels.shape[2:]).mean(axis=(1, 3)).round().astype(np.uint8)


def correlation(matrix: Array) -> Array:
    """The correlations of a covariance matrix, (d, d)."""
    scale = np.sqrt(np.maximum(np.diagonal(matrix), np.finfo(float).tiny))
    return np.clip(np.nan_to_num(matrix / scale[:, None] / scale), -1, 1)


def heat(values: Array) -> Array:
    """Numbers from −1 to 1 as colours, (h, w, 3)."""
    at = (np.clip(values, -1, 1) + 1) / 2 * (len(_DIVERGING) - 1)
    stops = np.arange(len(_DIVERGING))
    return np.stack([np.interp(at, stops, _DIVERGING[:, k]) for k in range(3)], axis=-1).round().astype(np.uint8)


def shades(values: Array) -> Array:
    """Numbers from zero up as shades of grey, the largest white, (h, w)."""
    values = np.nan_to_num(np.maximum(values, 0.0))
    top = values.max()
    return (255 * np.sqrt(values / top) if top > 0 else values).round().astype(np.uint8)
