"""What every loader returns."""

from __future__ import annotations

from dataclasses import dataclass

from knnpress.typing import Array, Indices

__all__ = ["Dataset"]


@dataclass(frozen=True)
class Dataset:
    """Labelled points.

    Attributes
    ----------
    X : ndarray of shape (n, d, d) or (n, d)
        Covariance matrices, or histograms.
    y : ndarray of shape (n,)
        Class of each point, 0-based.
    class_names : tuple of str
    citation : str
        Where the data come from.
    ground_cost : ndarray of shape (d, d) or None
        Cost of moving mass between bins, for histograms.
    """

    X: Array
    y: Indices
    class_names: tuple[str, ...]
    citation: str
    ground_cost: Array | None = None
