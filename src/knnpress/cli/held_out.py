"""Held-out errors of a model that was just learned, and of the obvious rivals."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone

from knnpress.compression import ClassCentroids
from knnpress.estimators import PrototypeClassifier
from knnpress.geometries import Geometry
from knnpress.learning.folds import make_folds
from knnpress.learning.selection import HeldOut, mean_and_standard_error
from knnpress.typing import Array, Labels

_MAX_POINTS = 4000  # points of which rivals are cross-validated


def held_out_facts(
    classifier: Any, geometry: Geometry, X: Any, y: Labels, groups: Labels | None, seed: int
) -> dict[str, str]:
    """Held-out errors of the model, of all points and of class means, and what was chosen; each in a few words.

    A learned model has been cross-validated by its `fit`. The others are, here, on parts drawn by the same rule.
    """
    facts, seen = {}, getattr(classifier, "selection_", None)
    if seen is not None:
        best = next((one for one in seen if one["chosen"] and "n_prototypes" not in one), None)
        facts["held-out error"] = (
            "not known: too few points, or every setting was given"
            if best is None
            else _words(best["error"], best["standard_error"])
        )
    if not isinstance(X, np.ndarray):  # a store, or a cluster: nothing is read for this
        return facts | _choice(classifier, seen)
    rows = np.arange(len(y))
    if len(rows) > _MAX_POINTS:
        rows = np.sort(np.random.default_rng(seed).permutation(rows)[:_MAX_POINTS])
    codes = np.unique(y, return_inverse=True)[1]
    group = None if groups is None else np.unique(groups, return_inverse=True)[1][rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folds = make_folds(codes[rows], group, seed)
        rivals = {"full 1-NN": PrototypeClassifier(geometry), "class means": _means(geometry, codes[rows])}
        if seen is None:
            rivals = {"held-out error": clone(classifier), **rivals}
        for name, rival in rivals.items():
            facts[name] = _cross_validated(rival, X[rows], codes[rows], group, folds)
    return facts | _choice(classifier, seen)


def _means(geometry: Geometry, y: Labels) -> PrototypeClassifier:
    return PrototypeClassifier(geometry, ClassCentroids(), n_prototypes=len(np.unique(y)), random_state=0)


def _cross_validated(model: Any, X: Array, y: Labels, groups: Labels | None, folds: list[Any]) -> str:
    if not folds:
        return "not known: too few points"
    wrong = np.concatenate([clone(model).fit(X[kept], y[kept]).predict(X[out]) != y[out] for kept, out in folds])
    rows = np.concatenate([out for _, out in folds])
    points = HeldOut(y[rows], np.ones(len(rows)), rows if groups is None else groups[rows])
    return f"{_words(*mean_and_standard_error(wrong.astype(float), points))}, held out"


def _words(error: float, standard_error: float) -> str:
    return f"{error:.2%} ± {standard_error:.2%}"


def _choice(classifier: Any, seen: list[dict[str, Any]] | None) -> dict[str, str]:
    """What was chosen, and why."""
    tried = [one for one in seen or [] if "n_prototypes" not in one]
    if not tried:
        return {}
    metrics = len({one["metric"] for one in tried})
    among = f"{len(tried)} settings" + (f" in {metrics} metrics" if metrics > 1 else "")
    what = f"{classifier.metric_} metric, prior {classifier.prior_:g}, {classifier.vote_} vote"
    errors = [one["error"] for one in tried if "error" in one]
    least = min(errors, default=0.0)
    if any(one["chosen"] and one.get("error") == least for one in tried):
        return {"chosen": f"{what}: the best of {among} on held-out points"}
    return {"chosen": f"{what}: within noise of the best of {among} on held-out points ({least:.2%})"}
