"""What every compressor takes and returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from knnpress.clouds import Clouds
from knnpress.geometries.base import Geometry
from knnpress.typing import Array, Callback, Indices, Labels


@dataclass(frozen=True)
class Prototypes:
    """A compressed training set.

    Attributes
    ----------
    points : ndarray of shape (m, ...)
    labels : ndarray of shape (m,)
    indices : ndarray of shape (m,) or None
        Rows of X the points are, where they were selected and not made.
    gamma : float or None
        Sharpness of the soft neighbourhood, where one was used.
    trace : dict
        What the compressor recorded on the way.
    """

    points: Array
    labels: Labels
    indices: Indices | None = None
    gamma: float | None = None
    trace: dict[str, Any] = field(default_factory=dict)


def refuse_clouds(X: Any, what: str) -> None:
    """Refuse clouds, and say what takes them."""
    if isinstance(X, Clouds):
        raise TypeError(f"{what}, and X is clouds; use CloudCentroids(n_points), or learn with SWC")


@runtime_checkable
class Compressor(Protocol):
    """From a checked training set to a smaller one."""

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
        """Return at most `n_prototypes` prototypes for points X with labels y."""
        ...
