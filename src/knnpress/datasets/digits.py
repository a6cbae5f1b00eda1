"""The 1797 handwritten digits that ship with scikit-learn, as covariances and as histograms."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.ndimage import gaussian_filter, zoom
from sklearn.datasets import load_digits

from knnpress.datasets.dataset import Dataset
from knnpress.typing import Array

_CITATION = "Alpaydin, Kaynak. Optical recognition of handwritten digits. UCI Machine Learning Repository, 1998."
_NAMES = tuple("0123456789")
_ENLARGE = 3


def load_digits_covariances() -> Dataset:
    """Region covariances of the digits, X of shape (1797, 11, 11).

    Eleven features at each pixel of the digit enlarged three times (24 x 24, cubic): x, y, the intensity I, its first
    and second derivatives (Gaussian, of one pixel's width), the gradient's magnitude, x I and y I.
    """
    return Dataset(_covariances().copy(), load_digits().target.astype(np.intp), _NAMES, _CITATION)


@cache
def _covariances() -> Array:
    digits = load_digits()
    images = zoom(digits.images / 16.0, (1, _ENLARGE, _ENLARGE), order=3, mode="nearest")

    def derivative(rows: int, columns: int) -> Array:
        return gaussian_filter(images, (0, 1, 1), order=(0, rows, columns))

    size = images.shape[1]
    y, x = np.broadcast_to((np.mgrid[0:size, 0:size] / (size - 1.0))[:, None], (2, *images.shape))
    dx, dy, dxx, dyy, dxy = (derivative(*order) for order in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 1)])
    features = np.stack([x, y, images, dx, dy, dxx, dyy, dxy, np.hypot(dx, dy), x * images, y * images], axis=1)
    flat = features.reshape(*features.shape[:2], -1)
    flat = flat - flat.mean(axis=2, keepdims=True)
    covariances = flat @ flat.transpose(0, 2, 1) / (flat.shape[2] - 1)
    return 0.5 * (covariances + covariances.transpose(0, 2, 1))


def load_digits_histograms() -> Dataset:
    """The digits as histograms over their 8 x 8 pixels, X of shape (1797, 64), with Euclidean ground cost."""
    digits = load_digits()
    counts = digits.images.reshape(len(digits.images), -1)
    grid = np.mgrid[0.0:8.0, 0.0:8.0].reshape(2, -1).T
    ground_cost = np.linalg.norm(grid[:, None] - grid, axis=-1)
    X = counts / counts.sum(axis=1, keepdims=True)
    return Dataset(X, digits.target.astype(np.intp), _NAMES, _CITATION, ground_cost)
