"""How far points of a class are from its prototypes, and which points are farther."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from knnpress.clouds import StoredClouds
from knnpress.execution.rows import rows_within
from knnpress.execution.stored import is_dask, reading_blocks, sample_size
from knnpress.typing import Array, Indices, Labels

#: Shares of the training points of a class that are nearer than a level of ``distance_levels_``; dense where points
#: are rejected
LEVELS = np.array(
    [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 0.995, 0.999, 1.0]
)
_MAX_ROWS = 20_000  # that levels are found by, as settings are


def nearest_of_class(D: Array, labels: Indices, n_classes: int) -> Array:
    """Distance to the nearest prototype of each class, (n, n_classes); infinity where it has none."""
    near = np.full((len(D), n_classes), np.inf)
    for c in np.unique(labels):
        near[:, c] = D[:, labels == c].min(axis=1)
    return near


def class_levels(distances: Array, y: Indices, n_classes: int, weight: Array | None) -> Array:
    """Distances of the points of each class to its prototypes at `LEVELS`, (n_classes, n_levels).

    Parameters
    ----------
    distances : ndarray of shape (n,)
        Of each point to the nearest prototype of its own class.
    y : ndarray of shape (n,)
        Class indices.
    n_classes : int
    weight : ndarray of shape (n,) or None

    Returns
    -------
    levels : ndarray
        NaN for a class without points.
    """
    levels = np.full((n_classes, len(LEVELS)), np.nan)
    for c in np.unique(y):
        own = np.flatnonzero(y == c)
        order = own[np.argsort(distances[own], kind="stable")]
        shares = np.cumsum(np.ones(len(order)) if weight is None else weight[order])
        if shares[-1] > 0:
            at = np.searchsorted(shares / shares[-1], LEVELS - 1e-12)  # a share that rounding made a little less
            levels[c] = distances[order[np.minimum(at, len(order) - 1)]]
    return levels


def average_levels(old: Array, old_weight: Array, new: Array, new_weight: Array) -> Array:
    """Levels of two sets of points, by the weight of each class in them; where a class is in one, those."""
    w_old = np.where(np.isnan(old[:, 0]), 0.0, old_weight)[:, None]
    w_new = np.where(np.isnan(new[:, 0]), 0.0, new_weight)[:, None]
    with np.errstate(invalid="ignore"):
        mixed: Array = (w_old * np.nan_to_num(old) + w_new * np.nan_to_num(new)) / (w_old + w_new)
    return mixed


def outlier_scores(near: Array, levels: Array) -> Array:
    """The least over the classes of the share of points that are nearer; beyond them, of how many times farther."""
    scores = np.full(near.shape, np.inf)
    for c in np.flatnonzero(np.isfinite(levels[:, 0])):
        farthest = max(levels[c, -1], np.finfo(np.float64).tiny)
        beyond = near[:, c] > farthest
        # of levels at one distance the lowest: a few points are not nearer than the farthest of them
        steps, first = np.unique(levels[c], return_index=True)
        scores[:, c] = np.where(beyond, near[:, c] / farthest, np.interp(near[:, c], steps, LEVELS[first]))
    return scores.min(axis=1)


def check_reject(reject: Any) -> float:
    """Refuse what is not a share."""
    if not isinstance(reject, Real) or isinstance(reject, bool) or not 0 <= float(reject) < 1:
        raise ValueError(
            f"reject is {reject!r}; give the share of the training points of a class that may be refused, e.g. 0.05"
        )
    return float(reject)


def rejecting(labels: Labels, rejected: Array, reject_label: Any) -> Labels:
    """Labels with another one where points were rejected; of objects where one array cannot hold both as they are."""
    other = np.asarray(reject_label)
    if other.ndim:
        raise ValueError(f"reject_label is {reject_label!r}; give one label, or None")
    alike = {labels.dtype.kind, other.dtype.kind} in ({"U"}, {"i"}, {"i", "u"}, {"u"}, {"f"}, {"i", "f"})
    out = labels.astype(np.result_type(labels, other) if alike else object)
    out[rejected] = reject_label
    return out


def some_rows(X: Any, stored: bool, weight: Array | None) -> tuple[Any, slice | Indices]:
    """Points of X to find levels by, and their rows: all whose weight is not zero, or of those not in memory as many as
    fit easily.
    """
    if not stored and (weight is None or weight.all()):
        return X, slice(None)
    rows = np.arange(X.shape[0]) if weight is None else np.flatnonzero(weight)
    if not stored:
        return _safe_indexing(X, rows), rows
    rows = rows[:: -(-len(rows) // sample_size(X, _MAX_ROWS))]
    if isinstance(X, StoredClouds):
        return X[rows], rows
    if is_dask(X):
        return np.asarray(X[rows]), rows
    return np.concatenate([np.asarray(X[block])[rows_within(rows, block)] for block in reading_blocks(X)]), rows
