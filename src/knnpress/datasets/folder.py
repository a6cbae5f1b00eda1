"""A folder of images, with a sub-folder for each class."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from knnpress.datasets.dataset import ImageDataset, encode
from knnpress.descriptors.images import ImageFile

#: A folder laid out like that of the images, or a function from an image's path to the path of its companion.
Companion: TypeAlias = str | os.PathLike[str] | Callable[[Path], str | os.PathLike[str]]

_SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp", ".ppm", ".pgm"}


def find_images(root: str | os.PathLike[str]) -> list[Path]:
    """Paths of all images below a folder, sorted; told by the ending of their names. Hidden ones do not count.

    Links to folders are followed, each folder once below every sub-folder of `root`, so that loops end.
    """
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder; give one that holds images")
    found: list[Path] = []
    for place in _shown(root):
        if place.is_dir():
            found += _images_below(place, {root.resolve()})
        else:
            _refuse_broken_link(place)
            found += [place] if is_image_file(place) else []
    return sorted(found)


def _images_below(folder: Path, seen: set[Path]) -> list[Path]:
    """Images of a folder and those below it; of folders in `seen`, and of any met a second time, none."""
    found, waiting = [], [folder]
    while waiting:
        here = waiting.pop()
        if here.resolve() in seen:
            continue
        seen.add(here.resolve())
        for place in _shown(here):
            if place.is_dir():
                waiting.append(place)
            elif place.suffix.lower() in _SUFFIXES:
                _refuse_broken_link(place)
                found += [place] if is_image_file(place) else []
    return found


def _shown(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def is_image_file(path: Path) -> bool:
    """Whether it is a file with the ending of an image."""
    return path.suffix.lower() in _SUFFIXES and path.is_file()


def _refuse_broken_link(path: Path) -> None:
    if path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"{path} is a link to {os.readlink(path)}, which is not there; mend or remove it")


@dataclass(frozen=True)
class FoundImage:
    """An image, its place in the folder that was given, and where its mask and depth map should be."""

    path: Path
    place: Path
    mask: Path | None = None
    depth: Path | None = None

    @property
    def folder(self) -> str | None:
        """The sub-folder that the image is in, if it is in one: its class."""
        return self.place.parts[0] if len(self.place.parts) > 1 else None

    def file(self) -> ImageFile:
        """The image, to be read; its mask and depth map must be there."""
        for beside in (self.mask, self.depth):
            if beside is not None and not beside.is_file():
                raise FileNotFoundError(
                    f"{self.path} should have {beside} beside it, which is not there; add it or remove the image"
                )
        return ImageFile(str(self.path), *(None if one is None else str(one) for one in (self.mask, self.depth)))


def images_below(
    root: str | os.PathLike[str], masks: Companion | None = None, depth: Companion | None = None
) -> list[FoundImage]:
    """All images of a folder with their masks and depth maps, which are not images of their own."""
    return match_images([(path, path.relative_to(root)) for path in find_images(root)], masks, depth)


def match_images(
    found: Sequence[tuple[Path, Path]], masks: Companion | None = None, depth: Companion | None = None
) -> list[FoundImage]:
    """Images, each with its place in the folder given, with their masks and depth maps, which are left out themselves.

    A folder of masks may lie among the images; what is in it is not an image even where it belongs to none.
    """
    beside = [_beside(found, companion) for companion in (masks, depth)]
    taken = {os.path.abspath(path) for paths in beside for path in paths if path is not None}
    aside = tuple(f"{os.path.abspath(one)}{os.sep}" for one in (masks, depth) if one is not None and not callable(one))

    def is_image(path: Path) -> bool:
        here = os.path.abspath(path)
        return here not in taken and not here.startswith(aside)

    images = [FoundImage(*place, *others) for place, *others in zip(found, *beside, strict=True)]
    return [image for image in images if is_image(image.path)]


def _beside(found: Sequence[tuple[Path, Path]], companion: Companion | None) -> list[Path | None]:
    """The path of each image's mask or depth map, whether it exists or not."""
    if companion is None:
        return [None] * len(found)
    if callable(companion):
        return [Path(companion(path)) for path, _ in found]
    folder = Path(companion)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; give one laid out like the images")
    by_stem = {path.relative_to(folder).with_suffix(""): path for path in find_images(folder)}
    return [by_stem.get(place.with_suffix(""), folder / place) for _, place in found]


def load_image_folder(
    root: str | os.PathLike[str],
    largest_classes: int | None = None,
    masks: Companion | None = None,
    depth: Companion | None = None,
) -> ImageDataset:
    """Images of a folder with a sub-folder for each class, at any depth below it.

    Files are read when a descriptor needs them, so a folder may be larger than memory; a file that is not an image is
    reported then.

    Parameters
    ----------
    root : path
        Holds ``<class>/.../<name>.png`` (or JPEG, GIF, WebP, TIFF, BMP, PNM).
    largest_classes : int or None
        Keep that many classes, those with most images; the paper keeps 50 of ETHZ, FERET and RGB-D.
    masks, depth : path, callable or None
        A folder in which the same relative path (the ending may differ) is an image's mask or depth map; or a function
        from the image's path to it, e.g. ``lambda path: str(path).replace("_crop.", "_depthcrop.")``. Files so named
        are not images of their own.

    Returns
    -------
    ImageDataset
        `images` a list of `ImageFile`; groups: folder, an image's own folder relative to root.
    """
    root = Path(root)
    found = images_below(root, masks, depth)
    if not any(image.folder for image in found):
        loose = f"{len(found)} images without a sub-folder" if found else "no images"
        raise ValueError(f"{root} holds {loose}; {where_images_go(root, 'expected')}")
    kept = _largest([image.folder for image in found if image.folder], largest_classes)
    if len(kept) < 2:
        raise ValueError(f"{root} holds one class ({next(iter(kept))!r}); a classifier needs at least 2 sub-folders")
    chosen = [image for image in found if image.folder in kept]
    files = [image.file() for image in chosen]
    y, names = encode(np.array([image.folder for image in chosen]))
    folders = np.array([str(image.place.parent) for image in chosen])
    return ImageDataset(files, y, names, f"images of the folder {root}", {"folder": folders})


def where_images_go(root: Path, verb: str) -> str:
    """Where they go, after "expected" or "put them at"; or, if a folder holds texts, what to do with these."""
    if any(root.rglob("*.txt")):
        return "of the text files in it, knnpress.descriptors.WordClouds makes points, in Python"
    return f"{verb} {root}/<class>/<name>.png (or jpg, gif, webp, tif)"


def _largest(classes: list[str], n_classes: int | None) -> set[str]:
    """The n classes with most images, all if None; of equal ones the first by name."""
    if n_classes is not None and not n_classes >= 1:
        raise ValueError(f"largest_classes is {n_classes!r}; give a count of at least 1, or None")
    return set(sorted(set(classes), key=lambda name: (-classes.count(name), name))[:n_classes])
