"""Histograms under entropic optimal transport: the geometry of SHC."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from knnpress import _core
from knnpress.execution.threads import map_blocks, row_blocks
from knnpress.geometries.barycenter import barycenter
from knnpress.geometries.base import EmbeddedGeometry, Focus, Geometry, Linearization, Linearize, pairwise
from knnpress.geometries.charts import RootChart, SoftmaxChart
from knnpress.geometries.checks import aligned, check_stopping, check_weights, weight_threshold
from knnpress.geometries.euclidean import SquaredEuclidean
from knnpress.geometries.hellinger import Hellinger
from knnpress.geometries.histogram_checks import check_ground_cost, check_histograms, resolve_reg
from knnpress.geometries.search import k_smallest, pivots
from knnpress.typing import Array, ArrayLike

_ASYMMETRY = 1e-5  # of the largest cost: below it is rounding, as of costs computed in single precision
_MIN_POINTS = 64  # below which a plain search is as quick
_LOOSEST = (0.05, 1e3)  # what is good enough for a pair of no weight: an L1 error of marginals, and times the tolerance
_SINGLE = 1e-4  # L1 error of marginals that floats reach with ease
_CENTERS = 8  # by which the others are searched


@dataclass
class _Memory:
    """What a block of X keeps between steps: a potential and an over-relaxation for each pair, and its self terms.

    `nearest`, (n,), is the nearest Z of those in focus, -1 before the first step. `looseness`, (n, m), is how many
    times the tolerance is good enough for a pair, by what it weighed in the last pullback; None before the first.
    """

    potential: Array
    relaxation: Array
    self_x: Array
    nearest: Array
    looseness: Array | None = None
    kept: ClassVar[tuple[str, ...]] = ("potential", "relaxation", "nearest", "looseness")

    @classmethod
    def cold(cls, X: Array, m: int, self_x: Array) -> _Memory:
        """That of a block before its first step."""
        n, d = X.shape
        return cls(np.zeros((n, m, d)), np.zeros((n, m)), self_x, np.full(n, -1))


class Sinkhorn(BaseEstimator):
    r"""Entropic optimal transport between histograms that share a ground cost.

    With :math:`T` the plan that minimises :math:`\langle T, M \rangle + \mathrm{reg}\, KL(T \,|\, a b^\top)` among
    those with marginals a and b, and OT(a, b) that minimum, `value` chooses what is returned:

    - ``"divergence"``: OT(a, b) - OT(a, a) / 2 - OT(b, b) / 2, debiased: zero at a = b. Needs a symmetric ground cost.
    - ``"dual"``: OT(a, b).
    - ``"transport"``: :math:`\langle T, M \rangle`, the paper's :math:`D_S`, an upper bound of the earth mover's
      distance: the plan is rounded to its marginals (Altschuler et al. 2017), also where it has not converged.

    Rows of X need not sum to one; they are normalised. Bins of zero mass are handled exactly. Where
    Sinkhorn's iterations would be many, or exp(-M / reg) underflow, Newton's method takes over.

    Parameters
    ----------
    ground_cost : array of shape (d, d)
        M, the cost of moving mass between bins; finite and non-negative.
    reg : float or "auto"
        Strength of the entropy, in units of the ground cost (the paper's 1 / lambda). "auto": a tenth of the median
        positive ground cost.
    value : {"divergence", "dual", "transport"}
    tol : float
        A pair is solved when the L1 error of its marginals is below this.
    max_iter : int
        Iterations a pair may take; where that is not enough a ConvergenceWarning says how many pairs fell short.

    References
    ----------
    Cuturi. Sinkhorn distances. NIPS 2013. Feydy et al. Interpolating between optimal transport and MMD using Sinkhorn
    divergences. AISTATS 2019. Altschuler, Weed, Rigollet. Near-linear time approximation algorithms for optimal
    transport via Sinkhorn iteration. NIPS 2017.

    Examples
    --------
    >>> from knnpress.geometries import Sinkhorn
    >>> geometry = Sinkhorn([[0, 1], [1, 0]], reg=0.05, value="transport")
    >>> geometry.pairwise([[1, 0]], [[1, 0], [0.5, 0.5]]).round(3)
    array([[0. , 0.5]])
    """

    point_ndim = 1
    start_quotas: Literal["size", "need"] = "need"

    def __init__(
        self,
        ground_cost: ArrayLike | None = None,
        reg: float | Literal["auto"] = "auto",
        value: Literal["divergence", "dual", "transport"] = "divergence",
        tol: float = 1e-5,
        max_iter: int = 2000,
    ) -> None:
        self.ground_cost = ground_cost
        self.reg = reg
        self.value = value
        self.tol = tol
        self.max_iter = max_iter

    @property
    def exact_gradient(self) -> bool:
        """False for "transport": its linearization uses the gradient of the dual value, as the paper does."""
        return self.value != "transport"

    @property
    def slacks(self) -> tuple[float, ...]:
        """An error of the potentials enters the dual value by its square, but "transport" as it is."""
        return (100.0, 10.0, 1.0) if self.exact_gradient else (1.0,)

    @property
    def effective_reg(self) -> float:
        """`reg` in units of the ground cost, with "auto" resolved."""
        return resolve_reg(self.reg, self._check_settings())

    def check(self, X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
        """Return X as a float64 C-array (n, d), rows normalised, or say which rows are not histograms."""
        check_stopping(self.tol, self.max_iter)
        return check_histograms(X, name, len(self._check_settings()))

    def pairwise(self, X: ArrayLike, Z: ArrayLike | None = None, n_jobs: int | None = None) -> Array:
        """Values between all pairs of rows, (n, m); Z None means X itself."""
        return pairwise(self, X, Z, n_jobs)

    def centroid(self, X: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """The barycenter, (d,).

        For "divergence" the debiased one, which minimises the weighted sum of divergences; for "dual" and "transport"
        the entropic Wasserstein barycenter.
        """
        X = self.check(X)
        return self.centroid_step(X, check_weights(weights, len(X))[:, None], X[:1], 1)[0]

    def centroid_step(self, X: Array, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """The weighted barycenters, whatever Z is."""
        M = self._check_settings()
        cost = M / resolve_reg(self.reg, M)
        columns = [slice(j, j + 1) for j in range(W.shape[1])]
        debiased = self.value == "divergence"
        return np.stack(map_blocks(lambda j: barycenter(X, W[:, j.start], cost, debiased), columns, n_jobs))

    def distances_to(self, Z: Array) -> Callable[[Array], Array]:
        """For checked Z: a function from a checked block of X to its values to every Z."""
        Z, solver = aligned(Z), self._solver()
        self_z = solver.self_terms(Z)[0] if solver.debiased else None

        def distances(X: Array) -> Array:
            D = solver.solve(X, Z, None)
            return D if self_z is None else D - 0.5 * (solver.self_terms(X)[0][:, None] + self_z)

        return distances

    def nearest_to(self, Z: Array, k: int) -> Callable[[Array], Array]:
        """Like `distances_to`, but all except the k least values of a row may be infinity.

        The potentials of X and any histogram give, by one product, a dual value with every Z, which is not above the
        solved one. Those of a few centres of Z show most pairs to be too far.
        """
        Z, solver = aligned(Z), self._solver()
        if len(Z) < _MIN_POINTS or solver.transport or solver.cost.stabilised:
            return self.distances_to(Z)
        M = self._check_settings()
        reg = resolve_reg(self.reg, M)
        kernel = np.exp(-M / reg)
        slack = self.tol * float(M.max())  # what a marginal error of tol can take off a value
        owner = pivots(Z, SquaredEuclidean().distances_to, _CENTERS)[1].argmin(axis=1)
        centers = np.stack([Z[owner == c].mean(axis=0) for c in np.unique(owner)])
        self_z = solver.self_terms(Z)[0] if solver.debiased else np.zeros(len(Z))

        def distances(X: Array) -> Array:
            self_x = solver.self_terms(X)[0] if solver.debiased else np.zeros(len(X))
            bias = 0.5 * (self_x[:, None] + self_z)
            memory = _Memory.cold(X, len(centers), self_x)
            solver.solve(X, centers, memory)
            f = memory.potential
            top_f = f.max(axis=2, keepdims=True)
            g = -reg * np.log((X[:, None] * np.exp((f - top_f) / reg)) @ kernel) - top_f
            duals = (np.einsum("id,ipd->ip", X, f)[:, :, None] + g @ Z.T).max(axis=1)

            def solve(wanted: Array, top: Array) -> Array:
                return solver.solve(X, Z, None, np.where(wanted, top[:, None] + bias + slack, -np.inf)) - bias

            return k_smallest(duals - bias - slack, np.full(len(X), np.inf), k, solve)

        return distances

    @property
    def start_geometry(self) -> Geometry:
        """Histograms are averaged bin by bin: as good a start as barycenters, and a hundred times as fast."""
        return SquaredEuclidean()

    def pair_work(self, d: int) -> float:
        """How long a pair of histograms takes in a descent, in units of `JBLD`'s: a few products with the kernel.

        Potentials are warm, and floats at first: digits and COIL-20 took a tenth of a factorisation of the same size.
        """
        return 8.0 * d**2

    @property
    def quick_geometry(self) -> EmbeddedGeometry:
        """Roots of bins."""
        return Hellinger()

    def chart(self, start: Array) -> RootChart:
        """Square roots of the bins."""
        return RootChart()

    def paper_chart(self, start: Array) -> SoftmaxChart:
        """Logarithms of the bins."""
        return SoftmaxChart()

    def linearize(self, X: Array, Z: Array, memory: Any = None) -> Linearization:
        r"""Values and their derivative, the potential of Z (minus its self potential, for the divergence).

        A potential is free by a constant, and a histogram can only change along the simplex, so each gradient is
        returned with mean zero. Pairs with a weight below 1e-12 of the largest are skipped by the pullback. Memory:
        the potentials of X, (n, m, d), from which the next step starts, and what each pair weighed: the lighter, the
        more loosely the next step solves it.
        """
        return self.linearize_at(Z)(X, memory)

    def linearize_at(self, Z: Array, slack: float = 1.0) -> Linearize:
        """`linearize` at checked Z, for any block of X, solved to `slack` times `tol`.

        Any potentials give a dual value below the solved one. A pair whose value is thus known to be outside the focus
        is left unsolved.
        """
        Z, solver = aligned(Z), self._solver(slack)
        self_z, self_potential = solver.self_terms(Z) if solver.debiased else (np.zeros(len(Z)), np.zeros_like(Z))

        def near(X: Array, memory: _Memory, focus: Focus) -> Array:
            if (memory.nearest >= 0).all():
                rows, only = np.arange(len(X)), np.full(focus.among.shape, -np.inf)
                only[rows, memory.nearest] = np.inf
                D = solver.solve(X, Z, memory, only)
                others = (D[rows, memory.nearest] + focus.gap)[:, None] + 0.5 * (self_z - self_z[memory.nearest, None])
                others[rows, memory.nearest] = -np.inf
                D = np.minimum(D, solver.solve(X, Z, memory, others))
            else:
                D = solver.solve(X, Z, memory)
            memory.nearest = np.where(focus.among, D - 0.5 * self_z, np.inf).argmin(axis=1)
            return D

        def step(X: Array, memory: Any = None, focus: Focus | None = None) -> Linearization:
            shape = (len(X), *Z.shape)
            if memory is None or memory.potential.shape != shape:
                self_x = self._solver().self_terms(X)[0] if solver.debiased else np.zeros(len(X))
                memory = _Memory.cold(X, len(Z), self_x)
            potential = memory.potential
            D = solver.solve(X, Z, memory) if focus is None or solver.transport else near(X, memory, focus)
            D -= 0.5 * (memory.self_x[:, None] + self_z)

            def pullback(W: Array) -> Array:
                W = np.ascontiguousarray(W, dtype=np.float64)
                memory.looseness = _looseness(W) if self.exact_gradient else None
                gradient = _core.sinkhorn_pullback(solver.cost, X, potential, W, weight_threshold(W), solver.single)
                gradient -= W.sum(axis=0)[:, None] * self_potential
                gradient -= gradient.mean(axis=1, keepdims=True)
                return gradient

            return Linearization(D, pullback, memory)

        return step

    def _check_settings(self) -> Array:
        """The ground cost, once it, `reg` and `value` fit together."""
        if self.value not in ("divergence", "dual", "transport"):
            raise ValueError(f"value is {self.value!r}; choose 'divergence', 'dual' or 'transport'")
        M = check_ground_cost(self.ground_cost)
        if self.value == "divergence":
            # a band at a time: Ctrl-C is answered between them
            bands = row_blocks(len(M), 8 * len(M))
            gap = max(float(np.abs(M[rows] - M[:, rows].T).max()) for rows in bands)
            if gap > _ASYMMETRY * M.max():
                i, j = (int(k) for k in np.argwhere(np.abs(M - M.T) == gap)[0])
                raise ValueError(
                    "the Sinkhorn divergence needs a symmetric ground cost; use value='dual' or 'transport', or "
                    f"(ground_cost + ground_cost.T) / 2: ground_cost[{i}, {j}] is {M[i, j]:g} and "
                    f"ground_cost[{j}, {i}] {M[j, i]:g}"
                )
            if gap > 0:  # rounding
                M = 0.5 * (M + M.T)
        resolve_reg(self.reg, M)
        return M

    def _solver(self, slack: float = 1.0) -> _Solver:
        M = self._check_settings()
        cost = _core.SinkhornCost(M, resolve_reg(self.reg, M))
        debiased, tol = self.value == "divergence", slack * self.tol
        single = slack > 1.0 and tol >= 0.99 * _SINGLE
        return _Solver(cost, self.value == "transport", debiased, tol, self.max_iter, single)


@dataclass(frozen=True)
class _Solver:
    """The native solver with its settings; warns where pairs did not converge."""

    cost: _core.SinkhornCost
    transport: bool
    debiased: bool
    tol: float
    max_iter: int
    single: bool  # precision of the scalings

    def solve(self, X: Array, Z: Array, memory: _Memory | None, limit: Array | None = None) -> Array:
        """Values; infinity for pairs whose dual value exceeds a limit, (n, m)."""
        potential, relaxation = (None, None) if memory is None else (memory.potential, memory.relaxation)
        tols = None
        if memory is not None and memory.looseness is not None:
            most, times = _LOOSEST
            tols = np.minimum(self.tol * memory.looseness, max(self.tol, min(most, times * self.tol)))
        value, _, error = _core.sinkhorn(
            self.cost, X, Z, potential, relaxation, self.tol, self.max_iter, self.transport, limit, tols, self.single
        )
        self._warn(error, tols)
        return value

    def self_terms(self, X: Array) -> tuple[Array, Array]:
        # A self term is subtracted from every pair of its row: solve it more tightly; it converges fast.
        value, potential, _, error = _core.sinkhorn_self(self.cost, X, 0.01 * self.tol, self.max_iter)
        self._warn(error)
        return value, potential

    def _warn(self, error: Array, tols: Array | None = None) -> None:
        short = error > (self.tol if tols is None else tols)
        if short.any():
            warnings.warn(
                f"Sinkhorn: {short.sum()} of {short.size} pairs did not reach tol={self.tol:g} in "
                f"{self.max_iter} iterations (worst marginal error {error.max():.1e}); raise max_iter or reg",
                ConvergenceWarning,
                stacklevel=3,
            )


def _looseness(W: Array) -> Array:
    """How many times looser than the heaviest pair each may be solved, (n, m).

    What a pair's error does to the gradient is its weight times the error. The root is between the same error for all
    and the same disturbance by all, which would add up where light pairs are many.
    """
    W = np.abs(W)
    top = W.max(initial=0.0)
    return np.sqrt(top / np.maximum(W, 1e-30 * top)) if top > 0 else np.ones(W.shape)
