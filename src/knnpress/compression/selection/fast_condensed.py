"""Fast condensed nearest neighbours: each prototype adds one of the points that it gets wrong, in rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.prototypes import Prototypes
from knnpress.compression.selection.condensing import GrowingSubset, grow
from knnpress.compression.selection.quotas import class_quotas
from knnpress.execution.threads import map_blocks
from knnpress.geometries.base import Geometry
from knnpress.typing import Array, Callback, Indices, Labels


class FastCondensed(BaseEstimator):
    """Fast condensed nearest neighbours (FCNN): a subset that classifies every training point right.

    It starts with the point of each class nearest to the centroid of the class. Each round adds, for every prototype,
    one of the points nearest to it that have another label, until there are none. Nothing here is random.

    Parameters
    ----------
    rule : {"nearest", "centroid"}
        Which of these points: the one nearest to the prototype, or the one nearest to the centroid of them all.

    References
    ----------
    Angiulli. Fast condensed nearest neighbor rule. ICML 2005.
    """

    def __init__(self, rule: Literal["nearest", "centroid"] = "centroid") -> None:
        self.rule = rule

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
        """Return rows of X in the order they were added: all that it takes, or the first `n_prototypes`.

        `sample_weight` has no meaning here and is ignored. `callback` is called after each round, with the fact
        "error", the share of training points that are wrong.
        """
        if self.rule not in ("nearest", "centroid"):
            raise ValueError(f"rule is {self.rule!r}; choose 'nearest' or 'centroid'")
        n_classes = len(np.unique(y))
        classes = class_quotas(y, n_classes if n_prototypes is None else min(n_prototypes, n_classes))
        start = most_central(X, [rows for rows, _ in classes], geometry, n_jobs)
        subset = GrowingSubset(X, y, start, geometry, n_jobs)

        def nearest_of_each_cell(missed: Array) -> Sequence[int]:
            rows = np.flatnonzero(missed)
            rows = rows[np.lexsort((rows, subset.distance[rows], subset.owner[rows]))]
            first = np.unique(subset.owner[rows], return_index=True)[1]
            return rows[first].tolist()

        def center_of_each_cell(missed: Array) -> Sequence[int]:
            rows = np.flatnonzero(missed)
            owner = subset.owner[rows]
            return most_central(X, [rows[owner == j] for j in np.unique(owner)], geometry, n_jobs)

        choose = nearest_of_each_cell if self.rule == "nearest" else center_of_each_cell
        rows = grow(subset, choose, name="FastCondensed", n_prototypes=n_prototypes, callback=callback)
        return Prototypes(X[rows], y[rows], indices=rows)


def most_central(X: Array, groups: Sequence[Indices], geometry: Geometry, n_jobs: int | None) -> list[int]:
    """In each group of rows, the one nearest to the group's centroid."""

    def search(group: slice) -> int:
        rows = groups[group.start]
        if len(rows) == 1:
            return int(rows[0])
        distances = geometry.distances_to(geometry.centroid(X[rows])[None])
        return int(rows[distances(X[rows])[:, 0].argmin()])

    return map_blocks(search, [slice(g, g + 1) for g in range(len(groups))], n_jobs)
