"""How many prototypes are enough: the smallest share of the training set that loses little to all of it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from knnpress.compression.prototypes import Compressor
from knnpress.geometries.base import Geometry
from knnpress.neighbors import nearest, vote
from knnpress.typing import Array, Callback, Indices, Labels

__all__ = ["RATIOS", "SizeTrial", "try_sizes"]

RATIOS = (0.02, 0.04, 0.08, 0.16, 0.32)
_MOST_LOSS = 0.01  # errors that a compressed set may make beyond those of the full one
_N_PARTS = 5


@dataclass(frozen=True)
class SizeTrial:
    """What one size gave on held-out points.

    Attributes
    ----------
    ratio, n_prototypes
        The size, as a share of the training set and as a count.
    error, full_error : float
        Share of the held-out points that the compressed and the full training set get wrong.
    standard_error : float
        Of the difference of the two, point by point.
    accepted : bool
        Whether the difference is at most one standard error and at most one point.
    """

    ratio: float
    n_prototypes: int
    error: float
    full_error: float
    standard_error: float
    accepted: bool


def try_sizes(
    compressor: Compressor,
    X: Array,
    y: Labels,
    *,
    geometry: Geometry,
    n_neighbors: int = 1,
    sample_weight: Array | None = None,
    random_state: np.random.Generator | None = None,
    n_jobs: int | None = None,
    callback: Callback | None = None,
) -> list[SizeTrial]:
    """Try sizes from small to large, by 5-fold cross-validation against full kNN, until one is good enough.

    Returns
    -------
    list of SizeTrial
        The last one is the size to take: the first accepted, or, with a warning, the largest.
    """
    rng = np.random.default_rng() if random_state is None else random_state
    n, n_classes = len(X), len(np.unique(y))
    parts = _parts(y, rng)
    seed = int(rng.integers(2**31))

    def wrong(Z: Array, labels: Labels, rows: Indices) -> Array:
        k = min(n_neighbors, len(Z))
        _, index = nearest(geometry.distances_to(Z), X[rows], len(Z), k, n_jobs)
        winner, _ = vote(labels[index], n_classes)
        return winner != y[rows]

    full = [wrong(X[kept], y[kept], held_out) for kept, held_out in parts]
    trials: list[SizeTrial] = []
    for ratio in RATIOS:
        m = max(n_classes, round(ratio * n))
        if trials and m == trials[-1].n_prototypes:
            continue
        losses, errors = [], []
        for (kept, held_out), of_full in zip(parts, full, strict=True):
            found = compressor.compress(
                X[kept],
                y[kept],
                geometry=geometry,
                n_prototypes=m,
                sample_weight=None if sample_weight is None else sample_weight[kept],
                random_state=np.random.default_rng(seed),
                n_jobs=n_jobs,
                callback=callback,
            )
            errors.append(wrong(found.points, found.labels, held_out))
            losses.append(errors[-1].astype(float) - of_full)
        loss = np.concatenate(losses)
        spread = float(loss.std() / np.sqrt(len(loss)))
        trials.append(
            SizeTrial(
                ratio=ratio,
                n_prototypes=m,
                error=float(np.concatenate(errors).mean()),
                full_error=float(np.concatenate(full).mean()),
                standard_error=spread,
                accepted=bool(loss.mean() <= min(spread, _MOST_LOSS)),
            )
        )
        if trials[-1].accepted:
            return trials
    warnings.warn(
        f"even {trials[-1].n_prototypes} prototypes ({trials[-1].ratio:.0%}) lose to the full training set "
        f"({trials[-1].error:.1%} against {trials[-1].full_error:.1%} held-out errors); taking that many",
        stacklevel=4,
    )
    return trials


def _parts(y: Labels, rng: np.random.Generator) -> list[tuple[Indices, Indices]]:
    """Five pairs of rows kept and rows held out, each class spread evenly; a class of one is never held out."""
    part = np.full(len(y), -1)
    for c in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == c))
        if len(rows) > 1:
            part[rows] = (np.arange(len(rows)) + rng.integers(_N_PARTS)) % _N_PARTS
    pairs = [(np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in range(_N_PARTS)]
    return [(kept, held_out) for kept, held_out in pairs if len(held_out)]
