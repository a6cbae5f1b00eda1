"""Pairs of clouds, as the native solver takes them: tables of costs that many pairs share, part by part."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from knnpress import _core
from knnpress.clouds import Clouds
from knnpress.execution.threads import BLOCK_BYTES, map_blocks
from knnpress.geometries.cloud_costs import Cost, cost_gradient, costs
from knnpress.geometries.cloud_search import Shelf
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
        first, found = 0, []
        while first < len(clouds):
            last = max(first + 1, int(np.searchsorted(clouds.offsets, clouds.offsets[first] + most, "right")) - 1)
            found.append(cls(clouds[first:last], first, last))
            first = last
        return found

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
    """Clouds of X, with each of their different points once."""

    points: Array
    index: Indices
    clouds: Clouds

    @classmethod
    def of(cls, clouds: Clouds) -> Side:
        """These clouds."""
        used, index = np.unique(clouds.index, return_inverse=True)
        return cls(clouds.table[used], index, clouds)


@dataclass(frozen=True)
class Table:
    """Costs over reg of the different points of some clouds of X to the points of a target."""

    x: Side
    cost: Array

    def pullback(self, target: Target, potential: Array, W: Array, least: float, cost: Cost, reg: float) -> Array:
        """Gradients of positions and weights, (q, d + 1)."""
        plan, gradient = np.zeros_like(self.cost), np.zeros(len(target.weights))
        x, weights = self.x.clouds.offsets, np.ascontiguousarray(self.x.clouds.weights)
        _core.clouds_pullback(
            self.cost, self.x.index, x, weights, target.offsets, target.weights, potential, W, least, plan, gradient
        )
        C = reg * self.cost if cost == "euclidean" else self.cost  # others do not need it
        positions = cost_gradient(cost, self.x.points, target.points, C, plan)
        return np.column_stack([positions, reg * gradient])


def table_of(side: Side, target: Target, cost: Cost, reg: float) -> Table:
    """Costs over reg between clouds of X and a target."""
    C = costs(cost, side.points, target.points)
    C /= reg
    return Table(side, C)


def each_part(function: Callable[[int], Any], n: int) -> list[Any]:
    """The results for all parts, which threads take in turn where none are at the blocks already."""
    return map_blocks(lambda one: function(one.start), [slice(part, part + 1) for part in range(n)])


def sub_blocks(clouds: Clouds, n_columns: int) -> Iterator[slice]:
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
class Solver:
    """The native solver with its settings; warns where pairs did not converge."""

    reg: float
    tol: float
    max_iter: int
    loose: bool = False  # on the way of a descent the next step goes on from what was reached: nothing to warn of

    def solve(self, table: Table, target: Target, potential: Array | None, warm: bool) -> Array:
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
