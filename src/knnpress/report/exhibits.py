"""What there is to see of a data set, with everything that does not fit left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knnpress.pictures import correlation, heat, image, shades
from knnpress.report.read import Exhibit
from knnpress.typing import Array

_MAX_PICTURES, _MAX_IMAGES = 100, 24
_MAP, _EDGE = 560, 16  # pixels of the map and of its edge


@dataclass(frozen=True)
class Gallery:
    """Learned prototypes, class by class.

    Attributes
    ----------
    kind : {"picture", "bars", "correlation"}
    prototypes : list of array
        Pixels (h, w[, 3]), or heights (d,) of bars.
    labels : list of int
    nearest : list of (array or None)
        The training image nearest to each.
    total : int
        Prototypes that there are; some may not be shown.
    """

    kind: str
    prototypes: list[Array]
    labels: list[int]
    nearest: list[Array | None]
    total: int

    @property
    def has_nearest(self) -> bool:
        """Whether there are images of the data."""
        return any(picture is not None for picture in self.nearest)


@dataclass(frozen=True)
class MapClass:
    """One class on the map: its training points as a path of dots, and where its prototypes are."""

    label: int
    colour: str
    dots: str
    discs: list[tuple[str, str]]


@dataclass(frozen=True)
class MapView:
    """The training set and the prototypes in a square of `size` pixels."""

    size: int
    n_points: int
    n_prototypes: int
    classes: list[MapClass]


@dataclass(frozen=True)
class Suspects:
    """Training points whose labels are doubtful: row, label, what ours says, −log p of the label, and the image."""

    rows: list[int]
    labels: list[int]
    predicted: list[int]
    losses: list[float]
    images: list[Array | None]


def gallery_of(exhibit: Exhibit, images: bool) -> Gallery | None:
    """The learned prototypes, with the nearest training images if `images`."""
    points, labels = exhibit.get("prototypes", (2, 3)), _labels(exhibit, "prototype_labels")
    if points is None or labels is None or len(points) != len(labels) or not _numeric(points):
        return None
    order = np.argsort(labels, kind="stable")[:_MAX_PICTURES]
    grid = exhibit.get("grid", (1,))
    if points.ndim == 3 and points.shape[1] == points.shape[2]:
        kind, shown = "correlation", [heat(correlation(points[k])) for k in order]
    elif points.ndim == 2 and grid is not None and len(grid) == 2 and int(np.prod(grid)) == points.shape[1]:
        kind, shown = "picture", [shades(points[k].reshape(int(grid[0]), int(grid[1]))) for k in order]
    elif points.ndim == 2:
        kind, shown = "bars", [points[k] for k in order]
    else:
        return None
    nearest = exhibit.get("nearest_images", (3, 4)) if images else None
    if nearest is None or len(nearest) != len(points):
        beside: list[Array | None] = [None] * len(order)
    else:
        beside = [image(nearest[k]) for k in order]
    of_all = exhibit.get("map_prototype_labels", (1,))
    total = max(len(points), 0 if of_all is None else len(of_all))
    return Gallery(kind, shown, labels[order].tolist(), beside, total)


def map_of(exhibit: Exhibit) -> MapView | None:
    """The map of the training set, y upwards."""
    points, labels = exhibit.get("map_train", (2,)), _labels(exhibit, "map_labels")
    if points is None or labels is None or points.shape != (len(labels), 2) or not _numeric(points):
        return None
    prototypes, theirs = exhibit.get("map_prototypes", (2,)), _labels(exhibit, "map_prototype_labels")
    if prototypes is None or theirs is None or prototypes.shape != (len(theirs), 2) or not _numeric(prototypes):
        prototypes, theirs = np.empty((0, 2)), np.empty(0, int)
    both = np.vstack([points, prototypes]).astype(float)
    low, span = both.min(axis=0), np.ptp(both, axis=0)
    unit = (both - low) / np.where(span > 0, span, 1.0)
    placed = _EDGE + (_MAP - 2 * _EDGE) * np.column_stack([unit[:, 0], 1 - unit[:, 1]])
    dots, discs = placed[: len(points)], placed[len(points) :]
    every = sorted({*labels.tolist(), *theirs.tolist()})
    classes = []
    for k, label in enumerate(every):
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in dots[labels == label].tolist())
        places = [(f"{x:.1f}", f"{y:.1f}") for x, y in discs[theirs == label].tolist()]
        classes.append(MapClass(label, _colour(k, len(every)), path, places))
    return MapView(_MAP, len(points), len(discs), classes)


def _colour(k: int, n: int) -> str:
    return f"hsl({(k * 360 / n + 222) % 360:.0f} {62 - 14 * (k % 2)}% {46 + 8 * (k % 3) - 6}%)"


def confusion_of(exhibit: Exhibit) -> Array | None:
    """How often each class (rows) was taken for each (columns), (C, C)."""
    matrix = exhibit.get("confusion", (2,))
    if matrix is None or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "iu" or (matrix < 0).any():
        return None
    return matrix


def suspects_of(exhibit: Exhibit, images: bool) -> Suspects | None:
    """Training points that the model takes for another class, the most doubtful first, with their images if `images`.

    None where there is no such point, and so nothing to look at.
    """
    rows, labels, predicted = (_labels(exhibit, f"suspects_{name}") for name in ("row", "label", "predicted"))
    losses = exhibit.get("suspects_loss", (1,))
    if rows is None or labels is None or predicted is None or losses is None or losses.dtype.kind not in "fiu":
        return None
    if not len(rows) == len(labels) == len(predicted) == len(losses):
        return None
    pictures = exhibit.get("suspects_images", (3, 4)) if images else None
    fitting = pictures is not None and len(pictures) == len(rows)
    doubtful = np.flatnonzero(labels != predicted)
    if not len(doubtful):
        return None
    shown = [image(pictures[k]) if fitting and pictures is not None else None for k in doubtful]
    listed = [values[doubtful].tolist() for values in (rows, labels, predicted, losses)]
    return Suspects(listed[0], listed[1], listed[2], listed[3], shown)


def montage_of(exhibit: Exhibit, images: bool) -> list[tuple[Array, int]]:
    """Some images of the data set and their classes, class by class; none unless `images`."""
    pictures, labels = exhibit.get("montage", (3, 4)), _labels(exhibit, "montage_labels")
    if not images or pictures is None or labels is None or len(pictures) != len(labels):
        return []
    shown = [(image(pictures[k]), int(labels[k])) for k in np.argsort(labels, kind="stable")]
    whole = [(picture, label) for picture, label in shown if picture is not None]
    spread = sorted({round(k) for k in np.linspace(0, len(whole) - 1, _MAX_IMAGES)}) if whole else []
    return [whole[k] for k in spread]


def _labels(exhibit: Exhibit, name: str) -> Array | None:
    array = exhibit.get(name, (1,))
    return array if array is not None and array.dtype.kind in "iu" else None


def _numeric(array: Array) -> bool:
    return array.dtype.kind in "fiu" and bool(np.isfinite(array).all())
