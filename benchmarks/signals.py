"""EEG of motor imagery: SCC beside MDM, tangent space and logistic regression, and full 1-NN.

``python benchmarks/signals.py DATA.npz OUT.jsonl`` measures what is not in OUT.jsonl yet, one line per split and
method; ``python benchmarks/signals.py --show OUT.jsonl`` prints means with paired 95 % intervals, and with ``--figure
docs/signals.svg`` draws rejection, calibration and a new subject trial by trial. DATA.npz holds X (n,
d, d), y, subject and run. Within subjects one run is left out in turn; across subjects there are five folds of them.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline

import knnpress as kp
from knnpress.descriptors import Recenter

LEFT_OUT = (88, 92, 100)  # subjects recorded otherwise
METHODS = ("SCC", "MDM", "TS+LR", "1-NN")
PARTS = ("across", "within", "raw")
ONLINE = (0, 5, 10, 20, 40)  # unlabelled trials of a new subject
SHRINKAGE = (0, 10)  # matrices that the grand mean counts for in the mean of a new subject
REJECT = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)  # share of training points that may be refused
SURE = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)  # least probability of what is answered


def make(method: str) -> Any:
    """A model as it comes, on one thread."""
    from pyriemann.classification import MDM
    from pyriemann.tangentspace import TangentSpace

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
                "raw": (X[train], X[test]),
                "y": y[train],
                "truth": y[test],
                "groups": subject[train],
                "subjects": subject[test],
            }


def probabilities(share: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Sums that log loss and calibration error of several splits can be made of."""
    p, right = share.max(axis=1), share.argmax(axis=1) == truth
    index = np.minimum((10 * p).astype(int), 9)
    return {
        "log_loss": float(-np.log(np.maximum(share[np.arange(len(share)), truth], 1e-12)).sum()),
        "bins": [
            [int((index == b).sum()), round(float(p[index == b].sum()), 4), int(right[index == b].sum())]
            for b in range(10)
        ],
    }


def measure(split: dict[str, Any], method: str) -> dict[str, Any]:
    """Fit on one part and see what it makes of the other."""
    model, settings = make(method), {}
    if method == "SCC" and split["groups"] is not None:
        settings = {"groups": split["groups"]}
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(split["train"], split["y"], **settings)
    seconds = time.perf_counter() - begin
    share = model.predict_proba(split["test"])
    right = model.classes_[share.argmax(axis=1)] == split["truth"]
    truth = np.searchsorted(model.classes_, split["truth"])
    found = {"n": len(right), "right": int(right.sum()), "seconds": round(seconds, 2), **probabilities(share, truth)}
    if method == "SCC":
        found |= {
            "metric": model.metric_,
            "n_prototypes": len(model.prototypes_),
            "gamma": round(model.gamma_, 4),
            "prior": str(model.prior_),
            "smoothing": model.smoothing_,
            "vote": model.vote_,
            "temperature": model.temperature_,
        }
        found |= rejection(model, split["test"], share.max(axis=1), right)
        model.temperature_ = 1.0
        found["before"] = probabilities(model.predict_proba(split["test"]), truth)
        model.temperature_ = found["temperature"]
    if split["name"]["part"] == "across" and method in ("SCC", "MDM"):
        found["online"] = online(model, split)
    if "subjects" in split:
        found["by_subject"] = {
            int(who): float(right[split["subjects"] == who].mean()) for who in np.unique(split["subjects"])
        }
    return found


