"""Points made by a seeded generator, as many as wanted."""

from __future__ import annotations

from typing import Any

import numpy as np

from knnpress.datasets.dataset import Dataset
from knnpress.typing import Array

_ROWS = 1024  # drawn together; a block depends on the seed and its number alone


def make_wishart_classes(
    n: int = 1000,
    d: int = 5,
    n_classes: int = 3,
    random_state: int = 0,
    out: Any = None,
    *,
    degrees: int | None = None,
    spread: float = 0.25,
    n_modes: int = 2,
) -> Dataset:
    """Covariance matrices of classes that are mixtures of Wishart distributions.

    They are drawn in blocks of 1024, each by a generator of its own, so that the same arguments give the same points,
    and the first points do not depend on n.

    Parameters
    ----------
    n, d, n_classes : int
        How many matrices, of what size, of how many classes.
    random_state : int
    out : object or None
        Where to write them, e.g. a memory map or a zarr array of shape (n, d, d); no more than a block is held then.
        None: an array in memory.
    degrees : int or None
        Degrees of freedom of a matrix, at least d; None: 3 d. The more, the less it differs from the scale of its mode.
    spread : float
        How far the modes are apart.
    n_modes : int
        Wishart distributions in a class.

    Returns
    -------
    Dataset
        Whose X is `out`, where that was given.

    Examples
    --------
    >>> from knnpress.datasets import make_wishart_classes
    >>> data = make_wishart_classes(n=10, d=4, n_classes=2)
    >>> data.X.shape, data.y.shape, data.class_names
    ((10, 4, 4), (10,), ('0', '1'))
    """
    degrees = 3 * d if degrees is None else degrees
    if degrees < d:
        raise ValueError(f"degrees is {degrees}, below d = {d}: the matrices would be singular; give at least {d}")
    X = np.empty((n, d, d)) if out is None else out
    if tuple(X.shape) != (n, d, d):
        raise ValueError(f"out has shape {tuple(X.shape)}; expected {(n, d, d)}")
    factors = _factors(np.random.default_rng([random_state, 0]), n_classes * n_modes, d, spread)
    y = np.empty(n, dtype=np.intp)
    for start in range(0, n, _ROWS):
        rng = np.random.default_rng([random_state, 1 + start // _ROWS])
        mode = rng.integers(n_classes * n_modes, size=_ROWS)
        A = factors[mode] @ rng.normal(size=(_ROWS, d, degrees))
        points = A @ A.transpose(0, 2, 1) / degrees
        rows = slice(start, min(start + _ROWS, n))
        X[rows] = 0.5 * (points + points.transpose(0, 2, 1))[: rows.stop - start]
        y[rows] = (mode % n_classes)[: rows.stop - start]
    return Dataset(X, y, tuple(map(str, range(n_classes))), "made by knnpress.datasets.make_wishart_classes")


def _factors(rng: np.random.Generator, count: int, d: int, spread: float) -> Array:
    """Symmetric square roots of the scale of each mode: exponentials of random symmetric matrices, (count, d, d)."""
    S = spread * rng.normal(size=(count, d, d)) / np.sqrt(2.0)
    values, vectors = np.linalg.eigh((S + S.transpose(0, 2, 1)) / 2.0)
    return (vectors * np.exp(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
