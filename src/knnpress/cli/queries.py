"""Models, and the points that they are to classify."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from knnpress.cli.pictures import describe, find_pictures
from knnpress.cli.texts import read_texts, takes_texts
from knnpress.datasets import load_points, load_unlabelled
from knnpress.datasets.points import read_array
from knnpress.estimators import DescriptorClassifier
from knnpress.estimators.described import as_described
from knnpress.exceptions import ModelFileError
from knnpress.geometries import CloudSinkhorn
from knnpress.model_file import load
from knnpress.names import POINT_FILES
from knnpress.typing import Array, Labels


@dataclass(frozen=True)
class Queries:
    """Points for a classifier, what the user calls them, their classes if known, and the seconds to get them."""

    X: Array
    items: list[str]
    labels: Labels | None
    seconds: float


def load_model(path: Path) -> Any:
    """What `knnpress.save` wrote; says so where a folder or points are given in its place."""
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder; give a model, the file that knnpress compress wrote")
    try:
        return load(path)
    except ModelFileError as error:
        if path.suffix not in POINT_FILES:
            raise
        raise ModelFileError(f"{path} holds points, and is not a model; knnpress compress makes one of them") from error


def open_model(path: Path, n_jobs: int | None) -> DescriptorClassifier:
    """Read a classifier that `knnpress.save` wrote; one without descriptors has an empty list of them."""
    model = as_described(load_model(path))
    if not hasattr(model.classifier_, "predict_proba"):
        kind = type(model.classifier_).__name__
        raise ModelFileError(f"{path} holds a {kind}, which does not classify; give a classifier")
    for step in (*model.descriptors_, model.classifier_):
        if "n_jobs" in step.get_params(deep=False):
            step.set_params(n_jobs=n_jobs)
    return model


def read_queries(model: DescriptorClassifier, args: argparse.Namespace, labelled: bool) -> Queries:
    """The points that a model is asked about; with their classes, if they must be known."""
    paths = list(args.inputs)
    if takes_texts(model):
        return _read_documents(model, args, labelled)
    files = [path for path in paths if path.suffix in POINT_FILES and not path.is_dir()]
    if model.takes_images and files:
        raise ValueError(f"{args.model} was made from images, and {files[0]} holds points; give a folder or images")
    if not model.takes_images and len(files) < len(paths):
        raise ValueError(
            f"{args.model} was made from points; give a .npz, .npy or .mat file (knnpress describe makes one of images)"
        )
    if len(files) > 1:
        raise ValueError(f"{files[0]} and {files[1]} cannot be taken together; give one file of points")
    start = time.perf_counter()
    X, items, labels = _read_points(files[0], args, labelled) if files else _read_images(model, args, labelled)
    X = _describe(model, X, args.model, files[0] if files else None, args.groups)
    return Queries(X, items, labels, time.perf_counter() - start)


def _read_documents(model: DescriptorClassifier, args: argparse.Namespace, labelled: bool) -> Queries:
    start = time.perf_counter()
    if labelled and args.labels is not None:
        raise ValueError("--labels is for points; the class of a text is the sub-folder that it is in")
    texts = read_texts(args.inputs, labelled, model.descriptors_[0], args.model, args.skip_bad)
    X = model.describe([text.words for text in texts])
    labels = np.array([text.folder for text in texts]) if labelled else None
    return Queries(X, [text.item for text in texts], labels, time.perf_counter() - start)


def read_points(model: DescriptorClassifier, path: Path, model_path: Path, groups: str | None) -> Array:
    """Points of a file, as the classifier is given them."""
    if model.takes_images:
        raise ValueError(f"{model_path} was made from images, and {path} holds points; knnpress describe makes others")
    return _describe(model, load_unlabelled(path), model_path, path, groups)


def _describe(model: DescriptorClassifier, X: Array, model_path: Path, path: Path | None, name: str | None) -> Array:
    """What the descriptors make of points, or of what the first one has made of images."""
    if name is None and model.known_groups is not None:
        raise ValueError(
            f"{model_path} re-centres groups by name, e.g. {model.known_groups[0]!s}; say --groups, a name for all "
            "points, or an array of the file with one for each"
        )
    if name is not None and not model.takes_groups:
        raise ValueError(f"{model_path} does not re-centre; leave out --groups")
    if path is not None:
        _check_shape(model, X, model_path, path)
    groups = None if name is None else _groups(model.known_groups, path, name)
    return model.describe(X, groups=groups, after=int(model.takes_images))


def _check_shape(model: DescriptorClassifier, X: Any, model_path: Path, path: Path) -> None:
    """Refuse points of another shape than the prototypes', where nothing comes between them."""
    prototypes = getattr(model.classifier_, "prototypes_", None)
    if model.descriptors_ or not isinstance(X, np.ndarray) or not isinstance(prototypes, np.ndarray):
        return
    if isinstance(getattr(model.classifier_, "geometry_", None), CloudSinkhorn) or X.shape[1:] == prototypes.shape[1:]:
        return
    here, wanted = (" x ".join(map(str, shape)) for shape in (X.shape[1:], prototypes.shape[1:]))
    raise ValueError(f"{path} holds points of {here} numbers, and {model_path} takes points of {wanted} numbers")


def _groups(known: Labels | None, path: Path | None, name: str) -> Any:
    """An array of the file of points, or one name for all, as a number where the model knows numbers."""
    array = None if path is None else read_array(path, name)
    if array is not None:
        return array
    if known is None or known.dtype.kind not in "iuf":
        return name
    try:
        return float(name) if known.dtype.kind == "f" else int(name)
    except ValueError:
        where = "" if path is None else f", nor is it an array of {path}"
        raise ValueError(
            f"--groups is {name!r}, which is not a number, as the groups of the model are{where}"
        ) from None


def _read_images(
    model: DescriptorClassifier, args: argparse.Namespace, labelled: bool
) -> tuple[Array, list[str], Labels | None]:
    if labelled and args.labels is not None:
        raise ValueError("--labels is for points; the class of an image is the sub-folder that it is in")
    pictures = find_pictures(args.inputs, args.masks, args.depth)
    chosen = [k for k, folder in enumerate(pictures.folders) if folder is not None or not labelled]
    if not chosen:
        raise ValueError(f"{args.inputs[0]} has no sub-folders to tell the classes; expected <class>/<name>.png")
    images = [pictures.files[k] for k in chosen]
    X, rows = describe(model.descriptors_[0], images, fit=False, skip_bad=args.skip_bad, shown=args.shown)
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
