"""What is measured at each pixel: sets of features by name, or a function of the user's.

=======================  ====  =========================================================================================
name                     size  features
=======================  ====  =========================================================================================
``"color-texture"``      19    x, y, R, G, B; |Ix|, |Iy|, |Ixx|, |Iyy|, |Ixy|, gradient magnitude, Ix, Iy, Ixx, Iyy at
                               scale 1; Laplacian and gradient magnitude at scales 2 and 4
``"color-derivatives"``  18    x, y; of each colour its value and |first| and |second| derivatives along x and y;
                               gradient magnitude of I
``"gradient"``           12    I; Ix, Iy, Ixx, Iyy, Ixy, their magnitudes, and gradient magnitude
``"gabor"``              40    magnitudes of Gabor responses, 5 wavelengths x 8 directions
``"color-gabor"``        23    R, G, B; magnitudes of Gabor responses, 5 wavelengths x 4 directions
``"sift"``               128   the SIFT descriptor round the pixel: 4 x 4 cells of 4 x 4 pixels, 8 directions
``"depth"``              18    x, y; I and depth D, each with |first| and |second| derivatives, gradient magnitude and
                               Laplacian; the surface's normal without its component along the view
=======================  ====  =========================================================================================

I is the brightness; x and y are measured from the centre, in units of the longer side. Derivatives are those of a
Gaussian, multiplied by their scale to the power of their order, so that all features have comparable units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import fft, ndimage

from knnpress.descriptors.images import Layout, Picture, require
from knnpress.typing import Array

_WAVELENGTHS = 4.0 * 2.0 ** (np.arange(5) / 2)  # of Gabor filters, in pixels
_GABOR_WIDTH = 0.56  # sigma over wavelength: an octave
_CELL = 4  # side of a SIFT cell, in pixels
_DIRECTIONS = 8
_DIFFERENCE = np.array([[-0.5, 0.0, 0.5]], dtype=np.float32)
_FLAT = 1e-3  # gradients of a patch below this are noise: keeps flat patches near zero
_FOCAL_LENGTH = 525.0  # of the Kinect, in pixels


@dataclass(frozen=True)
class FeatureSet:
    """Features of a pixel: how to compute them, (k, h, w) for all pixels of a picture, and what images they need.

    Their names are for people; there are none where nobody would know a feature by its name.
    """

    compute: Callable[[Picture], Array]
    layout: Layout = "alpha"
    names: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def gaussian_kernel(sigma: float, order: int) -> Array:
    r"""Samples of :math:`\sigma^k g^{(k)}`, the k-th derivative of a Gaussian, k = 0, 1, 2, as a correlation kernel.

    The factor makes derivatives of different scales comparable (Lindeberg). Cut off at four sigma.
    """
    t = np.arange(-int(4 * sigma + 0.5), int(4 * sigma + 0.5) + 1) / sigma
    g = np.exp(-0.5 * t**2)
    g /= g.sum()
    return np.asarray([g, t * g, (t**2 - 1) * g][order], dtype=np.float32)


def derivative(image: Array, sigma: float, x: int = 0, y: int = 0) -> Array:
    """Derivative of an image smoothed by a Gaussian, of order x along rows and y down columns; mirrored borders."""
    cv2 = require("cv2")
    kernels = gaussian_kernel(sigma, x), gaussian_kernel(sigma, y)
    return cv2.sepFilter2D(image, cv2.CV_32F, *kernels, borderType=cv2.BORDER_REFLECT)


def derivatives(image: Array) -> list[Array]:
    """dx, dy, dxx, dyy, dxy at a scale of one pixel."""
    return [derivative(image, 1.0, *order) for order in [(1, 0), (0, 1), (2, 0), (0, 2), (1, 1)]]


def coordinates(shape: tuple[int, ...]) -> tuple[Array, Array]:
    """x and y of each pixel, in units of the longer side, zero at the centre."""
    h, w = shape[:2]
    y, x = np.mgrid[0:h, 0:w].astype(np.float32)
    return (x - (w - 1) / 2) / max(h, w), (y - (h - 1) / 2) / max(h, w)


def magnitude(a: Array, b: Array) -> Array:
    """sqrt(a^2 + b^2); faster than hypot, whose care for overflow is not needed here."""
    return np.sqrt(a * a + b * b)


def color_texture(picture: Picture) -> Array:
    """x, y, colours, derivatives of the brightness, and its coarser structure, (19, h, w)."""
    gray = picture.gray
    dx, dy, dxx, dyy, dxy = derivatives(gray)
    coarse = []
    for sigma in (2.0, 4.0):
        coarse.append(derivative(gray, sigma, x=2) + derivative(gray, sigma, y=2))
        coarse.append(magnitude(derivative(gray, sigma, x=1), derivative(gray, sigma, y=1)))
    absolute, signed = np.abs([dx, dy, dxx, dyy, dxy]), [dx, dy, dxx, dyy]
    colours = picture.rgb.transpose(2, 0, 1)
    return np.stack([*coordinates(gray.shape), *colours, *absolute, magnitude(dx, dy), *signed, *coarse])


def color_derivatives(picture: Picture) -> Array:
    """x, y, each colour with its derivatives, and the gradient's magnitude, (18, h, w)."""
    planes = [*coordinates(picture.gray.shape)]
    for colour in np.ascontiguousarray(picture.rgb.transpose(2, 0, 1)):
        planes += [colour, *np.abs(derivatives(colour)[:4])]
    dx, dy = derivatives(picture.gray)[:2]
    return np.stack([*planes, magnitude(dx, dy)])


