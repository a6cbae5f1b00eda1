"""The soft nearest-neighbour loss: distances in, loss and gradient out. It knows nothing of matrices or histograms."""

from __future__ import annotations

import numpy as np

from knnpress.typing import Array

__all__ = ["log_softmax", "neighbor_loss"]


def log_softmax(logits: Array) -> tuple[Array, Array]:
    """Row-wise ``log sum exp`` of (n, m) logits, (n,), and the softmax, (n, m). A row may hold -inf, not only -inf."""
    top = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(axis=1, keepdims=True)
    weights /= total
    return (top + np.log(total))[:, 0], weights


def neighbor_loss(D: Array, same_class: Array, gamma: float, weight: Array | None = None) -> tuple[float, Array]:
    r"""Weighted sum of :math:`-\log p_i`, p_i the probability that a soft nearest neighbour gives i its own label.

    .. math:: p_{ij} \propto e^{-\gamma^2 D_{ij}}, \qquad p_i = \sum_{j : \hat y_j = y_i} p_{ij}, \qquad
              \frac{\partial (-\log p_i)}{\partial D_{ij}} = \gamma^2 (q_{ij} - p_{ij})

    with q the softmax over the prototypes of the same class alone. In this form nothing is divided by p_i, which may
    underflow.

    Parameters
    ----------
    D : ndarray of shape (n, m)
    same_class : ndarray of bool, shape (n, m)
        Whether point i and prototype j share their label; every row needs at least one.
    gamma : float
    weight : ndarray of shape (n,) or None

    Returns
    -------
    loss : float
    gradient : ndarray of shape (n, m)
        dloss / dD.
    """
    logits = -(gamma**2) * D
    log_all, P = log_softmax(logits)
    log_same, Q = log_softmax(np.where(same_class, logits, -np.inf))
    losses = log_all - log_same
    gradient = gamma**2 * (Q - P)
    if weight is not None:
        losses, gradient = weight * losses, weight[:, None] * gradient
    return float(losses.sum()), gradient
