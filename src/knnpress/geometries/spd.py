"""Symmetric positive definite matrices: JBLD, and the affine-invariant and log-Euclidean metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from knnpress import _core
from knnpress.exceptions import InvalidPointError, how_many, warn_user
from knnpress.execution.threads import map_blocks, row_blocks
from knnpress.geometries.base import (
    EmbeddedGeometry,
    Focus,
    Geometry,
    Linearization,
    Linearize,
    aligned,
    as_shaped_array,
    check_finite,
    check_weights,
    least_weight,
    pairwise,
)
from knnpress.geometries.charts import CholeskyChart, ExponentialChart
from knnpress.geometries.euclidean import SquaredEuclidean
from knnpress.geometries.search import LEAST_POINTS, N_PIVOTS, boxes, least_k, outside, pivots, tree_order
from knnpress.geometries.spectral import (
    above_zero,
    affine_distances,
    eigh,
    eigvalsh,
    matrix_exp,
    matrix_inverse_sqrt,
    matrix_log,
    matrix_sqrt,
    whitened_log,
)
from knnpress.typing import Array, ArrayLike, Indices

_SYMMETRY = 1e-8  # relative asymmetry taken for rounding
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
_RANGE = 1e-290, 4e307  # of variances
_ROUNDING = 1e-9  # of divergences
_FEW = 4  # matrices that fill at most half of the lanes
_AT_ONCE = 2e8  # matrices times the cube of their size that LAPACK is given at once, some hundredths of a second


def check_spd(X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
    """Return X as a float64 C-array (n, d, d) of symmetric positive definite matrices.

    Asymmetry below 1e-8 of a matrix's largest entry is taken for rounding and averaged away. A matrix counts as
    positive definite if every pivot of its LDL' factorisation exceeds d * eps of the diagonal entry it came from.
    """
    dtype = getattr(X, "dtype", None)
    if getattr(dtype, "kind", "") == "c":
        raise ValueError(
            f"Complex data not supported: {name} has dtype {dtype}; split it into real features: its "
            f"real part, {name}.real, or the real form of twice the size, np.block([[{name}.real, -{name}.imag], "
            f"[{name}.imag, {name}.real]]), which keeps all of it"
        )
    array = as_shaped_array(X, 3, name, "(n_matrices, d, d)", partial(_advice, name))
    square = array.shape[1] == array.shape[2]
    blocks = row_blocks(len(array), 8 * array[0].size)
    if square and all(map_blocks(lambda rows: _is_sound(array[rows]), blocks, n_jobs)):
        return array
    check_finite(array, name)
    if not square:
        raise ValueError(
            f"{name} has shape {array.shape}; expected square matrices (n_matrices, d, d). Of signals, (n, channels, "
            "times), knnpress.descriptors.SignalCovariance makes such matrices"
        )
    return _mend_or_refuse(array, name, blocks, n_jobs)


def _advice(name: str, shape: tuple[int, ...]) -> str:
    """What to do with an array that holds no matrices; nothing where it may be a single one."""
    if len(shape) != 2 or shape[0] == shape[1]:
        return ""
    d = math.isqrt(shape[1])
    if d > 1 and d * d == shape[1]:
        return f"Where each row is a flattened {d} x {d} matrix, give {name}.reshape(-1, {d}, {d})"
    return "Vectors are for SNC, and histograms for SHC"


def _is_sound(X: Array) -> bool:
    return _core.all_positive_definite(X, *_RANGE, X.shape[1] * _EPS)


def _mend_or_refuse(array: Array, name: str, blocks: Sequence[slice], n_jobs: int | None) -> Array:
    """Matrices of which not all are exactly as they should be: made symmetric, or refused with the reason."""

    def asymmetry(rows: slice) -> Array:
        block = array[rows]
        mirrored = block.transpose(0, 2, 1)
        if np.array_equal(block, mirrored):  # most are, and it is quickly seen
            return np.zeros(len(block))
        gap = np.abs(block - mirrored).max(axis=(1, 2))
        return gap / np.maximum(np.abs(block).max(axis=(1, 2)), _TINY)

    gap = np.concatenate(map_blocks(asymmetry, blocks, n_jobs))
    if (gap > _SYMMETRY).any():
        row = int(np.flatnonzero(gap > _SYMMETRY)[0])
        raise InvalidPointError(
            f"{name}[{row}] is not symmetric (asymmetry {gap[row]:.1e} of its largest entry), "
            f"{how_many((gap > _SYMMETRY).sum(), len(gap), 'matrices')}; if that is rounding, use "
            f"({name} + {name}.transpose(0, 2, 1)) / 2"
        )
    if gap.any():
        array = 0.5 * (array + array.transpose(0, 2, 1))
    _check_range(array, name)
    margin = np.concatenate(map_blocks(lambda rows: _core.SpdLanes(array[rows]).margin, blocks, n_jobs))
    bad = ~(margin > array.shape[1] * _EPS)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        smallest = float(np.linalg.eigvalsh(array[row])[0])
        raise InvalidPointError(
            f"{name}[{row}] is not positive definite (smallest eigenvalue {smallest:.1e}), "
            f"{how_many(bad.sum(), len(bad), 'matrices')}; shrink them, e.g. (1 - s) * {name} + s * trace / d * "
            "identity with s = 1e-6, or drop features that are constant or combinations of others"
        )
    return array


def _check_range(array: Array, name: str) -> None:
    """Refuse variances so large that sums of two overflow, or so small that pivots far below them lose digits."""
    diagonal = np.diagonal(array, axis1=1, axis2=2)
    far = ((diagonal > 0) & (diagonal < _RANGE[0])) | (diagonal > _RANGE[1])
    if far.any():
        row, k = (int(index) for index in np.argwhere(far)[0])
        count = int(far.any(axis=1).sum())
        raise InvalidPointError(
            f"{name}[{row}] has a variance of {diagonal[row, k]:.1e}, {how_many(count, len(array), 'matrices', 'do')}; "
            f"scale all matrices, or that feature, until variances are from {_RANGE[0]:g} to {_RANGE[1]:g}"
        )


def _symmetric(A: Array) -> Array:
    return 0.5 * (A + A.swapaxes(-1, -2))


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
        return _iterate_centroid(self, X, check_weights(weights, len(X)), 1000)

    def centroid_step(self, X: Array, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """One step of the fixed point, for every Z at once; pairs of weight zero cost nothing."""
        z = _core.SpdSequence(Z)

        def inverse_sum(rows: slice) -> Array:
            weights = np.ascontiguousarray(W[rows])
            return _core.jbld_pullback(_core.SpdLanes(X[rows]), z, weights, 0.0)

        total = np.sum(map_blocks(inverse_sum, row_blocks(len(X)), n_jobs), axis=0)
        return _symmetric(np.linalg.inv(2.0 * total))

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
        if len(Z) < LEAST_POINTS:
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
            return least_k(lower, top, k, solve)[:, back]

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
                gradient = _core.jbld_pullback(memory.x, z, W, least_weight(W), slack > 1.0)
                gradient -= W.sum(axis=0)[:, None, None] * half_inverse
                return gradient

            D = _core.jbld_pairwise(memory.x, z) if focus is None else near(memory, focus)
            return Linearization(D, pullback, memory)

        return step


def _rounding(X: Array) -> Array:
    r"""How far rounding may take divergences of each matrix, (n,); that of a pair is the sum of both.

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


