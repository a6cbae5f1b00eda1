"""Exact transport between clouds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.geometries.cloud_costs import Cost, costs
from knnpress.geometries.cloud_points import as_clouds, n_dims
from knnpress.geometries.cloud_solver import in_blocks
from knnpress.geometries.clouds import CloudSinkhorn
from knnpress.typing import Array, ArrayLike


class CloudEMD(BaseEstimator):
    r"""Exact earth mover's distance between clouds, through POT's network simplex: the word mover's distance.

    .. math:: \min_{T \ge 0} \sum_{lk} T_{lk}\, c(x_l, z_k) \quad \text{s.t.} \quad T 1 = a, \; T^\top 1 = b

    Needs the extra ``ot`` (``pip install knnpress[ot]``). Pairs are solved one after the other: this is for references
    and small sets, and hundreds of times as slow as `CloudSinkhorn`, whose centroid with ``reg="auto"`` it shares.

    Parameters
    ----------
    cost : {"sqeuclidean", "euclidean", "cosine"}
        "euclidean" is the word mover's distance of Kusner et al.
    n_points : int
        Points of a centroid.

    Examples
    --------
    >>> import knnpress as kp
    >>> from knnpress.geometries import CloudEMD
    >>> CloudEMD("euclidean").pairwise(kp.Clouds.from_list([[[0.0], [1.0]], [[2.0], [4.0]]]))
    array([[0. , 2.5],
           [2.5, 0. ]])
    """

    point_ndim = 2

    def __init__(self, cost: Cost = "sqeuclidean", *, n_points: int = 32) -> None:
        self.cost = cost
        self.n_points = n_points

    def check(self, X: Any, name: str = "X", n_jobs: int | None = None) -> Any:
        """Return X, `Clouds` or an array (n, k, d + 1) of which weights are scaled to sum to one."""
        return self._entropic().check(X, name, n_jobs)

    def pairwise(self, X: Any, Z: Any = None, n_jobs: int | None = None) -> Array:
        """Distances between all pairs of clouds, (n, m); Z None means X itself."""
        X = self.check(X)
        Z = X if Z is None else self.check(Z, "Z")
        if n_dims(Z) != n_dims(X):
            raise ValueError(f"X holds points of {n_dims(X)} dimensions and Z of {n_dims(Z)}; they must agree")
        return in_blocks(self.distances_to(Z), as_clouds(X), n_jobs)

    def centroid(self, X: Any, weights: ArrayLike | None = None) -> Array:
        """The entropic barycenter of free support, (n_points, d + 1), weights in the last column."""
        return self._entropic().centroid(X, weights)

    def centroid_step(self, X: Any, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """Entropic barycenters by descent from Z, (m, k, d + 1)."""
        return self._entropic().fitted_to(X).centroid_step(X, W, Z, n_jobs)

    def distances_to(self, Z: Any) -> Callable[[Any], Array]:
        """For checked Z: a function from a checked block of X to its distances to every Z."""
        try:
            from ot import emd2
        except ImportError as error:
            raise ImportError("CloudEMD needs POT: pip install knnpress[ot]") from error
        targets = list(as_clouds(Z))

        def one(x: Any, z: Any) -> float:
            C = costs(self.cost, x.points, z.points)
            # POT takes costs below a constant for nothing: bring them near one, by a power of two, which rounds nothing
            unit = 2.0 ** np.floor(np.log2(C.max() or 1.0))
            found = emd2(x.weights, z.weights, C / unit, numItermax=1_000_000, check_marginals=False)
            return float(unit * found)

        return lambda X: np.array([[one(x, z) for z in targets] for x in as_clouds(X)])

    def n_dims_of(self, X: Any) -> int:
        """Dimension of the points of checked clouds."""
        return n_dims(X)

    def _entropic(self) -> CloudSinkhorn:
        return CloudSinkhorn(cost=self.cost, n_points=self.n_points)
