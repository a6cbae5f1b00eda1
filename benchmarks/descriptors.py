"""Test error of full 1-NN on the image data sets: the figures of docs/notes/figures.md.

    .venv/bin/python benchmarks/descriptors.py --data-dir FOLDER [--only eth80 scene15]

Points are made as the lists below say. Vocabularies and projections are learned from training parts alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedShuffleSplit

from knnpress import datasets
from knnpress.datasets import ImageDataset
from knnpress.descriptors import BagOfWords, RegionCovariance, ShapeContext, SPDProjection
from knnpress.estimators import PrototypeClassifier
from knnpress.geometries import JBLD, Sinkhorn

Splits = list[tuple[np.ndarray, np.ndarray]]


def halves(data: ImageDataset) -> Splits:
    """Five random halves, each with its share of every class."""
    return list(StratifiedShuffleSplit(5, test_size=0.5, random_state=20261116).split(data.y, data.y))


def hundreds(data: ImageDataset) -> Splits:
    """Five draws of 100 images a class to train on, the rest to test on."""
    splits = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        train = np.concatenate([rng.permutation(np.flatnonzero(data.y == k))[:100] for k in np.unique(data.y)])
        splits.append((np.sort(train), np.setdiff1d(np.arange(len(data.y)), train)))
    return splits


def held_out_samples(data: ImageDataset) -> Splits:
    """Each piece of material held out once."""
    return list(data.splits)


@dataclass(frozen=True)
class Case:
    """A data set, how it is read, how its images become points (and in words), and how it is divided."""

    name: str
    load: Callable[..., ImageDataset]
    descriptor: Any
    words: str
    splits: Callable[[ImageDataset], Splits] = halves


CASES = [
    Case("eth80", datasets.load_eth80, RegionCovariance("color-texture"), "covariance, color-texture, masks"),
    Case("coil20", datasets.load_coil20, ShapeContext(), "shape context, 5 x 12 bins"),
    Case("kylberg", datasets.load_kylberg, RegionCovariance("gradient"), "covariance, gradient"),
    Case("kylberg", datasets.load_kylberg, BagOfWords(step=1, random_state=0), "50 words, gradient, step 1"),
    Case("mpeg7", datasets.load_mpeg7, ShapeContext(), "shape context, 5 x 12 bins"),
    Case(
        "kth_tips2b", datasets.load_kth_tips2b, RegionCovariance("gradient"), "covariance, gradient", held_out_samples
    ),
    Case("scene15", datasets.load_scene15, RegionCovariance("sift", shrinkage=0.1), "covariance, sift", hundreds),
]
PROJECTION = SPDProjection(n_dims=40, n_within=5, n_between=4, max_iter=20)


def points(case: Case, data: ImageDataset) -> Iterator[tuple[Any, ...]]:
    """Of each split the training and test points with their classes, and the ground cost of histograms."""
    learns = isinstance(case.descriptor, BagOfWords)
    X = None if learns else case.descriptor.fit_transform(data.images)
    for train, test in case.splits(data):
        descriptor = case.descriptor
        if learns:
            descriptor = clone(descriptor).fit([data.images[k] for k in train])
            X = descriptor.transform(data.images)
        assert X is not None
        yield X[train], data.y[train], X[test], data.y[test], getattr(descriptor, "ground_cost_", None)


def error(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, cost: np.ndarray | None) -> float:
    """Of 1-NN with all training points, in per cent."""
    geometry = JBLD() if cost is None else Sinkhorn(cost)
    return 100 * (1 - float(PrototypeClassifier(geometry).fit(X, y).score(X_test, y_test)))


def projections(X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Ways to make matrices smaller, (d, r) each: learned, and for comparison."""
    d, r = X.shape[1], PROJECTION.n_dims
    drawn = np.random.default_rng(0).normal(size=(d, r))
    return {
        "as they are": np.eye(d),
        f"{r} random directions": np.linalg.qr(drawn)[0],
        f"{r} principal components of the mean": np.linalg.eigh(X.mean(axis=0))[1][:, -r:],
        repr(PROJECTION): clone(PROJECTION).fit(X, y).components_,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where the data sets are (default: $KNNPRESS_DATA)")
    parser.add_argument("--only", nargs="+", choices=sorted({case.name for case in CASES}))
    args = parser.parse_args()
    print("| data | points | distance | error in %, mean ± std | splits | seconds |")
    print("| --- | --- | --- | ---: | --- | ---: |")
    for case in CASES:
        if args.only and case.name not in args.only:
            continue
        start = time.perf_counter()
        data = case.load(args.data_dir)
        errors: dict[str, list[float]] = {}
        for X, y, X_test, y_test, cost in points(case, data):
            ways = projections(X, y) if case.name == "scene15" else {"": None}
            for way, U in ways.items():
                smaller = (X, X_test) if U is None else (U.T @ X @ U, U.T @ X_test @ U)
                errors.setdefault(way, []).append(error(smaller[0], y, smaller[1], y_test, cost))
        distance = "JBLD" if cost is None else "Sinkhorn"
        for way, found in errors.items():
            made = f"{case.words}; {way}" if way else case.words
            figures = f"{np.mean(found):.2f} ± {np.std(found):.2f} | {', '.join(f'{e:.2f}' for e in found)}"
            print(f"| {case.name} | {made} | {distance} | {figures} | {time.perf_counter() - start:.0f} |", flush=True)


if __name__ == "__main__":
    main()
