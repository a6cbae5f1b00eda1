"""Slow, literal references for the fast code, and makers of random points."""

from dataclasses import dataclass

import mpmath
import numpy as np
from scipy.linalg import eigvalsh
from scipy.optimize import linprog, minimize
from scipy.spatial.distance import cdist
from scipy.special import softmax, xlogy

# ---- random points --------------------------------------------------------------------------------------------


def random_spd(rng, n, d, condition=100.0):
    """(n, d, d) matrices of exactly this condition number, each in a random frame."""
    frames = np.linalg.qr(rng.normal(size=(n, d, d)))[0]
    exponents = rng.uniform(-0.5, 0.5, (n, d))
    if d > 1:
        exponents[:, 0], exponents[:, -1] = -0.5, 0.5
    X = (frames * condition ** exponents[:, None, :]) @ frames.transpose(0, 2, 1)
    return 0.5 * (X + X.transpose(0, 2, 1))


def random_histograms(rng, n, d, zeros=0.0):
    """(n, d) histograms; each bin is empty with probability `zeros`, but never all of a row."""
    X = rng.gamma(1.0, size=(n, d)) + 0.01
    X[rng.random((n, d)) < zeros] = 0.0
    empty = ~X.any(axis=1)
    X[empty, rng.integers(d, size=empty.sum())] = 1.0
    return X / X.sum(axis=1, keepdims=True)


def grid_cost(k):
    """Euclidean distances between the cells of a k x k grid, (k * k, k * k)."""
    cells = np.argwhere(np.ones((k, k)))
    return cdist(cells, cells)


def random_cost(rng, d):
    """A ground cost that is not symmetric."""
    return rng.uniform(0.0, 3.0, (d, d))


# ---- symmetric positive definite matrices ---------------------------------------------------------------------


def logdet(X):
    return np.linalg.slogdet(X)[1]


def jbld(X, Z):
    middle = logdet(0.5 * (X[:, None] + Z[None]))
    return middle - 0.5 * (logdet(X)[:, None] + logdet(Z)[None])


def inverse_sums(X, Z, W):
    """sum_i W[i, j] (X_i + Z_j)^-1"""
    return np.einsum("ij,ijab->jab", W, np.linalg.inv(X[:, None] + Z[None]))


def airm(X, Z):
    return np.array([[np.linalg.norm(np.log(eigvalsh(x, z))) for z in Z] for x in X])


def jbld_50_digits(x, z):
    with mpmath.workdps(50):
        x, z = mpmath.matrix(x.tolist()), mpmath.matrix(z.tolist())
        return float(mpmath.log(mpmath.det((x + z) / 2)) - mpmath.log(mpmath.det(x) * mpmath.det(z)) / 2)


def airm_50_digits(x, z):
    with mpmath.workdps(50):
        x, z = mpmath.matrix(x.tolist()), mpmath.matrix(z.tolist())
        whiten = mpmath.cholesky(z) ** -1
        values = mpmath.eigsy(whiten * x * whiten.T, eigvals_only=True)
        return float(mpmath.sqrt(sum(mpmath.log(v) ** 2 for v in values)))


# ---- optimal transport ----------------------------------------------------------------------------------------


@dataclass
class Transport:
    potential_x: np.ndarray
    potential_z: np.ndarray
    plan: np.ndarray
    dual: float
    transport: float


def soft_minimum(cost, potential, mass, reg):
    """-reg log sum_j mass_j exp((potential_j - cost_ij) / reg) for each i; bins j without mass do not count."""
    exponents = (potential - cost) / reg
    top = np.where(mass > 0, exponents, -np.inf).max(axis=1)
    return -reg * (top + np.log(np.exp(np.minimum(exponents - top[:, None], 0)) @ mass))


def transport_of(potential_x, a, b, M, reg):
    """The solution that belongs to a potential of a: one half-step, the plan, its values."""
    potential_z = soft_minimum(M.T, potential_x, a, reg)
    log_plan = (potential_x[:, None] + potential_z - M) / reg
    plan = a[:, None] * b * np.exp(np.where(a[:, None] * b > 0, log_plan, 0.0))
    return Transport(potential_x, potential_z, plan, a @ potential_x + b @ potential_z, np.sum(plan * M))


