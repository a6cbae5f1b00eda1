"""Research data sets read from a folder of local copies; none ships with the package.

A set is one file, `<name>.npz` with plain arrays or `<name>.zip` with images and an `index.csv` (a row per image:
its file, class, label and groups). Zip archives are read in memory, never extracted.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from knnpress.datasets.dataset import Dataset, ImageDataset, half_splits, held_out
from knnpress.descriptors.images import decode, with_mask
from knnpress.files import read_npz
from knnpress.typing import Array, Indices

_VARIABLE = "KNNPRESS_DATA"


@dataclass(frozen=True)
class _Source:
    """A data set's file, where the original can be had, and whom to cite."""

    file: str
    home: str
    citation: str

    def path(self, data_dir: str | os.PathLike[str] | None) -> Path:
        """The local copy; where there is none, say where it was looked for and how to get it."""
        folder = data_dir if data_dir is not None else os.environ.get(_VARIABLE)
        if folder is None:
            raise FileNotFoundError(
                f"no folder to look for {self.file} in; give data_dir, or set the environment variable {_VARIABLE}. "
                f"{self._how_to_get()}"
            )
        path = Path(folder) / self.file
        if not path.is_file():
            raise FileNotFoundError(f"{self.file} was looked for in {folder} and is not there. {self._how_to_get()}")
        return path

    def _how_to_get(self) -> str:
        layout = (
            "pack it as images/<class>/<name>.png with an index.csv of the columns file, class, label, ..."
            if self.file.endswith(".zip")
            else "pack it with numpy.savez"
        )
        return f"The original is at {self.home}; {layout}, or unpack it and use load_image_folder"


_COIL20 = _Source(
    "coil20.npz",
    "https://www.cs.columbia.edu/CAVE/software/softlib/coil-20.php",
    "Nene, Nayar, Murase. Columbia object image library (COIL-20). Report CUCS-005-96, Columbia University, 1996.",
)
_MPEG7 = _Source(
    "mpeg7_ce1_partB.zip",
    "https://dabi.temple.edu/external/shape/MPEG7/dataset.html",
    "Latecki, Lakämper, Eckhardt. Shape descriptors for non-rigid shapes with a single closed contour. CVPR 2000.",
)
_ETH80 = _Source(
    "eth80_close96.zip",
    "http://www.mis.informatik.tu-darmstadt.de/Research/Projects/categorization/eth80-db.html",
    "Leibe, Schiele. Analyzing appearance and contour based methods for object categorization. CVPR 2003.",
)
_KYLBERG = _Source(
    "kylberg_115.npz",
    "https://www.cb.uu.se/~gustaf/texture/",
    "Kylberg. The Kylberg texture dataset v. 1.0. External report 35, Uppsala University, 2011.",
)
_SCENE15 = _Source(
    "scene15_120.zip",
    "https://figshare.com/articles/dataset/15-Scene_Image_Dataset/7007177",
    "Lazebnik, Schmid, Ponce. Beyond bags of features: spatial pyramid matching for recognizing natural scene "
    "categories. CVPR 2006.",
)
_KTH = _Source(
    "kth_tips2b_6class_64.zip",
    "https://www.csc.kth.se/cvap/databases/kth-tips/",
    "Caputo, Hayman, Mallikarjuna. Class-specific material categorisation. ICCV 2005.",
)
_FPHA = _Source(
    "fpha_spd63.npz",
    "https://guiggh.github.io/publications/first-person-hands/",
    "Garcia-Hernando, Yuan, Baek, Kim. First-person hand action benchmark with RGB-D videos and 3D hand pose "
    "annotations. CVPR 2018.",
)


def load_coil20(data_dir: str | os.PathLike[str] | None = None) -> ImageDataset:
    """COIL-20: 20 objects seen from 72 sides, gray, `images` of shape (1440, 128, 128).

    Groups: view, angle_deg. Splits: five halves. `data_dir`: the folder of coil20.npz; None: that of the environment
    variable KNNPRESS_DATA.
    """
    arrays = _arrays(_COIL20, data_dir)
    return _gray_images(arrays, _COIL20, "view", "angle_deg")


def load_kylberg(data_dir: str | os.PathLike[str] | None = None) -> ImageDataset:
    """Kylberg's textures, 28 surfaces, gray, `images` of shape (4480, 115, 115).

    Groups: sample (the piece of the surface, 4 per class), patch. Splits: five halves. `data_dir`: the folder of
    kylberg_115.npz; None: that of the environment variable KNNPRESS_DATA.
    """
    arrays = _arrays(_KYLBERG, data_dir)
    return _gray_images(arrays, _KYLBERG, "sample", "patch")