def gradient(picture: Picture) -> Array:
    """Brightness, its derivatives, and their magnitudes, (12, h, w)."""
    signed = derivatives(picture.gray)
    return np.stack([picture.gray, *signed, *np.abs(signed), magnitude(*signed[:2])])


def gabor(picture: Picture) -> Array:
    """Magnitudes of 40 Gabor responses, (40, h, w)."""
    return gabor_magnitudes(picture.gray, directions=8)


def color_gabor(picture: Picture) -> Array:
    """Colours and magnitudes of 20 Gabor responses, (23, h, w)."""
    return np.concatenate([picture.rgb.transpose(2, 0, 1), gabor_magnitudes(picture.gray, directions=4)])


def gabor_magnitudes(gray: Array, directions: int) -> Array:
    """Magnitudes of the responses to Gabor filters of 5 wavelengths, (5 directions, h, w); mirrored borders."""
    h, w = gray.shape
    # No filter sees a constant: take one away, so that a constant image gives zero and not rounding errors
    mirrored = np.pad(gray - gray[0, 0], ((0, h), (0, w)), mode="symmetric")  # one period
    spectrum = fft.fft2(mirrored)
    filters = gabor_filters(mirrored.shape, directions)
    return np.stack([np.abs(fft.ifft2(spectrum * one)[:h, :w]) for one in filters])


@lru_cache(maxsize=2)  # tens of megabytes each, for large images
def gabor_filters(size: tuple[int, int], directions: int) -> Array:
    r"""Transfer functions of Gabor filters, (5 directions, H, W).

    Of wavelength :math:`\lambda` and along the direction of u', with :math:`\sigma = 0.56 \lambda` (an octave wide):
    :math:`\exp(-2 \pi^2 \sigma^2 ((u' - 1 / \lambda)^2 + v'^2))`, and zero for a constant image.
    """
    v, u = np.meshgrid(np.fft.fftfreq(size[0]), np.fft.fftfreq(size[1]), indexing="ij")
    filters = []
    for wavelength in _WAVELENGTHS:
        for angle in np.arange(directions) * np.pi / directions:
            along, across = u * np.cos(angle) + v * np.sin(angle), v * np.cos(angle) - u * np.sin(angle)
            spread = 2 * (np.pi * _GABOR_WIDTH * wavelength) ** 2
            filters.append(np.exp(-spread * ((along - 1 / wavelength) ** 2 + across**2)))
    stack = np.asarray(filters, dtype=np.float32)
    stack[:, 0, 0] = 0.0
    return stack


def sift(picture: Picture) -> Array:
    """The SIFT descriptor of every pixel, (128, h, w): rows of cells, cells of a row, directions.

    Lowe's, unrotated and at one scale: gradients are shared between neighbouring directions and cells by linear
    interpolation, weighted by a Gaussian round the pixel (here a cell at a time, after Vedaldi's dense SIFT), and the
    128 numbers are normalised, cut at 0.2 and normalised again.
    """
    cv2 = require("cv2")
    gray = picture.gray
    h, w = gray.shape
    reach = 3 * _CELL // 2  # from the pixel to the centres of the outer cells
    padded = cv2.copyMakeBorder(gray, *[reach + _CELL + 1] * 4, cv2.BORDER_REFLECT)
    dx, dy = (cv2.filter2D(padded, cv2.CV_32F, kernel) for kernel in (_DIFFERENCE, _DIFFERENCE.T))
    turn = np.arctan2(dy, dx) * np.float32(_DIRECTIONS / (2 * np.pi))
    strength = magnitude(dx, dy)
    tent = np.minimum(np.arange(1, 2 * _CELL), np.arange(2 * _CELL - 1, 0, -1)).astype(np.float32) / _CELL
    cells = np.empty((_DIRECTIONS, h + 2 * reach, w + 2 * reach), dtype=np.float32)
    for k in range(_DIRECTIONS):
        away = np.abs((turn - k + _DIRECTIONS / 2) % _DIRECTIONS - _DIRECTIONS / 2)
        share = strength * np.maximum(0, 1 - away)
        cells[k] = cv2.sepFilter2D(share, cv2.CV_32F, tent, tent)[_CELL + 1 : -_CELL - 1, _CELL + 1 : -_CELL - 1]
    window = np.exp(-0.125 * (np.arange(4) - 1.5) ** 2).astype(np.float32)
    planes = np.empty((4, 4, _DIRECTIONS, h, w), dtype=np.float32)
    for row in range(4):
        for column in range(4):
            part = cells[:, row * _CELL : row * _CELL + h, column * _CELL : column * _CELL + w]
            np.multiply(part, window[row] * window[column], out=planes[row, column])
    flat = planes.reshape(16 * _DIRECTIONS, h, w)
    flat /= np.sqrt(np.einsum("khw,khw->hw", flat, flat)) + _FLAT
    np.minimum(flat, 0.2, out=flat)
    flat /= np.sqrt(np.einsum("khw,khw->hw", flat, flat)) + _FLAT
    return flat


