"""Smaller matrices that keep the classes apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from knnpress import _core
from knnpress.descriptors.images import require
from knnpress.execution.threads import map_blocks, row_blocks
from knnpress.geometries.log_euclidean import LogEuclidean
from knnpress.geometries.matrices import check_spd
from knnpress.typing import Array, ArrayLike, Indices

#: Projected matrices (n, r, r) to a loss and its derivative in each of them.
Loss: TypeAlias = Callable[[Array], tuple[float, Array]]
#: Rows i and j, (p,) each, to the distances of those pairs, (p,), and their derivatives in the first, (p, r, r).
Terms: TypeAlias = Callable[[Indices, Indices], tuple[Array, Array]]


class SPDProjection(TransformerMixin, BaseEstimator):
    r"""Project SPD matrices to smaller ones, X to U'XU, so that classes come apart, (n, n_dims, n_dims).

    Let :math:`G_w(i, j) = 1` where j is among the `n_within` matrices of i's class nearest to i, or i among j's, and
    :math:`G_b` likewise with the `n_between` nearest of other classes. U minimises

    .. math:: \sum_{ij} \left(G_w(i, j) - G_b(i, j)\right) \delta(U^\top X_i U,\, U^\top X_j U),
              \qquad U^\top U = I

    with :math:`\delta` the JBLD or the squared affine-invariant distance. Neither changes when U's columns are mixed,
    so the search is one over subspaces: conjugate gradients on the Grassmann manifold, by pymanopt. It is done on the
    matrices whitened by their mean, which changes no distance but conditions the search.

    The three numbers are worth a search, as in the paper: `knnpress.compression.tune` on a pipeline of this and a
    classifier. Their balance matters most: far more pull than push brings all matrices together.

    Parameters
    ----------
    n_dims : int
        Columns of U.
    n_within, n_between : int
        Neighbours of the same class that pull, and of other classes that push.
    metric : {"jbld", "airm"}
    max_iter : int
        Steps of the search.
    n_jobs : int or None
        Threads; None: all cores this process may use.

    Attributes
    ----------
    components_ : ndarray of shape (d, n_dims)
        U; orthonormal columns.
    loss_ : float
        The loss that was reached, per matrix.
    n_iter_ : int

    References
    ----------
    Harandi, Salzmann, Hartley. From manifold to manifold: geometry-aware dimensionality reduction for SPD matrices.
    ECCV 2014.
    """

    def __init__(
        self,
        n_dims: int,
        n_within: int = 5,
        n_between: int = 5,
        metric: Literal["jbld", "airm"] = "jbld",
        max_iter: int = 50,
        n_jobs: int | None = None,
    ) -> None:
        self.n_dims = n_dims
        self.n_within = n_within
        self.n_between = n_between
        self.metric = metric
        self.max_iter = max_iter
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike) -> SPDProjection:
        """Learn U from labelled matrices, X of shape (n, d, d) and y of shape (n,)."""
        matrices = check_spd(X, n_jobs=self.n_jobs)
        labels = self._check_settings(matrices, y)
        values, vectors = np.linalg.eigh(matrices.mean(axis=0))
        whiten = vectors / np.sqrt(values)
        white = project(matrices, whiten)
        affinity = affinity_graph(white, labels, self.n_within, self.n_between, self.n_jobs)
        loss = graph_loss(affinity, _METRICS[self.metric], self.n_jobs)
        start = linear_start(white, affinity, self.n_dims)
        U, self.loss_, self.n_iter_ = _descend(white, loss, start, self.max_iter)
        # Back from whitened coordinates to those of X; any basis of the subspace gives the same distances
        self.components_ = np.linalg.qr(whiten @ U)[0]
        self.n_features_in_ = len(whiten)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """U'XU for matrices (n, d, d)."""
        check_is_fitted(self)
        X = check_spd(X, n_jobs=self.n_jobs)
        if X.shape[1] != len(self.components_):
            raise ValueError(
                f"X holds matrices of size {X.shape[1]}; the projection was fitted on {len(self.components_)}"
            )
        return project(X, self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    def _check_settings(self, X: Array, y: ArrayLike) -> Array:
        labels = np.asarray(y)
        if labels.shape != (len(X),):
            raise ValueError(f"y has shape {labels.shape}; give one label for each of the {len(X)} matrices")
        if len(np.unique(labels)) < 2:
            raise ValueError(
                f"y holds one class ({labels.tolist()[0]!r}); a projection that separates classes needs at least 2"
            )
        if not 1 <= self.n_dims <= X.shape[1]:
            raise ValueError(
                f"n_dims is {self.n_dims!r}; give a number from 1 to {X.shape[1]}, the size of the matrices"
            )
        for name in ("n_within", "n_between"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; give a count of at least 1")
        if self.metric not in _METRICS:
            raise ValueError(f"metric is {self.metric!r}; choose 'jbld' or 'airm'")
        return labels


def project(X: Array, U: Array) -> Array:
    """U'XU, symmetric to the last bit, (n, r, r)."""
    Y = U.T @ X @ U
    return 0.5 * (Y + Y.transpose(0, 2, 1))


def affinity_graph(
    X: Array, labels: Array, n_within: int, n_between: int, n_jobs: int | None = None
) -> sparse.csr_array:
    """G_w - G_b, (n, n), symmetric.

    Neighbours are those under the log-Euclidean distance: X is whitened, and near the identity all metrics agree.
    """
    D = LogEuclidean().pairwise(X, n_jobs=n_jobs)
    same = labels[:, None] == labels
    np.fill_diagonal(D, np.inf)
    pull = _nearest(np.where(same, D, np.inf), n_within)
    push = _nearest(np.where(same, np.inf, D), n_between)
    return sparse.csr_array(pull.maximum(pull.T) - push.maximum(push.T))


def _nearest(D: Array, k: int) -> sparse.csr_array:
    """1 at the k smallest finite entries of each row."""
    columns = np.argsort(D, axis=1, kind="stable")[:, :k]
    rows = np.repeat(np.arange(len(D)), columns.shape[1])
    found = np.isfinite(D[rows, columns.ravel()])
    return sparse.csr_array((np.ones(found.sum()), (rows[found], columns.ravel()[found])), shape=D.shape)


def linear_start(X: Array, affinity: sparse.csr_array, n_dims: int) -> Array:
    r"""U of the problem linearised at the identity, (d, n_dims).

    There :math:`\delta` is a multiple of :math:`\|U^\top (X_i - X_j) U\|_F^2`, which is at most
    :math:`\operatorname{tr} U^\top (X_i - X_j)^2 U`: the smallest eigenvectors of the weighted sum of those squares.
    """
    degree = affinity.sum(axis=1)
    mixed = (affinity @ X.reshape(len(X), -1)).reshape(X.shape)
    square = 2 * np.einsum("n,nab,nbc->ac", degree, X, X, optimize=True) - 2 * np.einsum(
        "nab,nbc->ac", X, mixed, optimize=True
    )
    return np.linalg.eigh(square + square.T)[1][:, :n_dims]


def jbld_terms(Y: Array) -> Terms:
    r"""JBLD, with :math:`d\delta/dY_i = \frac{1}{2} \left(\frac{Y_i + Y_j}{2}\right)^{-1} - \frac{1}{2} Y_i^{-1}`."""
    own = _core.SpdLanes(Y)
    logdet, inverse = own.logdet, own.inverse()

    def terms(i: Indices, j: Indices) -> tuple[Array, Array]:
        middle = _core.SpdLanes(0.5 * (Y[i] + Y[j]))
        return middle.logdet - 0.5 * (logdet[i] + logdet[j]), 0.5 * (middle.inverse() - inverse[i])

    return terms


def airm_terms(Y: Array) -> Terms:
    r"""Squared affine-invariant distance, with :math:`d\delta/dY_i = -2 L^{-\top} \log(L^{-1} Y_j L^{-\top}) L^{-1}`.

    L is the Cholesky factor of :math:`Y_i`.
    """
    inverse_factors = np.linalg.inv(np.linalg.cholesky(Y))

    def terms(i: Indices, j: Indices) -> tuple[Array, Array]:
        A = inverse_factors[i]
        values, vectors = np.linalg.eigh(A @ Y[j] @ A.transpose(0, 2, 1))
        logs = np.log(np.maximum(values, np.finfo(np.float64).tiny))
        B = A.transpose(0, 2, 1) @ vectors
        return (logs**2).sum(axis=1), (B * (-2 * logs)[:, None, :]) @ B.transpose(0, 2, 1)

    return terms


_METRICS: dict[str, Callable[[Array], Terms]] = {"jbld": jbld_terms, "airm": airm_terms}


def graph_loss(affinity: sparse.csr_array, metric: Callable[[Array], Terms], n_jobs: int | None = None) -> Loss:
    """Projected matrices to the sum of their distances, weighted by a symmetric graph; costs only its edges."""
    n = affinity.shape[0]

    def loss(Y: Array) -> tuple[float, Array]:
        terms = metric(Y)

        def part(rows: slice) -> tuple[float, Array]:
            edges = affinity[rows]
            i = np.repeat(np.arange(rows.start, rows.stop), np.diff(edges.indptr))
            D, slopes = terms(i, edges.indices)
            collect = sparse.csr_array(
                (edges.data, np.arange(edges.nnz), edges.indptr), shape=(len(edges.indptr) - 1, edges.nnz)
            )
            return float(edges.data @ D), (collect @ slopes.reshape(edges.nnz, -1)).reshape(-1, *Y.shape[1:])

        edge_bytes = 4 * Y[0].nbytes * (affinity.nnz // n + 1)
        parts = map_blocks(part, row_blocks(n, edge_bytes), n_jobs)
        # Every edge is met from both ends: its slope at the near end counts for both
        return sum(value for value, _ in parts), 2 * np.concatenate([slopes for _, slopes in parts])

    return loss


def projected_loss(X: Array, loss: Loss) -> Callable[[Array], tuple[float, Array]]:
    """U to the loss of U'XU and its derivative in U, sum_i 2 X_i U S_i with S_i the derivative in U'X_iU."""

    def evaluate(U: Array) -> tuple[float, Array]:
        XU = X @ U
        Y = U.T @ XU
        value, slopes = loss(0.5 * (Y + Y.transpose(0, 2, 1)))
        return value, 2 * np.einsum("nab,nbc->ac", XU, slopes, optimize=True)

    return evaluate


def _descend(X: Array, loss: Loss, start: Array, max_iter: int) -> tuple[Array, float, int]:
    """Minimise over subspaces from a start; U, the loss per matrix, and the steps taken."""
    pymanopt = require("pymanopt")
    manifold = pymanopt.manifolds.Grassmann(*start.shape)
    evaluate = _remember_last(projected_loss(X, loss))
    problem = pymanopt.Problem(
        manifold,
        pymanopt.function.numpy(manifold)(lambda U: evaluate(U)[0] / len(X)),
        euclidean_gradient=pymanopt.function.numpy(manifold)(lambda U: evaluate(U)[1] / len(X)),
    )
    optimizer = require("pymanopt.optimizers").ConjugateGradient(max_iterations=max_iter, verbosity=0)
    result = optimizer.run(problem, initial_point=start)
    return result.point, float(result.cost), int(result.iterations)


def _remember_last(function: Callable[[Array], tuple[float, Array]]) -> Callable[[Array], tuple[float, Array]]:
    """The search asks for value and derivative at the same point, one after the other: compute them once."""
    last: list[Any] = [None, None]

    def remembering(U: Array) -> tuple[float, Array]:
        if last[0] is None or not np.array_equal(last[0], U):
            last[:] = U.copy(), function(U)
        return last[1]

    return remembering
