"""EEG of motor imagery: SCC beside MDM, tangent space and logistic regression, and full 1-NN.

``python benchmarks/signals.py DATA.npz OUT.jsonl`` measures what is not in OUT.jsonl yet, one line per split and
method; ``python benchmarks/signals.py --show OUT.jsonl`` prints means with paired 95 % intervals. DATA.npz holds X (n,
d, d), y, subject and run. Within subjects one run is left out in turn; across subjects there are five folds of them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pyriemann.classification import MDM
from pyriemann.tangentspace import TangentSpace
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline

import knnpress as kp
from knnpress.descriptors import Recenter

LEFT_OUT = (88, 92, 100)  # subjects recorded otherwise
METHODS = ("SCC", "MDM", "TS+LR", "1-NN")
ONLINE = (5, 10, 20, 40)  # unlabelled trials of a new subject


def make(method: str) -> Any:
    """A model as it comes, on one thread."""
    if method == "SCC":
        return kp.SCC(n_jobs=1)
    if method == "MDM":
        return MDM(n_jobs=1)
    if method == "1-NN":
        return kp.PrototypeClassifier("jbld", n_jobs=1)
    return make_pipeline(TangentSpace(), LogisticRegressionCV(Cs=np.logspace(-4, 1, 6), max_iter=1000, n_jobs=1))


def splits(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Training and test sets, one after the other, with what they are called."""
    X, y, subject, run = (data[name] for name in ("X", "y", "subject", "run"))
    for who in np.unique(subject):
        own = subject == who
        for out in np.unique(run[own]):
            train, test = np.flatnonzero(own & (run != out)), np.flatnonzero(own & (run == out))
            name = {"part": "within", "split": f"{who}/{out}"}
            yield {"name": name, "train": X[train], "test": X[test], "y": y[train], "truth": y[test], "groups": None}
    centred = Recenter(n_jobs=1).fit_transform(X, groups=subject)  # each subject by its own trials, no labels
    for kind, points in (("across", centred), ("raw", X)):
        for k, (train, test) in enumerate(GroupKFold(5).split(X, y, subject)):
            yield {
                "name": {"part": kind, "split": str(k)},
                "train": points[train],
                "test": points[test],
                "raw": X[test],
                "y": y[train],
                "truth": y[test],
                "groups": subject[train],
                "subjects": subject[test],
            }


def calibration_error(p: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error of the probability of the prediction, in ten bins."""
    index = np.minimum((10 * p).astype(int), 9)
    gaps = [abs(p[index == b].sum() - right[index == b].sum()) for b in range(10)]
    return float(np.sum(gaps) / len(p))


def measure(split: dict[str, Any], method: str) -> dict[str, Any]:
    """Fit on one part and see what it makes of the other."""
    model, settings = make(method), {}
    if method == "SCC" and split["groups"] is not None:
        settings = {"groups": split["groups"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(split["train"], split["y"], **settings)
    share = model.predict_proba(split["test"])
    right = model.classes_[share.argmax(axis=1)] == split["truth"]
    truth = np.searchsorted(model.classes_, split["truth"])
    found = {
        "n": len(right),
        "right": int(right.sum()),
        "log_loss": float(-np.log(np.maximum(share[np.arange(len(share)), truth], 1e-12)).mean()),
        "calibration_error": calibration_error(share.max(axis=1), right),
    }
    if method == "SCC":
        temperature, model.temperature_ = model.temperature_, 1.0
        before = model.predict_proba(split["test"])
        model.temperature_ = temperature
        found |= {
            "temperature": temperature,
            "metric": model.metric_,
            "n_prototypes": len(model.prototypes_),
            "log_loss_before": float(-np.log(np.maximum(before[np.arange(len(share)), truth], 1e-12)).mean()),
            "calibration_error_before": calibration_error(before.max(axis=1), right),
        }
    if split["name"]["part"] == "across" and method in ("SCC", "MDM"):
        found |= online(model, split)
    if "subjects" in split:
        found["by_subject"] = {
            int(who): float(right[split["subjects"] == who].mean()) for who in np.unique(split["subjects"])
        }
    return found


def online(model: Any, split: dict[str, Any]) -> dict[str, Any]:
    """Accuracy on the later half of each new subject's trials, re-centred by the mean of its first few."""
    right: dict[str, list[float]] = {str(n): [] for n in ONLINE}
    for who in np.unique(split["subjects"]):
        own = np.flatnonzero(split["subjects"] == who)
        X, truth = split["raw"][own], split["truth"][own]
        late = slice(len(own) // 2, None)
        for n in ONLINE:
            centre = Recenter(n_jobs=1).partial_fit(X[: min(n, len(X))], groups=int(who))
            right[str(n)].append(float(np.mean(model.predict(centre.transform(X[late], int(who))) == truth[late])))
    return {"online": {n: float(np.mean(values)) for n, values in right.items()}}


def show(records: list[dict[str, Any]]) -> None:
    """Means by part and method, and each against SCC with a 95 % interval over subjects."""
    for part in ("within", "across", "raw"):
        own = [r for r in records if r["part"] == part]
        accuracy: dict[str, dict[str, float]] = {}
        for method in METHODS:
            by: dict[str, list[tuple[int, int]]] = {}
            if part == "within":
                for r in own:
                    if r["method"] == method:
                        by.setdefault(r["split"].split("/")[0], []).append((r["right"], r["n"]))
                accuracy[method] = {who: sum(a for a, _ in v) / sum(b for _, b in v) for who, v in by.items()}
            else:
                accuracy[method] = {who: a for r in own if r["method"] == method for who, a in r["by_subject"].items()}
        for method in METHODS:
            lines = [r for r in own if r["method"] == method]
            if not lines:
                continue
            both = sorted(accuracy["SCC"].keys() & accuracy[method].keys())
            gap = np.array([accuracy["SCC"][who] - accuracy[method][who] for who in both])
            half = 1.96 * gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.nan
            means = {
                key: round(float(np.average([r[key] for r in lines], weights=[r["n"] for r in lines])), 4)
                for key in ("log_loss", "calibration_error", "log_loss_before", "calibration_error_before")
                if key in lines[0]
            }
            if "online" in lines[0]:
                means |= {
                    f"online {n}": round(float(np.mean([r["online"][n] for r in lines])), 4) for n in map(str, ONLINE)
                }
            print(
                f"{part:7} {method:6} subjects {len(accuracy[method]):3} accuracy "
                f"{np.mean(list(accuracy[method].values())):.4f}  SCC - it {gap.mean():+.4f} ± {half:.4f}  {means}"
            )


def main() -> None:
    """Measure or show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--parts", nargs="+", default=["across", "within", "raw"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    args = parser.parse_args()
    records = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    if args.show or args.data is None:
        show(records)
        return
    done = {(r["part"], r["split"], r["method"]) for r in records}
    with np.load(args.data) as file:
        kept = ~np.isin(file["subject"], LEFT_OUT)
        data = {name: file[name][kept] for name in ("X", "y", "subject", "run")}
    for split in sorted(
        splits(data), key=lambda s: args.parts.index(s["name"]["part"]) if s["name"]["part"] in args.parts else 9
    ):
        for method in args.methods:
            name = split["name"]
            if name["part"] not in args.parts or (name["part"], name["split"], method) in done:
                continue
            line = json.dumps({**name, "method": method, **measure(split, method)})
            with args.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
