"""Values of entropic transport between clouds, and their derivatives in the clouds that are learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from knnpress.geometries.base import Focus, Linearization
from knnpress.geometries.checks import weight_threshold
from knnpress.geometries.cloud_costs import Cost
from knnpress.geometries.cloud_points import as_clouds
from knnpress.geometries.cloud_solver import Side, Solver, Table, Target, each_part, sub_blocks
from knnpress.typing import Array

_CHUNK = 256  # points of Z whose costs are held at a time: threads share out such parts
_KEPT_COSTS = 2**22  # numbers that are kept from values to their gradient


@dataclass
class _Memory:
    """What a block of X keeps between steps: potentials of Z over reg, (n, q), and its self terms, (n,)."""

    potential: Array
    self_x: Array
    kept: ClassVar[tuple[str, ...]] = ("potential",)


class LinearizedClouds:
    """Values at Z, (m, k, d + 1), and their derivative, for any block of X; a `Linearize`.

    Parameters
    ----------
    Z : ndarray of shape (m, k, d + 1)
    cost : {"sqeuclidean", "euclidean", "cosine"}
    solver, exact : Solver
        Of the pairs and the self terms of Z, and of the self terms of X, which are kept.
    debiased : bool
        Whether values are divergences.
    """

    def __init__(self, Z: Array, cost: Cost, solver: Solver, exact: Solver, debiased: bool) -> None:
        self.shape, self.cost, self.solver, self.exact, self.debiased = Z.shape, cost, solver, exact, debiased
        self.targets = targets_of(Z)
        self.self_z, self.self_gradient = np.zeros(len(Z)), np.zeros_like(Z)
        if debiased:
            terms = [solver.self_terms(target.clouds, cost, gradient=True) for target in self.targets]
            self.self_z = np.concatenate([value for value, _ in terms])
            self.self_gradient = np.concatenate([gradient for _, gradient in terms]).reshape(Z.shape)

    def __call__(self, X: Any, memory: Any = None, focus: Focus | None = None) -> Linearization:
        """Values of a block, all of them whatever the focus."""
        clouds = as_clouds(X)
        shape = (len(clouds), self.shape[0] * self.shape[1])
        warm = memory is not None and memory.potential.shape == shape
        if not warm:
            self_x = self.exact.self_terms(clouds, self.cost)[0] if self.debiased else np.zeros(len(clouds))
            memory = _Memory(np.zeros(shape), self_x)
        widest = max(len(target.weights) for target in self.targets)
        sides = [(rows, Side.of(clouds[rows])) for rows in sub_blocks(clouds, widest)]
        parts = [_Part(rows, side, target) for rows, side in sides for target in self.targets]
        pairs = _Pairs(parts, self.cost, self.solver, memory.potential)
        D = pairs.solve(self.shape, warm)
        D -= 0.5 * (memory.self_x[:, None] + self.self_z)

        def pullback(W: Array) -> Array:
            gradient = pairs.gradient(self.shape, W) - W.sum(axis=0)[:, None, None] * self.self_gradient
            gradient[:, :, -1] -= gradient[:, :, -1].mean(axis=1, keepdims=True)
            return gradient

        return Linearization(D, pullback, memory)


def targets_of(Z: Any) -> list[Target]:
    """Checked Z in the parts that threads take in turn."""
    return Target.parts(as_clouds(Z), _CHUNK)


@dataclass(frozen=True)
class _Part:
    """Some rows of a block of X, and some clouds of Z."""

    rows: slice
    side: Side
    target: Target

    @property
    def columns(self) -> slice:
        """Which clouds of Z."""
        return slice(self.target.start, self.target.stop)


@dataclass(frozen=True)
class _Pairs:
    """All pairs of a block of X and Z, part by part, and the potentials of Z over reg, (n, m k)."""

    parts: list[_Part]
    cost: Cost
    solver: Solver
    potential: Array
    tables: dict[int, Table] = field(default_factory=dict)

    @cached_property
    def few(self) -> bool:
        """Whether the costs of all parts are few enough to be kept."""
        return sum(len(part.side.points) * len(part.target.weights) for part in self.parts) <= _KEPT_COSTS

    def solve(self, shape: tuple[int, ...], warm: bool) -> Array:
        """Dual values, (n, m); brings the potentials up to date."""
        m, k, _ = shape
        D = np.empty((len(self.potential), m))

        def solve_part(number: int) -> None:
            part = self.parts[number]
            points = slice(part.target.start * k, part.target.stop * k)
            potential = np.ascontiguousarray(self.potential[part.rows, points])
            D[part.rows, part.columns] = self.solver.solve(self._table(number), potential, warm)
            self.potential[part.rows, points] = potential

        each_part(solve_part, len(self.parts))
        return D

    def gradient(self, shape: tuple[int, ...], W: Array) -> Array:
        """Gradients of the dual values under weights W, (n, m), in positions and weights of Z, (m, k, d + 1)."""
        m, k, width = shape
        least = weight_threshold(W)

        def pull(number: int) -> Array:
            part = self.parts[number]
            weights = np.ascontiguousarray(W[part.rows, part.columns], np.float64)
            points = slice(part.target.start * k, part.target.stop * k)
            potential = np.ascontiguousarray(self.potential[part.rows, points])
            return self._table(number).pullback(potential, weights, least)

        gradient = np.zeros((m * k, width))
        for part, of_part in zip(self.parts, each_part(pull, len(self.parts)), strict=True):
            gradient[part.target.start * k : part.target.stop * k] += of_part
        return gradient.reshape(shape)

    def _table(self, number: int) -> Table:
        """Costs of a part; the gradient needs them again."""
        part = self.parts[number]
        table = self.tables.get(number) or Table.of(part.side, part.target, self.cost, self.solver.reg)
        if self.few:
            self.tables[number] = table
        return table
