"""What condensing methods share: a subset that grows until it classifies the training set right."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from knnpress.geometries.base import Geometry
from knnpress.neighbors import nearest
from knnpress.typing import Array, Callback, Indices, Labels


class GrowingSubset:
    """Rows chosen so far, and which of them is nearest to each training point.

    Parameters
    ----------
    X, y : ndarray of shapes (n, ...), (n,)
        Checked points and their labels.
    rows : sequence of int
        The first rows.
    geometry : Geometry
    n_jobs : int or None

    Attributes
    ----------
    rows : list of int
        In order of insertion.
    chosen : ndarray of bool, shape (n,)
        Whether a point is among them.
    distance, owner : ndarray of shape (n,)
        Distance to the nearest of them, and its place in `rows`; among equals the first.
    wrong : ndarray of bool, shape (n,)
        Whether that nearest one has another label.
    """

    def __init__(self, X: Array, y: Labels, rows: Sequence[int], geometry: Geometry, n_jobs: int | None) -> None:
        self.X, self.y, self.geometry, self.n_jobs = X, y, geometry, n_jobs
        self.rows: list[int] = []
        self.chosen = np.zeros(len(X), dtype=bool)
        self.distance = np.full(len(X), np.inf)
        self.owner = np.zeros(len(X), dtype=np.intp)
        self.wrong = np.ones(len(X), dtype=bool)
        self.add(rows)

    def add(self, rows: Sequence[int]) -> None:
        """Choose more rows; only distances to these are computed."""
        distance, index = self._nearest(rows)
        closer = np.flatnonzero(distance < self.distance)
        self.distance[closer] = distance[closer]
        self.owner[closer] = len(self.rows) + index[closer]
        self.wrong[closer] = self.y[rows][index[closer]] != self.y[closer]
        self.rows.extend(rows)
        self.chosen[rows] = True

    def recheck(self) -> None:
        """Search again among all chosen rows, as a classifier does; distances found singly may round differently."""
        self.distance, self.owner = self._nearest(self.rows)
        self.wrong = self.y[self.rows][self.owner] != self.y

    def _nearest(self, rows: Sequence[int]) -> tuple[Array, Indices]:
        distance, index = nearest(self.geometry.distances_to(self.X[rows]), self.X, len(rows), 1, self.n_jobs)
        return distance[:, 0], index[:, 0]


def grow(
    subset: GrowingSubset,
    choose: Callable[[Array], Sequence[int]],
    *,
    name: str,
    n_prototypes: int | None,
    callback: Callback | None,
) -> Indices:
    """Let a subset grow until it classifies every training point right, or holds `n_prototypes` rows.

    The last word is that of the very search a classifier makes, among all chosen rows at once: where near ties come out
    differently there, growing goes on. No row is chosen twice.

    Parameters
    ----------
    subset : GrowingSubset
        The start, which has a row of every class.
    choose : callable
        From the mask of points that are wrong and not chosen, (n,), to the rows among them that come next.
    name : str
        Of the method, for warnings.
    n_prototypes : int or None
    callback : callable or None
        Called at the start and after each choice, with the fact "error", the share of points that are wrong.

    Returns
    -------
    ndarray of shape (m,)
        Rows in order of insertion.
    """
    while True:
        error = float(subset.wrong.mean())
        stop = callback is not None and callback(len(subset.rows), n_prototypes, {"error": error})
        if stop or len(subset.rows) == n_prototypes:
            break
        missed = subset.wrong & ~subset.chosen
        if not missed.any():
            subset.recheck()
            missed = subset.wrong & ~subset.chosen
        if not missed.any():
            _warn_of_wrong(name, subset.wrong)
            warn_of_fewer(name, len(subset.rows), n_prototypes)
            break
        room = None if n_prototypes is None else n_prototypes - len(subset.rows)
        subset.add(choose(missed)[:room])
    return np.array(subset.rows)


def _warn_of_wrong(name: str, wrong: Array) -> None:
    if wrong.any():
        warnings.warn(
            f"{name}: {wrong.sum()} of {len(wrong)} training points are wrong although they were chosen, e.g. "
            f"X[{wrong.argmax()}]: no nearer to itself than to a prototype of another class. Points are equal but for "
            "their labels, or a point is not the nearest to itself, as with Sinkhorn's 'transport' and 'dual'",
            ConvergenceWarning,
            stacklevel=4,
        )


def warn_of_fewer(name: str, found: int, n_prototypes: int | None) -> None:
    """Say where a method has nothing to add before it reaches the number asked for."""
    if n_prototypes is not None and found < n_prototypes:
        warnings.warn(f"{name} needs only {found} prototypes, not the {n_prototypes} asked for", stacklevel=4)
