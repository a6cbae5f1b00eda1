"""The soft nearest-neighbour loss: distances in, loss and gradient out. It knows nothing of matrices or histograms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knnpress.typing import Array

__all__ = ["SoftNeighborLoss", "log_softmax"]


def log_softmax(logits: Array) -> tuple[Array, Array]:
    """Row-wise ``log sum exp`` of (n, m) logits, (n,), and the softmax, (n, m). A row may hold -inf, not only -inf."""
    top = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(axis=1, keepdims=True)
    weights /= total
    return (top + np.log(total))[:, 0], weights


@dataclass(frozen=True)
class SoftNeighborLoss:
    r"""Weighted sum of :math:`-\log p_i`, p_i the probability that a soft nearest neighbour gives i its own label.

    .. math:: p_{ij} \propto e^{-\gamma^2 D_{ij}}, \qquad p_i = \sum_{j : \hat y_j = y_i} p_{ij}, \qquad
              \frac{\partial (-\log p_i)}{\partial D_{ij}} = \gamma^2 (q_{ij} - p_{ij})

    with q the softmax over the prototypes of the same class alone. In this form nothing is divided by p_i, which may
    underflow.

    With a label noise :math:`\nu`, the share of labels that may be wrong, the loss is
    :math:`-\log\frac{p_i + f}{1 + f}` with :math:`f = \frac{\nu}{1 - \nu} / C`, and the derivative is multiplied by
    :math:`p_i / (p_i + f)`, the trust in the label: a point far among another class pulls no prototype there.

    With a smoothing s the loss is :math:`1 - s` of that plus s of :math:`-\frac{1}{m} \sum_j \log p_{ij}`, the cross
    entropy from a neighbour drawn evenly, whose derivative is :math:`\gamma^2 (\frac{1}{m} - p_{ij})`. It keeps every
    prototype within reach of every point, where the loss alone would drive them ever farther apart.

    Attributes
    ----------
    gamma : float
    label_noise, smoothing : float
        0 is the paper's loss.
    n_classes : int
        C.
    """

    gamma: float
    label_noise: float = 0.0
    smoothing: float = 0.0
    n_classes: int = 2

    def __call__(
        self, D: Array, same_class: Array, weight: Array | None = None, reach: Array | None = None
    ) -> tuple[float, Array]:
        """Loss and its derivative.

        Parameters
        ----------
        D : ndarray of shape (n, m)
        same_class : ndarray of bool, shape (n, m)
            Whether point i and prototype j share their label; every row needs at least one.
        weight : ndarray of shape (n,) or None
        reach : ndarray of shape (n,) or None
            How much each point counts in the smoothing, 1 on average; None: all alike. Where it is 0, a distance may
            be infinite.

        Returns
        -------
        loss : float
        gradient : ndarray of shape (n, m)
            dloss / dD.
        """
        sharpness, floor = self.gamma**2, self.label_noise / (1.0 - self.label_noise) / self.n_classes
        logits = -sharpness * D
        log_all, P = log_softmax(logits)
        losses, Q = _within_class(logits, log_all, P, same_class)
        scale = np.full(len(D), sharpness * (1.0 - self.smoothing))  # of each row's derivative, once: D is large
        if floor:
            log_floored = np.logaddexp(-losses, np.log(floor))
            scale *= np.exp(-losses - log_floored)
            losses = np.log1p(floor) - log_floored
        losses *= 1.0 - self.smoothing
        some = slice(None) if reach is None else np.flatnonzero(reach)
        even = np.full(len(D), self.smoothing) if reach is None else self.smoothing * reach[some]
        if self.smoothing:
            losses[some] += even * (log_all[some] - logits[some].mean(axis=1))
        if weight is not None:
            losses, scale, even = weight * losses, weight * scale, weight[some] * even
        Q -= P
        Q *= scale[:, None]
        if self.smoothing:
            Q[some] += (sharpness * even)[:, None] * (1.0 / D.shape[1] - P[some])
        return float(losses.sum()), Q


def _within_class(logits: Array, log_all: Array, P: Array, same_class: Array) -> tuple[Array, Array]:
    """-log p_i, (n,), and the softmax over the prototypes of the same class, (n, m)."""
    Q = np.where(same_class, P, 0.0)
    chance = Q.sum(axis=1)
    rare = chance < 1e-200  # they may have underflowed
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = -np.log(chance)
        Q /= chance[:, None]
    if rare.any():
        log_same, Q[rare] = log_softmax(np.where(same_class[rare], logits[rare], -np.inf))
        losses[rare] = log_all[rare] - log_same
    return losses, Q
