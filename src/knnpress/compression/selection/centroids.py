"""Centroids of each class: k-means within it, in the geometry's own distance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.prototypes import Prototypes, refuse_clouds
from knnpress.compression.selection.quotas import class_quotas, raise_quotas
from knnpress.geometries.base import Geometry, SmoothGeometry, distance_matrix
from knnpress.neighbors import nearest
from knnpress.typing import Array, Callback, Indices, Labels

_MAX_SEEDS, _MAX_SERVED = 256, 2048  # points of a class that may start a cluster, and that judge it
_ROUNDS = 2  # of giving more prototypes to the classes that err
_SLACK = 10.0  # distances that errors are counted by may be solved more loosely than in a descent's first steps


class ClassCentroids(BaseEstimator):
    """k centroids within each class, by k-means in the geometry.

    Parameters
    ----------
    geometry : Geometry or None
        None: that of the classifier. For histograms the Euclidean one is as good a start as barycenters, and far
        quicker.
    max_iter : int
        Rounds of assigning points and moving centroids.
    quotas : {"size", "need"}
        How many each class gets: in proportion to its size, or by how many of its points are closer to a centroid of
        another class, in the geometry of the classifier. By need, each class gets one; half of the rest go to the
        classes that err with these, the other half to those that still err then. An object that looks the same from
        all sides keeps few, and the others get more.
    """

    def __init__(
        self, geometry: Geometry | None = None, max_iter: int = 10, quotas: Literal["size", "need"] = "size"
    ) -> None:
        self.geometry = geometry
        self.max_iter = max_iter
        self.quotas = quotas

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
        """Return `n_prototypes` centroids (one per class, if None), classes in sorted order."""
        refuse_clouds(X, "ClassCentroids averages points of one shape")
        if self.quotas not in ("size", "need"):
            raise ValueError(f"quotas is {self.quotas!r}; choose 'size' or 'need'")
        n_classes = len(np.unique(y))
        m = n_classes if n_prototypes is None else min(n_prototypes, len(X))
        left = max(0, m - n_classes) if self.quotas == "need" and n_classes > 1 else 0
        metric = geometry if self.geometry is None else self.geometry
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        quotas = class_quotas(y, m - left, weight)
        centroids = [self._cluster(X[rows], weight[rows], k, metric, n_jobs) for rows, k in quotas]
        for later in reversed(range(_ROUNDS if left else 0)):
            wrong = weight * _wrong(X, y, geometry, centroids, quotas, n_jobs)
            more = left // (later + 1)
            raised = raise_quotas(quotas, np.array([wrong[rows].sum() for rows, _ in quotas]), more, weight)
            for c, (rows, k) in enumerate(raised):
                if k > quotas[c][1]:
                    centroids[c] = self._cluster(X[rows], weight[rows], k, metric, n_jobs)
            quotas, left = raised, left - more
        return Prototypes(np.concatenate(centroids), _labels(y, quotas))

    def _cluster(self, X: Array, weight: Array, k: int, geometry: Geometry, n_jobs: int | None) -> Array:
        Z = X[_seeds(X, weight, k, geometry, n_jobs)]
        for _ in range(self.max_iter):
            distance, index = nearest(geometry.distances_to(Z), X, k, 1, n_jobs)
            W = np.zeros((len(X), k))
            W[np.arange(len(X)), index[:, 0]] = weight
            empty = W.sum(axis=0) == 0  # a centroid that lost its points starts again at the worst-served point
            W[distance[:, 0].argsort()[::-1][: empty.sum()], np.flatnonzero(empty)] = 1.0
            Z = geometry.centroid_step(X, W / W.sum(axis=0), Z, n_jobs)
        return Z


def _seeds(X: Array, weight: Array, k: int, geometry: Geometry, n_jobs: int | None) -> list[int]:
    """k distinct rows, each chosen to bring all points as near as possible (the first phase of PAM).

    Nothing is drawn at random, so that no start depends on the order of the points.
    """
    candidates, served = (_evenly(len(X), max(k, most)) for most in (_MAX_SEEDS, _MAX_SERVED))
    D = distance_matrix(geometry, X[served], X[candidates], n_jobs)
    left = np.full(len(served), np.inf)
    chosen: list[int] = []
    for _ in range(k):
        total = weight[served] @ np.minimum(D, left[:, None])
        total[chosen] = np.inf
        chosen.append(int(total.argmin()))
        left = np.minimum(left, D[:, chosen[-1]])
    return candidates[chosen].tolist()


def _evenly(n: int, most: int) -> Indices:
    """At most `most` of n rows, evenly spaced."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.intp)


def _labels(y: Labels, quotas: list[tuple[Indices, int]]) -> Labels:
    return np.concatenate([np.full(k, y[rows[0]]) for rows, k in quotas])


def _wrong(
    X: Array,
    y: Labels,
    geometry: Geometry,
    centroids: list[Array],
    quotas: list[tuple[Indices, int]],
    n_jobs: int | None,
) -> Array:
    """Whether the nearest centroid is of another class, (n,)."""
    Z = np.concatenate(centroids)
    _, index = nearest(_rough_distances(geometry, Z), X, len(Z), 1, n_jobs)
    return _labels(y, quotas)[index[:, 0]] != y


def _rough_distances(geometry: Geometry, Z: Array) -> Callable[[Array], Array]:
    """From a block of X to its distances to Z, loose where they have to be solved for."""
    if not isinstance(geometry, SmoothGeometry):
        return geometry.distances_to(Z)
    linearize = geometry.linearize_at(Z, _SLACK * geometry.slacks[0])
    return lambda block: linearize(block).D
