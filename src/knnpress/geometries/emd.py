"""Histograms under exact optimal transport."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.geometries.base import pairwise
from knnpress.geometries.histogram_checks import check_ground_cost, check_histograms
from knnpress.geometries.sinkhorn import Sinkhorn
from knnpress.typing import Array, ArrayLike


class EMD(BaseEstimator):
    r"""Exact earth mover's distance between histograms, through POT's network simplex.

    .. math:: \min_{T \ge 0} \langle T, M \rangle \quad \text{s.t.} \quad T 1 = a, \; T^\top 1 = b

    Needs the extra ``ot`` (``pip install knnpress[ot]``). The centroid is the entropic Wasserstein barycenter with
    ``reg="auto"``, a tenth of the median positive ground cost: the exact one is a linear programme of its own.

    Parameters
    ----------
    ground_cost : array of shape (d, d)
        M, the cost of moving mass between bins; finite and non-negative.
    """

    point_ndim = 1

    def __init__(self, ground_cost: ArrayLike | None = None) -> None:
        self.ground_cost = ground_cost

    def check(self, X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
        """Return X as a float64 C-array (n, d), rows normalised, or say which rows are not histograms."""
        return check_histograms(X, name, len(check_ground_cost(self.ground_cost)))

    def pairwise(self, X: ArrayLike, Z: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """Distances between all pairs of rows, (n, m); Z None means X itself."""
        return pairwise(self, X, Z, n_jobs)

    def centroid(self, X: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """The entropic Wasserstein barycenter, (d,)."""
        return Sinkhorn(self.ground_cost, value="transport").centroid(X, weights)

    def centroid_step(self, X: Array, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """The weighted barycenters, whatever Z is."""
        return Sinkhorn(self.ground_cost, value="transport").centroid_step(X, W, Z, n_jobs)

    def distances_to(self, Z: Array) -> Callable[[Array], Array]:
        """For checked Z: a function from a checked block of X to its distances to every Z."""
        try:
            from ot import emd2
        except ImportError as error:
            raise ImportError("EMD needs POT: pip install knnpress[ot]") from error
        M = check_ground_cost(self.ground_cost)
        # POT takes costs below a constant for nothing: bring them near one, by a power of two, which rounds nothing
        unit = 2.0 ** np.floor(np.log2(M.max() or 1.0))
        scaled = M / unit

        def distances(X: Array) -> Array:
            return unit * np.array([emd2(x, Z.T, scaled, numItermax=1_000_000, check_marginals=False) for x in X])

        return distances