def _by_few(function: Callable[[Array], Array], X: Array) -> Array:
    """A function of LAPACK's on a few matrices at a time: Ctrl-C is answered only between its calls."""
    few = max(1, int(_AT_ONCE / X.shape[1] ** 3))
    if len(X) <= few:
        return function(X)
    return np.concatenate([function(X[k : k + few]) for k in range(0, len(X), few)])


class AIRM(BaseEstimator):
    r"""Affine-invariant Riemannian metric between symmetric positive definite matrices.

    .. math:: D_R(X, Z) = \left\|\log\left(Z^{-1/2} X Z^{-1/2}\right)\right\|_F
              = \sqrt{\textstyle\sum_k \log^2 \lambda_k(X, Z)}

    with :math:`\lambda_k` the generalised eigenvalues. The centroid is the Karcher mean, which minimises the sum of
    *squared* distances. Points are (n, d, d) arrays.
    """

    point_ndim = 2

    def check(self, X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
        """Return X as a float64 C-array (n, d, d) of symmetric positive definite matrices, or say which are not."""
        return check_spd(X, name, n_jobs)

    def pairwise(self, X: ArrayLike, Z: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """Distances between all pairs of matrices, (n, m); Z None means X itself."""
        return pairwise(self, X, Z, n_jobs)

    def centroid(self, X: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """The Karcher mean, (d, d), by Riemannian gradient descent."""
        X = self.check(X)
        return _iterate_centroid(self, X, check_weights(weights, len(X)), 200)

    def centroid_step(self, X: Array, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """One Riemannian gradient step of every Z."""

        def move(w: Array, C: Array) -> Array:
            used = w > 0
            root, inverse_root = matrix_sqrt(C[None])[0], matrix_inverse_sqrt(C[None])[0]
            logs = whitened_log(X[used], inverse_root, n_jobs)
            # Eigenvalues of the Hessian lie between 1 and the mean of r coth r, r half the range of a logarithm's
            values = eigvalsh(logs, n_jobs)
            half = np.maximum(0.5 * (values[:, -1] - values[:, 0]), 1e-8)
            step = 2.0 / (1.0 + float(w[used] @ (half / np.tanh(half))))
            tangent = step * np.einsum("i,iab->ab", w[used], logs)
            return _symmetric(root @ matrix_exp(tangent[None])[0] @ root)

        moved = map_blocks(lambda j: move(W[:, j.start], Z[j.start]), [slice(j, j + 1) for j in range(len(Z))], n_jobs)
        return np.stack(moved)

    def distances_to(self, Z: Array) -> Callable[[Array], Array]:
        """For checked Z: a function from a checked block of X to its distances to every Z."""
        whiteners = _by_few(lambda some: np.linalg.inv(np.linalg.cholesky(some)), Z)
        return lambda X: affine_distances(_by_few(np.linalg.cholesky, X), whiteners)


class LogEuclidean(BaseEstimator):
    r"""Squared log-Euclidean distance between symmetric positive definite matrices.

    .. math:: D(X, Z) = \left\|\log X - \log Z\right\|_F^2

    Squared, so that it is smooth at zero and the closed-form centroid, :math:`\exp(\sum_i w_i \log X_i)`, minimises
    its sum. (`pyriemann`'s "logeuclid" is its square root.) Points are (n, d, d) arrays.
    """

    point_ndim = 2
    start_quotas: Literal["size", "need"] = "size"
    exact_gradient = True
    slacks = (1.0,)

    def check(self, X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
        """Return X as a float64 C-array (n, d, d) of symmetric positive definite matrices, or say which are not."""
        return check_spd(X, name, n_jobs)

    def pairwise(self, X: ArrayLike, Z: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """Squared distances between all pairs of matrices, (n, m); Z None means X itself."""
        return pairwise(self, X, Z, n_jobs)

    def centroid(self, X: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """The exponential of the mean logarithm, (d, d)."""
        X = self.check(X)
        mean = np.einsum("i,iab->ab", check_weights(weights, len(X)), matrix_log(X))
        return matrix_exp(mean[None])[0]

    def centroid_step(self, X: Array, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """The weighted centroids, whatever Z is."""
        means = (W.T @ _flat_log(X, n_jobs)).reshape(Z.shape)
        return matrix_exp(_symmetric(means), n_jobs)

    def distances_to(self, Z: Array) -> Callable[[Array], Array]:
        """For checked Z: a function from a checked block of X to its squared distances to every Z."""
        between_logs = SquaredEuclidean().distances_to(_flat_log(Z))
        return lambda X: between_logs(_flat_log(X))

    @property
    def start_geometry(self) -> Geometry:
        """Matrices are averaged as they are compared."""
        return self

    @property
    def quick_geometry(self) -> None:
        """None is quicker."""
        return None

    def chart(self, start: Array) -> ExponentialChart:
        """Normal coordinates of the affine-invariant metric at each start."""
        return ExponentialChart.around(start)

    def paper_chart(self, start: Array) -> CholeskyChart:
        """Cholesky factors."""
        return CholeskyChart.around(start)

    def linearize(self, X: Array, Z: Array, memory: Any = None) -> Linearization:
        r"""Squared distances and their derivative, :math:`2\, d\log_Z[\log Z - \log X]`. Memory: the logs of X.

        With Z = U diag(s) U', :math:`d\log_Z[H] = U (K \circ U^\top H U) U^\top`, K the divided differences of log
        at s (Daleckii and Krein), which is its own adjoint.
        """
        return self.linearize_at(Z)(X, memory)

    def linearize_at(self, Z: Array, slack: float = 1.0) -> Linearize:
        """`linearize` at checked Z, for any block of X; a closed form needs no slack, and leaves nothing out."""
        values, vectors = eigh(Z)
        kernel = _divided_log(np.maximum(above_zero(values), _LEAST_VALUE))
        flat_z = _flat_log(Z)
        distances = SquaredEuclidean().distances_to(flat_z)

        def step(X: Array, memory: Any = None, focus: Focus | None = None) -> Linearization:
            logs_x = _flat_log(X) if memory is None else memory

            def pullback(W: Array) -> Array:
                H = 2.0 * (W.sum(axis=0)[:, None] * flat_z - W.T @ logs_x).reshape(Z.shape)
                rotated = vectors.transpose(0, 2, 1) @ H @ vectors
                return _symmetric(vectors @ (kernel * rotated) @ vectors.transpose(0, 2, 1))

            return Linearization(distances(logs_x), pullback, logs_x)

        return step


def _iterate_centroid(geometry: JBLD | AIRM, X: Array, weights: Array, max_iter: int) -> Array:
    """Repeat `centroid_step` from the arithmetic mean until it no longer moves."""
    C: Array = np.einsum("i,iab->ab", weights, X)
    least = np.inf
    for _ in range(max_iter):
        last, C = C, geometry.centroid_step(X, weights[:, None], C[None])[0]
        whiten = np.linalg.inv(np.linalg.cholesky(last))
        moved = float(np.linalg.norm(whiten @ (C - last) @ whiten.T))
        if moved < 1e-11 * len(C) or least <= moved < 1e-5:  # or only rounding still moves it
            return C
        least = min(least, moved)
    name = type(geometry).__name__
    warn_user(f"the {name} centroid did not converge in {max_iter} steps", ConvergenceWarning)
    return C


def _flat_log(X: Array, n_jobs: int | None = None) -> Array:
    return matrix_log(X, n_jobs).reshape(len(X), -1)


_LEAST_VALUE = 1e-290  # of an eigenvalue whose inverse is formed: a line search may try what no float can hold
_FAR_APART = 1e10


def _divided_log(values: Array) -> Array:
    """(log s_a - log s_b) / (s_a - s_b), and 1 / s_a where they meet, (m, d, d)."""
    a, b = values[:, :, None], values[:, None, :]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # log(a / b) / (a - b) = log1p(t) / (t b) with t = (a - b) / b, accurate however close a and b are
        t = (a - b) / b
        near = np.where(t == 0.0, 1.0, np.log1p(t) / t) / b
        # but where a is far below b, t is -1 but for rounding, or that exactly; where it is far above, t may overflow
        far = (np.log(a) - np.log(b)) / (a - b)
    return np.where((a > _FAR_APART * b) | (b > _FAR_APART * a), far, near)
