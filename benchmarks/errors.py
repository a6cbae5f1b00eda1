"""Test errors of SCC, SHC and SNC as they come, beside what people run today; writes the table of the README.

    python benchmarks/errors.py run [--data-dir FOLDER]   # measure, one line of errors.jsonl per split; resumes
    python benchmarks/errors.py table                     # write it into README.md and docs/, as figures.py does

Splits are not those that defaults were settled on. Data sets whose files are not in the folder are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import knnpress as kp
from knnpress.compression import ClassCentroids
from knnpress.descriptors import RegionCovariance, ShapeContext
from knnpress.geometries import JBLD, Sinkhorn, SquaredEuclidean, Tangent

HERE = Path(__file__).parent
RECORDS = HERE / "errors.jsonl"
SEED, N_SPLITS = 20261118, 5
Points = tuple[np.ndarray, np.ndarray, np.ndarray | None]

#: title: (how to read it, sizes to learn)
ROWS: dict[str, tuple[Callable[[str | None], Points], list[float]]] = {
    "digits as 11 x 11 covariances": (lambda _: _plain(kp.datasets.load_digits_covariances()), [0.02, 0.08]),
    "ETH-80 as 19 x 19 covariances": (
        lambda folder: _described(kp.datasets.load_eth80(folder), RegionCovariance(features="color-texture")),
        [0.02, 0.08],
    ),
    "digits as 64-bin histograms": (lambda _: _plain(kp.datasets.load_digits_histograms()), [0.02, 0.04]),
    "COIL-20 as 60-bin shape contexts": (
        lambda folder: _described(kp.datasets.load_coil20(folder), ShapeContext()),
        [0.02, 0.08],
    ),
    "digits as vectors": (lambda _: _vectors(), [0.02]),
    "First-person hand actions, 63 x 63 covariances": (lambda folder: _plain(kp.datasets.load_fpha(folder)), [0.1]),
}


def _plain(data: Any) -> Points:
    return data.X, data.y, data.ground_cost


def _described(data: Any, descriptor: Any) -> Points:
    return descriptor.fit_transform(data.images, data.y), data.y, getattr(descriptor, "ground_cost_", None)


def _vectors() -> Points:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X, y, None


def measure(X: np.ndarray, y: np.ndarray, cost: np.ndarray | None, sizes: list[float], split: int) -> dict[str, Any]:
    """Errors in % of everything on one half split."""
    halves = StratifiedShuffleSplit(N_SPLITS, test_size=len(y) // 2, random_state=SEED).split(y, y)
    train, test = list(halves)[split]
    geometry: Any = JBLD() if X.ndim == 3 else SquaredEuclidean() if cost is None else Sinkhorn(cost)

    def error(model: Any, features: Callable[[np.ndarray], np.ndarray] = np.asarray) -> float:
        return 100.0 * (1.0 - model.fit(features(X[train]), y[train]).score(features(X[test]), y[test]))

    def learned(size: float) -> Any:
        if X.ndim == 3:
            return kp.SCC(size)
        return kp.SNC(size) if cost is None else kp.SHC(cost, n_prototypes=size)

    features: Callable[[np.ndarray], np.ndarray] = np.asarray
    if X.ndim == 3:
        features = Tangent(mean="riemann").fitted_to(X[train]).embed
    elif cost is not None:
        features = np.sqrt
    regression = LogisticRegressionCV(
        Cs=[1e-3, 1e-2, 1e-1, 1.0, 10.0], cv=3, max_iter=300, l1_ratios=(0,), use_legacy_attributes=False
    )
    models = [learned(size) for size in sizes]
    return {
        "full": error(kp.PrototypeClassifier(geometry)),
        "means": error(kp.PrototypeClassifier(geometry, ClassCentroids())),
        "regression": error(make_pipeline(StandardScaler(), regression), features),
        "learned": [error(model) for model in models],
        "n_prototypes": [len(model.prototypes_) for model in models],
        "metric": [getattr(model, "metric_", "") for model in models],
        "n_train": len(train),
    }


def run(folder: str | None) -> None:
    """Measure what is not in the records yet."""
    known = {(r["data"], r["split"]) for r in _records()}
    for title, (read, sizes) in ROWS.items():
        missing = [k for k in range(N_SPLITS) if (title, k) not in known]
        if not missing:
            continue
        try:
            X, y, cost = read(folder)
        except FileNotFoundError as error:
            print(f"{title}: left out ({error})", file=sys.stderr)
            continue
        for k in missing:
            record = {"data": title, "split": k, **measure(X, y, cost, sizes, k)}
            with RECORDS.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(title, k, record, flush=True)


def _records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def table() -> str:
    """The table of the README, from the records."""

    def told(errors: list[float]) -> str:
        return f"{np.mean(errors):.1f} ± {np.std(errors):.1f}"

    def counted(sizes: list[int]) -> str:
        return str(sizes[0]) if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"

    lines = [
        "| data | full 1-NN | class means | logistic regression | learned |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for title in ROWS:
        rows = [r for r in _records() if r["data"] == title]
        if len(rows) < N_SPLITS:
            continue
        sizes = [
            f"{told([r['learned'][j] for r in rows])} with {counted([r['n_prototypes'][j] for r in rows])}"
            for j in range(len(rows[0]["learned"]))
        ]
        cells = [told([r[name] for r in rows]) for name in ("full", "means", "regression")]
        lines.append(f"| {title}, {rows[0]['n_train']} to train | {' | '.join(cells)} | {', '.join(sizes)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--data-dir", help="the folder of local copies of research data sets")
    args = parser.parse_args()
    if args.command == "run":
        run(args.data_dir)
    figures.main()


if __name__ == "__main__":
    main()
