"""Vectors under the squared Euclidean distance: the geometry of SNC, the ancestor of SCC and SHC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.exceptions import InvalidPointError, how_many
from knnpress.geometries.base import Focus, Geometry, Linearization, Linearize, pairwise
from knnpress.geometries.charts import IdentityChart
from knnpress.geometries.checks import as_real_array, check_weights
from knnpress.typing import Array, ArrayLike

_LARGEST = 1e150  # sums of squares of such numbers are still finite


@dataclass(frozen=True)
class _Memory:
    """What a block keeps: its mean, (d,), and the squared distances of its points from it, (n,)."""

    center: Array
    norms: Array


class SquaredEuclidean(BaseEstimator):
    r"""Squared Euclidean distance between vectors, :math:`D(x, z) = \|x - z\|^2`.

    Points are rows of an (n, d) array. The centroid is the mean.

    Examples
    --------
    >>> from knnpress.geometries import SquaredEuclidean
    >>> SquaredEuclidean().pairwise([[0.0, 0.0]], [[3.0, 4.0]])
    array([[25.]])
    """

    point_ndim = 1
    start_quotas: Literal["size", "need"] = "need"
    exact_gradient = True
    slacks = (1.0,)
    least_work = 2**21  # about a third of a millisecond

    def check(self, X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
        """Return X as a float64 C-array (n, d); refuses NaN, infinity, entries beyond 1e150 and other shapes."""
        array = as_real_array(X, 2, name, "(n_samples, n_dims)")
        largest = np.maximum(array.max(axis=1), -array.min(axis=1))
        if largest.max() > _LARGEST:
            row = int(np.flatnonzero(largest > _LARGEST)[0])
            raise InvalidPointError(
                f"{name}[{row}] has an entry of size {largest[row]:.1e}, "
                f"{how_many((largest > _LARGEST).sum(), len(array), 'points', 'do')}, and squares of such "
                f"numbers overflow; scale all points, e.g. by 1 / {largest.max():.0e}"
            )
        return array

    def pairwise(self, X: ArrayLike, Z: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """Distances between all pairs of rows, (n, m); Z None means X itself."""
        return pairwise(self, X, Z, n_jobs)

    def centroid(self, X: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """The weighted mean, (d,)."""
        X = self.check(X)
        return check_weights(weights, len(X)) @ X

    def centroid_step(self, X: Array, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """The weighted means, whatever Z is."""
        return W.T @ X

    def distances_to(self, Z: Array) -> Callable[[Array], Array]:
        """For checked Z: a function from a checked block of X to its distances to every Z."""
        # Around Z's mean the expansion |x|^2 - 2 x'z + |z|^2 loses little to cancellation.
        center = Z.mean(axis=0)
        centered = Z - center
        norms = np.einsum("jk,jk->j", centered, centered)

        def distances(X: Array) -> Array:
            X = X - center
            D = X @ centered.T
            D *= -2.0
            D += np.einsum("ik,ik->i", X, X)[:, None]
            D += norms
            return np.maximum(D, 0.0, out=D)

        return distances

    @property
    def start_geometry(self) -> Geometry:
        """Vectors are averaged as they are compared."""
        return self

    @property
    def quick_geometry(self) -> None:
        """None is quicker."""
        return None

    def chart(self, start: Array) -> IdentityChart:
        """Vectors are free already."""
        return IdentityChart(start.shape[1:])

    def paper_chart(self, start: Array) -> IdentityChart:
        """The same."""
        return self.chart(start)

    def linearize(self, X: Array, Z: Array, memory: Any = None) -> Linearization:
        """Distances and their derivative, ``dD/dZ_j = 2 (Z_j - X_i)``."""
        return self.linearize_at(Z)(X, memory)

    def linearize_at(self, Z: Array, slack: float = 1.0) -> Linearize:
        """`linearize` at checked Z, for any block of X; a closed form needs no slack.

        A block's memory is its mean and the points' squared distances from it: the rest of a step is two products.
        """

        def step(X: Array, memory: Any = None, focus: Focus | None = None) -> Linearization:
            if memory is None:
                center = X.mean(axis=0)
                centered = X - center
                memory = _Memory(center, np.einsum("ik,ik->i", centered, centered))
            off = Z - memory.center
            D = X @ off.T
            D -= off @ memory.center  # (X - center) @ off.T, without a copy of X
            D *= -2.0
            D += memory.norms[:, None]
            D += np.einsum("jk,jk->j", off, off)

            def pullback(W: Array) -> Array:
                return 2.0 * (W.sum(axis=0)[:, None] * Z - W.T @ X)

            return Linearization(np.maximum(D, 0.0, out=D), pullback, memory)

        return step
