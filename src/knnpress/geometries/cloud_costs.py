"""Costs between points of clouds, and their derivatives."""

from __future__ import annotations

from typing import Literal

import numpy as np

from knnpress.typing import Array

Cost = Literal["sqeuclidean", "euclidean", "cosine"]


def costs(cost: Cost, P: Array, Q: Array) -> Array:
    """Costs between points, (p, q), by one matrix product."""
    if cost == "cosine":
        C: Array = 1.0 - directions(P) @ directions(Q).T
        return np.maximum(C, 0.0, out=C)
    center = Q.mean(axis=0)  # around it little is lost to cancellation
    P, Q = P - center, Q - center
    C = P @ (-2.0 * Q).T
    C += np.einsum("ik,ik->i", P, P)[:, None]
    C += np.einsum("ik,ik->i", Q, Q)
    np.maximum(C, 0.0, out=C)
    return np.sqrt(C, out=C) if cost == "euclidean" else C


def cost_gradient(cost: Cost, P: Array, Q: Array, C: Array, T: Array) -> Array:
    """sum_p T[p, q] dC[p, q] / dQ[q], (q, d)."""
    if cost == "cosine":
        length = np.linalg.norm(Q, axis=1, keepdims=True)
        pull, direction = T.T @ directions(P), directions(Q)
        along = np.einsum("qk,qk->q", pull, direction)[:, None]
        return (along * direction - pull) / np.maximum(length, 1e-300)
    if cost == "euclidean":
        T = 0.5 * np.divide(T, C, out=np.zeros_like(T), where=C > 0)
    gradient: Array = 2.0 * (T.sum(axis=0)[:, None] * Q - T.T @ P)
    return gradient


def directions(P: Array) -> Array:
    """Points scaled to length one; zero stays zero."""
    scaled: Array = P / np.maximum(np.linalg.norm(P, axis=1, keepdims=True), 1e-300)
    return scaled
