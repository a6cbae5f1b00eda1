"""What every loader returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from knnpress.typing import Array, Indices, Labels

#: Rows to train on and rows to test on, as many times as suggested; goes where scikit-learn takes `cv`.
Splits: TypeAlias = tuple[tuple[Indices, Indices], ...]


@dataclass(frozen=True)
class Dataset:
    """Labelled points.

    Attributes
    ----------
    X : ndarray of shape (n, d, d) or (n, d), or Clouds; of a store, what is read from it
        Covariance matrices, histograms, or clouds.
    y : ndarray of shape (n,)
        Class of each point, 0-based.
    class_names : tuple of str
    citation : str
        Where the data come from.
    ground_cost : ndarray of shape (d, d) or None
        Cost of moving mass between bins, for histograms.
    groups : mapping of str to ndarray of shape (n,)
        What else is known of each point, e.g. which object it shows.
    splits : tuple of (train, test) rows
        How the data are usually divided; empty where there is no usual way.
    """

    X: Any
    y: Indices
    class_names: tuple[str, ...]
    citation: str
    ground_cost: Array | None = None
    groups: Mapping[str, Labels] = field(default_factory=dict)
    splits: Splits = ()


@dataclass(frozen=True)
class ImageDataset:
    """Labelled images, for a descriptor to make points of.

    Attributes
    ----------
    images : sequence of arrays (h, w[, c]) or of `ImageFile`; or array of shape (n, h, w[, c])
        Two and four channels end in opacity: the object is opaque.
    y : ndarray of shape (n,)
        Class of each image, 0-based.
    class_names : tuple of str
    citation : str
        Where the data come from.
    groups : mapping of str to ndarray of shape (n,)
        What else is known of each image, e.g. which object it shows.
    splits : tuple of (train, test) rows
        How the data are usually divided; empty where there is no usual way.
    """

    images: Sequence[Any] | Array
    y: Indices
    class_names: tuple[str, ...]
    citation: str
    groups: Mapping[str, Labels] = field(default_factory=dict)
    splits: Splits = ()


def half_splits(y: Array) -> Splits:
    """Five random halves to train on and to test on, each with its share of every class."""
    halves = StratifiedShuffleSplit(5, test_size=0.5, random_state=0).split(y, y)
    return tuple((train, test) for train, test in halves)


def held_out(groups: Array) -> Splits:
    """Each group tested once, the others trained on."""
    return tuple((np.flatnonzero(groups != group), np.flatnonzero(groups == group)) for group in np.unique(groups))


def class_labels(y: Labels, path: Path) -> Array:
    """Labels that can be classes, text as such; refused where one is missing or no class, as classifiers refuse it."""
    if y.dtype.kind == "S":
        try:
            y = np.char.decode(y, "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} has labels that are no UTF-8 text ({error}); save them as text") from error
    if y.dtype.kind not in "biufUmMO":
        raise ValueError(f"{path} has labels of type {y.dtype}; give whole numbers or names")
    missing = missing_labels(y)
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        what = repr(y[row : row + 1].tolist()[0])
        raise ValueError(
            f"{path} has no label for point {row} (it is {what}), as for {missing.sum()} of {len(y)} points; remove "
            "them, or give them labels"
        )
    if y.dtype.kind == "f" and (broken := y != np.round(y)).any():
        row = int(np.flatnonzero(broken)[0])
        raise ValueError(
            f"{path} has the label {y[row]:g} for point {row}, which is no class; give whole numbers or names"
        )
    return y


def missing_labels(y: Array) -> Array:
    """Where labels as found in a file are missing: NaN, infinity, NaT, None, empty text, (n,) of bool."""
    if y.dtype.kind == "f":
        return ~np.isfinite(y)
    if y.dtype.kind in "US":
        return np.char.strip(y) == y.dtype.type()
    if y.dtype.kind in "mM":
        return np.isnat(y)
    if y.dtype.kind == "O":
        return np.array([label is None or label != label for label in y], dtype=bool)
    return np.zeros(len(y), dtype=bool)


def encode(labels: Array) -> tuple[Indices, tuple[str, ...]]:
    """Labels of any kind as 0-based classes, and the names of the classes."""
    if labels.dtype.kind == "f" and (labels == np.round(labels)).all():  # MATLAB's whole numbers
        labels = labels.astype(np.int64)
    names, y = np.unique(labels, return_inverse=True)
    return y.astype(np.intp).reshape(-1), tuple(map(str, names.tolist()))
