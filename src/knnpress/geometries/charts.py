"""Charts: free parameters to valid points and back. The only home of constraints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from knnpress.typing import Array

__all__ = ["CholeskyChart", "IdentityChart", "RootChart", "SoftmaxChart"]


@dataclass(frozen=True)
class IdentityChart:
    """Points that are free already: theta is the point, flattened."""

    shape: tuple[int, ...]

    def to_point(self, theta: Array) -> Array:
        """(m, p) parameters to (m, ...) points."""
        return theta.reshape(len(theta), *self.shape)

    def to_theta(self, point: Array) -> Array:
        """(m, ...) points to (m, p) parameters."""
        return point.reshape(len(point), -1).copy()

    def pullback(self, theta: Array, grad: Array) -> Array:
        """The gradient itself, flattened."""
        return grad.reshape(theta.shape)


@dataclass(frozen=True)
class CholeskyChart:
    r"""Positive definite matrices by their Cholesky factor, relative to a reference.

    With :math:`R = F F^\top` the reference (the mean of the data) and B upper triangular,

    .. math:: Z = F (B^\top B + \epsilon I) F^\top, \qquad
              \frac{\partial L}{\partial B} = \mathrm{triu}\left(2 B F^\top \frac{\partial L}{\partial Z} F\right).

    JBLD is unchanged by the congruence, but B = I stands for the mean of the data, which conditions the descent.
    F = I gives the paper's own parameters. The floor :math:`\epsilon` keeps rounding from making Z singular.

    Attributes
    ----------
    factor : ndarray of shape (d, d)
        F, lower triangular.
    floor : float
    """

    factor: Array
    floor: float = 1e-10

    @classmethod
    def relative_to(cls, reference: Array) -> CholeskyChart:
        """The chart whose origin B = I is `reference`, (d, d)."""
        return cls(np.linalg.cholesky(reference))

    def _upper(self, theta: Array) -> Array:
        d = len(self.factor)
        B = np.zeros((len(theta), d, d))
        B[:, *np.triu_indices(d)] = theta
        return B

    def to_point(self, theta: Array) -> Array:
        """(m, d (d + 1) / 2) parameters to (m, d, d) matrices."""
        A = self._upper(theta) @ self.factor.T
        return A.transpose(0, 2, 1) @ A + self.floor * (self.factor @ self.factor.T)

    def to_theta(self, point: Array) -> Array:
        """(m, d, d) matrices to (m, d (d + 1) / 2) parameters."""
        inverse = np.linalg.inv(self.factor)
        values, vectors = np.linalg.eigh(inverse @ point @ inverse.T)
        above = np.maximum(values - self.floor, self.floor)
        lower = np.linalg.cholesky((vectors * above[:, None, :]) @ vectors.transpose(0, 2, 1))
        return lower.transpose(0, 2, 1)[:, *np.triu_indices(len(self.factor))]

    def pullback(self, theta: Array, grad: Array) -> Array:
        """Gradient in Z, (m, d, d) and symmetric, to gradient in theta."""
        full = 2.0 * self._upper(theta) @ (self.factor.T @ grad @ self.factor)
        gradient: Array = full[:, *np.triu_indices(len(self.factor))]
        return gradient


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
        h: Array = softmax(theta, axis=1)
        return h

    def to_theta(self, point: Array) -> Array:
        """(m, d) histograms to (m, d) parameters, each row summing to zero."""
        smoothed = (1.0 - self.smoothing) * point + self.smoothing / point.shape[1]
        theta = np.log(smoothed)
        centered: Array = theta - theta.mean(axis=1, keepdims=True)
        return centered

    def pullback(self, theta: Array, grad: Array) -> Array:
        """Gradient in h to gradient in w; a constant added to the gradient of a row changes nothing."""
        h = self.to_point(theta)
        gradient: Array = h * (grad - np.einsum("jk,jk->j", h, grad)[:, None])
        return gradient


@dataclass(frozen=True)
class RootChart:
    r"""Histograms by the square roots of their bins, in units of those of the uniform histogram:

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
        h: Array = squares / total
        return h

    def to_theta(self, point: Array) -> Array:
        """(m, d) histograms to (m, d) parameters, none negative."""
        d = point.shape[1]
        smoothed = (1.0 - self.smoothing) * point + self.smoothing / d
        theta: Array = np.sqrt(np.maximum(d * smoothed - self.floor, 0.0))
        return theta

    def pullback(self, theta: Array, grad: Array) -> Array:
        """Gradient in h to gradient in w; a constant added to the gradient of a row changes nothing."""
        squares, total = self._squares(theta)
        gradient: Array = 2.0 * theta / total * (grad - np.einsum("jk,jk->j", squares / total, grad)[:, None])
        return gradient
