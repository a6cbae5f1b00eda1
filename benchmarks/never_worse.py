"""Is what is learned ever worse than class means, or than the centroids it starts from? Small and noisy sets.

    python benchmarks/never_worse.py run --data-dir FOLDER    # resumes; benchmarks/never_worse.jsonl
    python benchmarks/never_worse.py table                    # write it into docs/, as figures.py does

Each model as it comes, with one, two and six prototypes per class; labels of training points are made wrong where the
name says so, those of test points never. The seed chose nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import numpy as np
from learner import eth80, fpha
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedShuffleSplit

import knnpress as kp
from knnpress.compression import ClassCentroids
from knnpress.geometries import JBLD, Sinkhorn, SquaredEuclidean

SEED = 20261119
N_SPLITS = 5
MOST_TESTED = 1000
RECORDS = Path(__file__).with_suffix(".jsonl")
Data = tuple[np.ndarray, np.ndarray, Any]  # points, labels, ground cost


def covariances(_: str) -> Data:
    """Digits of scikit-learn as covariances."""
    data = kp.datasets.load_digits_covariances()
    return data.X, data.y, None


def histograms(_: str) -> Data:
    """Digits of scikit-learn as histograms."""
    data = kp.datasets.load_digits_histograms()
    return data.X, data.y, data.ground_cost


def vectors(_: str) -> Data:
    """Digits of scikit-learn as vectors."""
    X, y = load_digits(return_X_y=True)
    return X, y, None


def objects(folder: str) -> Data:
    """ETH-80 as covariances."""
    task = eth80(folder, False)
    return task.X, task.y, None


def actions(folder: str) -> Data:
    """Nine actions of FPHA as covariances."""
    task = fpha(folder)
    few = task.y < 9
    return task.X[few], task.y[few], None


#: name: (how to read it, training points, share of them whose labels are wrong)
SETS: dict[str, tuple[Callable[[str], Data], int, float]] = {
    "120 digits as covariances": (covariances, 120, 0.0),
    "300 digits as covariances, 20 % wrong labels": (covariances, 300, 0.2),
    "400 of ETH-80": (objects, 400, 0.0),
    "200 of ETH-80, 20 % wrong labels": (objects, 200, 0.2),
    "120 of nine hand actions, 63 x 63": (actions, 120, 0.0),
    "200 digits as histograms, 20 % wrong labels": (histograms, 200, 0.2),
    "300 digits as vectors, 20 % wrong labels": (vectors, 300, 0.2),
}
PER_CLASS = (1, 2, 6)


def models(X: np.ndarray, cost: Any, n_classes: int) -> dict[str, Any]:
    """What is compared."""
    geometry = JBLD() if X.ndim == 3 else SquaredEuclidean() if cost is None else Sinkhorn(cost)

    def learned(m: int) -> Any:
        if X.ndim == 3:
            return kp.SCC(m)
        return kp.SNC(m) if cost is None else kp.SHC(cost, n_prototypes=m)

    found: dict[str, Any] = {"full": kp.PrototypeClassifier(geometry)}
    for k in PER_CLASS:
        m = k * n_classes
        found[f"start {k}"] = kp.PrototypeClassifier(geometry, ClassCentroids(), n_prototypes=m)
        found[f"learned {k}"] = learned(m)
    return found


def split(y: np.ndarray, n_train: int, noise: float) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows to learn from with their labels, some of them wrong, and rows to test."""
    n_test = min(MOST_TESTED, len(y) - n_train)
    splitter = StratifiedShuffleSplit(N_SPLITS, train_size=n_train, test_size=n_test, random_state=SEED)
    rng, classes = np.random.default_rng(SEED), np.unique(y)
    found = []
    for train, test in splitter.split(y, y):
        told = y[train].copy()
        for i in rng.permutation(n_train)[: round(noise * n_train)]:
            told[i] = rng.choice(classes[classes != told[i]])
        found.append((train, told, test))
    return found


def read() -> list[dict[str, Any]]:
    """Records so far."""
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def run(folder: str) -> None:
    """Measure what is not in the records yet."""
    known = {(r["data"], r["split"], r["method"]) for r in read()}
    for name, (make, n_train, noise) in SETS.items():
        X, y, cost = make(folder)
        for k, (train, told, test) in enumerate(split(y, n_train, noise)):
            for method, model in models(X, cost, len(np.unique(y))).items():
                if (name, k, method) in known:
                    continue
                wrong = model.fit(X[train], told).predict(X[test]) != y[test]
                record = {"data": name, "split": k, "method": method, "error": 100 * float(wrong.mean())}
                with RECORDS.open("a") as file:
                    file.write(json.dumps(record) + "\n")


def table() -> str:
    """Start and learned errors for each size, and how much is gained over class means, with its standard error."""
    lines = [
        "| set | full 1-NN | class means | " + " | ".join(f"{k} per class" for k in PER_CLASS) + " |",
        "| --- | ---: | ---: |" + " --- |" * len(PER_CLASS),
    ]
    records = read()
    for name in SETS:
        error = {
            method: np.array([r["error"] for r in records if (r["data"], r["method"]) == (name, method)])
            for method in dict.fromkeys(r["method"] for r in records if r["data"] == name)
        }
        if min((len(e) for e in error.values()), default=0) < N_SPLITS or "learned 6" not in error:
            continue  # not measured to the end yet
        cells = []
        for k in PER_CLASS:
            gain = error["start 1"] - error[f"learned {k}"]
            spread = gain.std(ddof=1) / np.sqrt(len(gain))
            told = f"{error[f'start {k}'].mean():.1f} → {error[f'learned {k}'].mean():.1f}"
            cells.append(f"{told} ({gain.mean():+.1f} ± {spread:.1f})")
        means = f"{error['full'].mean():.1f} | {error['start 1'].mean():.1f}"
        lines.append(f"| {name} | {means} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--data-dir", default=".", help="the folder of local copies of research data sets")
    args = parser.parse_args()
    if args.command == "run":
        run(args.data_dir)
    figures.main()


if __name__ == "__main__":
    main()
