"""Medoids of each class: clusters within it, each stood for by its most central training point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.prototypes import Prototypes
from knnpress.compression.selection.quotas import class_quotas
from knnpress.compression.selection.spread import spread
from knnpress.execution.threads import BLOCK_BYTES
from knnpress.geometries.base import Geometry, distance_matrix
from knnpress.typing import Array, Callback, Indices, Labels

Between = Callable[[Indices, Indices], Array]


class Medoids(BaseEstimator):
    """k medoids within each class: points are assigned to the nearest, then each cluster's most central one takes over.

    The most central point of a cluster is the member with the least sum of (weighted) distances to the others. That
    takes the square of the cluster's size in time, not in memory.

    Parameters
    ----------
    max_iter : int
        Rounds of assigning points and moving medoids; fewer where nothing moves any more.
    """

    def __init__(self, max_iter: int = 30) -> None:
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
        """Return `n_prototypes` medoids (one per class, if None), classes in sorted order.

        `callback` is called after each class, with the fact "distance", the mean one to a medoid; where it asks to
        stop, the classes to come keep their starts.
        """
        rng = np.random.default_rng() if random_state is None else random_state
        quotas = class_quotas(y, len(np.unique(y)) if n_prototypes is None else n_prototypes, sample_weight)
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        indices: list[Indices] = []
        rounds = self.max_iter
        for rows, k in quotas:
            between = _distances_among(X[rows], geometry, n_jobs)
            start = np.array(spread(X[rows], k, geometry, rng, n_jobs))
            medoids, distance = _alternate(between, start, weight[rows], rounds)
            indices.append(rows[medoids])
            if callback is not None and callback(len(indices), len(quotas), {"distance": distance}):
                rounds = 0
        chosen = np.concatenate(indices)
        return Prototypes(X[chosen], y[chosen], indices=chosen)


def _distances_among(X: Array, geometry: Geometry, n_jobs: int | None) -> Between:
    """A function from rows and columns to their distances; looked up in the full matrix where that is small."""
    if 8 * len(X) ** 2 <= BLOCK_BYTES:
        D = distance_matrix(geometry, X, X, n_jobs)
        return lambda rows, columns: D[np.ix_(rows, columns)]
    return lambda rows, columns: distance_matrix(geometry, X[rows], X[columns], n_jobs)


def _alternate(between: Between, medoids: Indices, weight: Array, max_iter: int) -> tuple[Indices, float]:
    """Medoids moved until they rest, and the mean distance to them."""
    everything = np.arange(len(weight))
    for round_ in range(max_iter + 1):
        D = between(everything, medoids)
        cluster = D.argmin(axis=1)
        cluster[medoids] = np.arange(len(medoids))  # also among equal points, so that no cluster is empty
        if round_ == max_iter:
            break
        moved = np.array([_center(between, np.flatnonzero(cluster == c), m, weight) for c, m in enumerate(medoids)])
        if np.array_equal(moved, medoids):
            break
        medoids = moved
    served = D[everything, cluster]
    return medoids, float(weight @ served / weight.sum()) if weight.any() else float(served.mean())


def _center(between: Between, members: Indices, medoid: int, weight: Array) -> int:
    """The member with the least sum of distances; the present medoid, unless one is better."""
    size = max(1, BLOCK_BYTES // (8 * len(members)))
    pieces = [members[start : start + size] for start in range(0, len(members), size)]
    total = np.concatenate([weight[members] @ between(members, piece) for piece in pieces])
    best = int(total.argmin())
    return medoid if total[members == medoid][0] <= total[best] else int(members[best])