def marginal_error(solution, a):
    """L1 error of the plan's x marginal; its z marginal is exact by construction."""
    return np.abs(solution.plan.sum(axis=1) - a).sum()


def sinkhorn(a, b, M, reg, tol=1e-13, max_iter=100_000):
    """min <T, M> + reg KL(T | a b'), by plain alternation in the log domain among the bins that hold mass."""
    used_x, used_z = a > 0, b > 0
    mass_x, mass_z, cost = a[used_x], b[used_z], M[np.ix_(used_x, used_z)]
    potential_x = np.zeros(len(mass_x))
    for _ in range(max_iter):
        potential_z = soft_minimum(cost.T, potential_x, mass_x, reg)
        potential_x, before = soft_minimum(cost, potential_z, mass_z, reg), potential_x
        if mass_x @ np.abs(np.expm1(np.minimum((before - potential_x) / reg, 50))) < tol:
            return transport_of(soft_minimum(M[:, used_z], potential_z, mass_z, reg), a, b, M, reg)
    raise RuntimeError("the reference did not converge")


def sinkhorn_pairwise(X, Z, M, reg, value):
    """(n, m) values of "transport", "dual" or "divergence"."""
    if value != "divergence":
        return np.array([[getattr(sinkhorn(x, z, M, reg), value) for z in Z] for x in X])
    self_x, self_z = ([sinkhorn(p, p, M, reg).dual for p in points] for points in (X, Z))
    return sinkhorn_pairwise(X, Z, M, reg, "dual") - 0.5 * np.add.outer(self_x, self_z)


def emd(a, b, M):
    """The transport problem as a linear programme."""
    d = len(a)
    rows, columns = np.kron(np.eye(d), np.ones(d)), np.kron(np.ones(d), np.eye(d))
    # the last equation follows from the others, and rounding would make them contradict it
    equations, masses = np.vstack([rows, columns])[:-1], np.concatenate([a, b])[:-1]
    # the solver's tolerances are absolute: with masses of one it takes 6e-8 for a contradiction, or for nothing
    scale = 2.0**20
    solution = linprog(M.ravel(), A_eq=equations, b_eq=scale * masses)
    assert solution.success, solution.message
    return solution.fun / scale


def barycenter_objective(b, X, weights, M, reg, debiased):
    """The weighted sum that a barycenter minimises, and its gradient in b (free by a constant).

    Debiased: OT(x_i, b) - OT(b, b) / 2, the divergences but for what does not depend on b. Otherwise
    <T, M> + reg sum T log T.
    """
    solutions = [sinkhorn(x, b, M, reg) for x in X]
    gradient = weights @ [s.potential_z for s in solutions]
    if debiased:
        own = sinkhorn(b, b, M, reg)
        value = weights @ [s.dual for s in solutions] - 0.5 * own.dual
        return value, gradient - 0.5 * (own.potential_x + own.potential_z)
    value = weights @ [s.transport + reg * xlogy(s.plan, s.plan).sum() for s in solutions]
    return value, gradient + reg * np.log(b)


def least_barycenter_objective(X, weights, M, reg, debiased):
    """The least value a general-purpose optimiser finds over softmax parameters."""

    def fun(theta):
        b = softmax(theta)
        value, gradient = barycenter_objective(b, X, weights, M, reg, debiased)
        return value, b * (gradient - b @ gradient)

    return minimize(fun, np.zeros(X.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-7}).fun


# ---- shared checks --------------------------------------------------------------------------------------------


def taylor_slope(function, gradient, point, direction):
    """How fast the error of the first-order expansion falls with the step: 2 where the gradient is right, else 1.

    `direction` is scaled to the size of `point`, so that steps are relative.
    """
    steps = np.logspace(-2, -4, 7)
    direction = direction * (np.linalg.norm(point) / np.linalg.norm(direction))
    start, rate = function(point), np.vdot(gradient, direction)
    errors = [abs(function(point + t * direction) - start - t * rate) for t in steps]
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


def _read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def _spaced(X):
    wide = np.full((2 * len(X), *X.shape[1:-1], 2 * X.shape[-1]), np.nan, X.dtype)
    wide[::2, ..., ::2] = X
    return wide[::2, ..., ::2]