def load_fpha(data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """First-person hand actions, 45 classes: covariances of joints over time, X of shape (1174, 63, 63).

    Groups: split, number. Splits: the authors' one. `data_dir`: the folder of fpha_spd63.npz; None: that of the
    environment variable KNNPRESS_DATA.
    """
    arrays = _arrays(_FPHA, data_dir)
    d = int(arrays["dim"][0])
    X = np.empty((len(arrays["tril"]), d, d))
    i, j = np.tril_indices(d)
    X[:, i, j] = X[:, j, i] = arrays["tril"]
    split = arrays["split"]
    names = tuple(map(str, range(int(arrays["labels"].max()) + 1)))
    return Dataset(
        X,
        arrays["labels"].astype(np.intp),
        names,
        _FPHA.citation,
        groups={"split": arrays["split_names"][split], "number": arrays["number"]},
        splits=((np.flatnonzero(split == 0), np.flatnonzero(split == 1)),),
    )


def load_mpeg7(data_dir: str | os.PathLike[str] | None = None) -> ImageDataset:
    """MPEG-7 CE-Shape-1 part B: 70 classes of 20 silhouettes, `images` a list of arrays (h, w) of bool.

    The original's `rat-09` is black on white, all others white on black. Groups: instance. Splits: five halves.
    `data_dir`: the folder of mpeg7_ce1_partB.zip; None: that of the environment variable KNNPRESS_DATA.
    """
    images, y, names, columns = _zipped(_MPEG7, data_dir)
    silhouettes = [image > 0 if image.dtype != bool else image for image in images]
    return ImageDataset(silhouettes, y, names, _MPEG7.citation, _groups(columns, "instance"), half_splits(y))


def load_eth80(data_dir: str | os.PathLike[str] | None = None) -> ImageDataset:
    """ETH-80: 8 classes of 10 objects seen from 41 sides, cut out, `images` of shape (3280, 96, 96, 4), RGB and mask.

    Groups: object_id, polar_deg, azimuth_deg. Splits: five halves, in which other views of the same objects are
    trained on; for new objects hold out by object_id. `data_dir`: the folder of eth80_close96.zip; None: that of the
    environment variable KNNPRESS_DATA.
    """
    images, y, names, columns = _zipped(_ETH80, data_dir)
    groups = _groups(columns, "object_id", "polar_deg", "azimuth_deg")
    return ImageDataset(np.stack(images), y, names, _ETH80.citation, groups, half_splits(y))


def load_scene15(data_dir: str | os.PathLike[str] | None = None) -> ImageDataset:
    """Scene-15: 15 indoor and outdoor scenes, gray, `images` a list of 4485 arrays (h, w), the longer side 120.

    18 pairs of images are equal in the original. Groups: number. Splits: one, of 100 images per class to train on.
    `data_dir`: the folder of scene15_120.zip; None: that of the environment variable KNNPRESS_DATA.
    """
    images, y, names, columns = _zipped(_SCENE15, data_dir)
    train = np.array(columns["split"]) == "train"
    splits = ((np.flatnonzero(train), np.flatnonzero(~train)),)
    return ImageDataset(images, y, names, _SCENE15.citation, _groups(columns, "number"), splits)


def load_kth_tips2b(data_dir: str | os.PathLike[str] | None = None) -> ImageDataset:
    """KTH-TIPS2-b, 6 of its 11 materials, `images` of shape (2591, 64, 64, 3).

    Groups: sample (the piece of the material, 4 per class). Splits: each sample held out once. `data_dir`: the folder
    of kth_tips2b_6class_64.zip; None: that of the environment variable KNNPRESS_DATA.
    """
    images, y, names, columns = _zipped(_KTH, data_dir)
    groups = _groups(columns, "sample")
    return ImageDataset(np.stack(images), y, names, _KTH.citation, groups, held_out(groups["sample"]))


def _arrays(source: _Source, data_dir: str | os.PathLike[str] | None) -> dict[str, Array]:
    path = source.path(data_dir)
    try:
        return read_npz(path)
    except Exception as error:  # the reader raises many kinds
        raise ValueError(f"{path} cannot be read ({error}); copy it again") from error


def _gray_images(arrays: dict[str, Array], source: _Source, *groups: str) -> ImageDataset:
    y = arrays["labels"].astype(np.intp)
    names = tuple(map(str, arrays["class_names"].tolist()))
    known = {name: arrays[name] for name in groups}
    return ImageDataset(arrays["images"], y, names, source.citation, known, half_splits(y))


def _zipped(
    source: _Source, data_dir: str | os.PathLike[str] | None
) -> tuple[list[Array], Indices, tuple[str, ...], dict[str, list[str]]]:
    """Images (with their masks as opacity), classes, class names, and the columns of the index."""
    path = source.path(data_dir)
    try:
        with zipfile.ZipFile(path) as archive:
            rows = list(csv.DictReader(io.StringIO(archive.read("index.csv").decode("utf-8"))))

            def read(member: str) -> Array:
                return decode(io.BytesIO(archive.read(member)), f"{member} of {path}")

            images = [
                with_mask(read(row["file"]), read(row["mask"])) if row.get("mask") else read(row["file"])
                for row in rows
            ]
    except (KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read ({error}); copy it again") from error
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    y = np.array(columns["label"], dtype=np.intp)
    by_label = dict(zip(y.tolist(), columns["class"], strict=True))
    return images, y, tuple(by_label[k] for k in sorted(by_label)), columns


def _groups(columns: dict[str, list[str]], *names: str) -> dict[str, Any]:
    return {name: np.array(columns[name], dtype=np.intp) for name in names}
