"""Clouds of weighted points under entropic optimal transport: no bins, no codebook."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from knnpress import _core
from knnpress.clouds import LARGEST, Clouds
from knnpress.exceptions import InvalidPointError
from knnpress.execution.threads import BLOCK_BYTES, map_blocks
from knnpress.geometries.base import (
    Focus,
    Geometry,
    Linearization,
    Linearize,
    as_real_array,
    check_stopping,
    check_weights,
    least_weight,
)
from knnpress.geometries.charts import CloudChart
from knnpress.geometries.cloud_search import Shelf, mean_bounds, relaxed_transport, shelves, weights_of
from knnpress.geometries.search import least_k
from knnpress.typing import Array, ArrayLike, Indices

__all__ = ["CloudEMD", "CloudSinkhorn"]

Cost = Literal["sqeuclidean", "euclidean", "cosine"]

_AUTO_REG = 0.05  # of the median cost between points: 0.1 for word vectors of length one, on R8's training documents
_MOST_POINTS = 1000  # that the median is taken of
_MOST_OF_CENTROID = 100_000  # points; more would be no summary, and take all memory
_CHUNK = 256  # points of Z whose costs are held at a time: threads share out such parts
_KEPT_COSTS = 2**22  # numbers that are kept from values to their gradient
_WIDEST = 16384  # different points of Z whose costs are held at a time in a search
_LEAST_CLOUDS = 64  # of Z from which bounds are worth their time
_ROUNDS = 200  # of a barycenter's descent


@dataclass
class _Memory:
    """What a block of X keeps between steps: potentials of Z over reg, (n, q), and its self terms, (n,)."""

    potential: Array
    self_x: Array
    kept: ClassVar[tuple[str, ...]] = ("potential",)


class CloudSinkhorn(BaseEstimator):
    r"""Entropic optimal transport between clouds of points, whatever their sizes.

    With :math:`C_{lk} = c(x_l, z_k)` the ground cost, and T the plan that minimises
    :math:`\langle T, C \rangle + \mathrm{reg}\, KL(T \,|\, a b^\top)` among those whose marginals are the weights a and
    b, and OT(x, z) that minimum, `value` chooses what is returned:

    - ``"divergence"``: OT(x, z) - OT(x, x) / 2 - OT(z, z) / 2, debiased: zero where both are the same cloud.
    - ``"dual"``: OT(x, z).

    Points are `knnpress.Clouds`, or an array (n, k, d + 1) of clouds of k points each, of which the last column holds
    the weights; that is what prototypes and centroids are.

    Parameters
    ----------
    reg : float or "auto"
        Strength of the entropy, in units of the ground cost. "auto": a twentieth of the median cost between points.
    cost : {"sqeuclidean", "euclidean", "cosine"}
    value : {"divergence", "dual"}
    n_points : int
        Points of a centroid.
    tol : float
        A pair is solved when the L1 error of its marginals is below this.
    max_iter : int
        Iterations a pair may take; where that is not enough a ConvergenceWarning says how many pairs fell short.

    References
    ----------
    Kusner, Sun, Kolkin, Weinberger. From word embeddings to document distances. ICML 2015. Cuturi, Doucet. Fast
    computation of Wasserstein barycenters. ICML 2014. Feydy et al. Interpolating between optimal transport and MMD
    using Sinkhorn divergences. AISTATS 2019.

    Examples
    --------
    >>> import knnpress as kp
    >>> from knnpress.geometries import CloudSinkhorn
    >>> clouds = kp.Clouds.from_list([[[0.0], [1.0]], [[2.0], [3.0]]])
    >>> CloudSinkhorn(reg=0.01).pairwise(clouds).round(3)
    array([[0., 4.],
           [4., 0.]])
    """

    point_ndim = 2
    start_quotas: Literal["size", "need"] = "size"
    exact_gradient = True
    slacks = (10.0, 1.0)
    least_work = 2**22  # rows of a block share costs, and its parts are shared out among threads

    def __init__(
        self,
        reg: float | Literal["auto"] = "auto",
        cost: Cost = "sqeuclidean",
        value: Literal["divergence", "dual"] = "divergence",
        *,
        n_points: int = 32,
        tol: float = 1e-4,
        max_iter: int = 10_000,
    ) -> None:
        self.reg = reg
        self.cost = cost
        self.value = value
        self.n_points = n_points
        self.tol = tol
        self.max_iter = max_iter

    def check(self, X: Any, name: str = "X", n_jobs: int | None = None) -> Any:
        """Return X, `Clouds` or an array (n, k, d + 1) of which weights are scaled to sum to one."""
        self._check_settings()
        if isinstance(X, Clouds):
            if len(X) == 0:
                raise ValueError(f"{name} has 0 clouds while a minimum of 1 is required.")
            if self.cost == "cosine":
                self._refuse_zeros(X, name)
            return X
        if not isinstance(X, np.ndarray) or X.ndim != 3:
            found = f"has shape {X.shape}" if isinstance(X, np.ndarray) else f"is a {type(X).__name__}"
            raise TypeError(f"{name} {found}; give knnpress.Clouds, e.g. Clouds.from_list(list of (k_i, d) arrays)")
        array = as_real_array(X, 3, name, "(n_clouds, n_points, n_dims + 1)")
        if array.shape[2] < 2:
            raise ValueError(f"{name} has shape {array.shape}; its last column holds weights, so give at least two")
        weights = array[:, :, -1]
        bad = (weights <= 0).any(axis=1)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise InvalidPointError(
                f"{name}[{row}] has a weight of {weights[row].min():.2g}, in the last column; weights must be positive"
            )
        largest = np.abs(array[:, :, :-1]).max(axis=(1, 2))
        if (largest > LARGEST).any():
            row = int(np.flatnonzero(largest > LARGEST)[0])
            raise InvalidPointError(
                f"{name}[{row}] has an entry of size {largest[row]:.1e}, whose square overflows; scale all points"
            )
        top = weights.max(axis=1, keepdims=True)
        totals = (weights / top).sum(axis=1, keepdims=True)  # first by the largest: sums may overflow
        if np.abs(totals - 1.0 / top).max() > 1e-12:
            array = array.copy()
            array[:, :, -1] = np.maximum(weights / top / totals, np.finfo(np.float64).tiny)
        return array

    def fitted_to(self, X: Any, weights: ArrayLike | None = None) -> CloudSinkhorn:
        """The geometry with `reg` in units of the ground cost, for checked clouds like X."""
        params = self.get_params(deep=False)
        return CloudSinkhorn(**{**params, "reg": self._resolved(X)})

    def pairwise(self, X: Any, Z: Any = None, n_jobs: int | None = None) -> Array:
        """Values between all pairs of clouds, (n, m); Z None means X itself. "auto" takes `reg` from X."""
        X = self.check(X)
        if Z is not None and _n_dims(self.check(Z, "Z")) != _n_dims(X):
            raise ValueError(f"X holds points of {_n_dims(X)} dimensions and Z of {_n_dims(Z)}; they must agree")
        fitted = self.fitted_to(X)
        D: Array = np.concatenate(_in_blocks(fitted, as_clouds(X), X if Z is None else fitted.check(Z, "Z"), n_jobs))
        return D

    def centroid(self, X: Any, weights: ArrayLike | None = None) -> Array:
        """The barycenter of free support, (n_points, d + 1), weights in the last column.

        Positions and weights that minimise the weighted sum of values, found by descent from points of X.
        """
        clouds = as_clouds(self.check(X))
        fitted = self.fitted_to(clouds)
        shares = check_weights(weights, len(clouds))
        means = clouds.means()
        center = shares @ means
        one = int(((means - center) ** 2).sum(axis=1).argmin())
        central = k_means(clouds[one].points - means[one] + center, clouds[one].weights, self.n_points)
        # the sum of values has several minima: two starts, of which the better end is taken
        starts = np.stack([k_means(clouds.table, mass_of(clouds, shares), self.n_points), central])
        found = fitted.centroid_step(clouds, np.repeat(shares[:, None], 2, axis=1), starts, 1)
        best: Array = found[(shares @ fitted.distances_to(found)(clouds)).argmin()]
        return best

    def centroid_step(self, X: Any, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """Barycenters by descent from Z, (m, k, d + 1)."""
        clouds = as_clouds(X)

        def one(column: slice) -> Array:
            w, start = W[:, column], Z[column]
            kept = np.flatnonzero(w[:, 0] > 0)
            some, share, chart = clouds[kept], np.ascontiguousarray(w[kept]), self.chart(start)
            theta = chart.to_theta(start)
            memory: list[Any] = [None]

            def value(flat: Array) -> tuple[float, Array]:
                placed = chart.at(flat.reshape(theta.shape))
                step = self.linearize_at(placed.points)(some, memory[0])
                memory[0] = step.memory
                return float((share * step.D).sum()), placed.pullback(step.pullback(share)).ravel()

            found = minimize(value, theta.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _ROUNDS})
            return chart.to_point(found.x.reshape(theta.shape))

        columns = [slice(j, j + 1) for j in range(W.shape[1])]
        return np.concatenate(map_blocks(one, columns, n_jobs))

    def distances_to(self, Z: Any) -> Callable[[Any], Array]:
        """For checked Z: a function from a checked block of X to its values to every Z."""
        reg, targets = self._resolved(Z), self._targets(Z)
        solver = _Solver(reg, self.tol, self.max_iter)
        debiased = self.value == "divergence"
        self_z = [solver.self_terms(t, self.cost)[0] for t in targets] if debiased else []

        def distances(X: Any) -> Array:
            clouds = as_clouds(X)
            D = np.empty((len(clouds), targets[-1].stop))
            for rows in _sub_blocks(clouds, max(len(target.weights) for target in targets)):
                side = _Side.of(clouds[rows])
                for target in targets:
                    table = _table(side, target, self.cost, reg)
                    D[rows, target.start : target.stop] = solver.solve(table, target, None, False)
            if debiased:
                self_x = solver.self_terms(_Target.of(clouds), self.cost)[0]
                D -= 0.5 * (self_x[:, None] + np.concatenate(self_z))
            return D

        return distances

    def nearest_to(self, Z: Any, k: int) -> Callable[[Any], Array]:
        """Like `distances_to`, but all except the k least values of a row may be infinity.

        Bounds by means and by relaxed transport (see `knnpress.geometries.cloud_search`) show most pairs to be too far;
        the others are given up once their dual value, which never falls, does.
        """
        reg, z = self._resolved(Z), as_clouds(Z)
        if len(z) < _LEAST_CLOUDS:
            return self.distances_to(Z)
        parts = shelves(z, _WIDEST)
        solver, debiased = _Solver(reg, self.tol, self.max_iter), self.value == "divergence"
        self_z = solver.self_terms(_Target.of(z), self.cost)[0] if debiased else np.zeros(len(z))
        means_z = self._means(z)
        width = max(len(z), *(len(part.points) for part in parts))

        def block(clouds: Clouds) -> Array:
            self_x = solver.self_terms(_Target.of(clouds), self.cost)[0] if debiased else np.zeros(len(clouds))
            bias = 0.5 * (self_x[:, None] + self_z)
            used, index = np.unique(clouds.index, return_inverse=True)
            points, A = clouds.table[used], weights_of(index, clouds, len(used))
            kept: dict[int, Array] = {}

            def costs(p: int) -> Array:
                C = kept.get(p)
                if C is None:
                    C = _costs(self.cost, points, parts[p].points) / reg
                    if len(parts) == 1:
                        kept[p] = C
                return C

            lower, largest = np.empty((len(clouds), len(z))), 0.0
            for p, part in enumerate(parts):
                C = costs(p)
                largest = max(largest, float(C.max()))
                lower[:, part.start : part.stop] = reg * relaxed_transport(C, A, part.B)
            slack = self.tol * reg * largest  # what a marginal error of tol can take off a value
            lower -= bias
            np.maximum(lower, self._mean_bounds(self._means(clouds), means_z, bias), out=lower)
            lower -= slack

            def solve(wanted: Array, top: Array) -> Array:
                limit = np.where(wanted, (top[:, None] + bias + slack) / reg, -np.inf)
                D = np.full(limit.shape, np.inf)
                for p, part in enumerate(parts):
                    own = slice(part.start, part.stop)
                    if wanted[:, own].any():
                        D[:, own] = solver.solve_some(costs(p), index, clouds, part, limit[:, own])
                return D - bias

            return least_k(lower, np.full(len(clouds), np.inf), k, solve)

        def distances(X: Any) -> Array:
            clouds = as_clouds(X)
            return np.concatenate([block(clouds[rows]) for rows in _sub_blocks(clouds, width)])

        return distances

    def _means(self, clouds: Clouds) -> Array:
        """Means of clouds, or of their directions where the cost sees only those, (n, d)."""
        if self.cost != "cosine":
            return clouds.means()
        return Clouds._made_of(_directions(clouds.table), clouds.index, clouds.offsets, clouds.weights).means()

    def _mean_bounds(self, X: Array, Z: Array, bias: Array) -> Array:
        """What values are not below, by the means of clouds, (n, m)."""
        if self.cost == "euclidean":
            return mean_bounds(X, Z, 1) - bias
        return (0.5 if self.cost == "cosine" else 1.0) * mean_bounds(X, Z, 2)

    @property
    def start_geometry(self) -> Geometry:
        """Clouds are averaged as they are compared."""
        return self

    @property
    def quick_geometry(self) -> None:
        """None is quicker."""
        return None

    def summarize(self, X: Any) -> Array:
        """A vector of each cloud, (n, d), that serves where only roughly alike clouds are to be found: its mean."""
        return as_clouds(X).means()

    def n_dims_of(self, X: Any) -> int:
        """Dimension of the points of checked clouds."""
        return _n_dims(X)

    def spread(self, X: Any, weight: Array | None, start: Array, own: Indices) -> float:
        """Root mean square distance of points from the nearest point of their own start: a unit of positions."""
        squares = np.zeros(len(X))
        for j in np.unique(own):
            rows = np.flatnonzero(own == j)
            clouds = as_clouds(X)[rows]
            used, index = np.unique(clouds.index, return_inverse=True)
            nearest = _costs("sqeuclidean", clouds.table[used], start[j, :, :-1]).min(axis=1)
            squares[rows] = np.add.reduceat(clouds.weights * nearest[index], clouds.offsets[:-1])
        mean = float(np.average(squares, weights=weight))
        return float(np.sqrt(mean)) if mean > 0 else 1.0

    def chart(self, start: Array) -> CloudChart:
        """Positions and roots of weights, as transport weighs them at the start."""
        return CloudChart.around(start)

    def paper_chart(self, start: Array) -> CloudChart:
        """The same: the paper knows no clouds."""
        return self.chart(start)

    def linearize(self, X: Any, Z: Array, memory: Any = None) -> Linearization:
        r"""Values and their derivative in the positions and weights of Z, (m, k, d + 1).

        By the envelope theorem that of a position is the plan's, :math:`\sum_l T_{lk} \nabla_z c(x_l, z_k)`, and that
        of a weight its potential, which is free by a constant: it is returned with mean zero.
        """
        return self.linearize_at(Z)(X, memory)

    def linearize_at(self, Z: Array, slack: float = 1.0) -> Linearize:
        """`linearize` at checked Z, for any block of X, solved to `slack` times `tol`."""
        reg, targets = self._resolved(Z), self._targets(Z)
        solver, debiased = _Solver(reg, slack * self.tol, self.max_iter, slack > 1.0), self.value == "divergence"
        m, k = Z.shape[:2]
        self_z, self_gradient = np.zeros(m), np.zeros_like(Z)
        if debiased:
            terms = [solver.self_terms(target, self.cost, gradient=True) for target in targets]
            self_z = np.concatenate([value for value, _ in terms])
            self_gradient = np.concatenate([gradient for _, gradient in terms]).reshape(Z.shape)

        def step(X: Any, memory: Any = None, focus: Focus | None = None) -> Linearization:
            clouds = as_clouds(X)
            warm = memory is not None and memory.potential.shape == (len(clouds), m * k)
            if not warm:
                self_x = np.zeros(len(clouds))
                if debiased:
                    exact = _Solver(reg, self.tol, self.max_iter)
                    self_x = exact.self_terms(_Target.of(clouds), self.cost)[0]
                memory = _Memory(np.zeros((len(clouds), m * k)), self_x)
            D = np.empty((len(clouds), m))
            widest = max(len(target.weights) for target in targets)
            sides = [(rows, _Side.of(clouds[rows])) for rows in _sub_blocks(clouds, widest)]
            parts = [(rows, side, target) for rows, side in sides for target in targets]
            few = sum(len(side.points) * len(target.weights) for _, side, target in parts) <= _KEPT_COSTS
            tables: dict[int, _Table] = {}
            solved = memory

            def table_of(part: int) -> _Table:
                _, side, target = parts[part]
                made = tables.get(part) or _table(side, target, self.cost, reg)
                if few:
                    tables[part] = made  # the pullback needs it again
                return made

            def solve(part: int) -> None:
                rows, _, target = parts[part]
                columns = slice(target.start * k, target.stop * k)
                potential = np.ascontiguousarray(solved.potential[rows, columns])
                D[rows, target.start : target.stop] = solver.solve(table_of(part), target, potential, warm)
                solved.potential[rows, columns] = potential

            _each(solve, len(parts))
            D -= 0.5 * (memory.self_x[:, None] + self_z)

            def pullback(W: Array) -> Array:
                least = least_weight(W)

                def pull(part: int) -> Array:
                    rows, _, target = parts[part]
                    own = np.ascontiguousarray(W[rows, target.start : target.stop], np.float64)
                    potential = np.ascontiguousarray(solved.potential[rows, target.start * k : target.stop * k])
                    return table_of(part).pullback(target, potential, own, least, self.cost, reg)

                gradient = np.zeros((m * k, Z.shape[2]))
                for (_, _, target), part in zip(parts, _each(pull, len(parts)), strict=True):
                    gradient[target.start * k : target.stop * k] += part
                gradient = gradient.reshape(Z.shape) - W.sum(axis=0)[:, None, None] * self_gradient
                gradient[:, :, -1] -= gradient[:, :, -1].mean(axis=1, keepdims=True)
                return gradient

            return Linearization(D, pullback, memory)

        return step

    def _targets(self, Z: Any) -> list[_Target]:
        """Z in parts of about `_CHUNK` points."""
        whole, first, targets = _Target.of(as_clouds(Z)), 0, []
        while first < whole.stop:
            last = int(np.searchsorted(whole.offsets, whole.offsets[first] + _CHUNK, "right")) - 1
            last = max(first + 1, last)
            targets.append(whole.part(first, last))
            first = last
        return targets

    def _resolved(self, X: Any) -> float:
        """`reg` in units of the ground cost."""
        if self.reg != "auto":
            return float(self.reg)
        clouds = as_clouds(X)
        some = np.linspace(0, len(clouds.index) - 1, min(len(clouds.index), _MOST_POINTS)).astype(np.intp)
        points = clouds.table[clouds.index[some]]
        C = _costs(self.cost, points, points)
        positive = C[1e-12 * max(C.max(), 1e-300) < C]
        return _AUTO_REG * float(np.median(positive)) if positive.size else 1.0

    def _check_settings(self) -> None:
        if self.cost not in ("sqeuclidean", "euclidean", "cosine"):
            raise ValueError(f"cost is {self.cost!r}; choose 'sqeuclidean', 'euclidean' or 'cosine'")
        if self.value not in ("divergence", "dual"):
            raise ValueError(f"value is {self.value!r}; choose 'divergence' or 'dual'")
        known = isinstance(self.reg, Real) and not isinstance(self.reg, bool)
        if self.reg != "auto" and not (known and np.isfinite(self.reg) and self.reg > 0):
            raise ValueError(
                f"reg is {self.reg!r}; give a positive number, or 'auto' for {_AUTO_REG} of the median cost"
            )
        check_stopping(self.tol, self.max_iter)
        whole = isinstance(self.n_points, (int, np.integer)) and not isinstance(self.n_points, bool)
        if not whole or not 1 <= self.n_points <= _MOST_OF_CENTROID:
            raise ValueError(
                f"n_points is {self.n_points!r}; give how many points a centroid has, from 1 to {_MOST_OF_CENTROID}"
            )

    def _refuse_zeros(self, X: Clouds, name: str) -> None:
        zero = (X.table == 0.0).all(axis=1)[X.index]
        if zero.any():
            at = int(np.flatnonzero(zero)[0])
            cloud = int(np.searchsorted(X.offsets, at, "right")) - 1
            raise InvalidPointError(
                f"point {at - X.offsets[cloud]} of {name}[{cloud}] is zero and has no direction; remove it, or use "
                "another cost than 'cosine'"
            )


class CloudEMD(BaseEstimator):
    r"""Exact earth mover's distance between clouds, through POT's network simplex: the word mover's distance.

    .. math:: \min_{T \ge 0} \sum_{lk} T_{lk}\, c(x_l, z_k) \quad \text{s.t.} \quad T 1 = a, \; T^\top 1 = b

    Needs the extra ``ot`` (``pip install knnpress[ot]``). Pairs are solved one after the other: this is for references
    and small sets, and hundreds of times as slow as `CloudSinkhorn`. The centroid is that of `CloudSinkhorn` with
    ``reg="auto"``.

    Parameters
    ----------
    cost : {"sqeuclidean", "euclidean", "cosine"}
        "euclidean" is the word mover's distance of Kusner et al.
    n_points : int
        Points of a centroid.

    Examples
    --------
    >>> import knnpress as kp
    >>> from knnpress.geometries import CloudEMD
    >>> CloudEMD("euclidean").pairwise(kp.Clouds.from_list([[[0.0], [1.0]], [[2.0], [4.0]]]))
    array([[0. , 2.5],
           [2.5, 0. ]])
    """

    point_ndim = 2

    def __init__(self, cost: Cost = "sqeuclidean", *, n_points: int = 32) -> None:
        self.cost = cost
        self.n_points = n_points

    def check(self, X: Any, name: str = "X", n_jobs: int | None = None) -> Any:
        """Return X, `Clouds` or an array (n, k, d + 1) of which weights are scaled to sum to one."""
        return self._entropic().check(X, name, n_jobs)

    def pairwise(self, X: Any, Z: Any = None, n_jobs: int | None = None) -> Array:
        """Distances between all pairs of clouds, (n, m); Z None means X itself."""
        X = self.check(X)
        Z = X if Z is None else self.check(Z, "Z")
        if _n_dims(Z) != _n_dims(X):
            raise ValueError(f"X holds points of {_n_dims(X)} dimensions and Z of {_n_dims(Z)}; they must agree")
        return np.concatenate(_in_blocks(self, as_clouds(X), Z, n_jobs))

    def centroid(self, X: Any, weights: ArrayLike | None = None) -> Array:
        """The entropic barycenter of free support, (n_points, d + 1), weights in the last column."""
        return self._entropic().centroid(X, weights)

    def centroid_step(self, X: Any, W: Array, Z: Array, n_jobs: int | None = None) -> Array:
        """Entropic barycenters by descent from Z, (m, k, d + 1)."""
        return self._entropic().fitted_to(X).centroid_step(X, W, Z, n_jobs)

    def distances_to(self, Z: Any) -> Callable[[Any], Array]:
        """For checked Z: a function from a checked block of X to its distances to every Z."""
        try:
            from ot import emd2
        except ImportError as error:
            raise ImportError("CloudEMD needs POT: pip install knnpress[ot]") from error
        targets = list(as_clouds(Z))

        def one(x: Any, z: Any) -> float:
            C = _costs(self.cost, x.points, z.points)
            # POT takes costs below a constant for nothing: bring them near one, by a power of two, which rounds nothing
            unit = 2.0 ** np.floor(np.log2(C.max() or 1.0))
            found = emd2(x.weights, z.weights, C / unit, numItermax=1_000_000, check_marginals=False)
            return float(unit * found)

        return lambda X: np.array([[one(x, z) for z in targets] for x in as_clouds(X)])

    def n_dims_of(self, X: Any) -> int:
        """Dimension of the points of checked clouds."""
        return _n_dims(X)

    def _entropic(self) -> CloudSinkhorn:
        return CloudSinkhorn(cost=self.cost, n_points=self.n_points)


def as_clouds(X: Any) -> Clouds:
    """Checked points as `Clouds`."""
    if isinstance(X, Clouds):
        return X
    n, k, d = X.shape
    points = np.ascontiguousarray(X[:, :, :-1]).reshape(n * k, d - 1)
    return Clouds._made_of(points, np.arange(n * k), k * np.arange(n + 1), np.ascontiguousarray(X[:, :, -1]).ravel())


def k_means(points: Array, mass: Array, k: int, n_rounds: int = 10) -> Array:
    """Centres of weighted points with the mass that is theirs, (k, d + 1), by k-means.

    Nothing is drawn: centres begin at points that carry most of the distance left, one after the other. Where there are
    fewer points than k, the heaviest are given twice, with half the mass each.
    """
    kept = mass > 0
    points, mass = points[kept], mass[kept] / mass[kept].sum()
    while len(points) < k:
        heavy = np.argsort(-mass, kind="stable")[: k - len(points)]
        mass[heavy] *= 0.5
        points, mass = np.concatenate([points, points[heavy]]), np.concatenate([mass, mass[heavy]])
    center = mass @ points
    left = ((points - center) ** 2).sum(axis=1)
    chosen: list[int] = []
    for _ in range(k):
        score = mass * left
        score[chosen] = -1.0
        chosen.append(int(score.argmax()))
        left = np.minimum(left, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    centers = points[chosen]
    for _ in range(n_rounds):
        owner = _costs("sqeuclidean", points, centers).argmin(axis=1)
        share = np.zeros((k, len(points)))
        share[owner, np.arange(len(points))] = mass
        total = share.sum(axis=1)
        full = total > 0
        centers[full] = (share[full] / total[full, None]) @ points
    total = np.maximum(total, 0.1 / k)  # a centre without points keeps a little, so that it can be moved
    return np.column_stack([centers, total / total.sum()])


def mass_of(clouds: Clouds, shares: Array) -> Array:
    """Mass of each row of the table, (n_table,), where clouds weigh `shares`."""
    return np.bincount(clouds.index, np.repeat(shares, clouds.sizes) * clouds.weights, minlength=len(clouds.table))


def _n_dims(X: Any) -> int:
    return int(X.shape[1] if isinstance(X, Clouds) else X.shape[2] - 1)


def _in_blocks(geometry: CloudSinkhorn | CloudEMD, X: Clouds, Z: Any, n_jobs: int | None) -> list[Array]:
    distances = geometry.distances_to(Z)
    blocks = [slice(i, min(i + 32, len(X))) for i in range(0, len(X), 32)]
    return map_blocks(lambda rows: distances(X[rows]), blocks, n_jobs)


def _costs(cost: Cost, P: Array, Q: Array) -> Array:
    """Costs between points, (p, q), by one matrix product."""
    if cost == "cosine":
        C: Array = 1.0 - _directions(P) @ _directions(Q).T
        return np.maximum(C, 0.0, out=C)
    center = Q.mean(axis=0)  # around it little is lost to cancellation
    P, Q = P - center, Q - center
    C = P @ (-2.0 * Q).T
    C += np.einsum("ik,ik->i", P, P)[:, None]
    C += np.einsum("ik,ik->i", Q, Q)
    np.maximum(C, 0.0, out=C)
    return np.sqrt(C, out=C) if cost == "euclidean" else C


def _cost_gradient(cost: Cost, P: Array, Q: Array, C: Array, T: Array) -> Array:
    """sum_p T[p, q] dC[p, q] / dQ[q], (q, d)."""
    if cost == "cosine":
        length = np.linalg.norm(Q, axis=1, keepdims=True)
        pull, direction = T.T @ _directions(P), _directions(Q)
        along = np.einsum("qk,qk->q", pull, direction)[:, None]
        return (along * direction - pull) / np.maximum(length, 1e-300)
    if cost == "euclidean":
        T = 0.5 * np.divide(T, C, out=np.zeros_like(T), where=C > 0)
    gradient: Array = 2.0 * (T.sum(axis=0)[:, None] * Q - T.T @ P)
    return gradient


def _directions(P: Array) -> Array:
    directions: Array = P / np.maximum(np.linalg.norm(P, axis=1, keepdims=True), 1e-300)
    return directions


@dataclass(frozen=True)
class _Target:
    """Some clouds of Z, from `start` to `stop`, with their points side by side."""

    points: Array
    offsets: Indices
    weights: Array
    start: int
    stop: int

    @classmethod
    def of(cls, clouds: Clouds) -> _Target:
        return cls(clouds.points, clouds.offsets, clouds.weights, 0, len(clouds))

    def part(self, start: int, stop: int) -> _Target:
        own = slice(self.offsets[start], self.offsets[stop])
        offsets = self.offsets[start : stop + 1] - self.offsets[start]
        return _Target(self.points[own], offsets, np.ascontiguousarray(self.weights[own]), start, stop)


@dataclass(frozen=True)
class _Side:
    """Clouds of X, with each of their different points once."""

    points: Array
    index: Indices
    clouds: Clouds

    @classmethod
    def of(cls, clouds: Clouds) -> _Side:
        used, index = np.unique(clouds.index, return_inverse=True)
        return cls(clouds.table[used], index, clouds)


@dataclass(frozen=True)
class _Table:
    """Costs over reg of the different points of some clouds of X to the points of a target."""

    x: _Side
    cost: Array

    def pullback(self, target: _Target, potential: Array, W: Array, least: float, cost: Cost, reg: float) -> Array:
        """Gradients of positions and weights, (q, d + 1)."""
        plan, gradient = np.zeros_like(self.cost), np.zeros(len(target.weights))
        x, weights = self.x.clouds.offsets, np.ascontiguousarray(self.x.clouds.weights)
        _core.clouds_pullback(
            self.cost, self.x.index, x, weights, target.offsets, target.weights, potential, W, least, plan, gradient
        )
        C = reg * self.cost if cost == "euclidean" else self.cost  # others do not need it
        positions = _cost_gradient(cost, self.x.points, target.points, C, plan)
        return np.column_stack([positions, reg * gradient])


def _table(side: _Side, target: _Target, cost: Cost, reg: float) -> _Table:
    C = _costs(cost, side.points, target.points)
    C /= reg
    return _Table(side, C)


def _each(function: Callable[[int], Any], n: int) -> list[Any]:
    """The results for all parts, which threads take in turn where none are at the blocks already."""
    return map_blocks(lambda one: function(one.start), [slice(part, part + 1) for part in range(n)])


def _sub_blocks(clouds: Clouds, n_columns: int) -> Iterator[slice]:
    """Rows whose different points' costs to so many others take no more than a block's bytes."""
    most, first = max(1, BLOCK_BYTES // (8 * n_columns)), 0
    if len(np.unique(clouds.index)) <= most:
        yield slice(0, len(clouds))
        return
    while first < len(clouds):
        last = int(np.searchsorted(clouds.offsets, clouds.offsets[first] + most, "right")) - 1
        last = min(len(clouds), max(first + 1, last))
        yield slice(first, last)
        first = last


@dataclass(frozen=True)
class _Solver:
    """The native solver with its settings; warns where pairs did not converge."""

    reg: float
    tol: float
    max_iter: int
    loose: bool = False  # on the way of a descent the next step goes on from what was reached: nothing to warn of

    def solve(self, table: _Table, target: _Target, potential: Array | None, warm: bool) -> Array:
        """Dual values, (n, m); potentials are brought up to date."""
        x, weights = table.x.clouds.offsets, np.ascontiguousarray(table.x.clouds.weights)
        value, _, error = _core.clouds(
            *(table.cost, table.x.index, x, weights, target.offsets, target.weights),
            *(potential, warm, self.tol, self.max_iter),
        )
        self._warn(error)
        return self.reg * value

    def solve_some(self, costs: Array, index: Indices, clouds: Clouds, shelf: Shelf, limit: Array) -> Array:
        """Dual values, (n, m), infinite where they are found to be above their limit (over reg)."""
        value, _, error = _core.clouds(
            *(costs, index, clouds.offsets, np.ascontiguousarray(clouds.weights), shelf.offsets, shelf.weights),
            *(None, False, self.tol, self.max_iter, shelf.index, np.ascontiguousarray(limit)),
        )
        self._warn(error)
        return self.reg * value

    def self_terms(self, clouds: _Target, cost: Cost, gradient: bool = False) -> tuple[Array, Array]:
        """OT of each cloud with itself, (n,), and half its gradient in positions and weights, (n_points, d + 1)."""
        n, d = len(clouds.offsets) - 1, clouds.points.shape[1]
        values, errors = np.empty(n), np.empty(n)
        gradients = np.empty((len(clouds.points) if gradient else 0, d + 1))
        for i in range(n):
            own = slice(clouds.offsets[i], clouds.offsets[i + 1])
            points, a = clouds.points[own], np.ascontiguousarray(clouds.weights[own])
            C = _costs(cost, points, points)
            C = 0.5 * (C + C.T)
            np.fill_diagonal(C, 0.0)
            # it is subtracted from every pair of its row: solve it more tightly; it converges fast
            values[i], f, _, errors[i] = _core.cloud_self(C / self.reg, a, 0.01 * self.tol, self.max_iter)
            if gradient:
                plan = a[:, None] * a * np.exp(np.minimum(f[:, None] + f - C / self.reg, 50.0))
                gradients[own, :-1] = _cost_gradient(cost, points, points, C, plan)
                gradients[own, -1] = self.reg * f
        self._warn(errors)
        return self.reg * values, gradients

    def _warn(self, error: Array) -> None:
        short = error > self.tol if not self.loose else np.zeros(error.shape, bool)
        if short.any():
            warnings.warn(
                f"CloudSinkhorn: {short.sum()} of {short.size} pairs did not reach tol={self.tol:g} in "
                f"{self.max_iter} iterations (worst marginal error {error.max():.1e}); raise max_iter or reg",
                ConvergenceWarning,
                stacklevel=3,
            )
