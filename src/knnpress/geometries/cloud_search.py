r"""The nearest of many clouds, exactly: pairs that cheap bounds prove too far apart are never solved.

Let x and z be clouds with weights a and b, C their costs, and OT the entropic transport at reg. Then

.. math:: \|m_x - m_z\|^2 \;\le\; W \;\le\; OT, \qquad R \;\le\; OT

for squared distances, with m the means of the clouds, W the exact transport, and R entropic transport relaxed to one of
its two marginals, :math:`R = -\mathrm{reg} \sum_l a_l \log \sum_k b_k e^{-C_{lk} / \mathrm{reg}}`, or the same from the
side of z. R is the dual value of a potential that is zero, and not below the relaxed transport of the word mover's
distance, :math:`\sum_l a_l \min_k C_{lk}`, since the soft minimum is not below the hard one.

For the divergence :math:`S = OT(x, z) - \frac12 OT(x, x) - \frac12 OT(z, z)` both hold less the self terms.
The first even holds as it is: squared costs part into those of the means and of the centred clouds, whose divergence is
not negative. For plain distances the first reads :math:`\|m_x - m_z\| \le W`, and of S it holds only with the self
terms taken off; for cosines it is that of half the squared distances between directions. S may be below W: a bound by W
alone would be wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from knnpress.clouds import Clouds
from knnpress.geometries.cloud_costs import Cost, costs, directions
from knnpress.geometries.cloud_points import as_clouds, cut_by_distinct
from knnpress.geometries.cloud_solver import Side, Solver, sub_blocks
from knnpress.geometries.search import k_smallest
from knnpress.typing import Array

_WIDEST = 16384  # distinct points of Z whose costs are held at a time
_MAX_COST = 690.0  # over reg, whose exponential is not zero; a smaller cost makes a bound lower, never wrong


class CloudSearch:
    """Values between any X and all Z, of which only the k least for each X are sure to be finite.

    Parameters
    ----------
    Z : Clouds
    k : int
    cost : {"sqeuclidean", "euclidean", "cosine"}
    solver : Solver
    debiased : bool
        Whether values are divergences.
    """

    def __init__(self, Z: Clouds, k: int, cost: Cost, solver: Solver, debiased: bool) -> None:
        self.k, self.cost, self.solver, self.debiased = k, cost, solver, debiased
        self.parts = [(columns, Side.of(Z[columns])) for columns in cut_by_distinct(Z, _WIDEST)]
        self.widest = max(len(Z), *(len(z.points) for _, z in self.parts))
        self.self_terms, self.means = self._self_terms(Z), means_of(Z, cost)

    def __call__(self, X: Any) -> Array:
        """Values of checked X, (n, m); infinity where a pair was found not to matter."""
        clouds = as_clouds(X)
        return np.concatenate([self._of_block(clouds[rows]) for rows in sub_blocks(clouds, self.widest)])

    def _self_terms(self, clouds: Clouds) -> Array:
        return self.solver.self_terms(clouds, self.cost)[0] if self.debiased else np.zeros(len(clouds))

    def _of_block(self, clouds: Clouds) -> Array:
        x, reg, only_table = Side.of(clouds), self.solver.reg, list[Array]()
        weights = x.weight_table
        bias = 0.5 * (self._self_terms(clouds)[:, None] + self.self_terms)

        def costs_to(z: Side) -> Array:
            if only_table:
                return only_table[0]
            C = costs(self.cost, x.points, z.points) / reg
            if len(self.parts) == 1:
                only_table.append(C)
            return C

        lower, largest = np.empty(bias.shape), 0.0
        for columns, z in self.parts:
            C = costs_to(z)
            largest = max(largest, float(C.max()))
            lower[:, columns] = reg * relaxed_transport(C, weights, z.weight_table)
        slack = self.solver.tol * reg * largest  # what a marginal error of tol can take off a value
        lower -= bias
        np.maximum(lower, bounds_by_means(means_of(clouds, self.cost), self.means, self.cost, bias), out=lower)
        lower -= slack

        def solve(wanted: Array, top: Array) -> Array:
            limit = np.where(wanted, (top[:, None] + bias + slack) / reg, -np.inf)
            D = np.full(limit.shape, np.inf)
            for columns, z in self.parts:
                if wanted[:, columns].any():
                    D[:, columns] = self.solver.solve_some(costs_to(z), x, z, limit[:, columns])
            return D - bias

        return k_smallest(lower, np.full(len(clouds), np.inf), self.k, solve)


def relaxed_transport(C: Array, A: Any, B: Any) -> Array:
    """The larger of both relaxed transports over reg, (n, m), not above OT over reg.

    Parameters
    ----------
    C : ndarray of shape (p, q)
        Costs over reg between the distinct points of X and of Z.
    A, B : sparse arrays of shape (n, p) and (m, q)
        Weights of the clouds.
    """
    kernel = np.exp(-np.minimum(C, _MAX_COST))
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


def means_of(clouds: Clouds, cost: Cost) -> Array:
    """Means of clouds, or of their directions where the cost sees only those, (n, d)."""
    if cost != "cosine":
        return clouds.means()
    return Clouds._made_of(directions(clouds.table), clouds.index, clouds.offsets, clouds.weights).means()


def bounds_by_means(X: Array, Z: Array, cost: Cost, bias: Array) -> Array:
    """Lower bounds of values by the means of clouds, (n, m); `bias` is what self terms take off."""
    if cost == "euclidean":
        return mean_bounds(X, Z, 1) - bias
    return (0.5 if cost == "cosine" else 1.0) * mean_bounds(X, Z, 2)