def depth(picture: Picture) -> Array:
    """Brightness, depth and surface normals, (18, h, w); gaps in the depth take their nearest neighbour's."""
    measured = picture.depth
    assert measured is not None  # the layout "depth" sees to it
    if (measured <= 0).any():
        measured = measured[tuple(ndimage.distance_transform_edt(measured <= 0, return_indices=True)[1])]
    planes = [*coordinates(picture.gray.shape)]
    for image in (picture.gray, measured):
        dx, dy, dxx, dyy, _ = derivatives(image)
        planes += [image, *np.abs([dx, dy, dxx, dyy]), magnitude(dx, dy), dxx + dyy]
    slope = np.stack([dx, dy]) * (_FOCAL_LENGTH / measured)  # a pixel spans depth / focal length
    normal = -slope / np.sqrt(1 + (slope**2).sum(axis=0))
    return np.stack([*planes, *normal])


def _gabor_names(directions: int) -> list[str]:
    angles = [180 / directions * k for k in range(directions)]
    return [f"wavelength {wavelength:.1f}, {angle:g}°" for wavelength in _WAVELENGTHS for angle in angles]


def _derivative_names(plane: str) -> list[str]:
    return [f"{plane}{order}" for order in ("x", "y", "xx", "yy", "xy")]


def _sizes(names: list[str]) -> list[str]:
    return [f"|{name}|" for name in names]


_COARSE = [f"{what}, scale {scale}" for scale in (2, 4) for what in ("Laplacian", "gradient")]
_OF_COLOURS = [name for colour in "RGB" for name in (colour, *_sizes(_derivative_names(colour)[:4]))]
_OF_DEPTH = [
    name
    for plane in "ID"
    for name in (plane, *_sizes(_derivative_names(plane)[:4]), f"gradient of {plane}", f"Laplacian of {plane}")
]
_I = _derivative_names("I")

FEATURES: dict[str, FeatureSet] = {
    "color-texture": FeatureSet(color_texture, names=("x", "y", *"RGB", *_sizes(_I), "gradient", *_I[:4], *_COARSE)),
    "color-derivatives": FeatureSet(color_derivatives, names=("x", "y", *_OF_COLOURS, "gradient")),
    "gradient": FeatureSet(gradient, names=("I", *_I, *_sizes(_I), "gradient")),
    "gabor": FeatureSet(gabor, names=tuple(_gabor_names(8))),
    "color-gabor": FeatureSet(color_gabor, names=(*"RGB", *_gabor_names(4))),
    "sift": FeatureSet(sift),
    "depth": FeatureSet(depth, "depth", ("x", "y", *_OF_DEPTH, "normal, x", "normal, y")),
}


def as_features(features: str | Callable[[Array], Any]) -> FeatureSet:
    """The set of a name, or of a function from an image as given to (h, w, k)."""
    if isinstance(features, str) and features in FEATURES:
        return FEATURES[features]
    if not callable(features):
        raise ValueError(f"features is {features!r}; choose one of {', '.join(map(repr, FEATURES))}, or a function")

    def compute(picture: Picture) -> Array:
        planes = np.asarray(features(picture.pixels))
        if planes.ndim != 3 or planes.shape[:2] != picture.pixels.shape[:2]:
            raise ValueError(
                f"has shape {picture.pixels.shape} and the features' function made {planes.shape} of it; it must "
                "return (height, width, features)"
            )
        return planes.transpose(2, 0, 1)

    return FeatureSet(compute, "raw")


def pixel_rows(features: FeatureSet, picture: Picture, step: int = 1) -> Array:
    """Features of the pixels inside the mask and without NaN, (k, pixels), float64; every `step`-th row and column."""
    planes = features.compute(picture)[:, ::step, ::step]
    inside = np.ones(planes.shape[1:], dtype=bool) if picture.mask is None else picture.mask[::step, ::step]
    if features.layout == "raw":
        inside = inside & ~np.isnan(planes).any(axis=0)
    return planes[:, inside].astype(np.float64)
