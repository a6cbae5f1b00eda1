"""Charts: free parameters to valid points and back. The only home of constraints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from knnpress.geometries.base import Placed
from knnpress.geometries.spectral import above_zero, eigh
from knnpress.typing import Array

_LARGEST_LOG = 300.0
_SMALLEST = float(np.finfo(np.float64).tiny)  # eigenvalues that rounding made negative count as this


@dataclass(frozen=True)
class IdentityChart:
    """Points that are free already: theta is the point, flattened."""

    shape: tuple[int, ...]

    def to_theta(self, point: Array) -> Array:
        """(m, ...) points to (m, p) parameters."""
        return point.reshape(len(point), -1).copy()

    def to_point(self, theta: Array) -> Array:
        """(m, p) parameters to (m, ...) points."""
        return theta.reshape(len(theta), *self.shape)

    def at(self, theta: Array) -> Placed:
        """The points, and the gradient itself, flattened."""
        return Placed(self.to_point(theta), lambda grad: grad.reshape(theta.shape))


@dataclass(frozen=True)
class ExponentialChart:
    r"""Positive definite matrices in normal coordinates, each at a start of its own.

    With :math:`R_j` the symmetric root of start j, and S symmetric,

    .. math:: Z_j = R_j \exp(S_j) R_j, \qquad
              \frac{\partial L}{\partial S} = U \left(K \circ U^\top R \frac{\partial L}{\partial Z} R\, U\right) U^\top

    where :math:`S = U \operatorname{diag}(s) U^\top` and K holds the divided differences of exp at s (Daleckii and
    Krein). theta is the upper triangle of S, off-diagonals times :math:`\sqrt 2`, so that its norm is the
    affine-invariant distance of Z from its start.

    Attributes
    ----------
    root, inverse_root : ndarray of shape (m, d, d)
        Of the starts.
    """

    root: Array
    inverse_root: Array

    @classmethod
    def around(cls, start: Array) -> ExponentialChart:
        """The chart in which theta = 0 is `start`, (m, d, d)."""
        values, vectors = eigh(start, 1)
        values = above_zero(values)
        return cls(_compose(vectors, np.sqrt(values)), _compose(vectors, 1.0 / np.sqrt(values)))

    def to_theta(self, point: Array) -> Array:
        """(m, d, d) matrices, each in the coordinates at its own start, to (m, d (d + 1) / 2) parameters."""
        values, vectors = eigh(self.inverse_root @ point @ self.inverse_root, 1)
        return _flatten(_compose(vectors, np.log(np.maximum(values, _SMALLEST))))

    def to_point(self, theta: Array) -> Array:
        """(m, d (d + 1) / 2) parameters to (m, d, d) matrices."""
        return self.at(theta).points

    def at(self, theta: Array) -> Placed:
        """The matrices, and what takes a symmetric gradient in Z to one in theta; one decomposition serves both."""
        values, vectors = eigh(_unflatten(theta, self.root.shape[1]), 1)
        values = np.clip(values, -_LARGEST_LOG, _LARGEST_LOG)  # a line search may try what no float can hold
        Z = self.root @ _compose(vectors, np.exp(values)) @ self.root

        def pullback(grad: Array) -> Array:
            rotated = vectors.transpose(0, 2, 1) @ (self.root @ grad @ self.root) @ vectors
            return _flatten(vectors @ (_divided_exp(values) * rotated) @ vectors.transpose(0, 2, 1))

        return Placed(0.5 * (Z + Z.transpose(0, 2, 1)), pullback)


def _compose(vectors: Array, values: Array) -> Array:
    """U diag(s) U'."""
    return (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)


def _flatten(S: Array) -> Array:
    """The upper triangles of symmetric matrices, (m, d, d), as vectors of the same norm."""
    i, j = np.triu_indices(S.shape[1])
    return S[:, i, j] * np.where(i == j, 1.0, np.sqrt(2.0))


def _unflatten(theta: Array, d: int) -> Array:
    """The inverse of `_flatten`."""
    i, j = np.triu_indices(d)
    S = np.empty((len(theta), d, d))
    S[:, i, j] = S[:, j, i] = theta / np.where(i == j, 1.0, np.sqrt(2.0))
    return S


