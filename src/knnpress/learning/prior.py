"""How far prototypes are from their start, in units of how far points are from the centre of their class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knnpress.geometries.base import SmoothCloudGeometry, SmoothGeometry
from knnpress.typing import Array, Indices

_MAX_POINTS = 500  # that the spread is measured by


@dataclass(frozen=True)
class Prior:
    r"""Prototypes are expected near their start: a Gaussian in the normal coordinates of the geometry.

    .. math:: \frac{\tau}{2 n} \sum_j \|u_j\|^2, \qquad \theta_j = \theta_j^0 + \sigma u_j

    with :math:`\sigma` the `spread` of the points round the centroids of their classes. Moving a
    prototype by one spread costs as much as one point whose log-probability falls by :math:`\tau / 2`, whatever the
    units and the dimension of the data and the number of prototypes.

    Attributes
    ----------
    strength : float or ndarray of shape (m, 1)
        tau, of all prototypes or of each.
    n_points : float
        n, or the sum of the weights.
    """

    strength: float | Array
    n_points: float

    def __call__(self, u: Array) -> tuple[float, Array]:
        """Value and gradient at u, (m, p)."""
        pull = self.strength / self.n_points * u
        return 0.5 * float(np.einsum("jk,jk->", pull, u)), pull


def spread(X: Array, weight: Array | None, start: Array, own: Indices, geometry: SmoothGeometry) -> float:
    """Root mean square distance of points from the start of their own class that is nearest, in normal coordinates.

    Parameters
    ----------
    X : ndarray of shape (n, ...)
    weight : ndarray of shape (n,) or None
    start : ndarray of shape (m, ...)
    own : ndarray of shape (n,)
        Which start is each point's.
    geometry : SmoothGeometry
    """
    if isinstance(geometry, SmoothCloudGeometry):
        return geometry.spread(X, weight, start, own)
    some = np.unique(np.linspace(0, len(X) - 1, min(len(X), _MAX_POINTS)).astype(np.intp))
    begin = start[own[some]]
    chart = geometry.chart(begin)
    squares = ((chart.to_theta(X[some]) - chart.to_theta(begin)) ** 2).sum(axis=1)
    mean = float(np.average(squares, weights=None if weight is None else weight[some]))
    return float(np.sqrt(mean)) if mean > 0 else 1.0  # points that equal their starts have no scale
