"""Reduced nearest neighbours: a condensed set without the points it can do without."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.prototypes import Prototypes
from knnpress.compression.selection.condensed import Condensed
from knnpress.compression.selection.condensing import warn_of_fewer
from knnpress.compression.selection.quotas import class_quotas
from knnpress.geometries.base import Geometry, distance_matrix
from knnpress.neighbors import nearest
from knnpress.typing import Array, Callback, Indices, Labels


class Reduced(BaseEstimator):
    """Reduced nearest neighbours (RNN): `Condensed`, without the points that no other needs in order to be right.

    Points are tried in the order in which they were added, and never the last one of a class. Where condensing left
    training points wrong, it is the others that must stay right.

    References
    ----------
    Gates. The reduced nearest neighbor rule. IEEE Transactions on Information Theory, 1972.
    """

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
        """Return rows of X: all that are left, or the first `n_prototypes` of them.

        The first of each class come first, in order of class, the others in the order they were added. `sample_weight`
        has no meaning here and is ignored. `callback` sees the condensing, as in `Condensed`.
        """
        if n_prototypes is not None:
            class_quotas(y, min(n_prototypes, len(np.unique(y))))  # refuses too few
        stopped = False

        def follow(*progress: Any) -> bool:
            nonlocal stopped
            stopped = callback is not None and bool(callback(*progress))
            return stopped

        condensed = Condensed().compress(
            X, y, geometry=geometry, random_state=random_state, n_jobs=n_jobs, callback=follow
        )
        chosen = condensed.indices
        assert chosen is not None
        D = distance_matrix(geometry, X, condensed.points, n_jobs)
        dropped = dispensable(D, condensed.labels, y)
        before = condensed.labels[D.argmin(axis=1)] != y

        def judged(dropped: list[int]) -> tuple[Indices, Array]:
            """What is left, in order, and which points a classifier gets wrong with it."""
            rows = _classes_first(np.delete(chosen, dropped), y)
            _, index = nearest(geometry.distances_to(X[rows]), X, len(rows), 1, n_jobs)
            return rows, y[rows][index[:, 0]] != y

        rows, wrong = judged(dropped)
        while dropped and (wrong & ~before).any():  # near ties, which round differently among fewer points
            dropped.pop()
            rows, wrong = judged(dropped)
        if not stopped:
            warn_of_fewer("Reduced", len(rows), n_prototypes)
        rows = rows[:n_prototypes]
        return Prototypes(X[rows], y[rows], indices=rows)


def dispensable(D: Array, labels: Labels, y: Labels) -> list[int]:
    """Prototypes (columns of D) without which all points (rows) that were right stay so, tried in order."""
    owner = D.argmin(axis=1)
    right = labels[owner] == y
    kept = np.ones(len(labels), dtype=bool)
    dropped: list[int] = []
    for j in range(len(labels)):
        kept[j] = (labels[kept] == labels[j]).sum() == 1
        if kept[j]:
            continue
        columns = np.flatnonzero(kept)
        orphans = np.flatnonzero(owner == j)
        heir = columns[D[np.ix_(orphans, columns)].argmin(axis=1)]
        if (right[orphans] & (labels[heir] != y[orphans])).any():
            kept[j] = True
        else:
            owner[orphans] = heir
            dropped.append(j)
    return dropped


def _classes_first(rows: Indices, y: Labels) -> Indices:
    """The rows with the first of each class in front, so that every long enough prefix has every class."""
    first = np.unique(y[rows], return_index=True)[1]
    return np.concatenate([rows[first], np.delete(rows, first)])
