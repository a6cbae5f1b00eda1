"""A folder of images, a class a sub-folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from knnpress.datasets.dataset import ImageDataset, encode
from knnpress.descriptors.images import ImageFile

__all__ = ["find_images", "load_image_folder"]

#: A folder laid out like the images', or a function from an image's path to that of what belongs to it.
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
            found += [place] if _is_image(place) else []
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
                found += [place] if _is_image(place) else []
    return found


def _shown(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and path.is_file()


def _refuse_broken_link(path: Path) -> None:
    if path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"{path} is a link to {os.readlink(path)}, which is not there; mend or remove it")


def load_image_folder(
    root: str | os.PathLike[str],
    largest_classes: int | None = None,
    masks: Companion | None = None,
    depth: Companion | None = None,
) -> ImageDataset:
    """Images of a folder with a sub-folder a class, however deep below it.

    Files are read when a descriptor needs them, so a folder may be larger than memory; one that is no image is named
    there.

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
    paths = find_images(root)
    companions = [_find_companions(root, paths, companion) for companion in (masks, depth)]
    taken = {os.path.abspath(path) for companion in companions for path in companion.values()}
    # A folder of masks may itself lie below root; those without an image are no images either
    aside = tuple(f"{os.path.abspath(c)}{os.sep}" for c in (masks, depth) if c is not None and not callable(c))

    def is_image(path: Path) -> bool:
        place = os.path.abspath(path)
        return place not in taken and not place.startswith(aside)

    paths = [path for path in paths if is_image(path)]
    classes = [path.relative_to(root).parts[0] if path.parent != root else None for path in paths]
    if not any(classes):
        loose = f"{len(paths)} images without a sub-folder" if paths else "no images"
        raise ValueError(f"{root} holds {loose}; expected {root}/<class>/<name>.png (or jpg, gif, webp, tif)")
    kept = _largest({name for name in classes if name}, classes, largest_classes)
    if len(kept) < 2:
        raise ValueError(f"{root} holds one class ({next(iter(kept))!r}); a classifier needs at least 2 sub-folders")
    chosen = [(path, name) for path, name in zip(paths, classes, strict=True) if name in kept]
    files = []
    for path, _ in chosen:
        mask, distance = (_existing(path, companion.get(path)) for companion in companions)
        files.append(ImageFile(str(path), mask, distance))
    y, names = encode(np.array([name for _, name in chosen]))
    folders = np.array([str(path.parent.relative_to(root)) for path, _ in chosen])
    return ImageDataset(files, y, names, f"images of the folder {root}", {"folder": folders})


def _largest(names: set[str], classes: list[str | None], n_classes: int | None) -> set[str]:
    """The n classes with most images, all if None; of equal ones the first by name."""
    if n_classes is not None and not n_classes >= 1:
        raise ValueError(f"largest_classes is {n_classes!r}; give a count of at least 1, or None")
    return set(sorted(names, key=lambda name: (-classes.count(name), name))[:n_classes])


def _find_companions(root: Path, paths: list[Path], companion: Companion | None) -> dict[Path, Path]:
    """Of each image, the path of its mask or depth map, whether it exists or not."""
    if companion is None:
        return {}
    if callable(companion):
        return {path: Path(companion(path)) for path in paths}
    folder = Path(companion)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; give one laid out like {root}, or a function of a path")
    by_stem = {path.relative_to(folder).with_suffix(""): path for path in find_images(folder)}
    own = {path: path.relative_to(root) for path in paths}
    return {path: by_stem.get(name.with_suffix(""), folder / name) for path, name in own.items()}


def _existing(image: Path, companion: Path | None) -> str | None:
    if companion is not None and not companion.is_file():
        raise FileNotFoundError(
            f"{image} should have {companion} beside it, which is not there; add it or remove the image"
        )
    return None if companion is None else str(companion)
