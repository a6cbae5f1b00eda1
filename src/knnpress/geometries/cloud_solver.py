"""Pairs of clouds, as the native solver takes them: tables of costs that many pairs share, part by part."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from knnpress import _core
from knnpress.clouds import Clouds
from knnpress.execution.threads import BLOCK_BYTES, map_blocks
from knnpress.geometries.cloud_costs import Cost, cost_gradient, costs
from knnpress.geometries.cloud_points import cut, cut_by_distinct, distinct
from knnpress.typing import Array, Indices


@dataclass(frozen=True)
class Target:
    """Some clouds of Z, from `start` to `stop`."""

    clouds: Clouds
    start: int
    stop: int

    @classmethod
    def parts(cls, clouds: Clouds, most: int) -> list[Target]:
        """All clouds, in parts of about `most` points."""
        return [cls(clouds[part], part.start, part.stop) for part in cut(clouds, most)]

    @property
    def offsets(self) -> Indices:
        """Where each cloud begins."""
        return self.clouds.offsets

    @property
    def weights(self) -> Array:
        """Weights of all points, (q,)."""
        return np.ascontiguousarray(self.clouds.weights)

    @property
    def points(self) -> Array:
        """The points side by side, (q, d): a copy, made when it is needed, since clouds may share points."""
        return self.clouds.points


@dataclass(frozen=True)
class Side:
    """Some clouds of X or Z, with each of their distinct points once."""

    points: Array
    index: Indices
    clouds: Clouds

    @classmethod
    def of(cls, clouds: Clouds) -> Side:
        """These clouds."""
        return cls(*distinct(clouds), clouds)

    @property
    def weights(self) -> Array:
        """Weights of all points of the clouds."""
        return np.ascontiguousarray(self.clouds.weights)

    @property
    def weight_table(self) -> Any:
        """Weights of the clouds by their distinct points, sparse (n, p)."""
        shape = (len(self.clouds), len(self.points))
        return csr_array((self.clouds.weights, self.index, self.clouds.offsets), shape=shape)


@dataclass(frozen=True)
class Table:
    """Costs over reg of the distinct points of some clouds of X to the points of a target."""

    x: Side
    target: Target
    cost: Cost
    reg: float
    C: Array

    @classmethod
    def of(cls, x: Side, target: Target, cost: Cost, reg: float) -> Table:
        """The table of some clouds of X and a target."""
        C = costs(cost, x.points, target.points)
        C /= reg
        return cls(x, target, cost, reg, C)

    def pullback(self, potential: Array, W: Array, least: float) -> Array:
        """Gradients of positions and weights of the target, (q, d + 1)."""
        target, plan = self.target, np.zeros_like(self.C)
        gradient = np.zeros(len(target.weights))
        _core.clouds_pullback(
            *(self.C, self.x.index, self.x.clouds.offsets, self.x.weights, target.offsets, target.weights),
            *(potential, W, least, plan, gradient),
        )
        C = self.reg * self.C if self.cost == "euclidean" else self.C  # others do not need it
        positions = cost_gradient(self.cost, self.x.points, target.points, C, plan)
        return np.column_stack([positions, self.reg * gradient])


def each_part(function: Callable[[int], Any], n: int) -> list[Any]:
    """The results for all parts, which threads take in turn where none are at the blocks already."""
    return map_blocks(lambda one: function(one.start), [slice(part, part + 1) for part in range(n)])


def sub_blocks(clouds: Clouds, n_columns: int) -> list[slice]:
    """Rows whose distinct points have costs to `n_columns` others that take no more than a block's bytes."""
    return cut_by_distinct(clouds, max(1, BLOCK_BYTES // (8 * n_columns)))


@dataclass(frozen=True)
class Solver:
    """The native solver with its settings; warns where pairs did not converge."""

    reg: float
    tol: float
    max_iter: int
    loose: bool = False  # on the way of a descent the next step goes on from what was reached: nothing to warn of

    def solve(self, table: Table, potential: Array | None, warm: bool) -> Array:
        """Dual values, (n, m); potentials are brought up to date."""
        x, target = table.x, table.target
        value, _, error = _core.clouds(
            *(table.C, x.index, x.clouds.offsets, x.weights, target.offsets, target.weights),
            *(potential, warm, self.tol, self.max_iter),
        )
        self._warn(error)
        return self.reg * value

    def solve_some(self, costs: Array, x: Side, z: Side, limit: Array) -> Array:
        """Dual values, (n, m), by costs over reg of distinct points; infinite where above their limit (over reg)."""
        value, _, error = _core.clouds(
            *(costs, x.index, x.clouds.offsets, x.weights, z.clouds.offsets, z.weights),
            *(None, False, self.tol, self.max_iter, z.index, np.ascontiguousarray(limit)),
        )
        self._warn(error)
        return self.reg * value

    def self_terms(self, clouds: Clouds, cost: Cost, gradient: bool = False) -> tuple[Array, Array]:
        """OT of each cloud with itself, (n,), and half its gradient in positions and weights, (n_points, d + 1)."""
        n, d = clouds.shape
        values, errors = np.empty(n), np.empty(n)
        gradients = np.empty((len(clouds.index) if gradient else 0, d + 1))
        for i, (points, weights) in enumerate(clouds):
            a = np.ascontiguousarray(weights)
            C = costs(cost, points, points)
            C = 0.5 * (C + C.T)
            np.fill_diagonal(C, 0.0)
            # it is subtracted from every pair of its row: solve it more tightly; it converges fast
            values[i], f, _, errors[i] = _core.cloud_self(C / self.reg, a, 0.01 * self.tol, self.max_iter)
            if gradient:
                own = slice(clouds.offsets[i], clouds.offsets[i + 1])
                plan = a[:, None] * a * np.exp(np.minimum(f[:, None] + f - C / self.reg, 50.0))
                gradients[own, :-1] = cost_gradient(cost, points, points, C, plan)
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


def in_blocks(distances: Callable[[Clouds], Array], X: Clouds, n_jobs: int | None) -> Array:
    """Distances of all clouds, some at a time, (n, m)."""
    blocks = [slice(i, min(i + 32, len(X))) for i in range(0, len(X), 32)]
    D: Array = np.concatenate(map_blocks(lambda rows: distances(X[rows]), blocks, n_jobs))
    return D
