"""How many prototypes are enough: the smallest share of the training set that no larger one clearly beats."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from knnpress.compression.prototypes import Prototypes
from knnpress.compression.stochastic import StochasticCompression
from knnpress.geometries import SquaredEuclidean
from knnpress.geometries.base import Geometry, distance_matrix
from knnpress.learning.folds import make_folds
from knnpress.learning.selection import DEFAULT, HeldOut, HeldOutResult, is_better
from knnpress.neighbors import ByClass
from knnpress.typing import Array, Callback, Labels

RATIOS = (0.02, 0.04, 0.08, 0.16, 0.32)


def try_sizes(
    compressor: StochasticCompression,
    X: Array,
    y: Labels,
    *,
    geometry: Geometry,
    sample_weight: Array | None = None,
    groups: Array | None = None,
    may_learn_in_quick: bool = False,
    random_state: np.random.Generator | None = None,
    n_jobs: int | None = None,
    callback: Callback | None = None,
) -> list[dict[str, Any]]:
    """Try sizes from small to large, with the default setting, until a larger one is no better than the last.

    Returns
    -------
    list of dict
        For each size its "n_prototypes" and its held-out result, as in ``selection_``; one is "chosen".
    """
    rng = np.random.default_rng() if random_state is None else random_state
    seed = int(rng.integers(2**31))
    folds = make_folds(y, groups, seed)
    n_classes, weight = int(y.max()) + 1, np.ones(len(X)) if sample_weight is None else sample_weight
    sizes = sorted({max(n_classes, round(ratio * len(X))) for ratio in RATIOS})
    if not folds:  # too few points to judge by
        return [{"n_prototypes": sizes[0], "chosen": True}]
    plain, label_noise = _with_default_setting(compressor), compressor.label_noise

    def held_out(m: int) -> HeldOutResult:
        result = HeldOutResult(DEFAULT)
        for kept, out in folds:
            found = plain.compress(
                X[kept],
                y[kept],
                geometry=geometry,
                n_prototypes=min(m, len(kept)),
                sample_weight=None if sample_weight is None else sample_weight[kept],
                may_learn_in_quick=may_learn_in_quick,
                random_state=np.random.default_rng(seed),
                n_jobs=n_jobs,
                callback=callback,
            )
            D = _distances(found, X[out], n_jobs)
            points = HeldOut(y[out], weight[out], out if groups is None else groups[out])
            result.add(*ByClass.of(found.labels, n_classes).scores(D, found.gamma or 1.0), points)
        return result

    tried, best = [held_out(sizes[0])], 0
    for m in sizes[1:]:
        tried.append(held_out(m))
        if not _is_worth_it(tried[-2], tried[-1], label_noise):
            break
        best += 1
    return [
        {"n_prototypes": m, **result.summary("soft", label_noise), "chosen": k == best}
        for k, (m, result) in enumerate(zip(sizes, tried, strict=False))
    ]


def _with_default_setting(compressor: StochasticCompression) -> StochasticCompression:
    """The same compressor with nothing left to choose."""
    default = compressor.constraints().default
    return clone(compressor).set_params(
        gamma="scale" if compressor.gamma == "auto" else compressor.gamma,
        prior=default.prior,
        smoothing=default.smoothing,
        vote="nearest",
    )


def _distances(found: Prototypes, X: Array, n_jobs: int | None) -> Array:
    """Distances of points to learned prototypes, under the geometry that they were learned in."""
    geometry, vectors = found.trace["geometry"], found.trace["vectors"]
    if vectors is None:
        return distance_matrix(geometry, X, found.points, n_jobs)
    return distance_matrix(SquaredEuclidean(), geometry.embed(X, n_jobs), vectors, n_jobs)


def _is_worth_it(smaller: HeldOutResult, larger: HeldOutResult, label_noise: float) -> bool:
    """Whether the larger of two sizes serves held-out points better."""
    losses, others = (one.losses("soft", label_noise) for one in (larger, smaller))
    return is_better(losses, others, larger.points())
