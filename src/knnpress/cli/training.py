"""From what the user names to a model: for ``compress`` and ``tune``."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from knnpress import compression, estimators
from knnpress.cli.held_out import held_out_facts
from knnpress.cli.output import print_facts
from knnpress.cli.pictures import describe, usual_descriptor
from knnpress.clouds import Clouds, StoredClouds
from knnpress.datasets import ImageDataset, load_groups, load_image_folder, load_points, open_zarr
from knnpress.datasets.stored import is_zarr
from knnpress.descriptors import Recenter
from knnpress.descriptors.by_name import make_descriptor
from knnpress.estimators import PrototypeClassifier
from knnpress.estimators.described import joined
from knnpress.geometries import CloudSinkhorn, Geometry, Sinkhorn, as_geometry, geometry_name
from knnpress.model_file import save
from knnpress.names import CONDENSING, LEARNED, METHODS, METRICS
from knnpress.typing import Array, Labels

PARENT_FOLDER = "parent-folder"
_RATIO = 0.02


@dataclass(frozen=True)
class TrainingSet:
    """Points, the names of their classes, the fitted descriptor that made them, if one did, and groups, if given.

    `described_by` says which descriptor that is, and why where the user did not choose it.
    """

    X: Any
    y: Labels
    ground_cost: Array | None
    descriptor: Any
    seconds: float
    groups: Labels | None = None
    described_by: str = ""


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
        groups = read_groups(args)
        if getattr(args, "recenter", False):
            return _recentered(args, data.X, names, groups, start)
        return TrainingSet(data.X, names, data.ground_cost, None, time.perf_counter() - start, groups)
    if args.labels is not None:
        raise ValueError("--labels is for points; the class of an image is the sub-folder that it is in")
    if getattr(args, "recenter", False):
        raise ValueError(f"--recenter is for a file of covariance matrices; {args.input} is a folder of images")
    folder = load_image_folder(args.input, masks=args.masks, depth=args.depth)
    name = args.descriptor or usual_descriptor(folder.images)
    described_by = name if args.descriptor else f"{name}, the default here; knnpress compare finds what suits best"
    descriptor = make_descriptor(name, args.seed, args.jobs)
    X, rows = describe(descriptor, list(folder.images), fit=True, skip_bad=args.skip_bad, shown=args.shown)
    names = np.array(folder.class_names)[folder.y[rows]]
    cost, groups = getattr(descriptor, "ground_cost_", None), read_groups(args, folder)
    groups = None if groups is None else groups[rows]
    return TrainingSet(X, names, cost, descriptor, time.perf_counter() - start, groups, described_by)


def _recentered(args: argparse.Namespace, X: Any, names: Labels, groups: Labels | None, start: float) -> TrainingSet:
    """Matrices of which each group was re-centred by its own mean."""
    if isinstance(X, Clouds) or X.ndim != 3:
        raise ValueError(f"--recenter is for covariance matrices; {args.input} holds {_kind_of_points(X)}")
    if groups is None:
        raise ValueError("--recenter brings the mean of each group to the identity; say which with --groups NAME")
    descriptor = Recenter(n_jobs=args.jobs)
    X = descriptor.fit_transform(X, groups=groups)
    said = f"re-centred by {args.groups}: {len(np.unique(groups))} groups"
    return TrainingSet(X, names, None, descriptor, time.perf_counter() - start, groups, said)


def _kind_of_points(X: Any) -> str:
    return (
        "clouds"
        if isinstance(X, (Clouds, StoredClouds))
        else "matrices"
        if len(X.shape) == 3
        else "vectors or histograms"
    )


def read_groups(args: argparse.Namespace, folder: ImageDataset | None = None) -> Labels | None:
    """What --groups names: an array or a column beside points; for images, the folder that each is in."""
    column = getattr(args, "groups", None)
    if column is None:
        return None
    if folder is None:
        return load_groups(args.input, column, args.labels)
    if column != PARENT_FOLDER:
        raise ValueError(
            f"--groups {column}: images are grouped by the folder that they are in; lay them out as "
            f"<class>/<group>/<name>.png and give --groups {PARENT_FOLDER}"
        )
    groups = folder.groups["folder"]
    if len(np.unique(groups)) == len(folder.class_names):
        raise ValueError(
            f"--groups {PARENT_FOLDER}: each class of {args.input} is one folder, which cannot be held out; lay images "
            "out as <class>/<group>/<name>.png"
        )
    return groups


def _read_store(args: argparse.Namespace, start: float) -> TrainingSet:
    """The points of a zarr store, which stay there for what can learn from them there."""
    for option in ("groups", "recenter"):
        if getattr(args, option, None):
            raise ValueError(f"{args.input} is a zarr store, for which there is no --{option}; give a .npz file")
    if args.descriptor is not None or args.labels is not None:
        raise ValueError(f"{args.input} holds points and labels, which need no --descriptor and no --labels")
    data = open_zarr(args.input)
    X: Any = data.X
    if getattr(args, "scheduler", None) is not None:
        if args.method not in (None, *LEARNED):
            raise ValueError(f"--scheduler is for {', '.join(LEARNED)}; {args.method} needs all points in memory")
        from_zarr = import_module("dask.array").from_zarr
        X = StoredClouds(from_zarr(X.points), X.offsets, X.weights) if isinstance(X, StoredClouds) else from_zarr(X)
    elif args.command != "compress" or args.auto or args.method not in (None, *LEARNED):
        X = X[:]
    return TrainingSet(X, np.array(data.class_names)[data.y], data.ground_cost, None, time.perf_counter() - start)


def make_classifier(args: argparse.Namespace, data: TrainingSet) -> Any:
    """The classifier that was asked for, or that suits the points; not fitted."""
    clouds, matrices = isinstance(data.X, (Clouds, StoredClouds)), len(data.X.shape) == 3
    kind = _kind_of_points(data.X)
    metric = getattr(args, "metric", None)
    flat_method = "snc" if data.ground_cost is None else "shc"
    method = args.method or ("swc" if clouds else "scc" if matrices else flat_method)
    if metric is not None:
        suited = [name for name, learner in METRICS.items() if (learner == "scc") == matrices and not clouds]
        if metric not in suited:
            choices = f"choose {', '.join(suited)}" if suited else "leave it out"
            raise ValueError(f"the points are {kind}, and --metric {metric} is for others; {choices}")
        method = args.method or METRICS[metric]
    if method in LEARNED and (matrices, clouds) != (method == "scc", method == "swc"):
        raise ValueError(f"the points are {kind}, which {METHODS[method]} cannot learn; leave out --method {method}")
    if metric is not None and method in LEARNED and METRICS[metric] != method:
        suited = [name for name, learner in METRICS.items() if learner == method]
        raise ValueError(f"{METHODS[method]} does not learn under {metric}; choose --metric {' or '.join(suited)}")
    needs_cost = metric == "sinkhorn" or (method == "shc" and metric is None)
    if needs_cost and data.ground_cost is None:
        raise ValueError(f"{args.input} has no ground cost, which SHC needs; add the array ground_cost, or use snc")
    size: Any = "auto" if args.auto else args.prototypes or args.ratio
    if size is None and method not in CONDENSING:
        size = _RATIO
    settings = {"random_state": args.seed, "n_jobs": args.jobs, "verbose": int(args.shown)}
    if method in LEARNED:
        own: dict[str, Any] = {"ground_cost": data.ground_cost} if method == "shc" else {}
        own |= {"metric": metric} if metric is not None and method != "snc" else {}
        return getattr(estimators, METHODS[method])(n_prototypes=size, **own, **settings)
    compressor = getattr(compression, METHODS[method])()
    if clouds and method == "lvq":
        raise ValueError("--method lvq is not for clouds; use swc, which learns them")
    if clouds and method == "centroids":
        compressor = compression.CloudCentroids()
    return PrototypeClassifier(_geometry(metric, data), compressor, n_prototypes=size, **settings)


def _geometry(metric: str | None, data: TrainingSet) -> Geometry:
    """The geometry of a metric; without one, what suits the points."""
    if isinstance(data.X, (Clouds, StoredClouds)):
        return CloudSinkhorn()
    if metric is None:
        metric = "jbld" if data.X.ndim == 3 else "euclidean" if data.ground_cost is None else "sinkhorn"
    if metric == "sinkhorn":
        return Sinkhorn(data.ground_cost)
    return as_geometry({"euclidean": "sqeuclidean"}.get(metric, metric))


def fit_and_save(classifier: Any, data: TrainingSet, path: Path) -> None:
    """Fit the classifier, write it with its descriptor to a file, and print what came of it."""
    start = time.perf_counter()
    classifier.fit(data.X, data.y, **({} if data.groups is None else {"groups": data.groups}))
    seconds = data.seconds + time.perf_counter() - start
    error = float(np.mean(classifier.predict(data.X) != data.y))
    seed = classifier.random_state
    said = held_out_facts(classifier, _rival_geometry(classifier, data), data.X, data.y, data.groups, seed)
    classifier.set_params(n_jobs=None, verbose=0)  # they belong to this run
    model = classifier
    if data.descriptor is not None:
        model = joined(data.descriptor.set_params(n_jobs=None), classifier)
    save(model, path)
    size = path.stat().st_size
    print_facts(
        {
            "model": str(path),
            **({"descriptor": data.described_by} if data.described_by else {}),
            "prototypes": f"{len(classifier.prototypes_)} of {len(data.y)} points",
            "ratio": f"{classifier.compression_ratio_:.2%}",
            **said,
            "training error": f"{error:.2%}",
            "seconds": f"{seconds:.1f}",
            "file size": f"{size / 1000:.1f} KB",
        }
    )


def _rival_geometry(classifier: Any, data: TrainingSet) -> Geometry:
    """That of the model, not fitted."""
    name = geometry_name(classifier.geometry_)
    return _geometry({"sqeuclidean": "euclidean"}.get(name, name), data)
