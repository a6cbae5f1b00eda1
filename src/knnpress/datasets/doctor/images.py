"""What is wrong with a folder of images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from knnpress.datasets.doctor.findings import Finding
from knnpress.datasets.folder import Companion, FoundImage, images_below, where_images_go
from knnpress.typing import Indices

_SMALL = 8  # pixels of a side, below which there is little to describe


def examine_images(
    root: str | os.PathLike[str], masks: Companion | None = None, depth: Companion | None = None
) -> tuple[list[FoundImage], list[Finding]]:
    """The images of a folder, and what was found; the rows of a finding are places in the list.

    Parameters
    ----------
    root : path
        Should hold ``<class>/.../<name>.png``, or JPEG, GIF, WebP, TIFF, BMP, PNM.
    masks, depth : path or None
        As in `load_image_folder`.
    """
    images = images_below(root, masks, depth)
    if not images:
        cure = where_images_go(Path(root), "put them at")
        return images, [Finding("no images", f"none below {root}", cure)]
    alone: dict[int, str] = {}
    broken: dict[int, str] = {}
    shapes: dict[int, tuple[int, ...]] = {}
    flat: list[int] = []
    for row, image in enumerate(images):
        try:
            file = image.file()
        except FileNotFoundError as error:
            alone[row] = str(error)
            continue
        try:
            pixels = np.asarray(file.read())
        except (ValueError, OSError) as error:
            broken[row] = str(error)
            continue
        shapes[row] = pixels.shape
        if pixels.min() == pixels.max():
            flat.append(row)
    findings = (
        _about_files(broken, shapes, flat) + _about_classes(Path(root), images) + _about_copies(images, [*shapes])
    )
    if alone:
        cure = "add them, or remove the images"
        findings.append(
            Finding("images without their mask or depth map", next(iter(alone.values())), cure, _rows(alone))
        )
    return images, findings


def _about_files(broken: dict[int, str], shapes: dict[int, tuple[int, ...]], flat: list[int]) -> list[Finding]:
    found = []
    if broken:
        cure = "remove them, or copy or convert them again"
        found.append(Finding("images that cannot be read", next(iter(broken.values())), cure, _rows(broken)))
    small = [row for row, shape in shapes.items() if min(shape[:2]) < _SMALL]
    if small:
        height, width = shapes[small[0]][:2]
        cure = f"remove them, or use larger ones: descriptors need {_SMALL} pixels a side"
        found.append(Finding("tiny images", f"{width} x {height} pixels", cure, _rows(small)))
    if flat:
        cure = "remove them; their covariance is singular, and their histograms say nothing"
        found.append(Finding("images of a single colour", "every pixel is alike", cure, _rows(flat)))
    sides = [max(shape[:2]) for shape in shapes.values()]
    if sides and max(sides) > 4 * min(sides):
        seen = f"longer sides from {min(sides)} to {max(sides)} pixels"
        cure = "nothing, unless size tells the classes apart: most descriptors reduce the large ones themselves"
        found.append(Finding("images of very different sizes", seen, cure, severity="note"))
    return found


def _about_classes(root: Path, images: list[FoundImage]) -> list[Finding]:
    loose = [row for row, image in enumerate(images) if image.folder is None]
    classes = [image.folder for image in images if image.folder is not None]
    names, counts = np.unique(classes, return_counts=True) if classes else (np.array([]), np.array([]))
    found = []
    if loose:
        cure = f"put each into the sub-folder of its class, {root}/<class>/"
        found.append(Finding("images without a class", images[loose[0]].path.name, cure, _rows(loose)))
    if len(names) < 2:
        seen = f"{len(names)} sub-folder{'s' * (len(names) != 1)} with images"
        found.append(Finding("fewer than two classes", seen, "a classifier needs at least two sub-folders"))
    if len(counts) and counts.min() < 2:
        few = ", ".join(map(str, names[counts < 2][:5]))
        cure = "add images: one to learn from and one to test on are the least"
        found.append(Finding("classes of a single image", few, cure))
    if len(counts) > 1 and counts.max() > 10 * counts.min():
        seen = f"{counts.min()} to {counts.max()} images in a class"
        cure = 'class_weight="balanced" gives small classes their say'
        found.append(Finding("classes of very different sizes", seen, cure, severity="note"))
    return found


def _about_copies(images: list[FoundImage], readable: list[int]) -> list[Finding]:
    """The same file twice: in two classes a contradiction, in one class a test that is too easy."""
    first: dict[bytes, int] = {}
    copies: dict[bool, list[tuple[int, str]]] = {True: [], False: []}  # by whether they share their class
    for row in readable:
        image = images[row]
        other = images[first.setdefault(hashlib.sha256(image.path.read_bytes()).digest(), row)]
        if other is not image:
            copies[image.folder == other.folder].append((row, f"{image.place} is {other.place}"))
    found = []
    if copies[False]:
        rows, (example, *_) = zip(*copies[False], strict=True)
        found.append(Finding("one image in two classes", example, "keep the one that is right", _rows(rows)))
    if copies[True]:
        rows, (example, *_) = zip(*copies[True], strict=True)
        cure = "remove the copies: where one is learned from and the other tested, errors look too small"
        found.append(Finding("copies of images", example, cure, _rows(rows), severity="note"))
    return found


def _rows(rows: Iterable[int]) -> Indices:
    return np.array(sorted(rows), dtype=np.intp)
