"""The descriptors as one would write them with scikit-image, SciPy and OpenCV: one image after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter
from skimage.filters import gabor
from skimage.transform import downscale_local_mean


def smoothed(image: np.ndarray, sigma: float, x: int = 0, y: int = 0) -> np.ndarray:
    return sigma ** (x + y) * gaussian_filter(image, sigma, order=(y, x))


def derivatives(image: np.ndarray) -> list[np.ndarray]:
    return [smoothed(image, 1.0, *order) for order in [(1, 0), (0, 1), (2, 0), (0, 2), (1, 1)]]


def as_gray(image: np.ndarray) -> np.ndarray:
    return image @ [0.299, 0.587, 0.114]


def place(image: np.ndarray) -> list[np.ndarray]:
    h, w = image.shape[:2]
    y, x = np.mgrid[:h, :w] / max(h, w)
    return [x, y]


def color_texture(image: np.ndarray) -> list[np.ndarray]:
    gray = as_gray(image)
    dx, dy, dxx, dyy, dxy = derivatives(gray)
    features = [*place(image), image[..., 0], image[..., 1], image[..., 2]]
    features += [abs(dx), abs(dy), abs(dxx), abs(dyy), abs(dxy), np.hypot(dx, dy), dx, dy, dxx, dyy]
    for sigma in (2.0, 4.0):
        features.append(smoothed(gray, sigma, x=2) + smoothed(gray, sigma, y=2))
        features.append(np.hypot(smoothed(gray, sigma, x=1), smoothed(gray, sigma, y=1)))
    return features


def color_derivatives(image: np.ndarray) -> list[np.ndarray]:
    features = place(image)
    for c in range(3):
        dx, dy, dxx, dyy, _ = derivatives(image[..., c])
        features += [image[..., c], abs(dx), abs(dy), abs(dxx), abs(dyy)]
    dx, dy, *_ = derivatives(as_gray(image))
    return [*features, np.hypot(dx, dy)]


def gradient(image: np.ndarray) -> list[np.ndarray]:
    gray = as_gray(image)
    signed = derivatives(gray)
    return [gray, *signed, *(abs(d) for d in signed), np.hypot(signed[0], signed[1])]


def gabor_magnitudes(image: np.ndarray, directions: int) -> list[np.ndarray]:
    features = []
    for wavelength in 4 * 2 ** (np.arange(5) / 2):
        for angle in np.arange(directions) * np.pi / directions:
            sigma = 0.56 * wavelength
            real, imaginary = gabor(as_gray(image), 1 / wavelength, angle, sigma_x=sigma, sigma_y=sigma)
            features.append(np.hypot(real, imaginary))
    return features


def color_gabor(image: np.ndarray) -> list[np.ndarray]:
    return [image[..., 0], image[..., 1], image[..., 2], *gabor_magnitudes(image, 4)]


def sift(image: np.ndarray) -> list[np.ndarray]:
    """By OpenCV, a keypoint a pixel; scikit-image has no dense SIFT."""
    import cv2

    gray = np.round(255 * as_gray(image)).astype(np.uint8)
    h, w = gray.shape
    points = [cv2.KeyPoint(x, y, 8 / 3, 0, 1, 0) for y in range(h) for x in range(w)]
    _, found = cv2.SIFT_create().compute(gray, points)
    return list(found.T.reshape(128, h, w))


def covariance(features: Callable[[np.ndarray], list[np.ndarray]]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda image: np.cov([plane.ravel() for plane in features(image)])


def words(bag: Any) -> Callable[[np.ndarray], np.ndarray]:
    """With the vocabulary of a fitted BagOfWords."""
    from scipy.spatial.distance import cdist

    def count(image: np.ndarray) -> np.ndarray:
        features = np.stack(gradient(image), axis=-1)[:: bag.step, :: bag.step].reshape(-1, 12) / bag.scale_
        nearest = cdist(features, bag.words_).argmin(axis=1)
        return np.bincount(nearest, minlength=bag.n_words) / len(nearest)

    return count


def shape_context(image: np.ndarray) -> np.ndarray:
    gray = as_gray(image)
    weights = np.hypot(smoothed(gray, 1.0, x=1), smoothed(gray, 1.0, y=1))
    weights = np.where(weights > 0.01 * weights.max(), weights, 0) / weights.sum()
    y, x = np.mgrid[: gray.shape[0], : gray.shape[1]]
    dx, dy = x - (weights * x).sum(), y - (weights * y).sum()
    distance = np.hypot(dx, dy)
    distance /= (weights * distance).sum() / weights.sum()
    rings = [0, *np.geomspace(0.2, 1.6, 6)[1:-1], np.inf]
    angle = np.arctan2(dy, dx) % (2 * np.pi)
    bins = rings, np.linspace(0, 2 * np.pi, 13)
    counts, *_ = np.histogram2d(distance.ravel(), angle.ravel(), bins=bins, weights=weights.ravel())
    return counts.ravel() / counts.sum()


def color_histogram(image: np.ndarray) -> np.ndarray:
    counts, _ = np.histogramdd(image.reshape(-1, 3), bins=4, range=[(0, 1)] * 3)
    return counts.ravel() / counts.sum()


def grid_histogram(image: np.ndarray) -> np.ndarray:
    cells = downscale_local_mean(as_gray(image), (image.shape[0] // 8, image.shape[1] // 8))
    return (cells / cells.sum()).ravel()
