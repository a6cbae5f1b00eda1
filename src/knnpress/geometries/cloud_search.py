r"""The nearest of many clouds, exactly: what cheap bounds prove too far is never solved.

Let x and z be clouds with weights a and b, C their costs, and OT the entropic transport at reg. Then

.. math:: \|m_x - m_z\|^2 \;\le\; W \;\le\; OT, \qquad R \;\le\; OT

for squared distances, with m the means of the clouds, W the exact transport, and R entropic transport relaxed to one of
its two marginals, :math:`R = -\mathrm{reg} \sum_l a_l \log \sum_k b_k e^{-C_{lk} / \mathrm{reg}}`, or the same from the
side of z. R is the dual value of a potential that is zero, and not below the relaxed transport of the word mover's
distance, :math:`\sum_l a_l \min_k C_{lk}`, since the soft minimum is not below the hard one.

Of the divergence :math:`S = OT(x, z) - \frac12 OT(x, x) - \frac12 OT(z, z)` both hold with the self terms taken off.
The first even holds as it is: squared costs part into those of the means and of the centred clouds, whose divergence is
not negative. For plain distances the first reads :math:`\|m_x - m_z\| \le W`, and of S it holds only with the self
terms taken off; for cosines it is that of half the squared distances between directions. S may be below W: a bound by W
alone would be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from knnpress.clouds import Clouds
from knnpress.typing import Array, Indices

_MOST_COST = 690.0  # over reg, whose exponential is not zero; a smaller cost makes a bound lower, never wrong


@dataclass(frozen=True)
class Shelf:
    """Some clouds of Z, from `start` to `stop`, with each of their different points once.

    Attributes
    ----------
    points : ndarray of shape (q, d)
    index : ndarray
        Row of `points` of each point of the clouds.
    offsets, weights : ndarray
    B : sparse array of shape (stop - start, q)
        Weights by row of `points`.
    """

    points: Array
    index: Indices
    offsets: Indices
    weights: Array
    start: int
    stop: int
    B: Any


def shelves(clouds: Clouds, most: int) -> list[Shelf]:
    """All clouds, in parts of at most about `most` points, or all at once where they have no more different ones."""
    if len(np.unique(clouds.index)) <= most:
        cuts = [0, len(clouds)]
    else:
        cuts = [0]
        while cuts[-1] < len(clouds):
            last = int(np.searchsorted(clouds.offsets, clouds.offsets[cuts[-1]] + most, "right")) - 1
            cuts.append(min(len(clouds), max(cuts[-1] + 1, last)))
    return [_shelf(clouds[start:stop], start, stop) for start, stop in pairwise(cuts)]


def _shelf(clouds: Clouds, start: int, stop: int) -> Shelf:
    used, index = np.unique(clouds.index, return_inverse=True)
    B = weights_of(index, clouds, len(used))
    return Shelf(clouds.table[used], index, clouds.offsets, np.ascontiguousarray(clouds.weights), start, stop, B)


def weights_of(index: Indices, clouds: Clouds, n_points: int) -> Any:
    """Weights of clouds by the rows of a table of points, sparse (n, n_points)."""
    return csr_array((clouds.weights, index, clouds.offsets), shape=(len(clouds), n_points))


def relaxed_transport(C: Array, A: Any, B: Any) -> Array:
    """The larger of both relaxed transports over reg, (n, m), not above OT over reg.

    Parameters
    ----------
    C : ndarray of shape (p, q)
        Costs over reg between the different points of X and of Z.
    A, B : sparse arrays of shape (n, p) and (m, q)
        Weights of the clouds.
    """
    kernel = np.exp(-np.minimum(C, _MOST_COST))
    from_x = A @ np.log(B @ kernel.T).T
    from_z = (B @ np.log(A @ kernel).T).T
    return -np.minimum(from_x, from_z)


def mean_bounds(X: Array, Z: Array, power: int) -> Array:
    """Distances between means of clouds, to a power, (n, m); a little below, by what rounding may have added."""
    center = Z.mean(axis=0)
    X, Z = X - center, Z - center
    squares_x, squares_z = np.einsum("ik,ik->i", X, X), np.einsum("ik,ik->i", Z, Z)
    squares = squares_x[:, None] + squares_z - 2.0 * (X @ Z.T)
    squares -= 1e-13 * (squares_x[:, None] + squares_z)
    np.maximum(squares, 0.0, out=squares)
    return squares if power == 2 else np.sqrt(squares)
