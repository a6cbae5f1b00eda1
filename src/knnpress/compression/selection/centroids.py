"""Centroids of each class: k-means within it, in the geometry's own distance."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.prototypes import Prototypes
from knnpress.compression.selection.quotas import class_quotas
from knnpress.compression.selection.spread import spread
from knnpress.geometries.base import Geometry
from knnpress.neighbors import nearest
from knnpress.typing import Array, Callback, Labels

__all__ = ["ClassCentroids"]


class ClassCentroids(BaseEstimator):
    """k centroids within each class, by k-means in the geometry.

    Parameters
    ----------
    geometry : Geometry or None
        None: that of the classifier. For histograms the Euclidean one is as good a start as barycenters, and far
        quicker.
    max_iter : int
        Rounds of assigning points and moving centroids.
    """

    def __init__(self, geometry: Geometry | None = None, max_iter: int = 10) -> None:
        self.geometry = geometry
        self.max_iter = max_iter

    def compress(
        self,
        X: Array,
        y: Labels,
        *,
        geometry: Geometry,
        n_prototypes: int | None = None,
        sample_weight: Array | None = None,
        random_state: np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
    ) -> Prototypes:
        """Return `n_prototypes` centroids (one a class, if None), classes in sorted order."""
        rng = np.random.default_rng() if random_state is None else random_state
        quotas = class_quotas(y, len(np.unique(y)) if n_prototypes is None else n_prototypes)
        geometry = geometry if self.geometry is None else self.geometry
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        centroids = [self._cluster(X[rows], weight[rows], k, geometry, rng, n_jobs) for rows, k in quotas]
        labels = np.concatenate([np.full(k, y[rows[0]]) for rows, k in quotas])
        return Prototypes(np.concatenate(centroids), labels)

    def _cluster(
        self, X: Array, weight: Array, k: int, geometry: Geometry, rng: np.random.Generator, n_jobs: int | None
    ) -> Array:
        Z = X[spread(X, k, geometry, rng, n_jobs)]
        for _ in range(self.max_iter):
            distance, index = nearest(geometry.distances_to(Z), X, k, 1, n_jobs)
            W = np.zeros((len(X), k))
            W[np.arange(len(X)), index[:, 0]] = weight
            empty = W.sum(axis=0) == 0  # a centroid that lost its points starts again at the worst served one
            W[distance[:, 0].argsort()[::-1][: empty.sum()], np.flatnonzero(empty)] = 1.0
            Z = geometry.centroid_step(X, W / W.sum(axis=0), Z, n_jobs)
        return Z
