"""Symmetric positive definite matrices as vectors: their logarithms in the tangent space at a mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.exceptions import InvalidPointError, how_many
from knnpress.geometries.airm import AIRM
from knnpress.geometries.base import pairwise
from knnpress.geometries.checks import as_real_array, check_weights
from knnpress.geometries.euclidean import SquaredEuclidean
from knnpress.geometries.jbld import JBLD
from knnpress.geometries.matrices import check_spd
from knnpress.geometries.spectral import matrix_exp, matrix_inverse_sqrt, matrix_log, matrix_sqrt, whitened_log
from knnpress.typing import Array, ArrayLike, Indices

_MEANS: dict[str, type[JBLD | AIRM]] = {"logdet": JBLD, "riemann": AIRM}
_ROOT = float(np.sqrt(2.0))


class Tangent(BaseEstimator):
    r"""Squared Euclidean distance in the tangent space at a reference matrix M.

    .. math:: D(X, Z) = \|v(X) - v(Z)\|^2, \qquad
              v(X) = \mathrm{upper}\left(\log\left(M^{-1/2} X M^{-1/2}\right)\right)

    where the entries beside the diagonal are multiplied by :math:`\sqrt{2}`, so that the length of v(X) is X's
    affine-invariant distance from M. At M = I this is `LogEuclidean`. With M the mean of the data, by `fitted_to`, no
    distance changes when all matrices, M among them, go through the same congruence (X to AXA'). Points are (n, d, d)
    arrays.

    Parameters
    ----------
    reference : array-like of shape (d, d) or None
        M; None: the identity.
    mean : {"logdet", "riemann"}
        Which mean `fitted_to` takes: the centroid under `JBLD`, or the Karcher mean, the centroid under `AIRM`, which
        takes longer.

    References
    ----------
    Barachant, Bonnet, Congedo, Jutten. Classification of covariance matrices using a Riemannian-based kernel for BCI
    applications. Neurocomputing 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.geometries import Tangent
    >>> X = np.array([np.eye(2), np.diag([np.e, 1.0])])
    >>> Tangent().transform(X).round(4) + 0.0
    array([[0., 0., 0.],
           [1., 0., 0.]])
    >>> Tangent(mean="riemann").fitted_to(X).reference.round(4) + 0.0
    array([[1.6487, 0.    ],
           [0.    , 1.    ]])
    """

    point_ndim = 2
    start_quotas: Literal["size", "need"] = "size"

    def __init__(self, reference: ArrayLike | None = None, mean: str = "logdet") -> None:
        self.reference = reference
        self.mean = mean

    def fitted_to(self, X: Array, weights: ArrayLike | None = None) -> Tangent:
        """The same geometry at the weighted mean of checked X, (n, d, d); itself, where it has a reference already."""
        if self.reference is not None:
            return self
        if self.mean not in _MEANS:
            raise ValueError(f"mean is {self.mean!r}; choose 'logdet' or 'riemann'")
        return Tangent(_MEANS[self.mean]().centroid(X, weights), self.mean)

    def check(self, X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
        """Return X as a float64 C-array (n, d, d) of symmetric positive definite matrices, or say which are not."""
        return check_spd(X, name, n_jobs)

    def pairwise(self, X: ArrayLike, Z: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """Squared distances between all pairs of matrices, (n, m); Z None means X itself."""
        return pairwise(self, X, Z, n_jobs)

    def transform(self, X: ArrayLike, n_jobs: int | None = None) -> Array:
        """Check X, (n, d, d), and return its vectors, (n, d (d + 1) / 2)."""
        return self.embed(self.check(X, n_jobs=n_jobs), n_jobs)

    def embed(self, X: Array, n_jobs: int | None = None) -> Array:
        """Vectors of checked X, (n, d (d + 1) / 2)."""
        return self._embedding(X.shape[1])(X, n_jobs)

    def unembed(self, V: ArrayLike, n_jobs: int | None = None) -> Array:
        r"""The matrices that vectors stand for, :math:`M^{1/2} \exp(v) M^{1/2}`, (n, d, d)."""
        logs = _to_matrices(as_real_array(V, 2, "V", "(n_matrices, d (d + 1) / 2)"))
        reference = self._check_reference(logs.shape[1], "V")
        points = matrix_exp(logs, n_jobs)
        if reference is not None:
            root = matrix_sqrt(reference[None])[0]
            points = root @ points @ root
            points = 0.5 * (points + points.transpose(0, 2, 1))
        if (bad := np.flatnonzero(~np.isfinite(points).all(axis=(1, 2)))).size:
            raise InvalidPointError(
                f"V[{bad[0]}], of length {np.linalg.norm(logs[bad[0]]):.1e}, stands for a matrix whose entries "
                f"overflow, {how_many(bad.size, len(logs), 'vectors', 'do')}; logarithms must be below 709: "
                "scale them down"
            )
        return points

    def centroid(self, X: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """The matrix that the mean vector stands for, (d, d)."""
        X = self.check(X)
        return self.unembed(check_weights(weights, len(X))[None] @ self.embed(X))[0]

    def centroid_step(self, X: Array, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """The weighted centroids, whatever Z is."""
        return self.unembed(W.T @ self.embed(X, n_jobs), n_jobs)

    def distances_to(self, Z: Array) -> Callable[[Array], Array]:
        """For checked Z: a function from a checked block of X to its squared distances to every Z."""
        embed = self._embedding(Z.shape[1])
        between = SquaredEuclidean().distances_to(embed(Z, None))
        return lambda X: between(embed(X, None))

    def _check_reference(self, d: int, name: str) -> Array | None:
        reference = self._sized_reference(d, name)
        return None if reference is None else check_spd(reference[None], "reference", 1)[0]

    def _sized_reference(self, d: int, name: str) -> Array | None:
        if self.reference is None:
            return None
        reference = np.asarray(self.reference)
        if reference.shape != (d, d):
            raise ValueError(
                f"{name} stands for matrices of size {d}, but reference has shape {reference.shape}; they must agree"
            )
        return reference

    def _embedding(self, d: int) -> Callable[[Array, int | None], Array]:
        """`embed` for matrices of size d; what depends on the reference alone is computed once."""
        reference = self._sized_reference(d, "X")
        if reference is None:
            return lambda X, n_jobs: _to_vectors(matrix_log(X, n_jobs))
        whitener = _whitener(np.asarray(reference, dtype=np.float64).tobytes(), d)
        return lambda X, n_jobs: _to_vectors(whitened_log(X, whitener, n_jobs))


@lru_cache(maxsize=16)
def _whitener(reference: bytes, d: int) -> Array:
    """The inverse root of a reference: the same for every query of a model, and costlier than one query."""
    found = matrix_inverse_sqrt(check_spd(np.frombuffer(reference).reshape(1, d, d), "reference", 1))[0]
    found.flags.writeable = False
    return found


@lru_cache(maxsize=16)
def _triangle(d: int) -> tuple[Indices, Array]:
    """Where the upper triangle of a flat (d, d) matrix is, row by row, and by what it is multiplied."""
    rows, columns = np.triu_indices(d)
    return rows * d + columns, np.where(rows == columns, 1.0, _ROOT)


def _to_vectors(S: Array) -> Array:
    """Upper triangles of symmetric matrices, row by row, with the norm of the matrices."""
    where, factor = _triangle(S.shape[1])
    vectors: Array = S.reshape(len(S), -1).take(where, axis=1)
    vectors *= factor
    return vectors


def _to_matrices(V: Array) -> Array:
    d = int((np.sqrt(8 * V.shape[1] + 1) - 1) / 2)
    if d * (d + 1) // 2 != V.shape[1]:
        raise ValueError(
            f"V has {V.shape[1]} columns; vectors of matrices of size d have d (d + 1) / 2, such as 3 or 6"
        )
    rows, columns = np.triu_indices(d)
    S = np.empty((len(V), d, d))
    S[:, rows, columns] = S[:, columns, rows] = V * np.where(rows == columns, 1.0, 1.0 / _ROOT)
    return S
