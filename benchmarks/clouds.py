"""Test errors, sizes and times of clouds and their rivals: the documents of R8, contours of shapes, and textures.

    python benchmarks/clouds.py run [NAME ...] --data-dir FOLDER [-o build/clouds.jsonl]   # resumes
    python benchmarks/clouds.py table [-o build/clouds.jsonl]   # benchmarks/clouds.jsonl is what figures.py reads

R8 has its official split: the seeds are those of learning. Every method runs in a process of its own, so that its
memory can be told. The rivals of R8 see the same words: those that have a vector.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pickle
import resource
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics.pairwise import manhattan_distances
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline

import knnpress as kp
from knnpress.descriptors import BagOfWords, ContourPoints, LocalFeatures, ShapeContext, WordClouds
from knnpress.geometries import CloudSinkhorn

SEED = 7100  # of the splits
NEIGHBORS = [1, 3, 5, 7, 9, 13, 19]
N_QUERIES = 500  # training documents that choose k of the full search
RECORDS = Path(__file__).with_suffix(".jsonl")
THREADS = 2  # said to all: in a process of another, a fit takes one
Measured = tuple[Any, Any, Any, Any]  # training points and labels, test points and labels


def r8(folder: str) -> Any:
    """Counts of words, their vectors, labels, the official split, and histograms over 128 clusters of words."""
    with np.load(Path(folder) / "r8_words.npz") as file:
        data = {name: file[name] for name in file.files}
    shape = len(data["indptr"]) - 1, len(data["embeddings"])
    indices, indptr = (data[name].astype(np.int32) for name in ("indices", "indptr"))
    data["counts"] = csr_array((data["counts"].astype(float), indices, indptr), shape=shape)
    return data


def documents(folder: str, kind: str) -> tuple[Measured, Any]:
    """R8 as clouds, counts, means of clouds or histograms."""
    data = r8(folder)
    train, test = data["train_splits"][0], data["test_splits"][0]
    y, counts = data["y"], data["counts"]
    if kind == "counts":
        return (counts[train], y[train], counts[test], y[test]), None
    if kind == "histograms":
        return (data["H128"][train], y[train], data["H128"][test], y[test]), data["ground_cost128"]
    words = WordClouds(data["embeddings"]).fit(counts[train])
    X, Q = words.transform(counts[train]), words.transform(counts[test])
    return ((X.means(), y[train], Q.means(), y[test]) if kind == "means" else (X, y[train], Q, y[test])), None


@cache
def shapes(folder: str, name: str) -> tuple[Any, Any]:
    """COIL-20, MPEG-7 or Kylberg: images and labels."""
    data = getattr(kp.datasets, f"load_{name}")(folder)
    return data.images, data.y


def outlines(folder: str, kind: str, name: str, split: int, n_points: int = 48) -> tuple[Measured, Any]:
    """Half of the images to learn from, as clouds of contours or histograms of edges."""
    images, y = shapes(folder, name)
    train, test = list(StratifiedShuffleSplit(5, train_size=0.5, random_state=SEED).split(y, y))[split]
    descriptor: Any = ContourPoints(n_points) if kind == "clouds" else ShapeContext()
    X: Any = descriptor.fit_transform(images)
    return (X[train], y[train], X[test], y[test]), getattr(descriptor, "ground_cost_", None)


def textures(folder: str, kind: str, split: int) -> tuple[Measured, Any]:
    """Half of Kylberg's images to learn from, as clouds of gradients at some places or histograms of their words."""
    images, y = shapes(folder, "kylberg")
    train, test = list(StratifiedShuffleSplit(5, train_size=0.5, random_state=SEED).split(y, y))[split]
    descriptor: Any = {
        "clouds": LocalFeatures("gradient", step=4, n_points=64, position=False),
        "clouds of SIFT": LocalFeatures("sift", step=8, n_points=32, position=False),
        "histograms": BagOfWords(n_words=50, features="gradient", step=1),
    }[kind]
    X = descriptor.fit_transform([images[k] for k in train])
    Q = descriptor.transform([images[k] for k in test])
    return (X, y[train], Q, y[test]), getattr(descriptor, "ground_cost_", None)


def by_neighbors(metric: str) -> Any:
    """Plain k-NN, k by cross-validation of training points."""
    return GridSearchCV(KNeighborsClassifier(metric=metric, algorithm="brute"), {"n_neighbors": NEIGHBORS}, cv=5)


