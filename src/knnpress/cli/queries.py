"""Models, and what they are asked about."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from knnpress import descriptors
from knnpress.cli.choices import DESCRIPTORS, POINT_FILES
from knnpress.cli.pictures import describe, find_pictures
from knnpress.datasets import load_points, load_unlabelled
from knnpress.estimators import DescriptorClassifier
from knnpress.exceptions import ModelFileError
from knnpress.model_file import load
from knnpress.typing import Array, Labels

__all__ = ["Model", "Queries", "open_model", "read_queries", "split_model"]


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
    for step in model.descriptors[1:] if model.takes_images else model.descriptors:
        X = step.transform(X)
    return Queries(X, items, labels, time.perf_counter() - start)


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
