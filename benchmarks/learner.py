"""Test errors and times of SCC and SHC as they come on development splits, beside what people run today.

    python benchmarks/learner.py run [NAME ...] --data-dir FOLDER [-o build/learner.jsonl]   # resumes
    python benchmarks/learner.py table [-o build/learner.jsonl]

Development splits are for choosing among ideas; results that are reported come from other seeds (errors.py,
docs/results).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GroupShuffleSplit, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import knnpress as kp
from knnpress.compression import ClassCentroids
from knnpress.descriptors import BagOfWords, RegionCovariance, ShapeContext, SPDProjection
from knnpress.geometries import JBLD, Hellinger, Sinkhorn, Tangent

SEED = 7100
POINTS = Path(__file__).parent.parent / "build" / "points"
Split = tuple[np.ndarray, np.ndarray]


@dataclass
class Task:
    """Points with their splits, the ground cost of histograms, what rows belong together, and a step to fit first."""

    X: np.ndarray
    y: np.ndarray
    cost: np.ndarray | None
    splits: list[Split]
    groups: np.ndarray | None = None
    descriptor: Any = None


def halves(y: np.ndarray, n: int = 5, train_size: Any = 0.5) -> list[Split]:
    """Random splits with a share of each class."""
    return list(StratifiedShuffleSplit(n, train_size=train_size, random_state=SEED).split(y, y))


def described(name: str, make: Callable[[], tuple[np.ndarray, np.ndarray | None]]) -> tuple[np.ndarray, Any]:
    """Points of images, described once and kept in build/points."""
    path = POINTS / f"{name}.npz"
    if not path.exists():
        POINTS.mkdir(parents=True, exist_ok=True)
        X, cost = make()
        np.savez(path, X=X, **({} if cost is None else {"cost": cost}))
    with np.load(path) as file:
        return file["X"], file.get("cost")


def covariances(data: Any, **settings: Any) -> tuple[np.ndarray, None]:
    """Region covariances of images."""
    return RegionCovariance(**settings).fit_transform(data.images, data.y), None


def histograms(data: Any, descriptor: Any) -> tuple[np.ndarray, np.ndarray]:
    """Histograms of images with their ground cost."""
    return descriptor.fit_transform(data.images, data.y), descriptor.ground_cost_


def eth80(folder: str, by_object: bool) -> Task:
    """ETH-80 in halves, or by object: five objects of each class to learn from."""
    data = kp.datasets.load_eth80(folder)
    X, _ = described("eth80", lambda: covariances(data, features="color-texture"))
    objects = 1000 * data.y + np.unique(np.asarray(data.groups["object_id"]), return_inverse=True)[1]
    if not by_object:
        return Task(X, data.y, None, halves(data.y))
    rng, everything = np.random.default_rng(SEED), np.arange(len(X))
    splits = []
    for _ in range(5):
        drawn = [rng.permutation(np.unique(objects[data.y == c]))[:5] for c in np.unique(data.y)]
        learned = np.isin(objects, np.concatenate(drawn))
        splits.append((everything[learned], everything[~learned]))
    return Task(X, data.y, None, splits, objects)


def kth(folder: str) -> Task:
    """KTH-TIPS2-b: one physical sample of each material is tested in turn."""
    data = kp.datasets.load_kth_tips2b(folder)
    X, _ = described("kth", lambda: covariances(data, features="gradient", shrinkage=0.01))
    return Task(X, data.y, None, list(data.splits))


def fpha(folder: str) -> Task:
    """First-person hand actions: its own split, then five random ones of the same size."""
    data = kp.datasets.load_fpha(folder)
    return Task(data.X, data.y, None, [data.splits[0], *halves(data.y, 5, 600)])


def scene15(folder: str, n_dims: int) -> Task:
    """Scene-15 in all 128 dimensions of SIFT or fewer, 100 images of each class to learn from."""
    data = kp.datasets.load_scene15(folder)
    X, _ = described("scene15", lambda: covariances(data, features="sift", shrinkage=0.1))
    rng = np.random.default_rng(SEED)
    splits = []
    for _ in range(5):
        drawn = [rng.permutation(np.flatnonzero(data.y == c))[:100] for c in np.unique(data.y)]
        train = np.sort(np.concatenate(drawn))
        splits.append((train, np.setdiff1d(np.arange(len(X)), train)))
    projection = SPDProjection(n_dims, n_between=4, max_iter=20) if n_dims < 128 else None
    return Task(X, data.y, None, splits, descriptor=projection)


def shapes(folder: str, name: str) -> Task:
    """COIL-20 or MPEG-7 as shape contexts."""
    data = getattr(kp.datasets, f"load_{name}")(folder)
    X, cost = described(name, lambda: histograms(data, ShapeContext()))
    return Task(X, data.y, cost, halves(data.y))


def kylberg(folder: str) -> Task:
    """Kylberg textures as bags of words."""
    data = kp.datasets.load_kylberg(folder)
    X, cost = described("kylberg", lambda: histograms(data, BagOfWords(n_words=50, features="gradient", step=1)))
    return Task(X, data.y, cost, halves(data.y))


def digits(kind: str) -> Task:
    """Digits of scikit-learn."""
    data = getattr(kp.datasets, f"load_digits_{kind}")()
    return Task(data.X, data.y, data.ground_cost, halves(data.y))


def physionet(folder: str, across: bool) -> Task:
    """Imagined movements of the left or right fist: within each subject (the last run held out), or across subjects."""
    with np.load(Path(folder) / "physionet_mi.npz") as file:
        X, y, subject, run = (file[name] for name in ("X", "y", "subject", "run"))
    kept = ~np.isin(subject, (88, 92, 100))
    X, y, subject, run = X[kept], y[kept], subject[kept], run[kept]
    if across:
        folds = GroupShuffleSplit(5, test_size=0.2, random_state=SEED).split(X, y, subject)
        return Task(X, y, None, list(folds), subject)
    last = run == 12
    return Task(
        X,
        y,
        None,
        [(np.flatnonzero((subject == s) & ~last), np.flatnonzero((subject == s) & last)) for s in np.unique(subject)],
    )


#: name: (how to read it, sizes, metrics beside "auto")
TASKS: dict[str, tuple[Callable[[str], Task], list[float], list[str]]] = {
    "digits-cov": (lambda _: digits("covariances"), [0.02, 0.08], ["jbld", "tangent"]),
    "eth80": (lambda f: eth80(f, False), [0.02, 0.08], ["jbld", "tangent"]),
    "eth80-object": (lambda f: eth80(f, True), [0.02], ["jbld", "tangent"]),
    "kth": (kth, [0.02], ["jbld", "tangent"]),
    "fpha": (fpha, [45, 0.1, 0.2, 0.3, 0.4], ["jbld", "tangent"]),
    "scene15-40": (lambda f: scene15(f, 40), [0.02], ["jbld"]),
    "scene15-128": (lambda f: scene15(f, 128), [30], ["tangent"]),
    "physionet-within": (lambda f: physionet(f, False), [0.02], ["jbld", "tangent"]),
    "physionet-across": (lambda f: physionet(f, True), [0.02], ["jbld", "tangent"]),
    "digits-hist": (lambda _: digits("histograms"), [0.02, 0.04, 0.08], ["sinkhorn", "hellinger"]),
    "coil20": (lambda f: shapes(f, "coil20"), [20, 58, 115], ["sinkhorn", "hellinger"]),
    "mpeg7": (lambda f: shapes(f, "mpeg7"), [70, 140, 210], ["hellinger"]),
    "kylberg": (kylberg, [45], ["hellinger"]),
}


def methods(task: Task, sizes: list[float], metrics: list[str]) -> Iterator[tuple[str, Callable[[], Any], Any, bool]]:
    """Name, model, features made from training points, and whether it is given groups."""
    spd = task.X.ndim == 3
    geometry = JBLD() if spd else Sinkhorn(task.cost)
    regression = LogisticRegressionCV(
        Cs=[1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0],
        cv=3,
        max_iter=500,
        l1_ratios=(0,),
        scoring="accuracy",
        use_legacy_attributes=False,
    )

    def features(X: np.ndarray) -> Any:
        return Tangent(mean="riemann").fitted_to(X).embed if spd else np.sqrt

    def plain(X: np.ndarray) -> Any:
        return np.asarray

    def learned(metric: Any, size: float) -> Any:
        return kp.SCC(size, metric=metric) if spd else kp.SHC(task.cost, n_prototypes=size, metric=metric)

    yield "full", lambda: kp.PrototypeClassifier(geometry), plain, False
    if not spd:
        yield "full hellinger", lambda: kp.PrototypeClassifier(Hellinger()), plain, False
    yield "means", lambda: kp.PrototypeClassifier(geometry, ClassCentroids()), plain, False
    yield "regression", lambda: make_pipeline(StandardScaler(), regression), features, False
    for metric in ["auto", *metrics]:
        for size in sizes:
            make = partial(learned, metric, size)
            yield f"{metric} {size}", make, plain, False
            if task.groups is not None:
                yield f"{metric} {size} groups", make, plain, True


def run(names: list[str], folder: str, path: Path, only: str, n_splits: int) -> None:
    """Measure what is not in the records yet."""
    known = {(r["data"], r["split"], r["method"]) for r in read(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in names or TASKS:
        make_task, sizes, metrics = TASKS[name]
        task = make_task(folder)
        for k, (train, test) in enumerate(task.splits[: n_splits or None]):
            X = task.X
            if task.descriptor is not None:
                X = task.descriptor.fit(X[train], task.y[train]).transform(X)
            for method, make, features, grouped in methods(task, sizes, metrics):
                if (name, k, method) in known or (only and not any(method.startswith(o) for o in only.split(","))):
                    continue
                more = {"groups": task.groups[train]} if grouped and task.groups is not None else {}
                began, cpu = time.perf_counter(), time.process_time()
                embed = features(X[train])
                model = make().fit(embed(X[train]), task.y[train], **more)
                seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
                wrong = model.predict(embed(X[test])) != task.y[test]
                record = {"data": name, "split": k, "method": method, "error": 100 * float(wrong.mean())}
                record |= {"n_test": len(test), "seconds": seconds, "cpu": cpu}
                if hasattr(model, "selection_"):
                    record |= {"m": len(model.prototypes_), "metric": model.metric_, "vote": model.vote_}
                    record |= {"n_iter": model.n_iter_, "setting": [s for s in model.selection_ if s["chosen"]]}
                with path.open("a") as file:
                    file.write(json.dumps(record, default=float) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """Records so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(path: Path) -> str:
    """Mean error, its standard deviation over splits, seconds, and the metrics that "auto" chose."""
    records = read(path)
    lines = [
        "| data | method | splits | error % | seconds | CPU s | metric |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for data, method in dict.fromkeys((r["data"], r["method"]) for r in records):
        rows = [r for r in records if (r["data"], r["method"]) == (data, method)]
        error, seconds, cpu = ([r[key] for r in rows] for key in ("error", "seconds", "cpu"))
        metrics = Counter(r["metric"] for r in rows if "metric" in r)
        chosen = ", ".join(f"{name} {count}" for name, count in metrics.items())
        told = f"{np.mean(error):.2f} ± {np.std(error):.2f} | {np.mean(seconds):.1f} | {np.mean(cpu):.1f} | {chosen}"
        lines.append(f"| {data} | {method} | {len(rows)} | {told} |")
    return "\n".join(lines)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(TASKS)}; none: all")
    parser.add_argument("--data-dir", default=".", help="the folder of local copies of research data sets")
    parser.add_argument("--only", default="", help="methods whose names begin with one of these, separated by commas")
    parser.add_argument("--splits", type=int, default=0, help="at most so many")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/learner.jsonl"))
    args = parser.parse_args()
    if args.command == "run":
        run(args.names, args.data_dir, args.output, args.only, args.splits)
    print(table(args.output))


if __name__ == "__main__":
    main()
