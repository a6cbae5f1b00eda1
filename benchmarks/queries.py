"""How long a query takes through `predict`, alone and among many, beside what people run today."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from knnpress import SCC, SHC

MANY = 2000  # queries in a batch
FEW_STEPS: dict[str, Any] = {"gamma": 1.0, "prior": 1.0, "smoothing": 0.0, "vote": "nearest", "max_iter": 3}

Best = Callable[..., list[float]]


def queries(report: Any, best_of: Best, threads: int) -> None:
    """Rows of the report; `best_of` gives the best time of each of several functions that take turns."""
    rng = np.random.default_rng(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps are enough: a query does not know how prototypes were learned
        of_matrices(report, best_of, threads, rng)
        of_histograms(report, best_of, threads, rng)


def of_matrices(report: Any, best_of: Best, threads: int, rng: np.random.Generator) -> None:
    from pyriemann.tangentspace import TangentSpace

    report.section("Queries of SCC, d = 19, m = 33, 8 classes (the size of ETH-80), beside pyRiemann's tangent space")
    A = rng.normal(size=(MANY, 19, 60))
    X, y = A @ A.transpose(0, 2, 1) / 60, np.arange(MANY) % 8
    models = {
        "JBLD": SCC(33, metric="jbld", n_jobs=threads, **FEW_STEPS),
        "Tangent": SCC(33, metric="tangent", n_jobs=threads, **FEW_STEPS),
        "TS+LR": make_pipeline(TangentSpace(), LogisticRegression(max_iter=20)),
    }
    for model in models.values():
        model.fit(X[:800], y[:800])
    one = dict(zip(models, best_of([lambda m=m: m.predict(X[:1]) for m in models.values()]), strict=True))
    many = dict(zip(models, best_of([lambda m=m: m.predict(X) for m in models.values()]), strict=True))
    report.row("JBLD: a single point through predict", 1e6 * one["JBLD"], 80, " us", True)
    report.row("Tangent: a single point through predict", 1e6 * one["Tangent"], None, " us")
    report.row("pyRiemann's TangentSpace and LogisticRegression: the same", 1e6 * one["TS+LR"], None, " us")
    for name in models:
        report.row(f"{name}: a point among {MANY}", 1e6 * many[name] / MANY, None, " us")
    report.row("Tangent: times JBLD's time among many", many["Tangent"] / many["JBLD"], 1.5, at_most=True)


def of_histograms(report: Any, best_of: Best, threads: int, rng: np.random.Generator) -> None:
    report.section("Queries of SHC under Hellinger, 60 bins, m = 70, 70 classes (the size of MPEG-7)")
    X, y = rng.dirichlet(np.ones(60), MANY), np.arange(MANY) % 70
    models = {
        "Hellinger": SHC(metric="hellinger", n_prototypes=70, n_jobs=threads, **FEW_STEPS),
        "logistic regression on bins": LogisticRegression(max_iter=20),
        "1-NN under L1, 700 points": KNeighborsClassifier(1, metric="manhattan", n_jobs=threads),
    }
    for model in models.values():
        model.fit(X[:700], y[:700])
    many = best_of([lambda m=m: m.predict(X) for m in models.values()])
    one = best_of([lambda m=m: m.predict(X[:1]) for m in models.values()])
    for name, took, goal in zip(models, many, (5, None, None), strict=True):
        report.row(f"{name}: a point among {MANY}", 1e6 * took / MANY, goal, " us", True)
    for name, took in zip(models, one, strict=True):
        report.row(f"{name}: a single point", 1e6 * took, None, " us")
