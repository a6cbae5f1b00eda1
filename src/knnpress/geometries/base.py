"""What a geometry, a chart and a linearization are, and the matrix of distances under any geometry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from knnpress.execution.threads import map_blocks, row_blocks
from knnpress.geometries.checks import check_same_size
from knnpress.typing import Array, ArrayLike, Indices


@runtime_checkable
class Geometry(Protocol):
    """Enough for nearest neighbours and for every selector.

    Attributes
    ----------
    point_ndim : int
        1: a point is a vector or histogram, 2: a matrix.
    """

    point_ndim: int

    def check(self, X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
        """Validate points; returns a float64 C-array, the input itself where it already is one."""
        ...

    def pairwise(self, X: ArrayLike, Z: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """Distances between all pairs, (n, m)."""
        ...

    def centroid(self, X: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """The point that represents all of X best."""
        ...

    def distances_to(self, Z: Array) -> Callable[[Array], Array]:
        """For checked Z: a function from a checked block of X to its distances to every Z."""
        ...

    def centroid_step(self, X: Array, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """Move each Z_j towards the centroid of checked X under the weights W[:, j], which sum to one.

        Repeated, it converges to `centroid`; where that has a closed form, one step is enough.
        """
        ...


# What a geometry may offer in addition, each with what is done without it.


@runtime_checkable
class SearchableGeometry(Protocol):
    """Finds nearest neighbours without all distances; under other geometries all are computed."""

    def nearest_to(self, Z: Array, k: int) -> Callable[[Array], Array]:
        """Like `Geometry.distances_to`, but all except the k least values of a row may be infinity."""
        ...


@runtime_checkable
class FittableGeometry(Protocol):
    """Has parameters that are chosen from the data; other geometries are used as they are."""

    def fitted_to(self, X: Array, weights: ArrayLike | None = None) -> Geometry:
        """The geometry to use for checked points like X."""
        ...


@runtime_checkable
class CloudGeometry(Protocol):
    """Has clouds of points for points; elsewhere these are arrays, with their dimension in their shape."""

    def n_dims_of(self, X: Any) -> int:
        """Dimension of the points of checked clouds."""
        ...


@runtime_checkable
class SmoothCloudGeometry(CloudGeometry, Protocol):
    """What learning asks of points that are not arrays of one shape."""

    def summarize(self, X: Any) -> Array:
        """A vector for each point, (n, d), good enough to find roughly similar ones by."""
        ...

    def spread(self, X: Any, weight: Array | None, start: Array, own: Indices) -> float:
        """The unit of parameters: how far points are from their own start, which a chart cannot measure for clouds."""
        ...


@runtime_checkable
class TimedGeometry(Protocol):
    """Says how long a pair takes; for other geometries, d, the number of features, is assumed."""

    def pair_work(self, d: int) -> float:
        """How long a pair of points of size d takes in a descent, in units of JBLD's at d = 1.

        Where all pairs would take too long, only the quick geometry is tried.
        """
        ...


@runtime_checkable
class CheapGeometry(Protocol):
    """Has pairs that cost so little that small blocks of rows are joined; elsewhere blocks stay as they are.

    Attributes
    ----------
    least_work : int
        Multiplications, as many as a pair has numbers, below which a block is not worth a call of its own.
    """

    least_work: int


@runtime_checkable
class EmbeddedGeometry(Geometry, Protocol):
    """A geometry in which points are vectors under the squared Euclidean distance: enough for learning, too."""

    start_quotas: Literal["size", "need"]

    def fitted_to(self, X: Array, weights: ArrayLike | None = None) -> EmbeddedGeometry:
        """The geometry to use for checked points like X."""
        ...

    def embed(self, X: Array, n_jobs: int | None = None) -> Array:
        """Vectors of checked points, (n, p)."""
        ...

    def unembed(self, V: ArrayLike, n_jobs: int | None = None) -> Array:
        """The points that vectors stand for, or the nearest to that."""
        ...


@runtime_checkable
class SmoothGeometry(Geometry, Protocol):
    """Enough for learning.

    Attributes
    ----------
    exact_gradient : bool
        False where `linearize` gives an approximate gradient, which a line search cannot use.
    start_geometry : Geometry
        Where points are averaged and compared to find a start: this geometry, or a quicker one that does as well.
    start_quotas : {"size", "need"}
        How many prototypes each class starts with: by its size, or more for the classes that err. Matrices have many
        dimensions for their number, and more of them in a class that errs only fit it too closely.
    slacks : tuple of float
        How loosely distances may be solved or their gradients computed, from the first steps of a descent to the last,
        in units of the geometry's own tolerance; (1.0,) where there is nothing to gain.
    """

    exact_gradient: bool
    slacks: tuple[float, ...]
    start_quotas: Literal["size", "need"]

    @property
    def start_geometry(self) -> Geometry:
        """Where points are averaged and compared to find a start."""
        ...

    @property
    def quick_geometry(self) -> EmbeddedGeometry | None:
        """A similar and quicker one, in which settings are searched first; None where there is none."""
        ...

    def chart(self, start: Array) -> Chart:
        """Parameters of prototypes that start at `start`, (m, ...): normal coordinates, where there are any."""
        ...

    def paper_chart(self, start: Array) -> Chart:
        """The parameters that the paper learns."""
        ...

    def linearize(self, X: Array, Z: Array, memory: Any = None) -> Linearization:
        """Distances of checked X and Z, with their derivative in Z."""
        ...

    def linearize_at(self, Z: Array, slack: float = 1.0) -> Linearize:
        """`linearize` at checked Z, for any checked block of X: what depends on Z alone is computed once."""
        ...


class Linearize(Protocol):
    """What `SmoothGeometry.linearize_at` returns."""

    def __call__(self, X: Array, memory: Any = None, focus: Focus | None = None) -> Linearization:
        """Distances of a block; those outside the focus may be left out, as infinity."""
        ...


@dataclass(frozen=True)
class Focus:
    """Which distances of a block matter: in each row, those not far above the smallest of some marked ones.

    Attributes
    ----------
    among : ndarray of bool, shape (n, m)
        The marked ones, at least one per row; the same at every step.
    gap : ndarray of shape (n,)
        How far above is too far; infinity: all matter.
    """

    among: Array
    gap: Array


class Chart(Protocol):
    """A map from free parameters to valid points: the only home of constraints."""

    def to_theta(self, point: Array) -> Array:
        """m points to (m, p) parameters; normal coordinates at each one's own start, where there is one."""
        ...

    def to_point(self, theta: Array) -> Array:
        """(m, p) parameters to m points."""
        ...

    def at(self, theta: Array) -> Placed:
        """The points at theta, with the way back for gradients."""
        ...


