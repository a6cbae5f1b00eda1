"""Clouds of weighted points under entropic optimal transport: no bins, no codebook."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator

from knnpress.clouds import LARGEST, Clouds, StoredClouds, equal_steps
from knnpress.exceptions import InvalidPointError
from knnpress.execution.threads import map_blocks
from knnpress.geometries.base import Geometry, Linearization, Linearize
from knnpress.geometries.charts import CloudChart
from knnpress.geometries.checks import as_real_array, check_stopping, check_weights
from knnpress.geometries.cloud_costs import Cost, costs
from knnpress.geometries.cloud_linearization import LinearizedClouds, targets_of
from knnpress.geometries.cloud_points import as_clouds, distinct, k_means, mass_of, n_dims
from knnpress.geometries.cloud_search import CloudSearch
from knnpress.geometries.cloud_solver import Side, Solver, Table, in_blocks, sub_blocks
from knnpress.typing import Array, ArrayLike, Indices

_AUTO_REG = 0.05  # of the median cost between points: 0.1 for word vectors of length one, on R8's training documents
_MAX_POINTS = 1000  # that the median is taken of
_MAX_CENTROID_POINTS = 100_000  # points; more would be no summary, and take all memory
_MIN_CLOUDS = 64  # of Z from which bounds are worth their time
_ROUNDS = 200  # of a barycenter's descent
_MIN_LENGTH = 1e-145  # whose square is still a number with all its digits


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
        if isinstance(X, StoredClouds):
            X = X[:]
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
        """The geometry with `reg` in units of the ground cost, for checked clouds like X, in memory or in a store."""
        params = self.get_params(deep=False)
        reg = self.reg
        if reg == "auto" and isinstance(X, StoredClouds):
            present = None if weights is None else np.flatnonzero(weights)
            reg = self._usual_reg(X.some_points(_MAX_POINTS, present))
        return CloudSinkhorn(**{**params, "reg": self._resolved(X) if reg == "auto" else float(reg)})

    def pairwise(self, X: Any, Z: Any = None, n_jobs: int | None = None) -> Array:
        """Values between all pairs of clouds, (n, m); Z None means X itself. "auto" takes `reg` from X."""
        X = self.check(X)
        if Z is not None and n_dims(self.check(Z, "Z")) != n_dims(X):
            raise ValueError(f"X holds points of {n_dims(X)} dimensions and Z of {n_dims(Z)}; they must agree")
        fitted = self.fitted_to(X)
        D: Array = in_blocks(fitted.distances_to(X if Z is None else fitted.check(Z, "Z")), as_clouds(X), n_jobs)
        return D

    def centroid(self, X: Any, weights: ArrayLike | None = None) -> Array:
        """The barycenter of free support, (n_points, d + 1), weights in the last column.

        Positions and weights that minimise the weighted sum of values, found by descent from points of X.
        """
        clouds = as_clouds(self.check(X))
        shares = check_weights(weights, len(clouds))
        present = np.flatnonzero(shares)
        if len(present) < len(clouds):
            clouds, shares = clouds[present], shares[present]
        fitted = self.fitted_to(clouds)
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
        solver, targets = self._solver(Z), targets_of(Z)
        self_z = [solver.self_terms(t.clouds, self.cost)[0] for t in targets] if self._debiased else []

        def distances(X: Any) -> Array:
            clouds = as_clouds(X)
            D = np.empty((len(clouds), targets[-1].stop))
            for rows in sub_blocks(clouds, max(len(target.weights) for target in targets)):
                side = Side.of(clouds[rows])
                for target in targets:
                    table = Table.of(side, target, self.cost, solver.reg)
                    D[rows, target.start : target.stop] = solver.solve(table, None, False)
            if self._debiased:
                self_x = solver.self_terms(clouds, self.cost)[0]
                D -= 0.5 * (self_x[:, None] + np.concatenate(self_z))
            return D

        return distances

    def nearest_to(self, Z: Any, k: int) -> Callable[[Any], Array]:
        """Like `distances_to`, but all except the k least values of a row may be infinity.

        Bounds by means and by relaxed transport (see `knnpress.geometries.cloud_search`) show most pairs to be too far;
        the others are given up once their dual value, which never falls, does.
        """
        clouds = as_clouds(Z)
        if len(clouds) < _MIN_CLOUDS:
            return self.distances_to(Z)
        return CloudSearch(clouds, k, self.cost, self._solver(Z), self._debiased)

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
        return n_dims(X)

    def spread(self, X: Any, weight: Array | None, start: Array, own: Indices) -> float:
        """Root mean square distance of points from the nearest point of their own start: a unit of positions."""
        squares = np.zeros(len(X))
        for j in np.unique(own):
            rows = np.flatnonzero(own == j)
            clouds = as_clouds(X)[rows]
            points, index = distinct(clouds)
            nearest = costs("sqeuclidean", points, start[j, :, :-1]).min(axis=1)
            squares[rows] = np.add.reduceat(clouds.weights * nearest[index], clouds.offsets[:-1])
        mean = float(np.average(squares, weights=weight))
        return float(np.sqrt(mean)) if mean > 0 else 1.0

    def chart(self, start: Array) -> CloudChart:
        """Positions and roots of weights, as transport weighs them at the start."""
        if isinstance(start, Clouds):
            raise TypeError(
                "clouds of any sizes cannot be moved; learn with knnpress.SWC, whose prototypes have one size, or take "
                "a compressor that selects clouds or averages them, e.g. Medoids or CloudCentroids"
            )
        return CloudChart.around(start)

    def paper_chart(self, start: Array) -> CloudChart:
        """The same: the paper knows no clouds."""
        return self.chart(start)

    def linearize(self, X: Any, Z: Array, memory: Any = None) -> Linearization:
        r"""Values and their derivative in the positions and weights of Z, (m, k, d + 1).

        By the envelope theorem the derivative in a position is the plan's,
        :math:`\sum_l T_{lk} \nabla_z c(x_l, z_k)`, and in a weight its potential, which is free by a constant: it is
        returned with mean zero.
        """
        return self.linearize_at(Z)(X, memory)

    def linearize_at(self, Z: Array, slack: float = 1.0) -> Linearize:
        """`linearize` at checked Z, for any block of X, solved to `slack` times `tol`."""
        return LinearizedClouds(Z, self.cost, self._solver(Z, slack), self._solver(Z), self._debiased)

    @property
    def _debiased(self) -> bool:
        return self.value == "divergence"

    def _solver(self, Z: Any, slack: float = 1.0) -> Solver:
        return Solver(self._resolved(Z), slack * self.tol, self.max_iter, slack > 1.0)

    def _resolved(self, X: Any) -> float:
        """`reg` in units of the ground cost."""
        if self.reg != "auto":
            return float(self.reg)
        clouds = as_clouds(X)
        return self._usual_reg(clouds.table[clouds.index[equal_steps(len(clouds.index), _MAX_POINTS)]])

    def _usual_reg(self, points: Array) -> float:
        """A share of the median cost between points."""
        C = costs(self.cost, points, points)
        shortest = _MIN_LENGTH if self.cost == "euclidean" else _MIN_LENGTH**2
        if self.cost != "cosine" and C.max() < shortest and (points != points[0]).any():
            raise InvalidPointError(
                f"the points of X differ by less than {_MIN_LENGTH:g}, whose square underflows; scale all points"
            )
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
        if not whole or not 1 <= self.n_points <= _MAX_CENTROID_POINTS:
            raise ValueError(
                f"n_points is {self.n_points!r}; give how many points a centroid has, from 1 to {_MAX_CENTROID_POINTS}"
            )

    def _refuse_zeros(self, X: Clouds, name: str) -> None:
        zero = (np.abs(X.table).max(axis=1) < _MIN_LENGTH)[X.index]
        if zero.any():
            at = int(np.flatnonzero(zero)[0])
            cloud = int(np.searchsorted(X.offsets, at, "right")) - 1
            raise InvalidPointError(
                f"point {at - X.offsets[cloud]} of {name}[{cloud}] is zero, or nearly, and has no direction; remove "
                "it, or use another cost than 'cosine'"
            )
