"""Images in: arrays or files of any kind, decoded one at a time, each called by name where it is bad."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from knnpress.execution.threads import map_blocks
from knnpress.typing import Array

#: A sequence of arrays (h, w[, c]), files or paths, of any sizes; or one array (n, h, w[, c]).
Images: TypeAlias = Sequence[Any] | Array
#: What the channel after gray or RGB means: opacity, depth, or nothing known (pixels are then left as they are).
Layout: TypeAlias = Literal["alpha", "depth", "raw"]
Result = TypeVar("Result")

_FULL_SCALE = {"b": 1.0, "u1": 255.0, "u2": 65535.0}
_UNIT_RANGE = -0.5, 1.5  # of floating point: 0 to 1, and what interpolation may overshoot by
_BLOCK = 4  # images a thread takes at a time
_MAX_PIXELS = 2**26  # that are decoded at all
_LARGE = 2**24  # pixels from which an image is reduced while it is decoded, where it will be reduced anyway
_SPARE = 2  # times the side wanted: what is left for the final, exact reduction
_SOME = 16  # images by which it is told whether all are gray
_ALIKE = 2.5 / 255  # channels of a gray image saved in colour, after rounding
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)


def require(module: str) -> Any:
    """Import an optional module, or say which extra brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed; pip install knnpress[images]") from error


@dataclass(frozen=True)
class ImageFile:
    """An image on disk, read when it is needed; stands wherever an array (h, w[, c]) does.

    Attributes
    ----------
    path : str
        PNG, JPEG, GIF (its first frame), WebP, TIFF, BMP, ...; 8 or 16 bits; gray, colour, palette or with opacity.
    mask : str or None
        Another image: pixels at which it is zero are made transparent.
    depth : str or None
        Another image: it becomes the last channel; zero where nothing was measured.
    """

    path: str
    mask: str | None = None
    depth: str | None = None

    def read(self, max_side: int | None = None) -> Array:
        """The pixels, (h, w) or (h, w, c), with opacity or depth as the last channel if there is one.

        With `max_side`, a huge image without mask and depth may come reduced, to no less than that.
        """
        pixels = decode(self.path, max_side=max_side if self.mask is None and self.depth is None else None)
        if self.depth is not None:
            depth = _match(decode(self.depth), self.depth, pixels).astype(np.float32)
            if self.mask is not None:
                depth = np.where(_match(decode(self.mask), self.mask, pixels) > 0, depth, 0)
            colour = pixels if pixels.ndim == 2 or pixels.shape[2] in (1, 3) else pixels[..., :-1]
            return np.dstack([_unit_range(colour), depth])
        if self.mask is not None:
            return with_mask(pixels, _match(decode(self.mask), self.mask, pixels))
        return pixels

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.read(), dtype=dtype)

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path


def decode(file: Any, name: str | None = None, max_side: int | None = None) -> Array:
    """The pixels of an image file (a path or an open binary file), (h, w) or (h, w, c).

    Palettes become colours; a camera's note of how it was held is followed. More than 2**26 pixels are refused before
    they are decoded. With `max_side`, an image of more than 2**24 may come reduced, to no less than that; a JPEG then
    never takes the room of all its pixels, and may have more.
    """
    name = os.fspath(file) if name is None else name
    library, operations = require("PIL.Image"), require("PIL.ImageOps")
    if isinstance(file, (str, os.PathLike)) and os.path.isfile(file) and os.path.getsize(file) == 0:
        raise ValueError(f"{name} is empty (0 bytes); remove it or copy it again")
    try:
        with library.open(file) as opened:
            large = opened.width * opened.height > _LARGE
            side = 0 if max_side is None or not large else _SPARE * max_side
            if side:
                opened.draft(None, (side, side))  # what the format itself offers: JPEG does
            if opened.width * opened.height > _MAX_PIXELS:
                raise _TooLarge(
                    f"{name} has {opened.height} x {opened.width} pixels, more than the {_MAX_PIXELS:,} that are "
                    "decoded; reduce it, or remove it"
                )
            image = operations.exif_transpose(opened)
            factor = max(image.size) // side if side else 1
            if factor > 1 and image.mode in ("L", "RGB"):
                image = image.reduce(factor)
            if image.mode in ("P", "PA"):
                image = image.convert("RGBA" if "transparency" in image.info or image.mode == "PA" else "RGB")
            elif image.mode not in ("1", "L", "LA", "RGB", "RGBA", "F") and not image.mode.startswith("I"):
                image = image.convert("RGB")
            pixels = np.array(image)
    except (FileNotFoundError, _TooLarge):
        raise
    except library.DecompressionBombError as error:
        raise _TooLarge(
            f"{name} is too large: it has more than the {_MAX_PIXELS:,} pixels that are decoded; reduce it, or remove "
            "it"
        ) from error
    except PermissionError as error:  # a ValueError as of other bad images, which can be left out
        raise ValueError(f"{name} cannot be read ({error.strerror}); change its permissions, or remove it") from error
    except Exception as error:  # Pillow's decoders raise many kinds
        # This one names the file a second time
        unknown = isinstance(error, library.UnidentifiedImageError)
        reason, cure = ("of no known format", "convert it to PNG") if unknown else (error, "copy it again")
        raise ValueError(f"{name} cannot be read as an image ({reason}); remove it or {cure}") from error
    if pixels.dtype.kind == "i" and (pixels.min() < 0 or pixels.max() > 65535):
        raise ValueError(f"{name} has pixels from {pixels.min()} to {pixels.max()}; save it with 16 bits")
    return pixels.astype(np.uint16) if pixels.dtype.kind == "i" or pixels.dtype.str == ">u2" else pixels


