"""Learning prototypes by the soft nearest-neighbour loss: SCC, SHC and SNC are this compressor on three geometries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.loss import log_softmax
from knnpress.compression.objective import Evaluation, Objective
from knnpress.compression.optimize import Optimum, minimize
from knnpress.compression.prototypes import Compressor, Prototypes
from knnpress.compression.selection import ClassCentroids
from knnpress.geometries import Geometry, SmoothGeometry, SquaredEuclidean
from knnpress.geometries.base import Chart
from knnpress.parallel import map_blocks, row_blocks
from knnpress.typing import Array, Callback, Indices, Labels

__all__ = ["StochasticCompression"]

#: gamma^2 in units of 1 / `_Problem.margin`: the one that suited most data, and the factors tried by ``gamma="auto"``
_SHARPNESS = 5.0
_FACTORS = (0.5, 1.0, 2.0)
_SEARCH_SHARE = 0.4  # of max_iter, for each gamma tried
_GAMMA_DOUBT, _STEP_DOUBT = 0.5, 1.0  # standard errors of a difference in held-out score that it takes to heed it
_LEAST_HELD_OUT = 20  # points below which a held-out part says nothing


class StochasticCompression(BaseEstimator):
    """Learn prototypes by descent on the soft nearest-neighbour loss.

    Parameters
    ----------
    gamma : float or "auto"
        Sharpness of the soft neighbourhood. "auto": the best of a few on a held-out part of the training set, scaled
        to the data.
    init : Compressor or None
        Where to start; None: `ClassCentroids` (for histograms, of Euclidean k-means).
    optimizer : {"lbfgs", "cg", "descent"}
    max_iter : int
        Iterations of the optimiser.
    tol : float
        Stop when no entry of the gradient exceeds it.
    learning_rate : float
        First step of "descent".
    early_stopping : bool
        Keep as many iterations as were best on a held-out part, none at all included, so that learning does not lose
        to its own start. Where the classes are too small to hold a part out, all iterations are kept.
    validation_fraction : float
        Size of the held-out part.
    """

    def __init__(
        self,
        gamma: float | Literal["auto"] = "auto",
        init: Compressor | None = None,
        optimizer: Literal["lbfgs", "cg", "descent"] = "lbfgs",
        max_iter: int = 100,
        tol: float = 1e-6,
        learning_rate: float = 1.0,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
    ) -> None:
        self.gamma = gamma
        self.init = init
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction

    def compress(
        self,
        X: Array,
        y: Labels,
        *,
        geometry: Geometry,
        n_prototypes: int | None = None,
        sample_weight: Array | None = None,
        random_state: np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
    ) -> Prototypes:
        """Return `n_prototypes` learned prototypes (one a class, if None).

        `callback` is called after each iteration of the last descent, with the facts "loss" and "error".
        """
        if not isinstance(geometry, SmoothGeometry):
            raise TypeError(f"{type(geometry).__name__} has no derivatives; learn with JBLD, LogEuclidean, Sinkhorn, …")
        if self.optimizer != "descent" and not geometry.exact_gradient:
            raise ValueError(
                f"optimizer={self.optimizer!r} needs an exact gradient, which value='transport' has not; use "
                "optimizer='descent', or learn on value='divergence' or 'dual'"
            )
        rng = np.random.default_rng() if random_state is None else random_state
        seed = int(rng.integers(2**31))
        m = len(np.unique(y)) if n_prototypes is None else n_prototypes

        def problem(rows: Indices | slice) -> _Problem:
            weight = None if sample_weight is None else sample_weight[rows]
            start = self._start(X[rows], y[rows], weight, geometry, m, seed, n_jobs)
            return _Problem(self, geometry, X[rows], y[rows], weight, start, n_jobs)

        whole = problem(slice(None))
        held_out = split_off(y, self.validation_fraction, rng)
        monitored = (self.early_stopping or self.gamma == "auto") and len(held_out) >= _LEAST_HELD_OUT
        iterations, gamma = self.max_iter, self.gamma
        trace: dict[str, Any] = {}
        if monitored:
            kept = np.setdiff1d(np.arange(len(X)), held_out)
            part = problem(kept)
            gamma, steps, trace = part.choose(X[held_out], y[held_out])
            iterations = steps if self.early_stopping else self.max_iter
        elif gamma == "auto":
            gamma = float(np.sqrt(_SHARPNESS / whole.margin()))

        def report(k: int, theta: Array, now: Evaluation) -> Any:
            return callback and callback(k, iterations, {"loss": now.loss, "error": now.error})

        found = whole.learn(float(gamma), iterations, report)
        trace |= {"loss_curve": found.loss_curve, "n_iter": found.n_iter}
        return Prototypes(whole.chart.to_point(found.theta), whole.start.labels, gamma=float(gamma), trace=trace)

    def _start(
        self, X: Array, y: Labels, weight: Array | None, geometry: Geometry, m: int, seed: int, n_jobs: int | None
    ) -> Prototypes:
        euclidean = SquaredEuclidean() if geometry.point_ndim == 1 else None
        init = ClassCentroids(euclidean) if self.init is None else self.init
        return init.compress(
            X,
            y,
            geometry=geometry,
            n_prototypes=m,
            sample_weight=weight,
            random_state=np.random.default_rng(seed),
            n_jobs=n_jobs,
        )


@dataclass(frozen=True)
class _Problem:
    """One training set with its start."""

    settings: StochasticCompression
    geometry: SmoothGeometry
    X: Array
    y: Labels
    weight: Array | None
    start: Prototypes
    n_jobs: int | None

    @property
    def chart(self) -> Chart:
        return self.geometry.chart(self.X)

    def margin(self) -> float:
        """Median gap between a point's nearest starting prototypes of its own class and of another."""
        distances, labels = self.geometry.distances_to(self.start.points), self.start.labels

        def gaps(rows: slice) -> Array:
            D, same = distances(self.X[rows]), self.y[rows, None] == labels
            own, other = (np.where(mask, D, np.inf).min(axis=1) for mask in (same, ~same))
            return np.abs(other - own)

        return float(np.median(np.concatenate(map_blocks(gaps, row_blocks(len(self.X), 8 * len(labels)), self.n_jobs))))

    def learn(self, gamma: float, iterations: int, callback: Callable[[int, Array, Evaluation], Any]) -> Optimum:
        """Descend from the start."""
        settings, chart = self.settings, self.chart
        objective = Objective(
            self.X,
            self.y,
            labels=self.start.labels,
            geometry=self.geometry,
            chart=chart,
            gamma=gamma,
            weight=self.weight,
            n_jobs=self.n_jobs,
        )
        return minimize(
            objective,
            chart.to_theta(self.start.points),
            method=settings.optimizer,
            max_iter=iterations,
            tol=settings.tol,
            learning_rate=settings.learning_rate,
            callback=callback,
        )

    def choose(self, X: Array, y: Labels) -> tuple[float, int, dict[str, Any]]:
        """gamma and the number of iterations that serve the held-out points X, y best.

        A held-out part is small and its score noisy. So the usual gamma, and the later iteration, win where the score,
        compared point by point, does not speak clearly against them.
        """
        settings, chart = self.settings, self.chart
        usual = float(np.sqrt(_SHARPNESS / self.margin()))

        def follow(gamma: float, iterations: int) -> Array:
            """Scores of the held-out points after each iteration, (iterations + 1, n)."""
            rows: list[Array] = []

            def look(k: int, theta: Array, evaluation: Evaluation) -> None:
                # one sharpness for all: the sharper look the better to themselves
                Z = chart.to_point(theta)
                rows.append(held_out_scores(self.geometry, X, y, Z, self.start.labels, usual, self.n_jobs))

            self.learn(gamma, iterations, look)
            return np.array(rows)

        trace: dict[str, Any] = {}
        gamma = usual if settings.gamma == "auto" else float(settings.gamma)
        if settings.gamma == "auto":
            tried = [usual * float(np.sqrt(factor)) for factor in _FACTORS]
            best = {}
            for g in tried:
                scores = follow(g, max(1, round(_SEARCH_SHARE * settings.max_iter)))
                best[g] = scores[scores.mean(axis=1).argmin()]
            for g in sorted(tried, key=lambda g: best[g].mean(), reverse=True):
                if clearly_lower(best[g], best[gamma], _GAMMA_DOUBT):
                    gamma = g
            trace["gamma_scores"] = {g: float(best[g].mean()) for g in tried}
        scores = follow(gamma, settings.max_iter)
        lowest = scores[scores.mean(axis=1).argmin()]
        steps = max(k for k, row in enumerate(scores) if not clearly_lower(lowest, row, _STEP_DOUBT))
        return gamma, steps, trace | {"held_out_curve": scores.mean(axis=1).tolist()}