def _divided_exp(values: Array) -> Array:
    """(exp a - exp b) / (a - b), and exp a where they meet, (m, d, d)."""
    a, b = values[:, :, None], values[:, None, :]
    half = 0.5 * (a - b)
    # exp((a + b) / 2) sinh(h) / h, accurate however close a and b are
    return np.exp(0.5 * (a + b)) * np.where(half == 0.0, 1.0, np.sinh(half) / np.where(half == 0.0, 1.0, half))


@dataclass(frozen=True)
class CholeskyChart:
    r"""Positive definite matrices by their Cholesky factor, :math:`Z = s (B^\top B + \epsilon I)`: the paper's own.

    .. math:: \frac{\partial L}{\partial B} = \mathrm{triu}\left(2 s B \frac{\partial L}{\partial Z}\right)

    with B upper triangular and s the scale of the starts. The floor :math:`\epsilon` keeps rounding from making Z
    singular.

    Attributes
    ----------
    n_dims : int
    scale, floor : float
    """

    n_dims: int
    scale: float = 1.0
    floor: float = 1e-10

    @classmethod
    def around(cls, start: Array) -> CholeskyChart:
        """The chart in which B = I is as large as the starts, (m, d, d), on average."""
        d = start.shape[1]
        return cls(d, float(np.trace(start.mean(axis=0))) / d)

    def _upper(self, theta: Array) -> Array:
        B = np.zeros((len(theta), self.n_dims, self.n_dims))
        B[:, *np.triu_indices(self.n_dims)] = theta
        return B

    def to_theta(self, point: Array) -> Array:
        """(m, d, d) matrices to (m, d (d + 1) / 2) parameters."""
        values, vectors = np.linalg.eigh(point / self.scale)
        lower = np.linalg.cholesky(_compose(vectors, np.maximum(values - self.floor, self.floor)))
        return lower.transpose(0, 2, 1)[:, *np.triu_indices(self.n_dims)]

    def to_point(self, theta: Array) -> Array:
        """(m, d (d + 1) / 2) parameters to (m, d, d) matrices."""
        B = self._upper(theta)
        return self.scale * (B.transpose(0, 2, 1) @ B + self.floor * np.eye(self.n_dims))

    def at(self, theta: Array) -> Placed:
        """The matrices, and what takes a symmetric gradient in Z to one in theta."""

        def pullback(grad: Array) -> Array:
            full = 2.0 * self.scale * self._upper(theta) @ grad
            return full[:, *np.triu_indices(self.n_dims)]

        return Placed(self.to_point(theta), pullback)


@dataclass(frozen=True)
class SoftmaxChart:
    r"""Histograms by the logarithms of their bins: :math:`h = \mathrm{softmax}(w)`.

    .. math:: \frac{\partial L}{\partial w} = h \circ (g - \langle h, g \rangle), \qquad
              g = \frac{\partial L}{\partial h}.

    An empty bin has no logarithm and would stay empty for ever, so `to_theta` first mixes in a share `smoothing` of
    the uniform histogram.
    """

    smoothing: float = 0.01

    def to_point(self, theta: Array) -> Array:
        """(m, d) parameters to (m, d) histograms."""
        return softmax(theta, axis=1)

    def to_theta(self, point: Array) -> Array:
        """(m, d) histograms to (m, d) parameters, each row summing to zero."""
        smoothed = (1.0 - self.smoothing) * point + self.smoothing / point.shape[1]
        theta = np.log(smoothed)
        return theta - theta.mean(axis=1, keepdims=True)

    def at(self, theta: Array) -> Placed:
        """The histograms, and what takes a gradient in h to one in w; a constant added to a row changes nothing."""
        h = self.to_point(theta)
        return Placed(h, lambda grad: h * (grad - np.einsum("jk,jk->j", h, grad)[:, None]))


