"""Histograms as vectors: the square roots of their bins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.exceptions import InvalidPointError, how_many
from knnpress.geometries.base import pairwise
from knnpress.geometries.checks import as_real_array, check_weights
from knnpress.geometries.euclidean import SquaredEuclidean
from knnpress.geometries.histogram_checks import check_histograms
from knnpress.typing import Array, ArrayLike


class Hellinger(BaseEstimator):
    r"""Squared Euclidean distance between square roots of histograms.

    .. math:: D(x, z) = \sum_k \left(\sqrt{x_k} - \sqrt{z_k}\right)^2 = 2 - 2 \sum_k \sqrt{x_k z_k}

    Twice the square of Hellinger's distance: from 0 to 2. It needs no ground cost: bins have no neighbours. Points are
    rows of an (n, d) array, scaled to sum to one.

    Examples
    --------
    >>> from knnpress.geometries import Hellinger
    >>> Hellinger().pairwise([[1.0, 0.0]], [[4.0, 0.0], [1.0, 1.0], [0.0, 1.0]]).round(4)
    array([[0.    , 0.5858, 2.    ]])
    """

    point_ndim = 1
    start_quotas: Literal["size", "need"] = "need"

    def fitted_to(self, X: Array, weights: ArrayLike | None = None) -> Hellinger:
        """The geometry itself: it has nothing to learn from checked X."""
        return self

    def check(self, X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
        """Return X as a float64 C-array (n, d), rows normalised, or say which rows are not histograms."""
        return check_histograms(X, name)

    def pairwise(self, X: ArrayLike, Z: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """Distances between all pairs of rows, (n, m); Z None means X itself."""
        return pairwise(self, X, Z, n_jobs)

    def transform(self, X: ArrayLike, n_jobs: int | None = None) -> Array:
        """Check X, (n, d), and return the square roots of its bins, (n, d)."""
        return self.embed(self.check(X))

    def embed(self, X: Array, n_jobs: int | None = None) -> Array:
        """Square roots of the bins of checked X, (n, d)."""
        return np.sqrt(X)

    def unembed(self, V: ArrayLike, n_jobs: int | None = None) -> Array:
        """Squares of V, (n, d), scaled to sum to one: the histograms nearest to what V is the roots of."""
        V = as_real_array(V, 2, "V", "(n_histograms, n_bins)")
        largest = np.abs(V).max(axis=1, keepdims=True)
        if (empty := np.flatnonzero(largest[:, 0] == 0.0)).size:
            raise InvalidPointError(
                f"V[{empty[0]}] is all zero, {how_many(empty.size, len(V), 'vectors')}, and stands for no histogram; "
                "remove it"
            )
        squares = np.square(V / largest)  # first by the largest entry: squares may overflow
        return squares / squares.sum(axis=1, keepdims=True)

    def centroid(self, X: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """The histogram that minimises the weighted sum of distances, (d,): the mean root, squared and normalised."""
        X = self.check(X)
        return self.unembed(check_weights(weights, len(X))[None] @ self.embed(X))[0]

    def centroid_step(self, X: Array, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """The weighted centroids, whatever Z is."""
        return self.unembed(W.T @ self.embed(X))

    def distances_to(self, Z: Array) -> Callable[[Array], Array]:
        """For checked Z: a function from a checked block of X to its distances to every Z."""
        between = SquaredEuclidean().distances_to(self.embed(Z))
        return lambda X: between(self.embed(X))
