"""Images that the user names, and the points that a descriptor makes of them."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from knnpress.cli.output import notice
from knnpress.datasets.folder import find_images, match_images
from knnpress.descriptors import BagOfWords, ImageFile
from knnpress.descriptors.images import Images, are_gray
from knnpress.execution.threads import map_blocks
from knnpress.progress import progress_bar
from knnpress.typing import Array, Callback, Indices


@dataclass(frozen=True)
class Pictures:
    """Image files, what the user calls them, and the sub-folder that each is in: None where it is in none."""

    files: list[ImageFile]
    items: list[str]
    folders: list[str | None]


def find_pictures(paths: Sequence[Path], masks: Path | None = None, depth: Path | None = None) -> Pictures:
    """All images of folders and files; images of a single folder are named by their path relative to it."""
    found: list[tuple[Path, Path]] = []  # each with its place in the folder given
    for path in paths:
        if path.is_dir():
            found += [(image, image.relative_to(path)) for image in find_images(path)]
        elif path.is_file():
            found.append((path, Path(path.name)))
        else:
            raise FileNotFoundError(f"{path} is not there; give a folder of images, or images")
    images = match_images(found, masks, depth)
    if not images:
        raise ValueError(f"{', '.join(map(str, paths))} holds no images (png, jpg, gif, webp, tif or bmp)")
    alone = len(paths) == 1 and paths[0].is_dir()
    items = [(image.place if alone else image.path).as_posix() for image in images]
    return Pictures([image.file() for image in images], items, [image.folder for image in images])


def usual_descriptor(images: Images) -> str:
    """What images are described by unless the user says: features of colour and texture, or without colour."""
    return "gradient" if are_gray(images) else "color-texture"


def describe(
    descriptor: Any, images: Sequence[ImageFile], *, fit: bool, skip_bad: bool, shown: bool
) -> tuple[Array, Indices]:
    """Points of images, and the rows of those that could be described.

    One that cannot is an error that names it, or is left out with a notice.
    """
    try:
        return _follow(descriptor, images, fit, shown), np.arange(len(images))
    except ValueError as error:
        if not skip_bad:
            raise named(error, images) from error
    bad = _failures(descriptor, images, fit)
    for reason in bad.values():
        notice(f"skipped: {reason}")
    good = [k for k in range(len(images)) if k not in bad]
    if not good:
        raise ValueError(f"none of the {len(images)} images can be described")
    return _follow(descriptor, [images[k] for k in good], fit, shown), np.array(good)


def named(error: ValueError, images: Sequence[ImageFile]) -> ValueError:
    """The error that the user is shown; where an image is bad, with its file's name and what to do about all such."""
    advice = "; --skip-bad leaves such images out, and knnpress doctor names them all"
    return ValueError(_named(error, images) + (advice if str(error).startswith("images[") else ""))


def _follow(descriptor: Any, images: Sequence[ImageFile], fit: bool, shown: bool) -> Array:
    """Describe images while a bar follows."""
    work: Callable[[Any], Array] = descriptor.fit_transform if fit else descriptor.transform
    passes = 2 if fit and isinstance(descriptor, BagOfWords) else 1  # its vocabulary comes first
    with progress_bar("describing", shown) as bar:
        return work(images if bar is None else _Watched(images, passes * len(images), bar))


class _Watched:
    """Images that tell a bar how many of them have been taken."""

    def __init__(self, images: Sequence[ImageFile], total: int, bar: Callback) -> None:
        self.images, self.total, self.bar, self.taken = images, total, bar, count(1)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, k: int) -> ImageFile:
        self.bar(min(next(self.taken), self.total), self.total, {})
        return self.images[k]


def _failures(descriptor: Any, images: Sequence[ImageFile], fit: bool) -> dict[int, str]:
    """Rows of the images that cannot be described, and why: each is tried alone."""
    alone = clone(descriptor)
    if isinstance(alone, BagOfWords):
        alone.set_params(n_words=1)  # for more, one image may not have the pixels

    def attempt(image: ImageFile) -> str | None:
        try:
            _ = clone(alone).fit_transform([image]) if fit else descriptor.transform([image])
        except ValueError as error:
            return _named(error, [image])
        return None

    blocks = [slice(k, k + 4) for k in range(0, len(images), 4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they come again with the good ones
        reasons = map_blocks(lambda rows: [attempt(image) for image in images[rows]], blocks, descriptor.n_jobs)
    return {k: reason for k, reason in enumerate(chain.from_iterable(reasons)) if reason is not None}


def _named(error: ValueError, images: Sequence[ImageFile]) -> str:
    """The message with the file's name for "images[k]", which says nothing to somebody who gave a folder."""
    text = str(error)
    place = re.match(r"images\[(\d+)\] ", text)
    if place is None:
        return text
    name = os.fspath(images[int(place[1])])
    return f"{name} {text.removeprefix(place[0]).removeprefix(f'({name}) ').removeprefix(f'{name} ')}"