class _TooLarge(ValueError):
    """Too many pixels: raised as it is, not as one more unreadable image."""


def with_mask(pixels: Array, mask: Array) -> Array:
    """The image with opacity: full where the mask is not zero, none elsewhere."""
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    colour = pixels[..., :1] if pixels.shape[2] == 2 else pixels[..., :3]
    opaque = _FULL_SCALE.get(_kind(pixels), 1.0)
    return np.dstack([colour, np.where(mask, opaque, 0).astype(pixels.dtype)])


def _match(extra: Array, name: str, pixels: Array) -> Array:
    """One channel of a mask or depth map, if it has the size of its image."""
    if extra.shape[:2] != pixels.shape[:2]:
        raise ValueError(
            f"{name} is {extra.shape[0]} x {extra.shape[1]}, its image {pixels.shape[0]} x {pixels.shape[1]}"
        )
    return extra if extra.ndim == 2 else extra[..., 0]


def _kind(pixels: Array) -> str:
    return "b" if pixels.dtype.kind == "b" else pixels.dtype.str[1:]


def _unit_range(pixels: Array) -> Array:
    """Pixels as float32: 8 and 16 bits to [0, 1], floating point as it is."""
    scale = _FULL_SCALE.get(_kind(pixels))
    if scale is None and pixels.dtype.kind != "f":
        raise ValueError(
            f"has pixels of type {pixels.dtype}, whose range is unknown; give uint8, uint16, bool, or floating point "
            "from 0 to 1"
        )
    values = pixels.astype(np.float32)
    return values if scale is None else values / np.float32(scale)


@dataclass(frozen=True)
class Picture:
    """A decoded image.

    Attributes
    ----------
    pixels : ndarray of shape (h, w) or (h, w, 3), float32
        8 and 16 bits scaled to [0, 1]. As given, where the layout is "raw".
    mask : ndarray of shape (h, w) of bool, or None
        What belongs to the object; None: everything.
    depth : ndarray of shape (h, w) or None
    """

    pixels: Array
    mask: Array | None = None
    depth: Array | None = None

    @cached_property
    def gray(self) -> Array:
        """Brightness, (h, w)."""
        return self.pixels if self.pixels.ndim == 2 else self.pixels @ _LUMA

    @cached_property
    def rgb(self) -> Array:
        """Colours, (h, w, 3); three times the brightness of a gray image."""
        return self.pixels if self.pixels.ndim == 3 else np.repeat(self.pixels[..., None], 3, axis=2)


def as_picture(
    image: Any, layout: Layout, mask: Any = None, max_side: int | None = None, any_scale: bool = False
) -> Picture:
    """Decode one image; the ValueError of a bad one begins with a verb, and its name is put before that.

    `any_scale`: floating-point pixels need not be from 0 to 1.
    """
    side = max_side if mask is None and layout != "raw" else None
    if isinstance(image, ImageFile):
        pixels = image.read(side)
    else:
        pixels = np.asarray(decode(image, max_side=side) if isinstance(image, (str, os.PathLike)) else image)
    if np.ma.is_masked(image):
        raise ValueError("is masked; fill the gaps, or give opacity as a last channel, 0 where the mask is set")
    if pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise ValueError(
            f"has shape {pixels.shape}; an image is (height, width) or (height, width, channels). Give a list, even "
            "for a single image"
        )
    depth = None
    if layout == "raw":
        values, inside = pixels, None
    else:
        values, inside, depth = _split(pixels, layout, any_scale)
    if mask is not None:
        given = np.asarray(mask)
        if given.shape != pixels.shape[:2]:
            raise ValueError(f"is {pixels.shape[0]} x {pixels.shape[1]} and its mask has shape {given.shape}")
        inside = given != 0 if inside is None else inside & (given != 0)
    if inside is not None and not inside.any():
        raise ValueError("has no pixel inside its mask; give a mask (or opacity, or depth) that is not all zero")
    picture = Picture(values, None if inside is None or inside.all() else inside, depth)
    if max_side is None or max(pixels.shape[:2]) <= max_side or layout == "raw":
        return picture
    return _reduce(picture, max_side)


