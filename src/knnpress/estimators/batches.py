"""Learning from one more batch of points, so that what earlier batches taught is not forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from knnpress.compression import StochasticCompression
from knnpress.execution.rows import LocalRows
from knnpress.geometries import SmoothGeometry
from knnpress.learning.descent import LabelledPrototypes, Problem, nearest_of_own_class
from knnpress.learning.selection import DEFAULT
from knnpress.typing import Array, Callback, Indices

#: Attributes of a model that say what it was learned with; the first batch that has two classes sets them
SETTING = ("gamma_", "prior_", "smoothing_", "vote_", "temperature_")


@dataclass(frozen=True)
class WeightedPrototypes:
    """Prototypes with their class indices and the weights of the training points that each stands for."""

    points: Array
    labels: Indices
    weights: Array


@dataclass(frozen=True)
class BatchResult:
    """What was learned from a batch.

    Attributes
    ----------
    prototypes : WeightedPrototypes
    loss_curve : list of float
    setting : dict
        Values of `SETTING`; empty as long as there are prototypes of one class only.
    """

    prototypes: WeightedPrototypes
    loss_curve: list[float]
    setting: dict[str, Any]


def learn_from_batch(
    rows: LocalRows,
    geometry: SmoothGeometry,
    before: WeightedPrototypes | None,
    compressor: StochasticCompression,
    *,
    per_class: int,
    setting: dict[str, Any],
    rng: np.random.Generator,
    callback: Callback | None,
) -> BatchResult:
    """Move prototypes, after adding some for classes that lack them, to serve a batch.

    Parameters
    ----------
    rows : LocalRows
        The batch, with class indices for labels.
    geometry : SmoothGeometry
    before : WeightedPrototypes or None
        None at the first batch.
    compressor : StochasticCompression
        Makes the start of new prototypes, and says how to descend.
    per_class : int
        How many prototypes each class is to have.
    setting : dict
        What earlier batches have set of `SETTING`.
    rng : Generator
    callback : callable or None
    """
    start, weights = _completed(rows, geometry, before, compressor, per_class, rng)
    if len(np.unique(start.labels)) == 1:  # one class alone has nothing to be told apart from
        moved, curve, setting = start.points, [0.0], {}
    else:
        seed = int(rng.integers(2**31))
        moved, curve, setting = _descend(rows, geometry, start, weights, compressor, setting, seed, callback)
    near = nearest_of_own_class(rows, rows.cut(len(moved)), geometry, LabelledPrototypes(moved, start.labels))
    weights = weights + np.bincount(near, minlength=len(moved))
    return BatchResult(WeightedPrototypes(moved, start.labels, weights), curve, setting)


def _completed(
    rows: LocalRows,
    geometry: SmoothGeometry,
    before: WeightedPrototypes | None,
    compressor: StochasticCompression,
    per_class: int,
    rng: np.random.Generator,
) -> tuple[LabelledPrototypes, Array]:
    """The prototypes there are, with new ones for the batch's classes that have too few, and their weights."""
    X, y = rows.X, rows.y
    codes = y[:0] if before is None else before.labels
    points, labels = ([], [codes]) if before is None else ([before.points], [codes])
    for c in np.unique(y):
        own = y == c
        missing = min(per_class - int((codes == c).sum()), int(own.sum()))
        if missing > 0:
            new = compressor.start(X[own], y[own], geometry, missing, rng, rows.n_jobs)
            points.append(new.points)
            labels.append(new.labels)
    start = LabelledPrototypes(np.concatenate(points), np.concatenate(labels))
    weights = np.zeros(len(start.points))
    if before is not None:
        weights[: len(codes)] = before.weights
    return start, weights


def _descend(
    rows: LocalRows,
    geometry: SmoothGeometry,
    start: LabelledPrototypes,
    weights: Array,
    compressor: StochasticCompression,
    setting: dict[str, Any],
    seed: int,
    callback: Callback | None,
) -> tuple[Array, list[float], dict[str, Any]]:
    """Learn from a batch with a prior as strong as the prototypes' weights; at the first call, the setting too."""
    constraints, descent = compressor.constraints(), compressor.descent(seed)
    problem = Problem(rows, rows.cut(len(start.points)), geometry, start, descent, rows)
    first = {
        "gamma_": constraints.gamma if constraints.gamma is not None else problem.usual_gamma,
        "prior_": constraints.default.prior,
        "smoothing_": constraints.default.smoothing,
        "vote_": constraints.vote or "nearest",
        "temperature_": 1.0,
    }
    setting = {**first, **setting}
    prior = setting["prior_"] if np.isfinite(setting["prior_"]) else DEFAULT.prior
    found = problem.learn(
        setting["gamma_"],
        prior + weights[:, None],
        setting["smoothing_"],
        callback=lambda k, _, now: callback and callback(k, descent.max_iter, {"loss": now.loss, "error": now.error}),
    )
    return problem.scale.points(found.u), found.loss_curve, setting
