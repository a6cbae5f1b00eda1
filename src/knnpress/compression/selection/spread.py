"""A start for clusters: points far from each other."""

from __future__ import annotations

import numpy as np

from knnpress.geometries.base import Geometry
from knnpress.neighbors import nearest
from knnpress.typing import Array


def spread(X: Array, k: int, geometry: Geometry, rng: np.random.Generator, n_jobs: int | None) -> list[int]:
    """k distinct rows far from each other: each next one drawn with odds that grow with its distance (k-means++)."""
    rows = [int(rng.integers(len(X)))]
    closest = np.full(len(X), np.inf)
    while len(rows) < k:
        distance, _ = nearest(geometry.distances_to(X[rows[-1:]]), X, 1, 1, n_jobs)
        closest = np.minimum(closest, np.maximum(distance[:, 0], 0.0))
        closest[rows] = 0.0
        odds = closest
        if not closest.any():  # all that is left equals a row already drawn
            odds = np.ones(len(X))
            odds[rows] = 0.0
        rows.append(int(rng.choice(len(X), p=odds / odds.sum())))
    return rows
