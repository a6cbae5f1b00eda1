"""How many prototypes each class gets."""

from __future__ import annotations

import numpy as np

from knnpress.typing import Array, Indices, Labels

_EVENLY = 0.05  # share of a class that counts as errors in any case


def class_quotas(y: Labels, n_prototypes: int, weight: Array | None = None) -> list[tuple[Indices, int]]:
    """Share prototypes out among the classes: in proportion to their sizes, at least one each.

    Parameters
    ----------
    y : ndarray of shape (n,)
    n_prototypes : int
        At least the number of classes.
    weight : ndarray of shape (n,) or None
        A class is as large as the sum of its weights.

    Returns
    -------
    list of (rows, quota)
        For each class in sorted order, its rows of X and how many prototypes it gets; no more than it has rows.
    """
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    sizes = counts if weight is None else np.bincount(codes, weight)
    if n_prototypes < len(classes):
        raise ValueError(
            f"n_prototypes is {n_prototypes}, but there are {len(classes)} classes; give each at least one"
        )
    ones = np.ones(len(classes), dtype=np.intp)
    quotas = _share_out(min(n_prototypes, len(y)) - len(classes), sizes, ones, counts - 1)
    return [(np.flatnonzero(y == c), int(q)) for c, q in zip(classes, quotas, strict=True)]


def raise_quotas(
    quotas: list[tuple[Indices, int]], errors: Array, n_more: int, weight: Array
) -> list[tuple[Indices, int]]:
    """Share `n_more` prototypes out among the classes: in proportion to their errors, and a little to their sizes.

    Parameters
    ----------
    quotas : list of (rows, quota)
        As `class_quotas` returns them.
    errors : ndarray of shape (n_classes,)
        Weight of the points of each class that are closer to a prototype of another. A twentieth
        of each class is added, so that sizes decide where there are few errors.
    n_more : int
        At most as many as there are rows left.
    weight : ndarray of shape (n,)
    """
    counts = np.array([len(rows) for rows, _ in quotas])
    now = np.array([quota for _, quota in quotas])
    sizes = np.array([weight[rows].sum() for rows, _ in quotas])
    added = _share_out(n_more, errors + _EVENLY * sizes, np.zeros_like(now), counts - now)
    return [(rows, quota + int(more)) for (rows, quota), more in zip(quotas, added, strict=True)]


def _share_out(n_seats: int, claims: Array, seats: Indices, room: Indices) -> Indices:
    """Seats after `n_seats` more, by highest averages (Webster): the worst served class with room comes next."""
    seats, most = seats.copy(), seats + room
    for _ in range(n_seats):
        seats[np.argmax(np.where(seats < most, claims / (seats + 0.5), -1.0))] += 1
    return seats