#: The same numbers in other forms. Each maps an array to (form, the float64 C-array it stands for).
INPUT_FORMS = {
    "float32": lambda X: (X.astype(np.float32), X.astype(np.float32).astype(np.float64)),
    "integers": lambda X: (np.rint(1000 * X).astype(np.int64), np.rint(1000 * X)),
    "fortran": lambda X: (np.asfortranarray(X), X),
    "non-contiguous": lambda X: (_spaced(X), X),
    "reversed": lambda X: (X[::-1], X[::-1].copy()),
    "read-only": lambda X: (_read_only(X), X),
    "lists": lambda X: (X.tolist(), X),
}


# ---- selectors: from the full matrix of distances, one decision at a time ------------------------------------


def nearest_of(D, row, rows):
    """The place in `rows` of the one nearest to `row`; among equals the first."""
    return min(range(len(rows)), key=lambda place: (D[row, rows[place]], place))


def wrong_rows(D, y, rows):
    """Points whose nearest of `rows` has another label."""
    return [i for i in range(len(D)) if y[rows[nearest_of(D, i, rows)]] != y[i]]


def medoids(D, start, weight):
    """Alternate within one class until nothing moves."""
    current, before = list(start), None
    while current != before:
        before = list(current)
        cluster = [before.index(i) if i in before else nearest_of(D, i, before) for i in range(len(D))]
        for c, medoid in enumerate(before):
            members = [i for i in range(len(D)) if cluster[i] == c]
            total = {j: sum(weight[i] * D[i, j] for i in members) for j in members}
            best = min(members, key=lambda j: total[j])
            current[c] = medoid if total[medoid] <= total[best] else best
    return current


def random_mutation(D, y, start, slots, rows, weight):
    """The rows that are left, and the weight of the errors after each mutation."""

    def error(chosen):
        return sum(weight[i] for i in wrong_rows(D, y, chosen))

    chosen = list(start)
    curve = [error(chosen)]
    for slot, row in zip(slots, rows, strict=True):
        mutated = [row if place == slot else other for place, other in enumerate(chosen)]
        whole = len(set(mutated)) == len(chosen) and {y[i] for i in mutated} == set(y)
        if whole and error(mutated) <= curve[-1]:
            chosen = mutated
        curve.append(error(chosen))
    return chosen, curve


def condensed(D, y, order):
    chosen = [next(i for i in order if y[i] == label) for label in sorted(set(y))]
    added = True
    while added:
        added = False
        for i in order:
            if i not in chosen and y[chosen[nearest_of(D, i, chosen)]] != y[i]:
                chosen.append(i)
                added = True
    return chosen


def reduced(D, y, chosen):
    """What Gates leaves of a consistent subset, the first of each class in front."""
    kept = list(chosen)
    for i in chosen:
        without = [j for j in kept if j != i]
        if without and not wrong_rows(D, y, without):
            kept = without
    first = [next(i for i in kept if y[i] == label) for label in sorted(set(y))]
    return first + [i for i in kept if i not in first]


def fast_condensed(D, y, rule, center_of):
    """`center_of(rows)`: the one of the rows that is nearest to their centroid."""
    chosen = [center_of([i for i in range(len(D)) if y[i] == label]) for label in sorted(set(y))]
    while True:
        cells = [[] for _ in chosen]
        for i in wrong_rows(D, y, chosen):
            if i not in chosen:
                cells[nearest_of(D, i, chosen)].append(i)
        if not any(cells):
            return chosen
        chosen += [
            center_of(cell) if rule == "centroid" else min(cell, key=lambda i: (D[i, prototype], i))
            for prototype, cell in zip(list(chosen), cells, strict=True)
            if cell
        ]


def lvq1(X, y, Z, labels, orders, rate):
    """Kohonen's rule for vectors, one point at a time; the rate falls to zero."""
    Z, met, total = Z.copy(), 0, sum(len(order) for order in orders)
    for order in orders:
        for i in order:
            j = ((X[i] - Z) ** 2).sum(axis=1).argmin()
            step = rate * (1 - met / total) * (X[i] - Z[j])
            Z[j] += step if labels[j] == y[i] else -step
            met += 1
    return Z
