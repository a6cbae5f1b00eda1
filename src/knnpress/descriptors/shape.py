"""Where the edges of an image lie: log-polar histograms."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from knnpress.descriptors.features import derivative, magnitude
from knnpress.descriptors.images import Images, Picture, map_images
from knnpress.typing import Array

_RADII = {"centroid": (0.2, 1.6), "pairs": (0.0625, 2.0)}  # span of the rings, in units of the mean distance
_PAIRED = 300  # points of which all pairs are taken
_FAINT = 0.01  # of the strongest gradient: what is weaker is not an edge
_ROUNDING = 1e-6  # gradients of a constant image
_MARGIN = 4


class ShapeContext(TransformerMixin, BaseEstimator):
    r"""An image as a log-polar histogram of its edges, (n, n_radial n_angular).

    A pixel is an edge to the extent of its brightness gradient, :math:`w_p = |\nabla I_p|` at a scale of one pixel: no
    threshold decides. Round the edges' centroid c, bin (r, a) holds the share of w in ring r and sector a. Rings are
    spaced in the logarithm of the distance, in units of the edges' mean distance, so the descriptor does not change
    with an image's size; the innermost reaches down to the centre, the outermost out to the border.

    With ``center="pairs"`` it is the histogram of all differences between edge pixels, as in the paper. It is
    symmetric under a half turn and so says less; for this, edges are drawn at random if there are many.

    The ground cost is the l1 distance between bins, :math:`|r - r'| + \min(|a - a'|, A - |a - a'|)`: angles wrap.

    Parameters
    ----------
    n_radial, n_angular : int
        Numbers of rings and sectors.
    n_points : int or None
        Draw that many edge pixels with probability w instead of taking all with weight w. None: all for "centroid",
        300 for "pairs". The paper drew 100.
    center : {"centroid", "pairs"}
    random_state : int
        Seed of the draw; each image's depends on it alone, so one image always gives one histogram.
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.

    Attributes
    ----------
    ground_cost_ : ndarray of shape (n_radial n_angular, n_radial n_angular)

    References
    ----------
    Belongie, Malik, Puzicha. Shape matching and object recognition using shape contexts. TPAMI 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.descriptors import ShapeContext
    >>> disc = np.hypot(*np.mgrid[-20:21, -20:21]) < 12
    >>> ShapeContext(n_radial=2, n_angular=4).fit_transform([disc]).round(2)
    array([[0.  , 0.  , 0.  , 0.  , 0.25, 0.25, 0.26, 0.24]])
    """

    def __init__(
        self,
        n_radial: int = 5,
        n_angular: int = 12,
        n_points: int | None = None,
        center: Literal["centroid", "pairs"] = "centroid",
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_radial = n_radial
        self.n_angular = n_angular
        self.n_points = n_points
        self.center = center
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, images: Images, y: Any = None) -> ShapeContext:
        """Make the ground cost; nothing is learned from the images."""
        for name in ("n_radial", "n_angular"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; give a count of at least 1")
        if self.center not in _RADII:
            raise ValueError(f"center is {self.center!r}; choose 'centroid' or 'pairs'")
        if self.n_points is not None and not self.n_points >= 2:
            raise ValueError(f"n_points is {self.n_points!r}; give a count of at least 2, or None")
        ring, sector = np.divmod(np.arange(self.n_radial * self.n_angular), self.n_angular)
        turn = np.abs(sector[:, None] - sector)
        cost = np.abs(ring[:, None] - ring) + np.minimum(turn, self.n_angular - turn)
        self.ground_cost_ = cost.astype(np.float64)
        return self

    def transform(self, images: Images) -> Array:
        """Histograms of n images, (n, n_radial n_angular); each sums to one.

        Parameters
        ----------
        images : sequence of arrays (h, w[, c]), files or paths; or array of shape (n, h, w[, c])
            Only the brightness of colours counts, and where an image has opacity, its opaque part and the outline
            of that.
        """
        check_is_fitted(self)
        return np.stack(map_images(self._histogram, images, self.n_jobs))

    def _histogram(self, picture: Picture) -> Array:
        points, weights = edge_points(picture)
        n_points = _PAIRED if self.n_points is None and self.center == "pairs" else self.n_points
        if n_points is not None:
            rng = np.random.default_rng(self.random_state)
            points = points[rng.choice(len(points), n_points, p=weights / weights.sum())]
            weights = np.ones(n_points)
        if self.center == "pairs":
            first, second = np.nonzero(~np.eye(len(points), dtype=bool))
            offsets, weights = points[second] - points[first], np.ones(len(first))
        else:
            offsets = points - weights @ points / weights.sum()
        return self._count(offsets, weights / weights.sum())

    def _count(self, offsets: Array, weights: Array) -> Array:
        """Share of the weights in each bin."""
        distance = np.hypot(*offsets.T)
        scale = float(weights @ distance) or 1.0
        between_rings = np.geomspace(*_RADII[self.center], self.n_radial + 1)[1:-1]
        ring = np.searchsorted(between_rings, distance / scale)
        turn = np.arctan2(offsets[:, 1], offsets[:, 0]) / (2 * np.pi)
        sector = np.floor(turn * self.n_angular).astype(np.intp) % self.n_angular
        size = self.n_radial * self.n_angular
        return np.bincount(ring * self.n_angular + sector, weights=weights, minlength=size)


def edge_points(picture: Picture) -> tuple[Array, Array]:
    """Edge pixels as (x, y), (p, 2), and their weights, (p,)."""
    strength = _edge_strength(picture)
    rows, columns = np.nonzero(strength > max(_FAINT * strength.max(), _ROUNDING))
    if len(rows) < 2:
        h, w = picture.gray.shape
        raise ValueError(f"has no edges (it is constant, {h} x {w}); remove it, its shape cannot be described")
    return np.column_stack([columns, rows]).astype(np.float64), strength[rows, columns].astype(np.float64)


def _edge_strength(picture: Picture) -> Array:
    gray = picture.gray
    if picture.mask is not None:
        return np.where(picture.mask, _gradient(gray), 0) + _gradient(picture.mask.astype(np.float32))
    dark, light = gray.min(), gray.max()
    if ((gray == dark) | (gray == light)).all():  # a silhouette: where it touches the border, that is an edge too
        frame = np.concatenate([gray[0], gray[-1], gray[:, 0], gray[:, -1]])
        ground = light if (frame == light).mean() > 0.5 else dark
        return _gradient(np.pad(gray, _MARGIN, constant_values=ground))
    return _gradient(gray)


def _gradient(image: Array) -> Array:
    return magnitude(derivative(image, 1.0, x=1), derivative(image, 1.0, y=1))
