"""Which points are held out, fold by fold, when a setting is chosen."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from knnpress.typing import Array, Indices, Labels

_N_FOLDS = 5
_ENOUGH_HELD_OUT = 200  # points; fifths are held out in turn until this many have been


def make_folds(y: Labels, groups: Array | None, seed: int) -> list[tuple[Indices, Indices]]:
    """Rows to learn from and rows held out, fold by fold; none where there are too few points to hold any out.

    Fifths with a share of each class, until 200 points have been held out; with groups, all five fifths, because points
    of one group are not independent. A class of one point, or in one group alone, is always learned from.
    """
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    everything = np.arange(len(y))
    if groups is not None and len(np.unique(groups)) == 1:
        warnings.warn("groups has one group only; folds are stratified instead", stacklevel=2)
        groups = None
    if groups is None:
        divided = np.flatnonzero(counts[codes] > 1)
        n_folds = min(_N_FOLDS, int(counts.max()))
    else:
        kinds = np.unique(np.stack([codes, np.unique(groups, return_inverse=True)[1]]), axis=1)
        alone = np.bincount(kinds[0], minlength=len(counts)) == 1
        divided = np.flatnonzero(~alone[codes])
        n_folds = min(_N_FOLDS, len(np.unique(groups[divided])) if len(divided) else 0)
    if n_folds < 2 or len(divided) < n_folds:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes smaller than the folds are in some of them only
        if groups is None:
            split = StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(divided, codes[divided])
        else:
            splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
            split = splitter.split(divided, codes[divided], groups[divided])
        held_out = [divided[out] for _, out in split]
    folds = [(np.setdiff1d(everything, out), out) for out in held_out if len(out)]
    # a fold must leave something to learn from of every class
    folds = [(kept, out) for kept, out in folds if len(np.unique(codes[kept])) == len(counts)]
    if groups is not None:
        return folds
    enough = np.searchsorted(np.cumsum([len(out) for _, out in folds]), _ENOUGH_HELD_OUT) + 1
    return folds[:enough]
