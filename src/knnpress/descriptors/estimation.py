"""Covariances of many signals at a time: as they are, or shrunk as much as each signal needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from knnpress import _core
from knnpress.typing import Array

_FLAT = 1e-12  # standard deviation, as a share of the mean, of a channel that says nothing


def _moments(S: Array) -> tuple[Array, Array]:
    """Means of products of every two channels, (..., d, d), symmetric to the last bit, and of channels, (..., d)."""
    second, mean = _core.moments(np.ascontiguousarray(S).reshape(-1, *S.shape[-2:]))
    return second.reshape(*S.shape[:-1], S.shape[-2]), mean.reshape(S.shape[:-1])


def _estimate(S: Array, shrinkage: Callable[[Array, Array, Array, Array], Array] | None) -> tuple[Array, Array]:
    """Covariances of signals, (n, bands, d, times), and which channels are flat, (n, bands, d)."""
    d = S.shape[-2]
    C, mean = _moments(S)
    # Filtered signals have almost no mean, and need no second pass to take it off; others would lose digits without
    far = (2.0 * mean**2 > np.einsum("...kk->...k", C)).any(axis=(1, 2))
    rest = np.where(far[:, None, None], 0.0, mean)
    if far.any():
        S = S.copy()
        S[far] -= mean[far, ..., None]
        C[far] = _moments(S[far])[0]
    C -= rest[..., :, None] * rest[..., None, :]
    variances = np.einsum("...kk->...k", C)
    flat = variances <= (_FLAT * mean) ** 2
    if shrinkage is not None:
        mu = variances.sum(axis=-1) / d
        s = shrinkage(S, rest, C, mu)
        C *= (1.0 - s)[..., None, None]
        np.einsum("...kk->...k", C)[...] += (s * mu)[..., None]
    return C, flat


def _oas(S: Array, mean: Array, C: Array, mu: Array) -> Array:
    """The share of the identity by Chen et al., as scikit-learn has it, (n, bands)."""
    T, d = S.shape[-1], S.shape[-2]
    alpha = np.einsum("...jk,...jk->...", C, C) / d**2
    below = (T + 1.0) * (alpha - mu**2 / d)
    return np.where(below == 0, 1.0, np.minimum((alpha + mu**2) / np.where(below == 0, 1.0, below), 1.0))


def _ledoit_wolf(S: Array, mean: Array, C: Array, mu: Array) -> Array:
    """The share of the identity by Ledoit and Wolf, (n, bands)."""
    T, d = S.shape[-1], S.shape[-2]
    if d == 1:
        return np.zeros(C.shape[:-2])  # as scikit-learn: nothing to shrink
    power = np.einsum("...jt,...jt->...t", S, S)  # of the channels together, about their means
    power -= 2.0 * (mean[..., None, :] @ S)[..., 0, :] - np.einsum("...j,...j->...", mean, mean)[..., None]
    square = np.einsum("...jk,...jk->...", C, C)
    beta = (np.einsum("...t,...t->...", power, power) / T - square) / (d * T)
    delta = square / d - mu**2
    beta = np.minimum(beta, delta)
    return np.where(beta == 0, 0.0, beta / np.where(beta == 0, 1.0, delta))


#: By the name that `SignalCovariance` has for each
ESTIMATORS: dict[str, Callable[[Array], tuple[Array, Array]]] = {
    "empirical": partial(_estimate, shrinkage=None),
    "ledoit_wolf": partial(_estimate, shrinkage=_ledoit_wolf),
    "oas": partial(_estimate, shrinkage=_oas),
}
