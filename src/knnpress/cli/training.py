"""From what the user names to a model: for ``compress`` and ``tune``."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from knnpress import compression, estimators
from knnpress.cli.choices import CONDENSING, LEARNED, METHODS
from knnpress.cli.output import print_facts
from knnpress.cli.pictures import describe, make_descriptor
from knnpress.clouds import Clouds
from knnpress.datasets import load_image_folder, load_points, open_zarr
from knnpress.datasets.stored import is_zarr
from knnpress.estimators import DescriptorClassifier, PrototypeClassifier
from knnpress.geometries import JBLD, CloudSinkhorn, Geometry, Sinkhorn, SquaredEuclidean
from knnpress.model_file import save
from knnpress.typing import Array, Labels

__all__ = ["TrainingSet", "fit_and_save", "make_classifier", "read_training_set"]

_RATIO = 0.02


@dataclass(frozen=True)
class TrainingSet:
    """Points, the names of their classes, and the fitted descriptor that made them, if one did."""

    X: Any
    y: Labels
    ground_cost: Array | None
    descriptor: Any
    seconds: float


def read_training_set(args: argparse.Namespace) -> TrainingSet:
    """The points of a file, or of the images of a folder."""
    start = time.perf_counter()
    if not args.input.exists():
        raise FileNotFoundError(f"{args.input} is not there; give a folder of images, or a file of points")
    if is_zarr(args.input):
        return _read_store(args, start)
    if getattr(args, "scheduler", None) is not None:
        raise ValueError(f"--scheduler is for zarr stores, which workers can read; {args.input} is none")
    if not args.input.is_dir():
        if args.descriptor is not None:
            raise ValueError(f"{args.input} holds points, which need no --descriptor; it is for folders of images")
        data = load_points(args.input, args.labels)
        names = np.array(data.class_names)[data.y]
        return TrainingSet(data.X, names, data.ground_cost, None, time.perf_counter() - start)
    if args.labels is not None:
        raise ValueError("--labels is for points; the class of an image is the sub-folder that it is in")
    folder = load_image_folder(args.input, masks=args.masks, depth=args.depth)
    descriptor = make_descriptor(args.descriptor or "color-texture", args.seed, args.jobs)
    X, rows = describe(descriptor, list(folder.images), fit=True, skip_bad=args.skip_bad, shown=args.shown)
    names = np.array(folder.class_names)[folder.y[rows]]
    cost = getattr(descriptor, "ground_cost_", None)
    return TrainingSet(X, names, cost, descriptor, time.perf_counter() - start)


def _read_store(args: argparse.Namespace, start: float) -> TrainingSet:
    """The points of a zarr store, which stay there for what can learn from them there."""
    if args.descriptor is not None or args.labels is not None:
        raise ValueError(f"{args.input} holds points and labels, which need no --descriptor and no --labels")
    data = open_zarr(args.input)
    X: Any = data.X
    if getattr(args, "scheduler", None) is not None:
        if args.method not in (None, *LEARNED):
            raise ValueError(f"--scheduler is for {', '.join(LEARNED)}; {args.method} needs all points in memory")
        X = import_module("dask.array").from_zarr(X)
    elif args.command != "compress" or args.auto or args.method not in (None, *LEARNED):
        X = X[:]
    return TrainingSet(X, np.array(data.class_names)[data.y], data.ground_cost, None, time.perf_counter() - start)


def make_classifier(args: argparse.Namespace, data: TrainingSet) -> Any:
    """The classifier that was asked for, or that suits the points; not fitted."""
    clouds, matrices = isinstance(data.X, Clouds), len(data.X.shape) == 3
    flat_method = "snc" if data.ground_cost is None else "shc"
    method = args.method or ("swc" if clouds else "scc" if matrices else flat_method)
    if method in LEARNED and (matrices, clouds) != (method == "scc", method == "swc"):
        kind = "clouds" if clouds else "matrices" if matrices else "vectors or histograms"
        raise ValueError(f"the points are {kind}, which {METHODS[method]} cannot learn; leave out --method {method}")
    if method == "shc" and data.ground_cost is None:
        raise ValueError(f"{args.input} has no ground cost, which SHC needs; add the array ground_cost, or use snc")
    size: Any = "auto" if args.auto else args.prototypes or args.ratio
    if size is None and method not in CONDENSING:
        size = _RATIO
    settings = {"random_state": args.seed, "n_jobs": args.jobs, "verbose": int(args.shown)}
    if method in LEARNED:
        cost = {"ground_cost": data.ground_cost} if method == "shc" else {}
        return getattr(estimators, METHODS[method])(n_prototypes=size, **cost, **settings)
    compressor = getattr(compression, METHODS[method])()
    if clouds:
        if method == "lvq":
            raise ValueError("--method lvq is not for clouds; use swc, which learns them")
        compressor = compression.CloudCentroids() if method == "centroids" else compressor
        return PrototypeClassifier(CloudSinkhorn(), compressor, n_prototypes=size, **settings)
    flat: Geometry = SquaredEuclidean() if data.ground_cost is None else Sinkhorn(data.ground_cost)
    return PrototypeClassifier(JBLD() if matrices else flat, compressor, n_prototypes=size, **settings)


def fit_and_save(classifier: Any, data: TrainingSet, path: Path) -> None:
    """Fit the classifier, write it with its descriptor to a file, and print what came of it."""
    start = time.perf_counter()
    classifier.fit(data.X, data.y)
    seconds = data.seconds + time.perf_counter() - start
    error = float(np.mean(classifier.predict(data.X) != data.y))
    classifier.set_params(n_jobs=None, verbose=0)  # they belong to this run
    model = classifier
    if data.descriptor is not None:
        model = _described(data.descriptor.set_params(n_jobs=None), classifier)
    save(model, path)
    size = path.stat().st_size
    print_facts(
        {
            "model": str(path),
            "prototypes": f"{len(classifier.prototypes_)} of {len(data.y)} points",
            "ratio": f"{classifier.compression_ratio_:.2%}",
            "training error": f"{error:.2%}",
            "seconds": f"{seconds:.1f}",
            "file size": f"{size / 1000:.1f} KB",
        }
    )


def _described(descriptor: Any, classifier: Any) -> DescriptorClassifier:
    """Fitted parts as one model: what its own `fit` would make, without describing the images again."""
    plain = clone(classifier)
    costs = [name for name in plain.get_params() if name.split("__")[-1] == "ground_cost"]
    model = DescriptorClassifier(clone(descriptor), plain.set_params(**dict.fromkeys(costs)))
    model.descriptors_, model.classifier_ = [descriptor], classifier
    return model
