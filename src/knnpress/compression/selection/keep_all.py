"""No compression: the model is the training set."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.prototypes import Prototypes
from knnpress.geometries.base import Geometry
from knnpress.typing import Array, Callback, Labels


class KeepAll(BaseEstimator):
    """Keep every training point: full nearest-neighbour classification, the yardstick for all else."""

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
        """Return a copy of X and y; `n_prototypes`, if given, must not ask for fewer."""
        if n_prototypes is not None and n_prototypes < len(X):
            raise ValueError(
                f"KeepAll keeps all {len(X)} points, but n_prototypes is {n_prototypes}; choose another compressor"
            )
        return Prototypes(X.copy(), y.copy(), indices=np.arange(len(X)))