def _split(pixels: Array, layout: Layout, any_scale: bool) -> tuple[Array, Array | None, Array | None]:
    """Gray or RGB, what is inside, and depth."""
    pixels = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if channels > 4 or (layout == "depth" and channels not in (2, 4)):
        expected = "2 (gray, depth) or 4 (RGB, depth)" if layout == "depth" else "1, 2 (with opacity), 3 or 4"
        raise ValueError(f"has {channels} channels; expected {expected}, last in its shape {pixels.shape}")
    values = _unit_range(pixels)
    if not np.isfinite(values).all():
        raise ValueError("contains NaN or infinity; fill the gaps")
    colour = values[..., :-1] if channels in (2, 4) else values
    least, most = float(colour.min()), float(colour.max())
    if not any_scale and not (_UNIT_RANGE[0] <= least and most <= _UNIT_RANGE[1]):
        raise ValueError(
            f"has floating-point pixels from {least:.3g} to {most:.3g}; scale them to 0 to 1, e.g. divide by 255, or "
            "give uint8 or uint16"
        )
    if channels in (1, 3):
        return values, None, None
    last = values[..., -1] if layout == "alpha" else pixels[..., -1].astype(np.float32)
    colour = np.ascontiguousarray(values[..., 0] if channels == 2 else values[..., :3])
    return (colour, last >= 0.5, None) if layout == "alpha" else (colour, last > 0, last)


def _reduce(picture: Picture, max_side: int) -> Picture:
    """Shrink to a longer side of `max_side`; block means, but the nearest value of masks and depths."""
    cv2 = require("cv2")
    height, width = picture.pixels.shape[:2]
    scale = max_side / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))

    def nearest(plane: Array | None) -> Array | None:
        if plane is None:
            return None
        return cv2.resize(plane.astype(np.float32), size, interpolation=cv2.INTER_NEAREST).astype(plane.dtype)

    pixels = cv2.resize(picture.pixels, size, interpolation=cv2.INTER_AREA)
    return Picture(pixels, nearest(picture.mask), nearest(picture.depth))


def map_images(
    function: Callable[[Picture], Result],
    images: Images,
    n_jobs: int | None = None,
    *,
    layout: Layout = "alpha",
    masks: Sequence[Any] | None = None,
    max_side: int | None = None,
    any_scale: bool = False,
) -> list[Result]:
    """Return ``[function(picture) for each image]``, computed by threads.

    A ValueError of decoding or of the function gets the name of its image put before it.
    """
    images = check_images(images)
    if masks is not None and len(masks) != len(images):
        raise ValueError(f"there are {len(images)} images and {len(masks)} masks; give one mask an image")

    def work(rows: slice) -> list[Result]:
        results = []
        for k in range(rows.start, rows.stop):
            try:
                mask = None if masks is None else masks[k]
                results.append(function(as_picture(images[k], layout, mask, max_side, any_scale)))
            except ValueError as error:
                # Where reading failed, the message begins with the path, which the name holds already
                reason = str(error).removeprefix(f"{images[k]!s} ")
                raise ValueError(f"{image_name(images, k)} {reason}") from error
        return results

    blocks = [slice(start, min(start + _BLOCK, len(images))) for start in range(0, len(images), _BLOCK)]
    return [result for results in map_blocks(work, blocks, n_jobs) for result in results]


def image_name(images: Images, k: int, place: bool = True) -> str:
    """What messages call an image: its place, and its file if it has one; or the file alone."""
    if not isinstance(images[k], (str, os.PathLike)):
        return f"images[{k}]"
    return f"images[{k}] ({os.fspath(images[k])})" if place else os.fspath(images[k])


def check_images(images: Images) -> Images:
    """A sequence of at least one image; refuses what looks like a single one."""
    if isinstance(images, (str, os.PathLike)):
        raise TypeError(
            f"images is the path {os.fspath(images)!r}; give a list of images, or load_image_folder(path).images"
        )
    if not hasattr(images, "__len__") or not hasattr(images, "__getitem__"):
        raise TypeError(
            f"images is a {type(images).__name__}; give a list of arrays or files, or an (n, h, w[, c]) array"
        )
    if len(images) == 0:
        raise ValueError("there are 0 images; give at least one")
    shape = getattr(images, "shape", None)
    if shape is not None and (len(shape) not in (1, 3, 4) or (len(shape) == 3 and shape[2] <= 4)):
        raise ValueError(
            f"images has shape {shape}; expected (n, h, w) or (n, h, w, channels). For one image give [image]"
        )
    return images


def are_gray(images: Images) -> bool:
    """Whether images have no colour, by up to 16 of them; those that cannot be read say nothing."""
    images = check_images(images)
    for k in np.unique(np.linspace(0, len(images) - 1, _SOME).astype(int)):
        try:
            pixels = as_picture(images[int(k)], "alpha", max_side=64).pixels
        except (ValueError, OSError):
            continue
        if pixels.ndim == 3 and np.ptp(pixels, axis=2).max() > _ALIKE:
            return False
    return True
