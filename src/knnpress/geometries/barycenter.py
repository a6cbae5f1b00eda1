"""Barycenters of histograms under entropic optimal transport."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from knnpress.typing import Array

__all__ = ["barycenter"]

_SAFE_COST = 300.0  # cost / reg up to which exp(-cost / reg) may be formed


def barycenter(X: Array, weights: Array, cost: Array, debiased: bool, tol: float = 1e-9) -> Array:
    r"""Minimise a weighted sum of entropic transport costs to the rows of X, by iterative Bregman projections.

    In logs, with S the soft minimum of cost / reg: alternate u_i = log x_i - S v_i and v_i = log b - S' u_i, where
    log b is the weighted mean of S' u_i, plus, if debiased, a term w that follows w = (w + log b - S w) / 2 (Janati,
    Cuturi, Gramfort 2020). Weights sum to one; `cost` is M / reg; returns (d,).
    """
    used = weights > 0
    weights = weights[used]
    with np.errstate(divide="ignore"):
        log_x = np.log(X[used])
    softmin, softmin_t = _log_kernel(cost), _log_kernel(cost.T)
    v = np.zeros_like(log_x)
    w = np.zeros(len(cost))
    log_b = np.full(len(cost), -np.log(len(cost)))
    for _ in range(20000):
        incoming = softmin_t(log_x - softmin(v))
        new = weights @ incoming + (w if debiased else 0.0)
        v = new - incoming
        if debiased:
            w = 0.5 * (w + new - softmin(w[None])[0])
        change = float(np.abs(np.exp(new) - np.exp(log_b)).sum())
        log_b = new
        if change < tol:
            break
    else:
        warnings.warn(
            f"the barycenter did not converge (last change {change:.1e}); raise reg", ConvergenceWarning, stacklevel=3
        )
    b: Array = np.exp(log_b - log_b.max())
    return b / b.sum()


def _log_kernel(cost: Array) -> Callable[[Array], Array]:
    """The map L, (n, d), to log(exp(-cost) exp(L_i)) for each row i, safe from underflow."""
    if cost.max() > _SAFE_COST:
        return lambda L: np.stack([logsumexp(row - cost, axis=1) for row in L])
    kernel_t = np.exp(-cost).T

    def apply(L: Array) -> Array:
        top = L.max(axis=1, keepdims=True)
        result: Array = top + np.log(np.exp(L - top) @ kernel_t)
        return result

    return apply
