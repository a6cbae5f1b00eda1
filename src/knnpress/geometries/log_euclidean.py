"""Symmetric positive definite matrices under the log-Euclidean metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.geometries.base import Focus, Geometry, Linearization, Linearize, pairwise
from knnpress.geometries.charts import CholeskyChart, ExponentialChart
from knnpress.geometries.checks import check_weights
from knnpress.geometries.euclidean import SquaredEuclidean
from knnpress.geometries.matrices import check_spd, symmetric
from knnpress.geometries.spectral import above_zero, eigh, matrix_exp, matrix_log
from knnpress.typing import Array, ArrayLike

_MIN_VALUE = 1e-290  # of an eigenvalue whose inverse is formed: a line search may try what no float can hold
_FAR_APART = 1e10  # ratio of eigenvalues


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
        return matrix_exp(symmetric(means), n_jobs)

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
        kernel = _divided_log(np.maximum(above_zero(values), _MIN_VALUE))
        flat_z = _flat_log(Z)
        distances = SquaredEuclidean().distances_to(flat_z)

        def step(X: Array, memory: Any = None, focus: Focus | None = None) -> Linearization:
            logs_x = _flat_log(X) if memory is None else memory

            def pullback(W: Array) -> Array:
                H = 2.0 * (W.sum(axis=0)[:, None] * flat_z - W.T @ logs_x).reshape(Z.shape)
                rotated = vectors.transpose(0, 2, 1) @ H @ vectors
                return symmetric(vectors @ (kernel * rotated) @ vectors.transpose(0, 2, 1))

            return Linearization(distances(logs_x), pullback, logs_x)

        return step


def _flat_log(X: Array, n_jobs: int | None = None) -> Array:
    return matrix_log(X, n_jobs).reshape(len(X), -1)


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
