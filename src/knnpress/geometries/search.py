"""Exact search for the nearest of many points, by distances to a few of them, the pivots: distances that these prove
too large are never computed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from knnpress import _core
from knnpress.typing import Array, Indices

N_PIVOTS = 64
MIN_POINTS, MIN_QUERIES = 512, 64  # below these a plain search is as quick

_FIRST = 4  # that look nearest, computed before the others are judged


def pivots(Z: Array, distances_to: Callable[[Array], Callable[[Array], Array]], count: int) -> tuple[Indices, Array]:
    """Points far from each other, (p,), and the distances of all to them, (m, p); fewer than `count` where others are
    copies of them.
    """
    rows, columns, closest = [0], list[Array](), np.full(len(Z), np.inf)
    while True:
        columns.append(distances_to(Z[rows[-1:]])(Z)[:, 0])
        closest = np.minimum(closest, columns[-1])
        closest[rows] = 0.0  # it is zero, but for rounding: no point is taken twice
        if len(rows) == count or not closest.any():
            break
        rows.append(int(closest.argmax()))
    return np.array(rows), np.stack(columns, axis=1)


def tree_order(features: Array, size: int) -> Indices:
    """An order of rows in which every `size` in turn are similar: halved by the widest feature, again and again."""
    parts, done = [np.arange(len(features))], list[Indices]()
    while parts:
        rows = parts.pop()
        if len(rows) <= size:
            done.append(rows)
            continue
        widest = int(np.ptp(features[rows], axis=0).argmax())
        rows = rows[np.argsort(features[rows, widest], kind="stable")]
        half = -(-len(rows) // (2 * size)) * size
        parts += [rows[half:], rows[:half]]
    return np.concatenate(done)


def boxes(low: Array, high: Array, size: int) -> tuple[Array, Array]:
    """The least and largest features of each `size` rows in turn, (count, groups) each; a row has a range of them."""
    starts = np.arange(0, len(low), size)
    least, largest = np.minimum.reduceat(low, starts).T, np.maximum.reduceat(high, starts).T
    return np.ascontiguousarray(least), np.ascontiguousarray(largest)


def outside(box: tuple[Array, Array], features: Array) -> Array:
    """How far each row of features is from each box in its farthest coordinate, (n, groups), negative within."""
    return _core.box_gaps(*box, np.ascontiguousarray(features))


def k_smallest(lower: Array, top: Array, k: int, solve: Callable[[Array, Array], Array]) -> Array:
    """Distances of which the k least of every row are right; others may be infinity.

    Parameters
    ----------
    lower : ndarray of shape (n, g)
        Lower bounds of the distances to the points of each group.
    top : ndarray of shape (n,)
        Upper bound of the k-th smallest.
    k : int
    solve : callable
        From the groups wanted, (n, g) of bool, and the last `top` to distances, infinity where not wanted or above it.
    """
    first = np.zeros(lower.shape, dtype=bool)
    count = min(max(_FIRST, k), lower.shape[1])
    np.put_along_axis(first, np.argpartition(lower, count - 1, axis=1)[:, :count], True, axis=1)
    D = solve(first, top)
    if k <= D.shape[1]:
        top = np.minimum(top, np.partition(D, k - 1, axis=1)[:, k - 1])
    return np.minimum(D, solve(~first & (lower <= top[:, None]), top))
