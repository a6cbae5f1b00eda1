"""Where the learning of clouds begins: k-means of the points of similar clouds of a class."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.clouds import Clouds
from knnpress.compression.prototypes import Prototypes
from knnpress.compression.selection.centroids import ClassCentroids
from knnpress.compression.selection.quotas import class_quotas
from knnpress.execution.threads import map_blocks
from knnpress.geometries import Geometry, SquaredEuclidean
from knnpress.geometries.cloud_points import k_means, mass_of
from knnpress.neighbors import nearest
from knnpress.typing import Array, Callback, Indices, Labels

_MAX_POINTS = 4000  # of a group, the heaviest ones, are given to k-means


class CloudCentroids(BaseEstimator):
    """Clouds of `n_points` points for each class: k-means of the points of its clouds.

    A class that gets several is first cut into groups, by k-means of the means of its clouds.

    Parameters
    ----------
    n_points : int
    """

    def __init__(self, n_points: int = 32) -> None:
        self.n_points = n_points

    def compress(
        self,
        X: Clouds,
        y: Labels,
        *,
        geometry: Geometry,
        n_prototypes: int | None = None,
        sample_weight: Array | None = None,
        random_state: np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
    ) -> Prototypes:
        """Return `n_prototypes` clouds (one per class, if None), (m, n_points, d + 1), classes in sorted order."""
        n_classes = len(np.unique(y))
        m = n_classes if n_prototypes is None else min(n_prototypes, len(X))
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        means, groups, labels = X.means(), [], []
        for rows, k in class_quotas(y, m, _even(y, weight)):
            for group in _groups(means[rows], weight[rows], k, n_jobs):
                groups.append(rows[group])
                labels.append(y[rows[0]])

        def one(turn: slice) -> Array:
            own = groups[turn.start]
            mass = mass_of(X[own], weight[own] / weight[own].sum())
            heavy = np.sort(np.argsort(-mass, kind="stable")[:_MAX_POINTS])
            return k_means(X.table[heavy], mass[heavy], self.n_points)

        turns = [slice(g, g + 1) for g in range(len(groups))]
        return Prototypes(np.stack(map_blocks(one, turns, n_jobs)), np.array(labels))


def _even(y: Labels, weight: Array) -> Array:
    """Weights by which classes count by the root of their size: small ones have as many kinds of clouds as large."""
    _, codes = np.unique(y, return_inverse=True)
    return weight / np.sqrt(np.bincount(codes, weight))[codes]


def _groups(means: Array, weight: Array, k: int, n_jobs: int | None) -> list[Indices]:
    """Rows of each of k groups, none of them empty."""
    if k == 1:
        return [np.arange(len(means))]
    metric = SquaredEuclidean()
    found: Any = ClassCentroids().compress(
        means, np.zeros(len(means), int), geometry=metric, n_prototypes=k, sample_weight=weight, n_jobs=n_jobs
    )
    owner = nearest(metric.distances_to(found.points), means, k, 1, n_jobs)[1][:, 0]
    groups = [np.flatnonzero(owner == g) for g in range(k)]
    return [group if len(group) else np.arange(len(means)) for group in groups]