class SumsOfDifferences(ClassifierMixin, BaseEstimator):
    """Plain k-NN by the sum of absolute differences, k by cross-validation."""

    def fit(self, X: Any, y: np.ndarray) -> SumsOfDifferences:
        """Keep the points; choose k."""
        self.X, self.classes_ = X, np.unique(y)
        self.model = by_neighbors("precomputed").fit(manhattan_distances(X), y)
        return self

    def predict(self, Q: Any) -> np.ndarray:
        """The vote of the nearest."""
        predicted: np.ndarray = self.model.predict(manhattan_distances(Q, self.X))
        return predicted

    def __getstate__(self) -> dict[str, Any]:
        """What predictions need: the points, and not their distances."""
        return {"X": self.X}


def regression() -> Any:
    """Logistic regression, its strength by cross-validation."""
    settings: dict[str, Any] = {"cv": 5, "max_iter": 1000, "scoring": "accuracy", "l1_ratios": (0,)}
    return LogisticRegressionCV(Cs=[1.0, 10.0, 100.0, 1000.0], use_legacy_attributes=False, **settings)


class FullSearch:
    """All training clouds, k by those nearest to some of them."""

    def fit(self, X: Any, y: np.ndarray) -> FullSearch:
        """Keep them; choose k."""
        self.model = kp.PrototypeClassifier(CloudSinkhorn().fitted_to(X), n_jobs=THREADS).fit(X, y)
        rows = np.random.default_rng(SEED).permutation(len(y))[:N_QUERIES]
        nearest = self.model.kneighbors(X[rows], max(NEIGHBORS) + 1, return_distance=False)
        pairs = zip(nearest.tolist(), rows.tolist(), strict=True)
        others = np.array([[k for k in found if k != row][: max(NEIGHBORS)] for found, row in pairs])
        errors = [np.mean(_vote(y[others[:, :k]]) != y[rows]) for k in NEIGHBORS]
        self.model.set_params(n_neighbors=NEIGHBORS[int(np.argmin(errors))])
        return self

    def predict(self, Q: Any) -> np.ndarray:
        """The vote of the nearest."""
        predicted: np.ndarray = self.model.predict(Q)
        return predicted


def _vote(labels: np.ndarray) -> np.ndarray:
    counts = np.zeros((len(labels), int(labels.max()) + 1))
    np.add.at(counts, (np.arange(len(labels))[:, None], labels), 1.0)
    return counts.argmax(axis=1)


def learned(size: float, seed: int, **settings: Any) -> Any:
    """SWC as it comes."""
    return kp.SWC(size, random_state=seed, n_jobs=THREADS, **settings)


def bins(cost: Any, size: int) -> Any:
    """SHC as it comes."""
    return kp.SHC(cost, n_prototypes=size, n_jobs=THREADS)


#: What SWC takes for itself where there are many clouds: to choose settings takes hours for many prototypes.
USUAL: dict[str, Any] = {"gamma": "scale", "prior": 1.0, "smoothing": 0.02, "vote": "nearest", "max_iter": 20}
Make = Callable[[Any], Any]
#: data: (how to read it, the kind of its points, what to measure on them; given the ground cost)
METHODS: dict[str, dict[str, tuple[Any, str, Make]]] = {
    "r8": {
        **{
            f"SWC {size}, seed {seed}": (documents, "clouds", lambda _, m=size, s=seed: learned(m, s))
            for size in (16, 40)
            for seed in (0, 1, 2)
        },
        "TF-IDF, k-NN": (documents, "counts", lambda _: make_pipeline(TfidfTransformer(), by_neighbors("cosine"))),
        "TF-IDF, k-NN, L1": (
            documents,
            "counts",
            lambda _: make_pipeline(TfidfTransformer(norm="l1"), SumsOfDifferences()),
        ),
        "TF-IDF, regression": (documents, "counts", lambda _: make_pipeline(TfidfTransformer(), regression())),
        "means of words, k-NN": (documents, "means", lambda _: by_neighbors("euclidean")),
        "means of words, regression": (documents, "means", lambda _: regression()),
        "128 bins, SHC 16": (documents, "histograms", lambda cost: bins(cost, 16)),
        "clouds, full search": (documents, "clouds", lambda _: FullSearch()),
    },
}
for _name, _sizes in (("coil20", (20, 58)), ("mpeg7", (70, 140))):
    for _split in (0, 1):
        _read = partial(outlines, name=_name, split=_split)
        METHODS[f"{_name}-{_split}"] = {
            **{f"SWC {m}": (_read, "clouds", lambda _, m=m: learned(m, 0, n_points=24)) for m in _sizes},
            **{
                f"usual, SWC {m}": (_read, "clouds", lambda _, m=m: learned(m, 0, n_points=24, **USUAL)) for m in _sizes
            },
            "clouds, full search": (_read, "clouds", lambda _: kp.PrototypeClassifier(CloudSinkhorn(), n_jobs=THREADS)),
            **{
                f"SHC {m}": (_read, "histograms", lambda cost, m=m: kp.SHC(cost, n_prototypes=m, n_jobs=THREADS))
                for m in _sizes
            },
        }

