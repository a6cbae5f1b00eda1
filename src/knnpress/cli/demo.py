"""``knnpress demo``: classify the digits that ship with scikit-learn."""

from __future__ import annotations

import argparse
import time

from sklearn.model_selection import train_test_split

from knnpress import _core
from knnpress.datasets import Dataset, load_digits_covariances, load_digits_histograms
from knnpress.estimators import SCC, PrototypeClassifier
from knnpress.geometries import JBLD, Sinkhorn

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Classify handwritten digits, as covariances and as histograms, by all training points and by a few learned."""
    covariances, histograms = load_digits_covariances(), load_digits_histograms()
    print(f"1797 handwritten digits, half to train and half to test; kernels for {_core.target()}\n")
    print(f"{'points':<22}{'classifier':<26}{'prototypes':>10}{'test error':>12}{'fit':>9}{'predict':>10}")
    rows: list[tuple[str, str, Dataset, SCC | PrototypeClassifier]] = [
        ("11 x 11 covariances", "full 1-NN, JBLD", covariances, PrototypeClassifier(JBLD())),
        ("11 x 11 covariances", "SCC at 2 %", covariances, SCC(n_prototypes=0.02, random_state=0)),
        ("64-bin histograms", "full 1-NN, Sinkhorn", histograms, PrototypeClassifier(Sinkhorn(histograms.ground_cost))),
    ]
    for points, name, data, classifier in rows:
        X, X_test, y, y_test = train_test_split(data.X, data.y, test_size=0.5, stratify=data.y, random_state=0)
        start = time.perf_counter()
        classifier.fit(X, y)
        fitted = time.perf_counter()
        error = 1.0 - classifier.score(X_test, y_test)
        fit, predict = fitted - start, time.perf_counter() - fitted
        size = len(classifier.prototypes_)
        print(f"{points:<22}{name:<26}{size:>10}{error:>12.1%}{fit:>7.1f} s{predict:>8.3f} s", flush=True)
