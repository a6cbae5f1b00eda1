"""The command line: ``knnpress demo``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="knnpress", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="classify the digits that ship with scikit-learn")
    parser.parse_args(argv)
    demo()
    return 0


def demo() -> None:
    """Classify handwritten digits by full nearest neighbours, as covariances and as histograms."""
    from sklearn.model_selection import train_test_split

    from knnpress import _core
    from knnpress.datasets import Dataset, load_digits_covariances, load_digits_histograms
    from knnpress.estimators import PrototypeClassifier
    from knnpress.geometries import JBLD, Geometry, Sinkhorn

    covariances, histograms = load_digits_covariances(), load_digits_histograms()
    print(f"1797 handwritten digits, half to train and half to test; kernels for {_core.target()}\n")
    print(f"{'points':<24}{'distance':<24}{'test error':>10}{'time':>10}{'a pair':>12}")
    rows: list[tuple[str, Dataset, Geometry]] = [
        ("11 x 11 covariances", covariances, JBLD()),
        ("64-bin histograms", histograms, Sinkhorn(histograms.ground_cost)),
    ]
    for name, data, geometry in rows:
        X, X_test, y, y_test = train_test_split(data.X, data.y, test_size=0.5, stratify=data.y, random_state=0)
        classifier = PrototypeClassifier(geometry).fit(X, y)
        start = time.perf_counter()
        error = 1.0 - classifier.score(X_test, y_test)
        seconds = time.perf_counter() - start
        pair = seconds / (len(X) * len(X_test))
        print(f"{name:<24}{type(geometry).__name__:<24}{error:>10.1%}{seconds:>8.2f} s{pair * 1e6:>9.3f} us")
    print("\nEvery test digit was compared with every training digit. Nothing was compressed yet.")
