"""The k nearest prototypes of each point, and the vote among them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from knnpress.parallel import map_blocks, row_blocks
from knnpress.typing import Array, Indices

__all__ = ["nearest", "vote"]


def nearest(
    distances: Callable[[Array], Array], X: Array, n_prototypes: int, k: int, n_jobs: int | None = None
) -> tuple[Array, Indices]:
    """The k nearest prototypes of each row of X, nearest first; equal distances in order of index.

    Parameters
    ----------
    distances : callable
        From a block of X to its distances to all prototypes, as `Geometry.distances_to` gives.
    X : ndarray of shape (n, ...)
        Checked points.
    n_prototypes : int
        m, which sets the size of a block: no more than a block of distances a thread is ever held.
    k : int
        At most m.
    n_jobs : int or None

    Returns
    -------
    distance : ndarray of shape (n, k)
    index : ndarray of shape (n, k)
    """

    def search(rows: slice) -> tuple[Array, Indices]:
        D = distances(X[rows])
        if k == 1:
            index = D.argmin(axis=1)[:, None]
        else:
            # argpartition finds the k-th distance; ties with it are then settled by index
            kth = np.partition(D, k - 1, axis=1)[:, k - 1 : k]
            index = np.stack([_first_k(row, bound, k) for row, bound in zip(D, kth[:, 0], strict=True)])
        return np.take_along_axis(D, index, axis=1), index

    parts = map_blocks(search, row_blocks(len(X), 8 * n_prototypes), n_jobs)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _first_k(row: Array, bound: float, k: int) -> Indices:
    candidates = np.flatnonzero(row <= bound)
    return candidates[np.argsort(row[candidates], kind="stable")[:k]]


def vote(labels: Indices, n_classes: int) -> tuple[Indices, Array]:
    """The class with most votes, ties going to the class whose nearest voter is nearer.

    Parameters
    ----------
    labels : ndarray of shape (n, k)
        Class indices of each point's neighbours, nearest first.
    n_classes : int

    Returns
    -------
    winner : ndarray of shape (n,)
    share : ndarray of shape (n, n_classes)
        Share of the votes of each class.
    """
    n, k = labels.shape
    counts = np.zeros((n, n_classes))
    np.add.at(counts, (np.arange(n)[:, None], labels), 1.0)
    # among the neighbours, in order, the first whose class has the most votes
    leading = np.take_along_axis(counts, labels, axis=1) == counts.max(axis=1, keepdims=True)
    winner = labels[np.arange(n), leading.argmax(axis=1)]
    return winner, counts / k