METHODS["kylberg-0"] = {
    "SWC 45": (partial(textures, split=0), "clouds", lambda _: learned(45, 0)),
    "SIFT, SWC 45": (partial(textures, split=0), "clouds of SIFT", lambda _: learned(45, 0)),
    "SHC 45": (partial(textures, split=0), "histograms", lambda cost: bins(cost, 45)),
}


def size_of(model: Any) -> int:
    """Bytes of what predictions need: prototypes, coefficients, or all that was learned from."""
    if hasattr(model, "prototypes_"):
        return int(model.prototypes_.nbytes)
    parts = [part for _, part in model.steps] if isinstance(model, Pipeline) else [model]
    if hasattr(parts[-1], "coef_"):
        names = ("coef_", "intercept_", "idf_")
        return sum(getattr(part, name).nbytes for part in parts for name in names if hasattr(part, name))
    return len(pickle.dumps(model))


def measure(data: str, method: str, folder: str) -> dict[str, Any]:
    """One record."""
    read, kind, make = METHODS[data][method]
    (X, y, Q, labels), cost = read(folder, kind)
    model, began, cpu = make(cost), time.perf_counter(), time.process_time()
    model.fit(X, y)
    fitted, cpu = time.perf_counter(), time.process_time() - cpu
    asked = time.process_time()
    wrong = model.predict(Q) != labels
    done, asked = time.perf_counter(), time.process_time() - asked
    record = {"data": data, "method": method, "error": 100 * float(wrong.mean()), "n_test": len(labels)}
    record |= {"seconds": fitted - began, "cpu_seconds": cpu, "us": 1e6 * (done - fitted) / len(labels)}
    record |= {"cpu_us": 1e6 * asked / len(labels), "bytes": size_of(model)}
    record |= {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if isinstance(model, FullSearch):
        record["k"] = model.model.n_neighbors
    if hasattr(model, "gamma_"):
        facts = {"m": len(model.prototypes_), "n_iter": model.n_iter_, "prior": model.prior_, "vote": model.vote_}
        record |= facts | {"smoothing": model.smoothing_, "gamma": model.gamma_}
    return record


def run(names: list[str], folder: str, path: Path, only: str) -> None:
    """Measure what is not in the records yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for data in names or METHODS:
        for method in METHODS[data]:
            known = {(r["data"], r["method"]) for r in read_records(path)}
            if (data, method) in known or (only and not any(method.startswith(o) for o in only.split(","))):
                continue
            with multiprocessing.get_context("spawn").Pool(1) as alone:
                record = alone.apply(measure, (data, method, folder))
            with path.open("a") as file:
                file.write(json.dumps(record, default=float) + "\n")
            print(record, flush=True)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Records so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


#: WMD and S-WMD: k-NN errors on R8, official split, as others report them.
PUBLISHED = {"k-NN by WMD (Sato et al. 2022)": 4.0, "k-NN by TF-IDF (Sato et al. 2022)": 5.5}
TITLES = {"r8": "R8", "coil20": "COIL-20", "mpeg7": "MPEG-7", "kylberg": "Kylberg"}
CALLED = {
    "SIFT, SWC 45": "45 clouds of SIFT by `SWC`",
    "TF-IDF, k-NN": "TF-IDF, k-NN by the cosine",
    "TF-IDF, k-NN, L1": "TF-IDF, k-NN by sums of differences",
    "TF-IDF, regression": "TF-IDF, logistic regression",
    "means of words, k-NN": "means of word vectors, k-NN",
    "means of words, regression": "means of word vectors, logistic regression",
    "128 bins, SHC 16": "histograms over 128 clusters of words, 16 by `SHC`",
    "clouds, full search": "clouds, all of them, k-NN",
}


def groups(path: Path = RECORDS) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Records by data and method; seeds and splits together."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for r in read_records(path):
        found.setdefault((r["data"].split("-")[0], r["method"].split(", seed")[0]), []).append(r)
    return found


def called(method: str) -> str:
    """What a method is called on a page."""
    if method.startswith("usual, "):
        return f"{called(method.removeprefix('usual, '))}, settings given"
    kind, _, m = method.rpartition(" ")
    return (
        f"{m} {'clouds' if kind == 'SWC' else 'histograms'} by `{kind}`" if kind in ("SWC", "SHC") else CALLED[method]
    )


def mean_of(rows: list[dict[str, Any]], key: str) -> float:
    """Mean over runs that have it; NaN where none has."""
    found = [r[key] for r in rows if key in r]
    return float(np.mean(found)) if found else float("nan")


def sized(n_bytes: float) -> str:
    """A size that is easy to read."""
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.0f} kB"


def rows_of(data: str, path: Path = RECORDS) -> list[list[str]]:
    """Method, error, size, processor seconds of a fit and microseconds of a query, least error first."""
    rows = []
    for (name, method), runs in groups(path).items():
        if name != data:
            continue
        errors = [r["error"] for r in runs]
        spread = f" ± {np.std(errors):.2f} ({len(errors)} seeds)" if len(errors) > 1 else ""
        seconds, us = mean_of(runs, "cpu_seconds"), mean_of(runs, "cpu_us")
        cells = [f"{np.mean(errors):.2f}{spread}", sized(mean_of(runs, "bytes"))]
        cells += ["" if np.isnan(value) else f"{value:.{digits}f}" for value, digits in ((seconds, 1), (us, 0))]
        rows.append((float(np.mean(errors)), [called(method), *cells]))
    return [cells for _, cells in sorted(rows, key=lambda row: row[0])]


def markdown(titles: list[str], rows: list[list[str]], left: int) -> str:
    """A table, all columns but the first few aligned to the right."""
    lines = [titles, ["---"] * left + ["---:"] * (len(titles) - left), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


MEASURED = ["test error, %", "size", "fit, CPU s", "query, CPU µs"]


def documents_table() -> str:
    """R8, beside what others report."""
    published = [[f"published: {name}", f"{error:.1f}", "", "", ""] for name, error in PUBLISHED.items()]
    return markdown(["R8", *MEASURED], rows_of("r8") + published, 1)


def images_table() -> str:
    """Images as clouds and as histograms."""
    rows = [[TITLES[data], *row] for data in TITLES if data != "r8" for row in rows_of(data)]
    return markdown(["data", "method", *MEASURED], rows, 2)


def sentence() -> str:
    """What the page on documents says of R8."""
    found = groups()

    def error(method: str) -> str:
        return f"{np.mean([r['error'] for r in found['r8', method]]):.1f} %"

    counts, means = error("TF-IDF, regression"), error("means of words, regression")
    return (
        "On the news of R8 (5471 texts to learn from, 2187 to tell apart, eight kinds), 16 clouds of 32 points err on\n"
        f"{error('SWC 16')}, TF-IDF and logistic regression on {counts},\n"
        f"and the nearest of all 5471 clouds on {error('clouds, full search')};\n"
        f"means of word vectors and logistic regression err on {means},\n"
        f"and histograms over 128 clusters of words on {error('128 bins, SHC 16')}."
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(METHODS)}; none: all")
    parser.add_argument("--data-dir", default=".", help="the folder of local copies of research data sets")
    parser.add_argument("--only", default="", help="methods whose names begin with one of these, separated by commas")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/clouds.jsonl"))
    args = parser.parse_args()
    if args.command == "run":
        run(args.names, args.data_dir, args.output, args.only)
    for data in TITLES:
        print(markdown([TITLES[data], *MEASURED], rows_of(data, args.output), 1))


if __name__ == "__main__":
    main()
