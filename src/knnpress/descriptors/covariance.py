"""Covariances of what is measured at the pixels of an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from knnpress import _core
from knnpress.descriptors.features import as_features, pixel_rows
from knnpress.descriptors.images import Images, Picture, image_name, map_images
from knnpress.exceptions import InvalidPointError, warn_user
from knnpress.typing import Array, Indices

_FLOOR = 1e-2  # of the largest variance: what a constant feature is taken to have
_EPS = float(np.finfo(np.float64).eps)


class RegionCovariance(TransformerMixin, BaseEstimator):
    r"""An image as the covariance of the features of its pixels, (n, d, d).

    With :math:`f_p` the d features of pixel p, and P pixels inside the mask,

    .. math:: C = \frac{1}{P - 1} \sum_p (f_p - \bar f)(f_p - \bar f)^\top, \qquad
              X = (1 - s)\, C + s \operatorname{diag}(v), \quad v_k = \max(C_{kk},\, 10^{-2} \max_l C_{ll})

    Shrinking each feature towards its own variance works alike on features of any units, where a multiple of the
    identity would drown the small ones. Since :math:`X \succeq 10^{-2} s \max_l C_{ll}`, its condition number is at
    most :math:`100\, d / s`, whatever the image; a constant image, whose C is singular, is made valid and reported by
    a warning.

    Parameters
    ----------
    features : str or callable
        "color-texture" (d = 19), "color-derivatives" (18), "gradient" (12, of gray images), "gabor" (40),
        "color-gabor" (23), "sift" (128) or "depth" (18), as listed in `knnpress.descriptors.features`. Or a function of
        one image, as given, that returns (h, w, d); pixels at which it returns NaN are left out.
    shrinkage : float
        s, from 0 to 1.
    max_side : int or None
        Larger images are reduced to this longer side first; None: never.
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.

    References
    ----------
    Tuzel, Porikli, Meer. Region covariance: a fast descriptor for detection and classification. ECCV 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.descriptors import RegionCovariance
    >>> images = np.random.default_rng(0).random((2, 32, 48, 3))
    >>> RegionCovariance("color-texture").fit_transform(images).shape
    (2, 19, 19)
    """

    def __init__(
        self,
        features: str | Callable[[Array], Any] = "color-texture",
        shrinkage: float = 1e-4,
        max_side: int | None = 256,
        n_jobs: int | None = None,
    ) -> None:
        self.features = features
        self.shrinkage = shrinkage
        self.max_side = max_side
        self.n_jobs = n_jobs

    def fit(self, images: Images, y: Any = None) -> RegionCovariance:
        """Check the parameters; nothing is learned."""
        self._check_settings()
        return self

    def transform(self, images: Images, masks: Sequence[Any] | None = None) -> Array:
        """Covariances of n images.

        Parameters
        ----------
        images : sequence of arrays (h, w[, c]), files or paths; or array of shape (n, h, w[, c])
            uint8, uint16, bool, or floating point from 0 to 1. Two and four channels end in opacity (depth, for the
            features "depth"): pixels less than half opaque are left out.
        masks : sequence of arrays (h, w), or None
            Pixels at which it is zero are left out.

        Returns
        -------
        ndarray of shape (n, d, d)
        """
        features = self._check_settings()

        def covariance(picture: Picture) -> Array:
            rows = pixel_rows(features, picture)
            if rows.shape[1] < 2:
                h, w = picture.pixels.shape[:2]
                raise ValueError(
                    f"has {rows.shape[1]} pixel(s) to describe (it is {h} x {w}); a covariance needs at least 2: "
                    "remove it, or widen its mask"
                )
            rows -= rows.mean(axis=1, keepdims=True)
            return rows @ rows.T / (rows.shape[1] - 1)

        found = map_images(covariance, images, self.n_jobs, layout=features.layout, masks=masks, max_side=self.max_side)
        sizes = [len(C) for C in found]
        if len(set(sizes)) > 1:
            odd = next(k for k, size in enumerate(sizes) if size != sizes[0])
            raise ValueError(
                f"{image_name(images, odd)} has {sizes[odd]} features and images[0] {sizes[0]}; they must agree"
            )
        C = np.stack(found)
        self._report_singular(C, images)
        return shrink(C, self.shrinkage)

    def fit_transform(self, images: Images, y: Any = None, masks: Sequence[Any] | None = None) -> Array:
        """The same as `transform`."""
        return self.fit(images).transform(images, masks)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _check_settings(self) -> Any:
        if not isinstance(self.shrinkage, Real) or not 0 <= self.shrinkage <= 1:
            raise ValueError(f"shrinkage is {self.shrinkage!r}; give a number from 0 to 1, e.g. 1e-4")
        if self.max_side is not None and not self.max_side >= 1:
            raise ValueError(f"max_side is {self.max_side!r}; give a number of pixels, or None")
        return as_features(self.features)

    def _report_singular(self, C: Array, images: Images) -> None:
        """Warn of (or, without shrinkage, refuse) covariances that are not positive definite as they stand."""
        singular = singular_rows(C)
        if not len(singular):
            return
        names = [image_name(images, int(k), place=False) for k in singular[:5]]
        named = ", ".join([*names, "..."] if len(singular) > 5 else names)
        what = (
            f"the covariance of {len(singular)} of {len(C)} images is singular ({named}): gray images among "
            "coloured ones, constant images or features, or too few pixels"
        )
        if self.shrinkage == 0:
            raise InvalidPointError(f"{what}; shrink it, e.g. RegionCovariance(shrinkage=1e-4)")
        warn_user(f"{what}; shrinkage={self.shrinkage:g} made it positive definite, and nothing need be done")


def singular_rows(C: Array) -> Indices:
    """Rows of C, (n, d, d), that are not positive definite, by the rule of the SPD geometries."""
    return np.flatnonzero(~(_core.SpdLanes(C).margin > C.shape[1] * _EPS))


def shrink(C: Array, s: float) -> Array:
    """(1 - s) C + s diag(v), v each feature's variance but at least 1 % of the largest; (n, d, d)."""
    variances = np.einsum("ijj->ij", C)
    largest = variances.max(axis=1, keepdims=True)
    target = np.where(largest > 0, np.maximum(variances, _FLOOR * largest), 1.0)
    X = (1.0 - s) * C
    X[:, np.arange(C.shape[1]), np.arange(C.shape[1])] += s * target
    return 0.5 * (X + X.transpose(0, 2, 1))
