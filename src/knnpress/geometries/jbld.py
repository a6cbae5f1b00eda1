"""Symmetric positive definite matrices under the Jensen-Bregman log-det divergence: the geometry of SCC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator

from knnpress import _core
from knnpress.execution.threads import map_blocks, row_blocks
from knnpress.geometries.base import EmbeddedGeometry, Focus, Geometry, Linearization, Linearize, pairwise
from knnpress.geometries.charts import CholeskyChart, ExponentialChart
from knnpress.geometries.checks import aligned, check_weights, weight_threshold
from knnpress.geometries.matrices import check_spd, iterate_centroid, symmetric
from knnpress.geometries.search import MIN_POINTS, N_PIVOTS, boxes, k_smallest, outside, pivots, tree_order
from knnpress.typing import Array, ArrayLike, Indices

_EPS = float(np.finfo(np.float64).eps)
_ROUNDING = 1e-9  # of divergences
_FEW = 4  # matrices that fill at most half of the lanes


class JBLD(BaseEstimator):
    r"""Jensen-Bregman log-det divergence between symmetric positive definite matrices.

    .. math:: D_J(X, Z) = \log\left|\frac{X + Z}{2}\right| - \frac{1}{2} \log|X Z|

    It is symmetric, non-negative, unchanged by every congruence (X, Z to AXA', AZA'), and the square of a metric.
    (`pyriemann`'s "logdet" distance is its square root.) Points are (n, d, d) arrays.

    References
    ----------
    Cherian, Sra, Banerjee, Papanikolopoulos. Jensen-Bregman LogDet divergence with application to efficient
    similarity search for covariance matrices. TPAMI 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.geometries import JBLD
    >>> JBLD().pairwise([np.eye(2)], [np.eye(2), 4 * np.eye(2)]).round(4)
    array([[0.    , 0.4463]])
    """

    point_ndim = 2
    start_quotas: Literal["size", "need"] = "size"
    exact_gradient = True
    slacks = (10.0, 1.0)  # the gradient in single precision, then in double

    def check(self, X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
        """Return X as a float64 C-array (n, d, d) of symmetric positive definite matrices, or say which are not."""
        return check_spd(X, name, n_jobs)

    def pairwise(self, X: ArrayLike, Z: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """Divergences between all pairs of matrices, (n, m); Z None means X itself."""
        return pairwise(self, X, Z, n_jobs)

    def centroid(self, X: ArrayLike, weights: ArrayLike | None = None) -> Array:
        r"""The matrix that minimises the weighted sum of divergences, (d, d).

        Cherian's fixed point :math:`C \leftarrow \left(\sum_i w_i \left(\frac{X_i + C}{2}\right)^{-1}\right)^{-1}`.
        """
        X = self.check(X)
        return iterate_centroid(self, X, check_weights(weights, len(X)), 1000)

    def centroid_step(self, X: Array, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """One step of the fixed point, for every Z at once; pairs of weight zero cost nothing."""
        z = _core.SpdSequence(Z)

        def inverse_sum(rows: slice) -> Array:
            weights = np.ascontiguousarray(W[rows])
            return _core.jbld_pullback(_core.SpdLanes(X[rows]), z, weights, 0.0)

        total = np.sum(map_blocks(inverse_sum, row_blocks(len(X)), n_jobs), axis=0)
        return symmetric(np.linalg.inv(2.0 * total))

    def distances_to(self, Z: Array) -> Callable[[Array], Array]:
        """For checked Z: a function from a checked block of X to its divergences to every Z."""
        Z = aligned(Z)

        lanes = cache(lambda: _core.SpdLanes(Z))
        sequence = cache(lambda: _core.SpdSequence(Z))

        def distances(X: Array) -> Array:
            if len(X) <= _FEW:  # they would leave lanes empty, which Z can fill; the sums are the same
                return _core.jbld_pairwise(lanes(), _core.SpdSequence(X)).T
            return _core.jbld_pairwise(_core.SpdLanes(X), sequence())

        return distances

    def nearest_to(self, Z: Array, k: int) -> Callable[[Array], Array]:
        """Like `distances_to`, but all except the k least distances of a row may be infinity.

        The root of the divergence is a metric: no X is nearer to Z than their distances to any third point differ.
        That holds for exact ones; those computed are known up to the rounding of the pair, see `_rounding`.
        """
        if len(Z) < MIN_POINTS:
            return self.distances_to(Z)
        Z = aligned(Z)
        rows, divergences = pivots(Z, self.distances_to, N_PIVOTS)
        error = _rounding(Z)
        low, high = _root_range(divergences, error[:, None] + error[rows])
        # similar Z lie side by side, in the lanes; the X are taken one by one
        size = _core.SpdLanes(Z[:1]).lanes
        order = tree_order(np.sqrt(divergences), size)
        z, box = _core.SpdLanes(Z[order]), boxes(low[order], high[order], size)
        group_error = np.maximum.reduceat(error[order], np.arange(0, len(Z), size))
        to_pivots = _core.SpdLanes(Z[rows])
        back = np.argsort(order)

        def distances(X: Array) -> Array:
            x = _core.SpdSequence(X)
            to_x = _core.jbld_pairwise(to_pivots, x)

            def solve(wanted: Array, top: Array) -> Array:
                return _core.jbld_pairwise(z, x, mask=np.ascontiguousarray(wanted.T)).T

            top = np.partition(to_x, k - 1, axis=0)[k - 1] if k <= len(rows) else np.full(len(X), np.inf)
            x_error, root = _rounding(X), np.sqrt(to_x).T
            least, most = _root_range(to_x.T, x_error[:, None] + error[rows])
            apart = outside(box, root) - np.maximum(most - root, root - least).max(axis=1)[:, None]
            lower = np.maximum(apart, 0.0) ** 2 - (x_error[:, None] + group_error)
            return k_smallest(lower, top, k, solve)[:, back]

        return distances

    @property
    def start_geometry(self) -> Geometry:
        """Matrices are averaged as they are compared."""
        return self

    def pair_work(self, d: int) -> float:
        """How long a pair of matrices takes in a descent: as its factorisations do."""
        return float(d) ** 3

    @property
    def quick_geometry(self) -> EmbeddedGeometry:
        """The tangent space at the mean: to second order, distances there are eight times the divergence."""
        from knnpress.geometries.tangent import Tangent  # which needs this module

        return Tangent()

    def chart(self, start: Array) -> ExponentialChart:
        """Normal coordinates of the affine-invariant metric at each start."""
        return ExponentialChart.around(start)

    def paper_chart(self, start: Array) -> CholeskyChart:
        """Cholesky factors."""
        return CholeskyChart.around(start)

    def linearize(self, X: Array, Z: Array, memory: Any = None) -> Linearization:
        r"""Divergences and their derivative, :math:`(X_i + Z_j)^{-1} - \frac{1}{2} Z_j^{-1}`.

        Pairs with a weight below 1e-12 of the largest are skipped by the pullback. Memory: X in lane layout, and, with
        a focus, how far it was from Z.
        """
        return self.linearize_at(Z)(X, memory)

    def linearize_at(self, Z: Array, slack: float = 1.0) -> Linearize:
        """`linearize` at checked Z, for any block of X; with slack, the pullback is good to about five digits only.

        A Z that moved by t (see `_moved`) is not nearer to any X than it was, less t. A group of rows whose distances
        to a Z are thus known to be outside the focus is left out.
        """
        Z = aligned(Z)
        z = _core.SpdSequence(Z)
        half_inverse = 0.5 * _core.SpdLanes(Z).inverse()
        moves: dict[int, Array] = {}  # by the old Z, which all blocks share

        def moved_from(old: Array) -> Array:
            if id(old) not in moves:
                moves[id(old)] = _moved(old, Z)
            return moves[id(old)]

        def near(memory: _Memory, focus: Focus) -> Array:
            among, gap = focus.among[memory.order], focus.gap[memory.order]
            if memory.Z is None:
                starts = np.arange(0, len(among), memory.x.lanes)
                memory.among = np.logical_or.reduceat(among, starts, axis=0)
                memory.lower = np.zeros(memory.among.shape)
            else:
                memory.lower -= moved_from(memory.Z)
            memory.Z = Z
            known = _core.jbld_pairwise(memory.x, z, mask=memory.among)
            limit = np.where(among, known, np.inf).min(axis=1) + gap
            D = np.empty(among.shape)
            D[memory.order] = np.minimum(known, _core.jbld_pairwise(memory.x, z, memory.lower, limit, ~memory.among))
            memory.lower[memory.among] = 0.0
            return D

        def step(X: Array, memory: Any = None, focus: Focus | None = None) -> Linearization:
            if memory is None:
                order = None if focus is None else _neighbours_together(focus)
                memory = _Memory(_core.SpdLanes(X if order is None else X[order]), order)

            def pullback(W: Array) -> Array:
                W = np.ascontiguousarray(W if memory.order is None else W[memory.order], dtype=np.float64)
                gradient = _core.jbld_pullback(memory.x, z, W, weight_threshold(W), slack > 1.0)
                gradient -= W.sum(axis=0)[:, None, None] * half_inverse
                return gradient

            D = _core.jbld_pairwise(memory.x, z) if focus is None else near(memory, focus)
            return Linearization(D, pullback, memory)

        return step


def _rounding(X: Array) -> Array:
    r"""How far rounding may take divergences of each matrix, (n,); a pair's is the sum of both.

    LDL' is exact for a matrix whose entries differ by at most (d + 1) eps :math:`\sqrt{a_{ii} a_{jj}}`, so its log-det
    is off by that times d :math:`h(A) = \sum_i a_{ii} (A^{-1})_{ii}`, to first order. h(X + Z) is at most h(X) + h(Z),
    as the inverse of X + Z is below that of either; and logarithms are off by some eps of their size.
    """
    d = X.shape[1]
    batch = _core.SpdLanes(X)
    h = np.einsum("ijj,ijj->i", X, batch.inverse())
    size = np.abs(np.log(np.diagonal(X, axis1=1, axis2=2))).sum(axis=1)
    return 2.0 * _EPS * d * ((d + 1) * np.abs(h) + 8.0 + size)


def _root_range(D: Array, error: Array) -> tuple[Array, Array]:
    """What the roots of divergences may be, given what rounding may have done to them."""
    return np.sqrt(np.maximum(D - error, 0.0)), np.sqrt(D + error)


@dataclass
class _Memory:
    """What a block keeps between two steps of JBLD; all but the first two only with a focus.

    Attributes
    ----------
    x : SpdLanes
        The matrices.
    order : ndarray of shape (n,) or None
        The order they are in there; None: their own.
    among : ndarray of bool, shape (groups, m)
        Whether a row of the group has the Z in its focus; these are always computed.
    Z : ndarray of shape (m, d, d)
        The last one.
    lower : ndarray of shape (groups, m)
        Distances that no row of a group came nearer than.
    """

    x: Any
    order: Indices | None
    among: Any = None
    Z: Any = None
    lower: Any = None
    kept: ClassVar[tuple[str, ...]] = ("Z", "lower")


def _moved(old: Array, new: Array) -> Array:
    r"""How much a divergence from any matrix can change when Z does, (m,).

    .. math:: |D(X, Z') - D(X, Z)| \le \tfrac{1}{2} \sum_k |\log \lambda_k(Z^{-1} Z')|

    for every X: with :math:`A \ge B` the difference :math:`\log\det(X + A) - \log\det(X + B)` only shrinks as X grows
    from nothing, so the eigenvalues above one add at most their logarithms, those below take off at most theirs, and
    half their sum comes off with :math:`\frac{1}{2} \log\det Z`. The root of the divergence is a metric, which gives a
    bound too; between far points, the ones to leave out, it is looser unless the move is even in every direction.
    """
    try:
        ratio = np.linalg.solve(np.linalg.cholesky(old), np.linalg.cholesky(new))
        with np.errstate(divide="ignore"):
            moved: Array = np.abs(np.log(np.linalg.svd(ratio, compute_uv=False))).sum(axis=1)
    except np.linalg.LinAlgError:  # too near to singular to say
        return np.full(len(new), np.inf)
    return moved + _ROUNDING


def _neighbours_together(focus: Focus) -> Indices:
    """An order of rows in which those with the same marks are neighbours, and those that need all distances first."""
    return np.lexsort((focus.among.argmax(axis=1), np.isfinite(focus.gap)))
