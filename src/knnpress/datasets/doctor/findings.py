"""Points to examine, and what is found wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from knnpress.execution.threads import row_blocks
from knnpress.typing import Array, Indices, Labels

Kind: TypeAlias = Literal["matrices", "histograms", "vectors"]


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes
    ----------
    what : str
        In a few words, e.g. "not positive definite".
    found : str
        What was seen, at the first or worst place.
    cure : str
    rows : ndarray of int
        The points it is about; empty where it is about all.
    severity : {"problem", "note"}
        A problem is refused by knnpress or spoils a classifier; a note is worth knowing.
    remedy : str
        How `mend` goes about it: "drop", "symmetrise", "shrink", "clip", "average cost", or "" where it cannot.
    """

    what: str
    found: str
    cure: str
    rows: Indices = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    severity: Literal["problem", "note"] = "problem"
    remedy: str = ""


@dataclass(frozen=True)
class PointSet:
    """Points to examine: numbers of the right shape, perhaps wrong ones.

    Attributes
    ----------
    X : ndarray of shape (n, d, d) or (n, d), float64
    kind : {"matrices", "histograms", "vectors"}
    y : ndarray of shape (n,), or None
    class_names, ground_cost : ndarray or None
    row : ndarray of shape (n,)
        Where each point stood in the file.
    """

    X: Array
    kind: Kind
    y: Labels | None
    class_names: Labels | None
    ground_cost: Array | None
    row: Indices


def blocks(X: Array) -> list[slice]:
    """Blocks of rows, so that intermediate arrays stay small."""
    return row_blocks(len(X), 8 * X[0].size)


def sizes(X: Array) -> Array:
    """The largest entry of each point, whatever its sign, (n,)."""
    inner = tuple(range(1, X.ndim))
    return np.maximum(X.max(axis=inner), -X.min(axis=inner))


def listed(items: Any, most: int = 8) -> str:
    """Items in a line, the first ones of many."""
    shown = ", ".join(map(str, items[:most]))
    return f"{shown}, … ({len(items)} in all)" if len(items) > most else shown