@dataclass(frozen=True)
class RootChart:
    r"""Histograms by the square roots of their bins, relative to the roots of the uniform histogram:

    .. math:: h = \frac{w^2 + \epsilon}{s}, \quad s = \sum_k (w_k^2 + \epsilon), \qquad
              \frac{\partial L}{\partial w} = \frac{2 w}{s} \circ (g - \langle h, g \rangle), \qquad
              g = \frac{\partial L}{\partial h}.

    The roots of histograms lie on a sphere, where small bins weigh as much as they do statistically (Fisher's
    metric). The logarithms of `SoftmaxChart` make small bins slow, since a step of w moves h in proportion to h, not
    to its root: a descent takes about twice as many iterations.

    The floor :math:`\epsilon` keeps a bin from being empty. `to_theta` first mixes in a share `smoothing` of the
    uniform histogram, without which an empty bin would have no slope.
    """

    smoothing: float = 0.01
    floor: float = 1e-10

    def _squares(self, theta: Array) -> tuple[Array, Array]:
        squares = theta**2 + self.floor
        return squares, squares.sum(axis=1, keepdims=True)

    def to_point(self, theta: Array) -> Array:
        """(m, d) parameters to (m, d) histograms."""
        squares, total = self._squares(theta)
        return squares / total

    def to_theta(self, point: Array) -> Array:
        """(m, d) histograms to (m, d) parameters, none negative."""
        d = point.shape[1]
        smoothed = (1.0 - self.smoothing) * point + self.smoothing / d
        return np.sqrt(np.maximum(d * smoothed - self.floor, 0.0))

    def at(self, theta: Array) -> Placed:
        """The histograms, and what takes a gradient in h to one in w; a constant added to a row changes nothing."""
        squares, total = self._squares(theta)
        h = squares / total
        return Placed(h, lambda grad: 2.0 * theta / total * (grad - np.einsum("jk,jk->j", h, grad)[:, None]))


@dataclass(frozen=True)
class CloudChart:
    r"""Clouds of k points by their positions and the roots of their weights, (m, k, d + 1) with weights last:

    .. math:: \theta = \left(\sqrt{b^0_k}\, z_k,\; \sigma w_k\right), \qquad
              b_k = \frac{w_k^2 + \epsilon}{\sum (w^2 + \epsilon)}

    Near the start the norm of theta is then what transport takes: moving a point costs its weight times the squared
    distance. :math:`\sigma` is how far the points of the starts are spread, so that weights count like positions.

    Attributes
    ----------
    roots : ndarray of shape (m, k)
        Of the weights at the start.
    unit : float
    floor : float
        Keeps a weight from vanishing.
    """

    roots: Array
    unit: float
    floor: float = 1e-8

    @classmethod
    def around(cls, start: Array) -> CloudChart:
        """The chart at the starts, (m, k, d + 1)."""
        weights, points = start[:, :, -1], start[:, :, :-1]
        roots = np.sqrt(np.maximum(weights, 0.25 / start.shape[1]))
        off = points - np.einsum("jk,jkd->jd", weights, points)[:, None]
        unit = float(np.sqrt(np.einsum("jk,jkd,jkd->j", weights, off, off).mean()))
        return cls(roots, unit if unit > 0 else 1.0)

    def to_theta(self, point: Array) -> Array:
        """(m, k, d + 1) clouds to (m, k (d + 1)) parameters."""
        theta = np.empty_like(point)
        theta[:, :, :-1] = self.roots[:, :, None] * point[:, :, :-1]
        theta[:, :, -1] = self.unit * np.sqrt(point[:, :, -1])
        return theta.reshape(len(point), -1)

    def to_point(self, theta: Array) -> Array:
        """(m, k (d + 1)) parameters to (m, k, d + 1) clouds."""
        return self.at(theta).points

    def at(self, theta: Array) -> Placed:
        """The clouds, and what takes a gradient in positions and weights to one in theta."""
        m, k = self.roots.shape
        theta = theta.reshape(m, k, -1)
        w = theta[:, :, -1] / self.unit
        squares = w**2 + self.floor
        total = squares.sum(axis=1, keepdims=True)
        points = np.empty_like(theta)
        points[:, :, :-1] = theta[:, :, :-1] / self.roots[:, :, None]
        points[:, :, -1] = squares / total

        def pullback(grad: Array) -> Array:
            g, b = grad[:, :, -1], points[:, :, -1]
            back = np.empty_like(grad)
            back[:, :, :-1] = grad[:, :, :-1] / self.roots[:, :, None]
            back[:, :, -1] = 2.0 * w / total * (g - np.einsum("jk,jk->j", b, g)[:, None]) / self.unit
            return back.reshape(m, -1)

        return Placed(points, pullback)
