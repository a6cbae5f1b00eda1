"""Models, and what they are asked about."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from knnpress import descriptors
from knnpress.cli.pictures import describe, find_pictures
from knnpress.datasets import load_points, load_unlabelled
from knnpress.datasets.points import read_array
from knnpress.estimators import DescriptorClassifier
from knnpress.exceptions import ModelFileError
from knnpress.model_file import load
from knnpress.names import DESCRIPTORS, POINT_FILES
from knnpress.typing import Array, Labels

__all__ = ["Model", "Queries", "open_model", "read_points", "read_queries", "split_model"]


@dataclass(frozen=True)
class Model:
    """A model and its file: descriptors in order, if it has any, and the classifier of what they give."""

    path: Path
    descriptors: list[Any]
    classifier: Any

    @property
    def takes_images(self) -> bool:
        """Whether it was made from images."""
        kinds = tuple(getattr(descriptors, kind) for kind, _ in DESCRIPTORS.values())
        return bool(self.descriptors) and isinstance(self.descriptors[0], kinds)


@dataclass(frozen=True)
class Queries:
    """Points for a classifier, what the user calls them, their classes if known, and the seconds to get them."""

    X: Array
    items: list[str]
    labels: Labels | None
    seconds: float


def split_model(model: Any) -> list[Any]:
    """The steps of a model, the classifier last."""
    if isinstance(model, DescriptorClassifier):
        return [*model.descriptors_, model.classifier_]
    return [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]


def open_model(path: Path, n_jobs: int | None) -> Model:
    """Read a classifier that `knnpress.save` wrote."""
    steps = split_model(load(path))
    if not hasattr(steps[-1], "predict_proba"):
        raise ModelFileError(f"{path} holds a {type(steps[-1]).__name__}, which does not classify; give a classifier")
    for step in steps:
        if "n_jobs" in step.get_params(deep=False):
            step.set_params(n_jobs=n_jobs)
    return Model(path, steps[:-1], steps[-1])


def read_queries(model: Model, args: argparse.Namespace, labelled: bool) -> Queries:
    """The points that a model is asked about; with their classes, if they must be known."""
    paths = list(args.inputs)
    files = [path for path in paths if path.suffix in POINT_FILES and not path.is_dir()]
    if model.takes_images and files:
        raise ValueError(f"{model.path} was made from images, and {files[0]} holds points; give a folder or images")
    if not model.takes_images and len(files) < len(paths):
        raise ValueError(
            f"{model.path} was made from points; give a .npz, .npy or .mat file (knnpress describe makes one of images)"
        )
    if len(files) > 1:
        raise ValueError(f"{files[0]} and {files[1]} cannot be taken together; give one file of points")
    start = time.perf_counter()
    X, items, labels = _read_points(files[0], args, labelled) if files else _read_images(model, args, labelled)
    X = _describe_further(model, X, files[0] if files else None, args.groups)
    return Queries(X, items, labels, time.perf_counter() - start)


def _describe_further(model: Model, X: Array, path: Path | None, name: str | None) -> Array:
    """What the descriptors make of points, or of what the first one has made of images."""
    steps = model.descriptors[1:] if model.takes_images else model.descriptors
    by_group = [step for step in steps if "groups" in signature(step.transform).parameters]
    known = [step for step in by_group if step.groups_ is not None]
    if name is None and known:
        raise ValueError(
            f"{model.path} re-centres groups by name, e.g. {known[0].groups_[0]!s}; say --groups, a name for all "
            "points, or an array of the file with one for each"
        )
    if name is not None and not by_group:
        raise ValueError(f"{model.path} does not re-centre; leave out --groups")
    for step in steps:
        told = name is not None and step in by_group
        X = step.transform(X, _groups(step, path, str(name))) if told else step.transform(X)
    return X


def _groups(step: Any, path: Path | None, name: str) -> Any:
    """An array of the file of points, or one name for all, as a number where a step knows numbers."""
    array = None if path is None else read_array(path, name)
    if array is not None:
        return array
    if step.groups_ is None or step.groups_.dtype.kind not in "iuf":
        return name
    try:
        return float(name) if step.groups_.dtype.kind == "f" else int(name)
    except ValueError:
        where = "" if path is None else f", nor is it an array of {path}"
        raise ValueError(f"--groups is {name!r}, which is no number as are the groups of the model{where}") from None


def read_points(model: Model, path: Path, groups: str | None) -> Array:
    """Points of a file, as the classifier is given them."""
    if model.takes_images:
        raise ValueError(f"{model.path} was made from images, and {path} holds points; knnpress describe makes others")
    return _describe_further(model, load_unlabelled(path), path, groups)


def _read_images(model: Model, args: argparse.Namespace, labelled: bool) -> tuple[Array, list[str], Labels | None]:
    if labelled and args.labels is not None:
        raise ValueError("--labels is for points; the class of an image is the sub-folder that it is in")
    pictures = find_pictures(args.inputs, args.masks, args.depth)
    chosen = [k for k, folder in enumerate(pictures.folders) if folder is not None or not labelled]
    if not chosen:
        raise ValueError(f"{args.inputs[0]} has no sub-folders to tell the classes; expected <class>/<name>.png")
    images = [pictures.files[k] for k in chosen]
    X, rows = describe(model.descriptors[0], images, fit=False, skip_bad=args.skip_bad, shown=args.shown)
    kept = [chosen[row] for row in rows]
    labels = np.array([pictures.folders[k] for k in kept]) if labelled else None
    return X, [pictures.items[k] for k in kept], labels


def _read_points(path: Path, args: argparse.Namespace, labelled: bool) -> tuple[Array, list[str], Labels | None]:
    labels = None
    if labelled:
        data = load_points(path, args.labels)
        X, labels = data.X, np.array(data.class_names)[data.y]
    else:
        X = load_unlabelled(path)
    return X, [str(row) for row in range(len(X))], labels
