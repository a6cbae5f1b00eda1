"""Images as clouds of local features, or of the points of a contour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from knnpress.clouds import Clouds
from knnpress.descriptors.features import FeatureSet, as_features, coordinates, pixel_rows
from knnpress.descriptors.images import Images, Picture, check_images, map_images
from knnpress.descriptors.shape import edge_points
from knnpress.geometries.cloud_points import k_means
from knnpress.typing import Array

_SAMPLE = 200_000  # local features that their spread is measured by


class LocalFeatures(TransformerMixin, BaseEstimator):
    r"""An image as the cloud of its local features, with or without where they are: `knnpress.Clouds`.

    Features are divided by their standard deviation in the training images, and by the root of how many there are; so
    are the coordinates. In squared distances, what is seen and where it is then count alike.

    Parameters
    ----------
    features : str or callable
        As in `RegionCovariance`.
    step : int
        Every step-th pixel of every step-th row is described.
    n_points : int or None
        The most pixels of an image that are taken, drawn at random; None: all of them.
    position : bool or float
        Whether x and y belong to a point; a number is how much they weigh.
    max_side : int or None
        Larger images are reduced to this longer side first; None: never.
    random_state : int
        Seed of the draw; each image's depends on it alone, so one image always gives one cloud.
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.

    Attributes
    ----------
    scale_ : ndarray of shape (k,) or (k + 2,)
        What features, and then x and y, are divided by.

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.descriptors import LocalFeatures
    >>> images = np.random.default_rng(0).random((3, 32, 48))
    >>> LocalFeatures("gradient", step=8).fit_transform(images)
    Clouds(3 clouds of 24 points in 14 dimensions)
    """

    def __init__(
        self,
        features: str | Callable[[Array], Any] = "sift",
        step: int = 8,
        n_points: int | None = 128,
        position: bool | float = True,
        *,
        max_side: int | None = 256,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.features = features
        self.step = step
        self.n_points = n_points
        self.position = position
        self.max_side = max_side
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, images: Images, y: Any = None) -> LocalFeatures:
        """Measure the spread of the features of n images (see `transform`)."""
        images = check_images(images)
        share = max(1, -(-_SAMPLE // len(images)))
        rows = np.concatenate([rows[:: max(1, len(rows) // share)] for rows in self._map(images)])
        spread = rows.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        scale[:-2] *= np.sqrt(len(scale) - 2)
        scale[-2:] *= np.sqrt(2.0) / (float(self.position) or 1.0)
        self.scale_ = scale if self.position else scale[:-2]
        return self

    def transform(self, images: Images) -> Clouds:
        """Clouds of n images.

        Parameters
        ----------
        images : sequence of arrays (h, w[, c]), files or paths; or array of shape (n, h, w[, c])
            As in `RegionCovariance`; pixels that are not opaque are left out.
        """
        check_is_fitted(self)
        return Clouds.from_list([rows[:, : len(self.scale_)] / self.scale_ for rows in self._map(images)])

    def _map(self, images: Images) -> list[Array]:
        """Local features of each image, with x and y last, (pixels, k + 2)."""
        self._check_settings()
        features = as_features(self.features)

        def with_place(picture: Picture) -> Array:
            planes = np.asarray(features.compute(picture))
            return np.concatenate([planes, np.stack(coordinates(picture.pixels.shape))])

        placed = FeatureSet(with_place, features.layout)

        def describe(picture: Picture) -> Array:
            rows = pixel_rows(placed, picture, self.step).T
            if not len(rows):
                raise ValueError(f"has no pixel to describe inside its mask at step={self.step}; lower step")
            if self.n_points is not None and len(rows) > self.n_points:
                drawn = np.random.default_rng(self.random_state).choice(len(rows), self.n_points, replace=False)
                rows = rows[np.sort(drawn)]
            return np.ascontiguousarray(rows)

        return map_images(describe, images, self.n_jobs, layout=features.layout, max_side=self.max_side)

    def _check_settings(self) -> None:
        for name in ("step", "n_points"):
            value = getattr(self, name)
            if value is not None and not value >= 1:
                raise ValueError(f"{name} is {value!r}; give a count of at least 1")
        if not isinstance(self.position, bool) and not 0 <= self.position < np.inf:
            raise ValueError(f"position is {self.position!r}; give True, False, or how much it weighs")


class ContourPoints(TransformerMixin, BaseEstimator):
    r"""An image as a cloud of points on its edges, or a silhouette as one on its contour: `knnpress.Clouds`.

    A pixel is an edge to the extent of its brightness gradient, as in `ShapeContext`. Edges are gathered round
    `n_points` of them by k-means, each as heavy as its share of the edges. The cloud is moved to its centroid and
    divided by the root mean square distance from it: neither place nor size of a shape matter.

    Parameters
    ----------
    n_points : int
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.descriptors import ContourPoints
    >>> disc = np.hypot(*np.mgrid[-20:21, -20:21]) < 12
    >>> cloud = ContourPoints(n_points=16).fit_transform([disc])[0]
    >>> np.hypot(*cloud.points.T).round(1)
    array([1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.])
    """

    def __init__(self, n_points: int = 64, *, n_jobs: int | None = None) -> None:
        self.n_points = n_points
        self.n_jobs = n_jobs

    def fit(self, images: Images, y: Any = None) -> ContourPoints:
        """Check the settings; nothing is learned from the images."""
        if not self.n_points >= 2:
            raise ValueError(f"n_points is {self.n_points!r}; give a count of at least 2")
        self.n_dims_ = 2
        return self

    def transform(self, images: Images) -> Clouds:
        """Clouds of n images.

        Parameters
        ----------
        images : sequence of arrays (h, w[, c]), files or paths; or array of shape (n, h, w[, c])
            Only the brightness of colours counts, and where an image has opacity, its opaque part and the outline
            of that.
        """
        check_is_fitted(self)
        made = map_images(self._cloud, images, self.n_jobs)
        return Clouds.from_list([one[:, :-1] for one in made], [one[:, -1] for one in made])

    def _cloud(self, picture: Picture) -> Array:
        """Points and weights, (n_points, 3); fewer, where there are fewer edges."""
        points, strength = edge_points(picture)
        mass = strength / strength.sum()
        points = points - mass @ points
        points /= np.sqrt(mass @ (points**2).sum(axis=1))
        return k_means(points, mass, min(self.n_points, len(points)))
