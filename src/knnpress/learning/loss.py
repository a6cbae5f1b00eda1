"""The soft nearest-neighbour loss: distances in, loss and gradient out. It knows nothing of matrices or histograms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knnpress import _core
from knnpress.typing import Array


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
        floor = self.label_noise / (1.0 - self.label_noise) / self.n_classes
        loss, gradient = _core.soft_neighbor_loss(
            np.ascontiguousarray(D, dtype=np.float64), same_class, self.gamma**2, floor, self.smoothing, weight, reach
        )
        return loss, gradient
