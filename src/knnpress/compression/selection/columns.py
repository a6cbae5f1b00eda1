"""Distances of all points to some of them: a few columns of the full matrix, made when asked for."""

from __future__ import annotations

import numpy as np

from knnpress.geometries.base import Geometry
from knnpress.parallel import map_blocks, row_blocks
from knnpress.typing import Array

__all__ = ["columns_of"]


def columns_of(X: Array, Z: Array, geometry: Geometry, n_jobs: int | None) -> Array:
    """Distances of checked points X to checked points Z, (n, k)."""
    distances = geometry.distances_to(Z)
    D = np.empty((len(X), len(Z)))

    def fill(rows: slice) -> None:
        D[rows] = distances(X[rows])

    map_blocks(fill, row_blocks(len(X), 8 * len(Z)), n_jobs)
    return D
