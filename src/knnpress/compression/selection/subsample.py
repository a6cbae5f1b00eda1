"""Random training points of each class."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.prototypes import Prototypes
from knnpress.compression.selection.quotas import class_quotas
from knnpress.geometries.base import Geometry
from knnpress.typing import Array, Callback, Labels


class Subsample(BaseEstimator):
    """Draw training points at random, in proportion to the classes, at least one of each: the paper's start of SCC."""

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
        """Return `n_prototypes` rows of X (all, if None), classes in sorted order."""
        rng = np.random.default_rng() if random_state is None else random_state
        quotas = class_quotas(y, len(X) if n_prototypes is None else n_prototypes, sample_weight)
        indices = np.concatenate([rng.choice(rows, quota, replace=False) for rows, quota in quotas])
        return Prototypes(X[indices], y[indices], indices=indices)
