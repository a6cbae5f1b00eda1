"""How many prototypes each class gets."""

from __future__ import annotations

import numpy as np

from knnpress.typing import Indices, Labels

__all__ = ["class_quotas"]


def class_quotas(y: Labels, n_prototypes: int) -> list[tuple[Indices, int]]:
    """Share prototypes out among the classes: in proportion to their sizes, at least one each.

    Parameters
    ----------
    y : ndarray of shape (n,)
    n_prototypes : int
        At least the number of classes.

    Returns
    -------
    list of (rows, quota)
        For each class in sorted order, its rows of X and how many prototypes it gets; no more than it has rows.
    """
    classes, counts = np.unique(y, return_counts=True)
    if n_prototypes < len(classes):
        raise ValueError(
            f"n_prototypes is {n_prototypes}, but there are {len(classes)} classes; give each at least one"
        )
    n_prototypes = min(n_prototypes, len(y))
    quotas = np.ones(len(classes), dtype=np.intp)
    while quotas.sum() < n_prototypes:  # highest averages (Webster): the class worst served so far comes next
        quotas[np.argmax(np.where(quotas < counts, counts / (quotas + 0.5), -1.0))] += 1
    return [(np.flatnonzero(y == c), int(q)) for c, q in zip(classes, quotas, strict=True)]