@dataclass(frozen=True)
class Placed:
    """Points at some parameters of a chart.

    Attributes
    ----------
    points : ndarray of shape (m, ...)
    pullback : callable
        A gradient with respect to the points, as one with respect to theta, (m, p).
    """

    points: Array
    pullback: Callable[[Array], Array]


@dataclass(frozen=True)
class Linearization:
    """Distances at Z and their derivative.

    Attributes
    ----------
    D : ndarray of shape (n, m)
    pullback : callable
        ``pullback(W)[j] = sum_i W[i, j] * dD[i, j] / dZ[j]``, of the shape of Z.
    memory : object
        Belongs to this block of X; hand it back at the next step to save time. It is consumed by that call. Arrays
        that later results depend on by more than rounding are named in its attribute ``kept``, for checkpoints.
    """

    D: Array
    pullback: Callable[[Array], Array]
    memory: Any


def pairwise(geometry: Geometry, X: ArrayLike, Z: ArrayLike | None, n_jobs: int | None) -> Array:
    """Check X and Z and return the whole (n, m) matrix. Every geometry's `pairwise` is this."""
    X = geometry.check(X, n_jobs=n_jobs)
    Z = X if Z is None else geometry.check(Z, "Z", n_jobs)
    check_same_size(X, Z)
    return distance_matrix(geometry, X, Z, n_jobs)


def distance_matrix(geometry: Geometry, X: Array, Z: Array, n_jobs: int | None) -> Array:
    """Distances of checked X to checked Z, (n, m), block by block."""
    distances = geometry.distances_to(Z)
    D = np.empty((len(X), len(Z)))

    def fill(block: slice) -> None:
        D[block] = distances(X[block])

    map_blocks(fill, row_blocks(len(X), 8 * len(Z)), n_jobs)
    return D
