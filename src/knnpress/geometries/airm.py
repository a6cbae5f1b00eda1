"""Symmetric positive definite matrices under the affine-invariant Riemannian metric."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.execution.threads import map_blocks
from knnpress.geometries.base import pairwise
from knnpress.geometries.checks import check_weights
from knnpress.geometries.matrices import check_spd, iterate_centroid, symmetric
from knnpress.geometries.spectral import (
    affine_distances,
    eigvalsh,
    matrix_exp,
    matrix_inverse_sqrt,
    matrix_sqrt,
    whitened_log,
)
from knnpress.typing import Array, ArrayLike

_AT_ONCE = 2e8  # matrices times the cube of their size that LAPACK is given at once, some hundredths of a second


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
        return iterate_centroid(self, X, check_weights(weights, len(X)), 200)

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
            return symmetric(root @ matrix_exp(tangent[None])[0] @ root)

        moved = map_blocks(lambda j: move(W[:, j.start], Z[j.start]), [slice(j, j + 1) for j in range(len(Z))], n_jobs)
        return np.stack(moved)

    def distances_to(self, Z: Array) -> Callable[[Array], Array]:
        """For checked Z: a function from a checked block of X to its distances to every Z."""
        whiteners = _by_few(lambda some: np.linalg.inv(np.linalg.cholesky(some)), Z)
        return lambda X: affine_distances(_by_few(np.linalg.cholesky, X), whiteners)


def _by_few(function: Callable[[Array], Array], X: Array) -> Array:
    """A function of LAPACK's on a few matrices at a time: Ctrl-C is answered only between its calls."""
    few = max(1, int(_AT_ONCE / X.shape[1] ** 3))
    if len(X) <= few:
        return function(X)
    return np.concatenate([function(X[k : k + few]) for k in range(0, len(X), few)])
