"""Barycenters of histograms under entropic optimal transport."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from knnpress.exceptions import warn_user
from knnpress.typing import Array

_SAFE_COST = 300.0  # cost / reg up to which exp(-cost / reg) may be formed
_COARSE_COST = 10.0  # median cost / reg from which reg falls in stages: projections converge fast there
_STAGE = 0.25  # what reg falls to from stage to stage
_NEAR = 1.0  # Newton's step, in logs, from which it may fall
_FAR = 1000.0  # Newton's step from which a stage was too long
_LAST_STAGE = 0.9  # the shortest stage
_BOLD = 4.0  # the longest step that is tried first
_MAX_STEPS = 200
_STAGED_TOL = 1e-6  # distance of marginals from which it may be rounding that leaves some
_FAINT = 1e-290
_BLOCK = 2**19  # numbers in the plans of a block of histograms


def barycenter(X: Array, weights: Array, cost: Array, debiased: bool, tol: float = 1e-9) -> Array:
    r"""Minimise a weighted sum of entropic transport costs to the rows of X.

    By iterative Bregman projections, and where `cost` is too large for them, by Newton's method with reg falling in
    stages. It has converged when the marginals of the plans agree: their mean L1 distance to the barycenter is below
    `tol`. Weights sum to one; `cost` is M / reg; returns (d,).
    """
    used = weights > 0
    X, weights = X[used], weights[used]
    if cost.max() <= _SAFE_COST:
        log_b, _, error = _projections(X, weights, cost, debiased, tol, 20000)
        b: Array = np.exp(log_b - log_b.max())
    else:
        b, error = _staged(X, weights, cost, debiased, tol)
        tol = max(tol, _STAGED_TOL)
    if error > tol:
        warn_user(
            f"the barycenter did not converge (its marginals differ by {error:.1e}): it is that of a larger reg, or "
            "near it; raise reg",
            ConvergenceWarning,
        )
    return b / b.sum()


def _projections(
    X: Array, weights: Array, cost: Array, debiased: bool, tol: float, max_iter: int
) -> tuple[Array, Array, float]:
    """The log barycenter, the potentials v, (n, d), and how far marginals are from it.

    In logs, with S the soft minimum of cost / reg: alternate u_i = log x_i - S v_i and v_i = log b - S' u_i, where
    log b is the weighted mean of S' u_i, plus, if debiased, a term w that follows w = (w + log b - S w) / 2 (Janati,
    Cuturi, Gramfort 2020).
    """
    with np.errstate(divide="ignore"):
        log_x = np.log(X)
    softmin, softmin_t = _log_kernel(cost), _log_kernel(cost.T)
    v, w = np.zeros_like(log_x), np.zeros(len(cost))
    for _ in range(max_iter):
        incoming = softmin_t(log_x - softmin(v))
        new = weights @ incoming + (w if debiased else 0.0)
        error = float(weights @ np.abs(np.exp(v + incoming) - np.exp(new)).sum(axis=1))
        v = new - incoming
        if debiased:
            last, w = w, 0.5 * (w + new - softmin(w[None])[0])
            error += float(np.exp(new) @ np.abs(w - last))
        if error < tol:
            break
    return new, v, error


def _log_kernel(cost: Array) -> Callable[[Array], Array]:
    """The map L, (n, d), to log(exp(-cost) exp(L_i)) for each row i, safe from underflow."""
    kernel_t = np.exp(-cost).T

    def apply(L: Array) -> Array:
        top = L.max(axis=1, keepdims=True)
        return top + np.log(np.exp(L - top) @ kernel_t)

    return apply


def _plans(X: Array, v: Array, cost: Array, scale: float) -> Iterator[tuple[slice, Array, Array]]:
    """Plans of a few histograms at a time: which, P, (k, d, d), and dual values, (k,).

    The plan of histogram x is x_i P_ij with P the softmax of scale (v_j - cost_ij) along j: its rows are exact. Its
    column sums should be the barycenter.
    """
    step = max(1, _BLOCK // cost.size)
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        P = scale * (v[rows, None] - cost)
        top = P.max(axis=2, keepdims=True)
        np.exp(P - top, out=P)
        total = P.sum(axis=2, keepdims=True)
        P /= total
        yield rows, P, -np.einsum("ki,ki->k", X[rows], (top + np.log(total))[:, :, 0])


def _column_sums(X: Array, v: Array, cost: Array, scale: float) -> tuple[Array, Array]:
    """Column sums of the plans, (n, d), and dual values, (n,)."""
    parts = [((X[rows, None] @ P)[:, 0], value) for rows, P, value in _plans(X, v, cost, scale)]
    return np.concatenate([c for c, _ in parts]), np.concatenate([value for _, value in parts])


@dataclass
class _Newton:
    """Newton's step, how v goes as reg changes, dv / d(1 / scale), both (n, d), and the dual values where it starts."""

    step: Array
    change: Array
    values: Array
    slope: float


