"""Condensed nearest neighbours: a training point is added where those added before get it wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.prototypes import Prototypes
from knnpress.compression.selection.condensing import GrowingSubset, grow
from knnpress.compression.selection.quotas import class_quotas
from knnpress.geometries.base import Geometry
from knnpress.typing import Array, Callback, Labels


class Condensed(BaseEstimator):
    """Condensed nearest neighbours (CNN): a subset that classifies every training point right.

    It starts with one random point of each class. Then points are met in random order, pass after pass, and those that
    the subset gets wrong join it, until a pass adds none.

    References
    ----------
    Hart. The condensed nearest neighbor rule. IEEE Transactions on Information Theory, 1968.
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
        """Return rows of X in the order they were added: all that it takes, or the first `n_prototypes`.

        `sample_weight` has no meaning here and is ignored. `callback` is called after each addition, with the fact
        "error", the share of training points that are wrong.
        """
        rng = np.random.default_rng() if random_state is None else random_state
        order = rng.permutation(len(X))
        classes, first = np.unique(y[order], return_index=True)
        if n_prototypes is not None:
            class_quotas(y, min(n_prototypes, len(classes)))  # refuses too few
        position = 0

        def next_in_turn(missed: Array) -> Sequence[int]:
            nonlocal position
            ahead = missed[order[position:]]
            # where nothing ahead is wrong, the next pass begins
            position = position + int(ahead.argmax()) if ahead.any() else int(missed[order].argmax())
            return [int(order[position])]

        subset = GrowingSubset(X, y, order[first].tolist(), geometry, n_jobs)
        rows = grow(subset, next_in_turn, name="Condensed", n_prototypes=n_prototypes, callback=callback)
        return Prototypes(X[rows], y[rows], indices=rows)
