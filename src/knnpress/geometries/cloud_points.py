"""Clouds as arrays, (n, k, d + 1), and as `Clouds`; k-means of their points."""

from __future__ import annotations

from typing import Any

import numpy as np

from knnpress.clouds import Clouds
from knnpress.geometries.cloud_costs import costs
from knnpress.typing import Array, Indices


def as_clouds(X: Any) -> Clouds:
    """Checked points as `Clouds`."""
    if isinstance(X, Clouds):
        return X
    n, k, d = X.shape
    points = np.ascontiguousarray(X[:, :, :-1]).reshape(n * k, d - 1)
    return Clouds._made_of(points, np.arange(n * k), k * np.arange(n + 1), np.ascontiguousarray(X[:, :, -1]).ravel())


def cut(clouds: Clouds, most: int) -> list[slice]:
    """Consecutive clouds with at most `most` points together, or one cloud with more."""
    first, parts = 0, list[slice]()
    while first < len(clouds):
        last = max(first + 1, int(np.searchsorted(clouds.offsets, clouds.offsets[first] + most, "right")) - 1)
        parts.append(slice(first, last))
        first = last
    return parts


def cut_by_distinct(clouds: Clouds, most: int) -> list[slice]:
    """All clouds at once where they have at most `most` distinct points; else as `cut` does."""
    return [slice(0, len(clouds))] if len(np.unique(clouds.index)) <= most else cut(clouds, most)


def distinct(clouds: Clouds) -> tuple[Array, Indices]:
    """The distinct points of some clouds, (q, d), and which of them each of their points is."""
    used, index = np.unique(clouds.index, return_inverse=True)
    return clouds.table[used], index


def k_means(points: Array, mass: Array, k: int, n_rounds: int = 10) -> Array:
    """Centres of weighted points with the mass that is theirs, (k, d + 1), by k-means.

    Nothing is drawn: centres begin at points that carry most of the distance left, one after the other. Where there are
    fewer points than k, the heaviest are given twice, with half the mass each.
    """
    kept = mass > 0
    points, mass = points[kept], mass[kept] / mass[kept].sum()
    while len(points) < k:
        heavy = np.argsort(-mass, kind="stable")[: k - len(points)]
        mass[heavy] *= 0.5
        points, mass = np.concatenate([points, points[heavy]]), np.concatenate([mass, mass[heavy]])
    center = mass @ points
    left = ((points - center) ** 2).sum(axis=1)
    chosen: list[int] = []
    for _ in range(k):
        score = mass * left
        score[chosen] = -1.0
        chosen.append(int(score.argmax()))
        left = np.minimum(left, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    centers = points[chosen]
    for _ in range(n_rounds):
        owner = costs("sqeuclidean", points, centers).argmin(axis=1)
        share = np.zeros((k, len(points)))
        share[owner, np.arange(len(points))] = mass
        total = share.sum(axis=1)
        full = total > 0
        centers[full] = (share[full] / total[full, None]) @ points
    total = np.maximum(total, 0.1 / k)  # a centre without points keeps a little, so that it can be moved
    return np.column_stack([centers, total / total.sum()])


def mass_of(clouds: Clouds, shares: Array) -> Array:
    """Mass of each row of the table, (n_table,), where clouds weigh `shares`."""
    return np.bincount(clouds.index, np.repeat(shares, clouds.sizes) * clouds.weights, minlength=len(clouds.table))


def n_dims(X: Any) -> int:
    """Dimension of the points of checked clouds."""
    return int(X.shape[1] if isinstance(X, Clouds) else X.shape[2] - 1)
