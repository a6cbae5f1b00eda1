"""How often an image uses each word of a vocabulary of local features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import MiniBatchKMeans
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from knnpress.descriptors.features import as_features, pixel_rows
from knnpress.descriptors.images import Images, Picture, check_images, map_images
from knnpress.typing import Array

_VOCABULARY_SAMPLE = 200_000  # local features that the vocabulary is made from


class BagOfWords(TransformerMixin, BaseEstimator):
    r"""An image as the histogram of its local features over a vocabulary, (n, n_words).

    The vocabulary is the k-means centres of the features of the training images, each feature divided by its standard
    deviation there. Bin k holds the share of an image's pixels whose features are nearest to centre k. The ground cost
    is the Euclidean distance between centres.

    Parameters
    ----------
    n_words : int
    features : str or callable
        As in `RegionCovariance`.
    step : int
        Every step-th pixel of every step-th row is described.
    max_side : int or None
        Larger images are reduced to this longer side first; None: never.
    random_state : int, RandomState, Generator or None
        Of the sample that the vocabulary is made from, and of k-means.
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.

    Attributes
    ----------
    words_ : ndarray of shape (n_words, k)
        Centres, in units of `scale_`.
    scale_ : ndarray of shape (k,)
        Standard deviation of each feature.
    ground_cost_ : ndarray of shape (n_words, n_words)

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.descriptors import BagOfWords
    >>> images = np.random.default_rng(0).random((4, 32, 48))
    >>> bag = BagOfWords(n_words=8, random_state=0).fit(images)
    >>> bag.transform(images).shape, bag.ground_cost_.shape
    ((4, 8), (8, 8))
    """

    def __init__(
        self,
        n_words: int = 50,
        features: str | Callable[[Array], Any] = "gradient",
        step: int = 4,
        max_side: int | None = 256,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_words = n_words
        self.features = features
        self.step = step
        self.max_side = max_side
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, images: Images, y: Any = None) -> BagOfWords:
        """Learn the vocabulary from n images (see `transform`)."""
        seed = as_seed(self.random_state)
        images = check_images(images)
        share = max(self.n_words, -(-_VOCABULARY_SAMPLE // len(images)))

        def sample(rows: Array) -> Array:
            return rows[np.random.default_rng(seed).permutation(len(rows))[:share]]

        features = np.concatenate(self._map(sample, images))
        if len(features) < self.n_words:
            raise ValueError(
                f"the {len(images)} images have {len(features)} pixels to describe, fewer than n_words={self.n_words}; "
                "lower n_words or step, or give more images"
            )
        spread = features.std(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        means = MiniBatchKMeans(self.n_words, random_state=seed, n_init=3, batch_size=4096)
        self.words_ = means.fit(features / self.scale_).cluster_centers_
        self.ground_cost_ = np.linalg.norm(self.words_[:, None] - self.words_, axis=-1)
        return self

    def transform(self, images: Images) -> Array:
        """Histograms of n images, (n, n_words); each sums to one.

        Parameters
        ----------
        images : sequence of arrays (h, w[, c]), files or paths; or array of shape (n, h, w[, c])
            As in `RegionCovariance`; pixels that are not opaque are left out.
        """
        check_is_fitted(self)
        words = self.words_.T
        half_norms = 0.5 * (self.words_**2).sum(axis=1)

        def count(rows: Array) -> Array:
            nearest = ((rows / self.scale_) @ words - half_norms).argmax(axis=1)
            return np.bincount(nearest, minlength=len(half_norms)) / len(rows)

        return np.stack(self._map(count, images))

    def _map(self, function: Callable[[Array], Array], images: Images) -> list[Array]:
        """Apply a function to the local features, (pixels, k), of each image."""
        for name in ("n_words", "step"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; give a count of at least 1")
        features = as_features(self.features)

        def describe(picture: Picture) -> Array:
            rows = pixel_rows(features, picture, self.step).T
            if not len(rows):
                raise ValueError(f"has no pixel to describe inside its mask at step={self.step}; lower step")
            return function(rows)

        return map_images(describe, images, self.n_jobs, layout=features.layout, max_side=self.max_side)


def as_seed(random_state: Any) -> int:
    """A whole number drawn from an int, RandomState, Generator or None."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))
