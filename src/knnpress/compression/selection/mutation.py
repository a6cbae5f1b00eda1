"""Random mutation hill climbing: prototypes exchanged at random, where that does not cost accuracy."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.prototypes import Prototypes
from knnpress.compression.selection.subsample import Subsample
from knnpress.geometries.base import Geometry, distance_matrix
from knnpress.typing import Array, Callback, Indices, Labels

_AHEAD = 32  # columns of distances made at once: one at a time would prepare X again for each


class RandomMutation(BaseEstimator):
    """Random mutation hill climbing from a random subset (RMHC).

    Each mutation exchanges a random prototype for a random training point, of whatever class. It stays if the training
    error is no higher: so the error never rises, and mutations that change nothing can still lead off a plateau.
    Mutations that would repeat a prototype or leave a class without one are not tried.

    Parameters
    ----------
    n_mutations : int
        Mutations tried; each takes one column of distances.

    References
    ----------
    Skalak. Prototype and feature selection by sampling and random mutation hill climbing algorithms. ICML 1994.
    """

    def __init__(self, n_mutations: int = 1000) -> None:
        self.n_mutations = n_mutations

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
        """Return `n_prototypes` rows of X (one per class, if None).

        The trace holds "error_curve", the (weighted) training error at the start and after each mutation. `callback`
        is called as often, with the fact "error".
        """
        rng = np.random.default_rng() if random_state is None else random_state
        m = len(np.unique(y)) if n_prototypes is None else n_prototypes
        start = Subsample().compress(X, y, geometry=geometry, n_prototypes=m, random_state=rng)
        assert start.indices is not None
        chosen = start.indices.copy()
        slots = rng.integers(len(chosen), size=self.n_mutations)
        rows = rng.integers(len(X), size=self.n_mutations)

        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        climb = _Climb(distance_matrix(geometry, X, start.points, n_jobs), y, chosen, weight)
        curve = [climb.error]
        stop = callback is not None and callback(0, self.n_mutations, {"error": climb.error})
        for step in range(self.n_mutations):
            if stop:
                break
            if step % _AHEAD == 0:
                ahead = distance_matrix(geometry, X, X[rows[step : step + _AHEAD]], n_jobs)
            climb.mutate(int(slots[step]), int(rows[step]), ahead[:, step % _AHEAD])
            curve.append(climb.error)
            stop = callback is not None and callback(step + 1, self.n_mutations, {"error": climb.error})
        return Prototypes(X[chosen], y[chosen], indices=chosen, trace={"error_curve": curve})


class _Climb:
    """The current prototypes, `chosen` (changed in place), and the points that each of them serves.

    Parameters
    ----------
    D : ndarray of shape (n, m)
        Distances to the chosen rows.
    y : ndarray of shape (n,)
    chosen : ndarray of shape (m,)
    weight : ndarray of shape (n,)
    """

    def __init__(self, D: Array, y: Labels, chosen: Indices, weight: Array) -> None:
        self.D, self.y, self.chosen, self.weight = D, y, chosen, weight
        self.owner = D.argmin(axis=1)
        self.distance = D.min(axis=1)
        self.error = self._error(self.owner, y[chosen])

    def _error(self, owner: Indices, labels: Labels) -> float:
        # divided last, so that equal numbers of errors are equal
        return float(self.weight @ (labels[owner] != self.y)) / float(self.weight.sum())

    def mutate(self, slot: int, row: int, column: Array) -> None:
        """Put `row`, whose distances are `column`, in the place of a prototype, unless that is worse."""
        labels = self.y[self.chosen]
        lost = labels[slot]
        if row in self.chosen or (self.y[row] != lost and (labels == lost).sum() == 1):
            return
        owner, distance = self.owner.copy(), self.distance.copy()
        orphans = np.flatnonzero(owner == slot)
        others = self.D[orphans]
        others[:, slot] = np.inf
        owner[orphans], distance[orphans] = others.argmin(axis=1), others.min(axis=1)
        closer = (column < distance) | ((column == distance) & (slot < owner))  # ties: the lower index, as ever
        owner[closer], distance[closer] = slot, column[closer]
        labels[slot] = self.y[row]
        error = self._error(owner, labels)
        if error <= self.error:
            self.D[:, slot], self.chosen[slot] = column, row
            self.owner, self.distance, self.error = owner, distance, error