def clearly_lower(scores: Array, others: Array, doubt: float) -> bool:
    """Whether the paired scores are lower than the others by more than `doubt` standard errors of the difference."""
    gain = others - scores
    return float(gain.mean()) > doubt * float(gain.std()) / np.sqrt(len(gain))


def held_out_scores(
    geometry: Geometry, X: Array, y: Labels, Z: Array, labels: Labels, gamma: float, n_jobs: int | None
) -> Array:
    """Error of the nearest prototype plus that of a soft one, (n,): the second breaks the many ties of the first."""
    distances = geometry.distances_to(Z)

    def block(rows: slice) -> Array:
        D = distances(X[rows])
        same = y[rows, None] == labels
        _, P = log_softmax(-(gamma**2) * D)
        wrong = ~same[np.arange(len(D)), D.argmin(axis=1)]
        return wrong + 1.0 - (P * same).sum(axis=1)

    return np.concatenate(map_blocks(block, row_blocks(len(X), 8 * len(Z)), n_jobs))


def split_off(y: Labels, fraction: float, rng: np.random.Generator) -> Indices:
    """Rows to hold out: a share of each class, never all of it (a class of one stays whole)."""
    rows = [np.flatnonzero(y == c) for c in np.unique(y)]
    return np.sort(np.concatenate([rng.permutation(r)[: min(round(fraction * len(r)), len(r) - 1)] for r in rows]))
