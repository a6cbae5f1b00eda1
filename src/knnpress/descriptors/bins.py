"""Colours and places as bins."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from knnpress.descriptors.images import Images, Picture, map_images, require
from knnpress.typing import Array


class ColorHistogram(TransformerMixin, BaseEstimator):
    """An image as the histogram of its colours, (n, n_bins^3).

    The RGB cube is cut into n_bins parts a side; a bin holds the share of the pixels in its part. The ground cost is
    the Euclidean distance between the parts' centres, as seen (CIELAB) or as stored (RGB).

    Parameters
    ----------
    n_bins : int
        Parts of each colour's range.
    space : {"lab", "rgb"}
        Where distances between colours are taken.
    n_jobs : int or None
        Threads; None: all cores this process may use.

    Attributes
    ----------
    ground_cost_ : ndarray of shape (n_bins^3, n_bins^3)

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.descriptors import ColorHistogram
    >>> ColorHistogram(n_bins=2, space="rgb").fit_transform([np.zeros((5, 5, 3))])
    array([[1., 0., 0., 0., 0., 0., 0., 0.]])
    """

    def __init__(self, n_bins: int = 4, space: Literal["lab", "rgb"] = "lab", n_jobs: int | None = None) -> None:
        self.n_bins = n_bins
        self.space = space
        self.n_jobs = n_jobs

    def fit(self, images: Images, y: Any = None) -> ColorHistogram:
        """Make the ground cost; nothing is learned from the images."""
        if not self.n_bins >= 1:
            raise ValueError(f"n_bins is {self.n_bins!r}; give a count of at least 1")
        if self.space not in ("lab", "rgb"):
            raise ValueError(f"space is {self.space!r}; choose 'lab' or 'rgb'")
        centres = (np.indices([self.n_bins] * 3).reshape(3, -1).T + 0.5) / self.n_bins
        if self.space == "lab":
            centres = require("skimage.color").rgb2lab(centres)
        self.ground_cost_ = np.linalg.norm(centres[:, None] - centres, axis=-1)
        return self

    def transform(self, images: Images) -> Array:
        """Histograms of n images, (n, n_bins^3); each sums to one.

        Parameters
        ----------
        images : sequence of arrays (h, w[, c]), files or paths; or array of shape (n, h, w[, c])
            Pixels that are not opaque are left out. Floating point beyond [0, 1] counts as 0 or 1.
        """
        check_is_fitted(self)

        def histogram(picture: Picture) -> Array:
            colours = picture.rgb.reshape(-1, 3) if picture.mask is None else picture.rgb[picture.mask]
            part = np.clip((colours * self.n_bins).astype(np.intp), 0, self.n_bins - 1)
            index = (part[:, 0] * self.n_bins + part[:, 1]) * self.n_bins + part[:, 2]
            return np.bincount(index, minlength=self.n_bins**3) / len(index)

        return np.stack(map_images(histogram, images, self.n_jobs))


class GridHistogram(TransformerMixin, BaseEstimator):
    """An image as the histogram of its brightness over a grid, (n, size^2).

    The image is laid on size x size cells; a bin holds the share of the brightness that falls into its cell, pixels
    across a border being divided. The ground cost is the Euclidean distance between cells, in cells.

    Parameters
    ----------
    size : int
        Cells a side.
    invert : bool
        Count darkness instead: for dark things on a light ground.
    n_jobs : int or None
        Threads; None: all cores this process may use.

    Attributes
    ----------
    ground_cost_ : ndarray of shape (size^2, size^2)

    Examples
    --------
    >>> from knnpress.descriptors import GridHistogram
    >>> GridHistogram(size=2).fit_transform([[[0.0, 0.3, 0.3], [0.0, 0.0, 0.0]]])
    array([[0.25, 0.75, 0.  , 0.  ]])
    """

    def __init__(self, size: int = 8, invert: bool = False, n_jobs: int | None = None) -> None:
        self.size = size
        self.invert = invert
        self.n_jobs = n_jobs

    def fit(self, images: Images, y: Any = None) -> GridHistogram:
        """Make the ground cost; nothing is learned from the images."""
        if not self.size >= 1:
            raise ValueError(f"size is {self.size!r}; give a count of at least 1")
        cells = np.indices([self.size] * 2).reshape(2, -1).T.astype(np.float64)
        self.ground_cost_ = np.linalg.norm(cells[:, None] - cells, axis=-1)
        return self

    def transform(self, images: Images) -> Array:
        """Histograms of n images, (n, size^2), row by row; each sums to one.

        Parameters
        ----------
        images : sequence of arrays (h, w[, c]), files or paths; or array of shape (n, h, w[, c])
            Colour counts by its brightness; pixels that are not opaque do not count.
        """
        check_is_fitted(self)

        def histogram(picture: Picture) -> Array:
            light = picture.gray.astype(np.float64)
            light = light.max() - light if self.invert else light
            if picture.mask is not None:
                light = np.where(picture.mask, light, 0.0)
            if light.min() < 0:
                raise ValueError(f"has negative brightness ({light.min():.2g}); give values from 0 to 1")
            total = light.sum()
            if not total > 0:
                what, cure = ("light", "invert=False") if self.invert else ("black", "invert=True")
                raise ValueError(f"is all {what}, so its histogram would be empty; remove it, or use {cure}")
            cells = _overlaps(self.size, light.shape[0]) @ light @ _overlaps(self.size, light.shape[1]).T
            return cells.ravel() / total

        return np.stack(map_images(histogram, images, self.n_jobs, any_scale=True))


@lru_cache(maxsize=64)
def _overlaps(n_cells: int, n_pixels: int) -> Array:
    """The share of each pixel that lies in each of the cells that divide the same length, (n_cells, n_pixels)."""
    ends = np.arange(n_cells + 1)[:, None] * (n_pixels / n_cells)
    covered = np.clip(ends - np.arange(n_pixels), 0.0, 1.0)  # share of a pixel before each end
    shares = np.diff(covered, axis=0)
    shares.setflags(write=False)
    return shares