def rejection(model: Any, X: np.ndarray, p: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """What is answered and right of it, by distance and by probability; and what is refused of input that is no EEG."""
    score, rng = model.outlier_score(X), np.random.default_rng(0)
    d = X.shape[1]
    turns = rng.permuted(np.tile(np.arange(d), (len(X), 1)), axis=1)
    shuffled = X[np.arange(len(X))[:, None, None], turns[:, :, None], turns[:, None, :]]
    samples = rng.normal(size=(len(X), d, 5 * d))
    power = np.trace(X, axis1=1, axis2=2)[:, None, None] / d
    noise = power * (samples @ samples.transpose(0, 2, 1)) / (5 * d)
    return {
        "by_distance": [[int((score <= 1 - r).sum()), int(right[score <= 1 - r].sum())] for r in REJECT],
        "by_probability": [[int((p >= least).sum()), int(right[p >= least].sum())] for least in SURE],
        "refused": {
            name: [round(float(np.mean(model.outlier_score(strange) > 1 - r)), 4) for r in REJECT]
            for name, strange in (("channels shuffled", shuffled), ("white noise", noise))
        },
    }


def online(model: Any, split: dict[str, Any]) -> dict[str, list[float]]:
    """Accuracy on the later half of each new subject's trials, re-centred by the mean of its first few.

    Of 40 trials, some are those that are classified: no labels are used, but they come before their turn.
    """
    before, after = split["raw"]
    right: dict[str, list[float]] = {}
    for shrinkage in SHRINKAGE:
        known = Recenter(shrinkage=shrinkage, n_jobs=1).fit(before, groups=split["groups"])
        grand = Recenter(n_jobs=1).fit(known.mean_[None])
        for n in ONLINE:
            found = []
            for who in np.unique(split["subjects"]):
                own = np.flatnonzero(split["subjects"] == who)
                X, truth = after[own], split["truth"][own]
                late = slice(len(own) // 2, None)
                centre = copy.deepcopy(known).partial_fit(X[:n], groups=who) if n else None
                moved = grand.transform(X[late]) if centre is None else centre.transform(X[late], who)
                found.append(float(np.mean(model.predict(moved) == truth[late])))
            right.setdefault(str(shrinkage), []).append(float(np.mean(found)))
    return right


def by_subject(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Accuracy of each subject, over its runs."""
    if "by_subject" in lines[0]:
        return {who: a for line in lines for who, a in line["by_subject"].items()}
    sums: dict[str, list[int]] = {}
    for line in lines:
        own = sums.setdefault(line["split"].split("/")[0], [0, 0])
        own[0], own[1] = own[0] + line["right"], own[1] + line["n"]
    return {who: right / n for who, (right, n) in sums.items()}


def calibration(lines: list[dict[str, Any]], n: int) -> tuple[float, float]:
    """Mean log loss, and expected calibration error in ten bins, of all splits together."""
    bins = np.sum([line["bins"] for line in lines], axis=0)
    return sum(line["log_loss"] for line in lines) / n, float(np.abs(bins[:, 1] - bins[:, 2]).sum() / n)


def rows(records: list[dict[str, Any]], part: str) -> list[list[str]]:
    """Method, accuracy, what SCC has more with a 95 % interval, log loss and calibration error, on SCC's splits."""
    measured = {r["split"] for r in records if (r["part"], r["method"]) == (part, "SCC")}
    records = [r for r in records if r["part"] == part and r["split"] in measured]
    found = []
    for method in METHODS:
        lines, ours = ([r for r in records if r["method"] == name] for name in (method, "SCC"))
        if not lines:
            continue
        accuracy, reference = by_subject(lines), by_subject(ours)
        gap = 100 * np.array([reference[who] - accuracy[who] for who in reference.keys() & accuracy.keys()])
        half = 1.96 * gap.std(ddof=1) / np.sqrt(len(gap))
        n = sum(line["n"] for line in lines)
        mean = f"{100 * np.mean(list(accuracy.values())):.1f} %"
        kinds = {method: lines}
        if method == "SCC":
            kinds["SCC at temperature 1"] = [line["before"] for line in lines]
        for title, of in kinds.items():
            loss, error = calibration(of, n)
            more = "" if method == "SCC" else f"{gap.mean():+.2f} ± {half:.2f}".replace("-", "−")
            found.append([title, mean, more, f"{loss:.3f}", f"{100 * error:.1f} %"])
    return found


def show(records: list[dict[str, Any]]) -> None:
    """Accuracy and calibration of each part, then what was chosen, refused and gained online."""
    for part in PARTS:
        for row in rows(records, part):
            print(f"| {part} | " + " | ".join(row) + " |")
    for part in PARTS:
        lines = [r for r in records if (r["part"], r["method"]) == (part, "SCC")]
        if not lines:
            continue
        n = sum(line["n"] for line in lines)
        print(f"\n{part}: metric {Counter(line['metric'] for line in lines)}")
        print(f"  prior {Counter(line['prior'] for line in lines)}, vote {Counter(line['vote'] for line in lines)}")
        for name, levels in (("by_distance", REJECT), ("by_probability", SURE)):
            sums = np.sum([line[name] for line in lines], axis=0)
            curve = [f"{a / n:.0%} {1 - b / max(a, 1):.1%}" for a, b in sums]
            print(f"  {name}, share answered and its error: {dict(zip(levels, curve, strict=True))}")
        for name in lines[0]["refused"]:
            shares = np.average([line["refused"][name] for line in lines], axis=0, weights=[r["n"] for r in lines])
            print(f"  refused of {name}: {dict(zip(REJECT, shares.round(3).tolist(), strict=True))}")
    for method, shrinkage in product(("SCC", "MDM"), SHRINKAGE):
        curves = [r["online"][str(shrinkage)] for r in records if "online" in r and r["method"] == method]
        if curves:
            means = dict(zip(ONLINE, np.mean(curves, axis=0).round(4).tolist(), strict=True))
            print(f"online {method}, shrinkage {shrinkage}: {means}")


def figure(records: list[dict[str, Any]], path: Path) -> None:
    """Three curves: a new subject trial by trial; what is answered against its error; probabilities against truth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "knnpress", "svg.fonttype": "path", "font.size": 9}
    drawing, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for method, colour in (("SCC", "#0f766e"), ("MDM", "#b45309")):
        curves = [r["online"]["0"] for r in records if "online" in r and r["method"] == method]
        if curves:
            left.plot(ONLINE, 100 * (1 - np.mean(curves, axis=0)), "o-", color=colour, label=method)
    left.set(xlabel="unlabelled trials of a new subject", ylabel="error, %", title="Re-centred online")
    for part, style in (("within", "--"), ("across", "-")):
        lines = [r for r in records if (r["part"], r["method"]) == (part, "SCC")]
        if not lines:
            continue
        n = sum(line["n"] for line in lines)
        for name, colour in (("by_probability", "#0f766e"), ("by_distance", "#7c3aed")):
            answered, correct = np.sum([line[name] for line in lines], axis=0).T
            enough = answered > 0.02 * n
            how = name.replace("_", " ")
            middle.plot(
                100 * answered[enough] / n, 100 * (1 - correct[enough] / answered[enough]), style, color=colour,
                label=f"{part}, {how}",
            )  # fmt: skip
        for kind, colour in ((lines, "#0f766e"), ([line["before"] for line in lines], "#9ca3af")):
            count, p, correct = np.sum([line["bins"] for line in kind], axis=0).T
            enough = count > 0.01 * n
            what = "calibrated" if kind is lines else "temperature 1"
            right.plot(p[enough] / count[enough], correct[enough] / count[enough], style, marker=".", color=colour,
                       label=f"{part}, {what}")  # fmt: skip
    middle.set(xlabel="share answered, %", ylabel="error of the answers, %", title="Rejection")
    right.plot([0.5, 1], [0.5, 1], ":", color="#9ca3af")
    right.set(xlabel="probability of the prediction", ylabel="share that is right", title="Calibration")
    for axes in (left, middle, right):
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7)
    drawing.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure or show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--figure", type=Path, help="with --show: an SVG file to write")
    parser.add_argument("--parts", nargs="+", default=list(PARTS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    args = parser.parse_args()
    records = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    if args.show or args.data is None:
        show(records)
        if args.figure is not None:
            figure(records, args.figure)
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
