"""The k nearest prototypes of each point, and the vote among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from knnpress.execution.threads import map_blocks, row_blocks
from knnpress.typing import Array, Indices


def nearest(
    distances: Callable[[Array], Array], X: Array, n_prototypes: int, k: int, n_jobs: int | None = None
) -> tuple[Array, Indices]:
    """The k nearest prototypes of each row of X, nearest first; equal distances in order of index.

    Parameters
    ----------
    distances : callable
        From a block of X to its distances to all prototypes, as returned by `Geometry.distances_to`.
    X : ndarray of shape (n, ...)
        Checked points.
    n_prototypes : int
        m, which sets the block size: each thread holds at most one block of distances at a time.
    k : int
        At most m.
    n_jobs : int or None

    Returns
    -------
    distance : ndarray of shape (n, k)
    index : ndarray of shape (n, k)
    """

    def search(block: slice) -> tuple[Array, Indices]:
        D = distances(X[block])
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


@dataclass(frozen=True)
class ByClass:
    """Prototypes sorted by class, so that each class is one contiguous run.

    Attributes
    ----------
    order : ndarray of shape (m,) or None
        Prototypes, class by class; None where they are in that order already.
    labels : ndarray of shape (m,)
        Class indices in that order.
    present, first, counts : ndarray of shape (n_present,)
        Classes that have prototypes, where each begins in the order, and how many prototypes it has.
    n_classes : int
    """

    order: Indices | None
    labels: Indices
    present: Indices
    first: Indices
    counts: Indices
    n_classes: int

    @classmethod
    def of(cls, labels: Indices, n_classes: int) -> ByClass:
        """For prototypes with these class indices, (m,)."""
        order = np.argsort(labels, kind="stable")
        in_order = labels[order]
        present, first, counts = np.unique(in_order, return_index=True, return_counts=True)
        sorted_already = np.array_equal(in_order, labels)
        return cls(None if sorted_already else order, in_order, present, first, counts, n_classes)

    def nearest(self, D: Array, gamma: float) -> Indices:
        """The class of the nearest prototype, (n,); the first one where several are equally near."""
        return self.labels[self._logits(D, gamma).argmax(axis=1)]

    def scores(self, D: Array, gamma: float) -> tuple[Array, Array]:
        """Log-odds of each class by its nearest prototype, and by all of its prototypes, (n, n_classes) each."""
        logits = self._logits(D, gamma)
        top = np.maximum.reduceat(logits, self.first, axis=1)
        total = np.add.reduceat(np.exp(logits - np.repeat(top, self.counts, axis=1)), self.first, axis=1)
        nearest, soft = (np.full((len(D), self.n_classes), -np.inf) for _ in range(2))
        nearest[:, self.present], soft[:, self.present] = top, top + np.log(total)
        return nearest, soft

    def _logits(self, D: Array, gamma: float) -> Array:
        return -(gamma**2) * (D if self.order is None else D[:, self.order])
