"""What a report shows of one fitted model besides figures: its prototypes, a map, its errors and suspects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import zoom
from sklearn.decomposition import PCA
from sklearn.metrics import confusion_matrix

from knnpress.descriptors import ImageFile
from knnpress.experiments.study import Cell
from knnpress.experiments.tasks import Task, Tasks
from knnpress.files import file_stem, replacing
from knnpress.model_file import save
from knnpress.typing import Array, Indices

_SIDE = 64  # pixels of a thumbnail
_SUSPECTS, _MONTAGE, _PROTOTYPES = 12, 40, 60


def write_exhibit(folder: Path, cell: Cell, task: Task, classifier: Any, tasks: Tasks) -> None:
    """Write `folder`/<data>.npz and .json from a fitted learned classifier; the name as `file_stem` spells it.

    Where a point can be drawn by hand, the model itself is written too, as `folder`/<data>.knnp.
    """
    shown = _spread(classifier.prototype_labels_)
    prototypes, labels = classifier.prototypes_[shown], classifier.prototype_labels_[shown]
    D = classifier.transform(task.X)[:, shown]
    D[task.y[:, None] != labels] = np.inf  # the nearest of its own class
    nearest = np.where(np.isfinite(D.min(axis=0)), D.argmin(axis=0), 0)
    p = classifier.predict_proba(task.X)[np.arange(len(task.y)), np.searchsorted(classifier.classes_, task.y)]
    losses = -np.log(np.maximum(p, 1e-300))
    suspects = np.argsort(-losses, kind="stable")[:_SUSPECTS]
    n_classes = int(max(task.y.max(), task.y_test.max())) + 1
    flat = _flat(np.concatenate([task.X, classifier.prototypes_]))
    plane = PCA(2, random_state=0).fit(flat[: len(task.X)]).transform(flat)
    montage = np.sort(np.random.default_rng(0).permutation(len(task.y))[:_MONTAGE])
    montage = montage[np.argsort(task.y[montage], kind="stable")]
    arrays = {
        "prototypes": prototypes,
        "prototype_labels": labels,
        "map_train": plane[: len(task.X)].astype(np.float32),
        "map_labels": task.y,
        "map_prototypes": plane[len(task.X) :].astype(np.float32),
        "map_prototype_labels": classifier.prototype_labels_,
        "confusion": confusion_matrix(task.y_test, classifier.predict(task.X_test), labels=np.arange(n_classes)),
        "suspects_row": task.rows[suspects],
        "suspects_label": task.y[suspects],
        "suspects_predicted": classifier.predict(task.X[suspects]),
        "suspects_loss": losses[suspects],
        "montage_labels": task.y[montage],
    }
    drawable = cell.study.source == "digits-histograms"
    if drawable:
        arrays["grid"] = np.array([8, 8])
    for name, rows in {"nearest_images": nearest, "suspects_images": suspects, "montage": montage}.items():
        pictures = tasks.pictures(cell.study, task.rows[rows])
        if len(pictures):
            arrays[name] = np.stack([_thumbnail(picture) for picture in pictures])
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(cell.study.data)
    with replacing(folder / f"{stem}.npz") as out:
        np.savez_compressed(out, **arrays)
    if drawable:
        save(classifier, folder / f"{stem}.knnp")  # the page answers drawings with it
    how = "principal components of the " + ("whitened matrix logarithms" if task.X.ndim == 3 else "root histograms")
    with replacing(folder / f"{stem}.json") as out:
        out.write(json.dumps({"method": cell.method, "ratio": cell.ratio, "map": how}).encode())


def _spread(labels: Array) -> Indices:
    """Rows of prototypes to show: all, or as many of each class as there is room for."""
    if len(labels) <= _PROTOTYPES:
        return np.argsort(labels, kind="stable")
    each = max(1, _PROTOTYPES // len(np.unique(labels)))
    return np.concatenate([np.flatnonzero(labels == c)[:each] for c in np.unique(labels)])[:_PROTOTYPES]


def _flat(X: Array) -> Array:
    """Points as vectors that a flat map can show."""
    if X.ndim == 2:
        return np.sqrt(X / X.sum(axis=1, keepdims=True))
    values, vectors = np.linalg.eigh(X.mean(axis=0))
    white = vectors / np.sqrt(values)
    values, vectors = np.linalg.eigh(white.T @ X @ white)
    return ((vectors * np.log(values)[:, None, :]) @ vectors.transpose(0, 2, 1)).reshape(len(X), -1)


def _thumbnail(picture: Any) -> Array:
    """The picture as uint8 (side, side, 3), at its own proportions on white; so are transparent pixels."""
    pixels = np.asarray(picture.read() if isinstance(picture, ImageFile) else picture)
    top = {"b": 1.0, "u": float(np.iinfo(pixels.dtype).max) if pixels.dtype.kind == "u" else 1.0}
    bright = pixels.astype(np.float64) / top.get(pixels.dtype.kind, 1.0)
    bright = bright[..., None] if bright.ndim == 2 else bright
    opaque = bright[..., -1:] if bright.shape[-1] in (2, 4) else np.ones_like(bright[..., :1])
    color = np.broadcast_to(bright[..., :1] if bright.shape[-1] < 3 else bright[..., :3], (*bright.shape[:2], 3))
    color = color * opaque + 1.0 - opaque
    scale = _SIDE / max(color.shape[:2])
    small = zoom(color, (scale, scale, 1), order=1 if scale < 1 else 0, grid_mode=True, mode="nearest")[:_SIDE, :_SIDE]
    thumbnail = np.full((_SIDE, _SIDE, 3), 255, dtype=np.uint8)
    top_row, left = (_SIDE - small.shape[0]) // 2, (_SIDE - small.shape[1]) // 2
    thumbnail[top_row : top_row + small.shape[0], left : left + small.shape[1]] = np.clip(255 * small + 0.5, 0, 255)
    return thumbnail
