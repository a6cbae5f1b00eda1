"""Eigenvalues and functions of many symmetric matrices at once.

Small matrices are decomposed by the native core, one per SIMD lane (cpp/spectral.cpp); large ones by LAPACK. Only lower
triangles are read. A matrix that holds NaN or infinity gets NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from knnpress import _core
from knnpress.execution.threads import map_blocks, row_blocks
from knnpress.typing import Array

__all__ = [
    "above_zero",
    "affine_distances",
    "eigh",
    "eigvalsh",
    "matrix_exp",
    "matrix_inverse_sqrt",
    "matrix_log",
    "matrix_sqrt",
    "whitened_log",
]

#: Size up to which lanes are faster than LAPACK
_WIDEST = 128
_TINY = float(np.finfo(np.float64).tiny)


def eigh(X: Array, n_jobs: int | None = None) -> tuple[Array, Array]:
    r"""Eigenvalues and eigenvectors, :math:`X_i = U_i \,\mathrm{diag}(s_i)\, U_i^\top`.

    Parameters
    ----------
    X : ndarray of shape (n, d, d)
        Symmetric.
    n_jobs : int or None
        Number of threads; the result does not depend on it.

    Returns
    -------
    values : ndarray of shape (n, d)
        Ascending; each is right to a few eps of the largest.
    vectors : ndarray of shape (n, d, d)
        In columns.

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.geometries.spectral import eigh
    >>> values, vectors = eigh(np.array([[[2.0, 1.0], [1.0, 2.0]]]))
    >>> values.round(12)
    array([[1., 3.]])
    """
    X = _stack(X)
    values, vectors = np.empty(X.shape[:2]), np.empty(X.shape)
    if X.shape[1] <= _WIDEST:
        _fill(lambda rows: _core.eigen(X[rows], values[rows], vectors[rows]), X, n_jobs)
    else:
        _fill(lambda rows: _lapack(X[rows], values[rows], vectors[rows]), X, n_jobs)
    return values, vectors


def eigvalsh(X: Array, n_jobs: int | None = None) -> Array:
    """Eigenvalues of X, (n, d, d), ascending, (n, d), as from `eigh`, in less time."""
    X = _stack(X)
    if X.shape[1] > _WIDEST:
        return eigh(X, n_jobs)[0]
    values = np.empty(X.shape[:2])
    _fill(lambda rows: _core.eigen(X[rows], values[rows], None), X, n_jobs)
    return values


def above_zero(values: Array) -> Array:
    """Eigenvalues of positive definite matrices, (n, d), where rounding has left none at zero or below.

    It may, where a matrix is all but singular: eigenvalues are right to a few eps of the largest.
    """
    return np.where(values > 0, values, np.finfo(np.float64).eps * values.max(axis=1, keepdims=True))


def matrix_log(X: Array, n_jobs: int | None = None) -> Array:
    """Logarithms of X, (n, d, d); eigenvalues below the smallest normal number count as that."""
    return _mapped(X, _core.SpectralMap.log, lambda s: np.log(np.maximum(s, _TINY)), n_jobs)


def matrix_exp(X: Array, n_jobs: int | None = None) -> Array:
    """Exponentials of X, (n, d, d)."""
    return _mapped(X, _core.SpectralMap.exp, np.exp, n_jobs)


def matrix_sqrt(X: Array, n_jobs: int | None = None) -> Array:
    """Square roots of X, (n, d, d); negative eigenvalues count as zero."""
    return _mapped(X, _core.SpectralMap.sqrt, lambda s: np.sqrt(np.maximum(s, 0.0)), n_jobs)


def matrix_inverse_sqrt(X: Array, n_jobs: int | None = None) -> Array:
    """Inverses of the square roots of X, (n, d, d); eigenvalues below the smallest normal number count as that."""
    return _mapped(X, _core.SpectralMap.inverse_sqrt, lambda s: 1.0 / np.sqrt(np.maximum(s, _TINY)), n_jobs)


def whitened_log(X: Array, whitener: Array, n_jobs: int | None = None) -> Array:
    r"""Logarithms of :math:`A X_i A^\top`, (n, d, d), for one A, (d, d), such as the inverse root of a mean."""
    return _mapped(X, _core.SpectralMap.log, lambda s: np.log(np.maximum(s, _TINY)), n_jobs, whitener)


def affine_distances(factors: Array, whiteners: Array) -> Array:
    r"""Affine-invariant distances, (n, m), :math:`2 \sqrt{\sum_k \log^2 \sigma_k}`.

    Parameters
    ----------
    factors : ndarray of shape (n, d, d)
        Cholesky factors of the matrices.
    whiteners : ndarray of shape (m, d, d)
        Inverses of the Cholesky factors of those they are compared with.

    Notes
    -----
    The singular values :math:`\sigma_k` of whitener times factor are roots of the generalised eigenvalues; found so,
    and not as those of the whitened matrix, they lose only the root of its condition.
    """
    if factors.shape[1] <= _WIDEST:
        return _core.airm_pairwise(factors, whiteners)
    D = np.empty((len(factors), len(whiteners)))
    for j, A in enumerate(whiteners):
        values = np.linalg.svd(A @ factors, compute_uv=False)
        D[:, j] = 2.0 * np.linalg.norm(np.log(np.maximum(values, _TINY)), axis=1)
    return D


def _stack(X: Array) -> Array:
    X = np.require(X, np.float64, ["C", "A"])
    if X.ndim != 3 or X.shape[1] != X.shape[2] or X.shape[1] == 0:
        raise ValueError(f"X has shape {X.shape}; expected symmetric matrices (n_matrices, d, d)")
    return X


def _fill(work: Callable[[slice], object], X: Array, n_jobs: int | None) -> None:
    map_blocks(work, row_blocks(len(X), 8 * X.shape[1] ** 2), n_jobs)


def _mapped(
    X: Array,
    native: _core.SpectralMap,
    function: Callable[[Array], Array],
    n_jobs: int | None,
    congruence: Array | None = None,
) -> Array:
    X = _stack(X)
    if congruence is not None:
        congruence = np.require(congruence, np.float64, ["C", "A"])
    out = np.empty(X.shape)

    def by_lapack(rows: slice) -> None:
        values, vectors = np.empty(X[rows].shape[:2]), np.empty(X[rows].shape)
        _lapack(X[rows] if congruence is None else congruence @ X[rows] @ congruence.T, values, vectors)
        mapped = (vectors * function(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
        out[rows] = 0.5 * (mapped + mapped.transpose(0, 2, 1))

    narrow = X.shape[1] <= _WIDEST
    _fill((lambda rows: _core.spectral_map(X[rows], native, out[rows], congruence)) if narrow else by_lapack, X, n_jobs)
    return out


def _lapack(X: Array, values: Array, vectors: Array) -> None:
    """Fill values and vectors; NaN, which LAPACK may refuse, where X is not finite."""
    sound = np.isfinite(X).all(axis=(1, 2))
    values[~sound], vectors[~sound] = np.nan, np.nan
    values[sound], vectors[sound] = np.linalg.eigh(X[sound])