def _newton(X: Array, weights: Array, v: Array, cost: Array, scale: float) -> _Newton:
    """Inverse Hessians are summed in one pass over the histograms and applied in another, so as not to be kept.

    With D = diag(c), H = D^1/2 G D^1/2 and G = I - B'B, whose entries are moderate however small those of c are. It is
    singular along c^1/2 (a potential is free by a constant), and nearly so where parts of a plan hang together by next
    to nothing: the former is filled up and the latter a little enlarged.
    """
    n, d = X.shape

    def terms() -> Iterator[tuple[slice, Array, Array, Array, Array]]:
        for rows, P, value in _plans(X, v, cost, scale):
            c = np.maximum((X[rows, None] @ P)[:, 0], _FAINT)
            root = np.sqrt(c)
            logs = scale * (v[rows, None] - cost)
            logs -= np.einsum("kij,kij->ki", P, logs)[:, :, None]
            moved = np.einsum("ki,kij->kj", X[rows], P * logs)
            B = np.sqrt(X[rows])[:, :, None] * P / root[:, None]
            G = root[:, :, None] * root[:, None] - B.transpose(0, 2, 1) @ B
            G[:, range(d), range(d)] += 1.0 + 1e-12
            yield rows, np.linalg.inv(G), np.stack([-c, moved], axis=2), root, value

    kept = list(terms()) if n * d * d <= 16 * _BLOCK else None
    center = np.sqrt(np.exp(weights @ np.log(np.maximum(_column_sums(X, v, cost, scale)[0], _FAINT))))
    total, right = np.zeros((d, d)), np.zeros((d, 2))
    for rows, inverse, R, root, _ in kept or terms():
        ratio = center / root
        total += np.einsum("k,kab->ab", weights[rows], ratio[:, :, None] * inverse * ratio[:, None])
        right -= np.einsum("k,kar->ar", weights[rows], ratio[:, :, None] * (inverse @ (R / root[:, :, None])))
    unit = 1.0 / np.sqrt(np.diagonal(total))
    b = (center * unit)[:, None] * np.linalg.solve(unit[:, None] * total * unit, unit[:, None] * right)
    moves, values, slope = np.empty((n, d, 2)), np.empty(n), 0.0
    for rows, inverse, R, root, value in kept or terms():
        moves[rows] = inverse @ ((b + R) / root[:, :, None]) / root[:, :, None]
        values[rows] = value
        slope -= float(np.einsum("k,kj,kj->", weights[rows], moves[rows, :, 0], -R[:, :, 0]))
    return _Newton(moves[..., 0], moves[..., 1], values, slope)


def _staged(X: Array, weights: Array, cost: Array, debiased: bool, tol: float) -> tuple[Array, float]:
    """The barycenter and how far marginals are from it, by Newton's method.

    The dual value is a concave function of the potentials v_k, whose weighted mean is fixed (at zero, or at what
    debiases). Its gradient are the differences of the column sums c_k; with H_k the Hessian of one term, Newton's step
    is H_k^-1 (b - c_k) with the b that leaves the mean of v as it is.
    """
    scale = min(1.0, _COARSE_COST / float(np.median(cost[cost > 0])))
    coarse = scale * cost if scale * cost.max() <= _SAFE_COST else np.minimum(scale * cost, _SAFE_COST)
    v = _projections(X, weights, coarse, debiased, 1e-3, 200)[1] / scale
    offset, bold, stage = weights @ v * scale, _BOLD, _STAGE
    settled: tuple[Array, float, _Newton, Array] | None = None  # where the last stage ended
    arriving, least = False, np.inf
    for _ in range(_MAX_STEPS):
        # a plain projection, then one of Newton's steps
        columns, _ = _column_sums(X, v, cost, scale)
        logs = np.log(np.maximum(columns, _FAINT))
        log_b = weights @ (logs - scale * v) + offset
        error = float(weights @ np.abs(columns - weights @ columns).sum(axis=1))
        if debiased:
            last, offset = offset, _debiasing(log_b, scale * cost, offset)
            error += float(np.exp(log_b) @ np.abs(offset - last))
            log_b += offset - last
        if scale == 1.0 and (error < tol or 0.9 * least < error < _STAGED_TOL):
            return weights @ columns, error
        least = min(least, error) if scale == 1.0 else np.inf
        v = v + (log_b - logs) / scale
        newton = _newton(X, weights, v, cost, scale)
        longest = float(np.abs(newton.step).max())
        if scale < 1.0 and (longest < _NEAR or error < tol):
            if arriving:  # at once: the next stage may be bolder
                stage = max(_STAGE, stage**2)
            settled = v, scale, newton, weights @ columns
        elif arriving and longest > _FAR and settled is not None and stage < _LAST_STAGE:
            stage = np.sqrt(stage)  # too far
        else:
            v, bold = _line_search(X, weights, v, cost, scale, newton, bold)
            arriving = False
            continue
        start, last_scale, newton, _ = settled
        scale, arriving, bold = min(1.0, last_scale / stage), True, _BOLD
        v = start + newton.step / last_scale + newton.change * (1.0 / scale - 1.0 / last_scale)
    return weights @ columns if settled is None else settled[3], error


def _line_search(
    X: Array, weights: Array, v: Array, cost: Array, scale: float, newton: _Newton, bold: float
) -> tuple[Array, float]:
    """v moved along Newton's step as far as the dual value rises, at first by `bold` in any bin, and the next bold."""
    longest = float(np.abs(newton.step).max())
    share = first = min(1.0, bold / longest)
    while share * longest > 1e-3:
        trial = v + share / scale * newton.step
        gain = weights @ (_column_sums(X, trial, cost, scale)[1] - newton.values)
        if gain >= 0.1 * share * newton.slope - 1e-12:
            return trial, max(_BOLD, share * longest) if share < first else bold * (4.0 if share < 1.0 else 1.0)
        share *= 0.25
    return v, _BOLD


def _debiasing(log_b: Array, cost: Array, w: Array) -> Array:
    """The w that debiases a barycenter: w = log b - S w, from a start, by averaging."""
    for _ in range(10):
        w = 0.5 * (w + log_b - logsumexp(w - cost, axis=1))
    return w
