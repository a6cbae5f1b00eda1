"""From a study to training and test points: read, describe, divide."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from knnpress import datasets, descriptors
from knnpress.datasets import Dataset, ImageDataset
from knnpress.experiments.splits import divide
from knnpress.experiments.study import Study
from knnpress.files import replacing
from knnpress.geometries import JBLD, Geometry, Sinkhorn
from knnpress.typing import Array, Indices

_READERS: dict[str, Callable[..., Any]] = {
    "digits-covariances": datasets.load_digits_covariances,
    "digits-histograms": datasets.load_digits_histograms,
    "eth80": datasets.load_eth80,
    "coil20": datasets.load_coil20,
    "mpeg7": datasets.load_mpeg7,
    "kylberg": datasets.load_kylberg,
    "scene15": datasets.load_scene15,
    "kth": datasets.load_kth_tips2b,
    "fpha": datasets.load_fpha,
}
_LEARNING = ("BagOfWords", "SPDProjection")  # descriptors that may see only the training part


@dataclass(frozen=True)
class Task:
    """Points to train on and to test on, with the rows of the data set that they come from."""

    X: Array
    y: Indices
    X_test: Array
    y_test: Indices
    rows: Indices
    test_rows: Indices
    ground_cost: Array | None
    reg: float | None  # of Sinkhorn's distance
    groups: Indices | None = None  # of the points to train on, where the study is divided by groups

    @property
    def geometry(self) -> Geometry:
        """JBLD for matrices, Sinkhorn's divergence for histograms."""
        return JBLD() if self.reg is None else Sinkhorn(self.ground_cost, self.reg)


class Tasks:
    """The tasks of studies; what is described once is kept in a folder.

    Parameters
    ----------
    cache : path
    data_dir : str or None
        Where local copies of the research data sets are; None: as the environment variable KNNPRESS_DATA says.
    seed : int
    """

    def __init__(self, cache: Path, data_dir: str | None, seed: int) -> None:
        self.cache, self.data_dir, self.seed = cache, data_dir, seed
        self.source = lru_cache(maxsize=1)(self._source)
        self._last: tuple[str, dict[str, Array]] | None = None

    def task(self, study: Study, split: int) -> Task:
        """Training and test points of one split, with wrong labels where the study wants some."""
        key = _hash([study.source, study.subset, study.descriptor, study.splits, study.n_splits, split, self.seed])
        if self._last is None or self._last[0] != key:
            self._last = (key, self._kept(f"split-{key}", lambda: self._divided(study, split)))
        arrays = self._last[1]
        if study.train_share < 1:
            size = max(len(np.unique(arrays["y"])), round(study.train_share * len(arrays["y"])))
            kept = _subset(arrays["y"], size, self.seed + split)
            arrays = {**arrays, **{name: arrays[name][kept] for name in ("X", "y", "rows")}}
        y = arrays["y"]
        if study.label_noise:
            y = _with_noise(y, study.label_noise, np.random.default_rng([self.seed, split]))
        cost = arrays.get("ground_cost")
        reg = None if cost is None else study.reg * float(np.median(cost[cost > 0]))
        names = ("X", "X_test", "y_test", "rows", "test_rows")
        group, groups = study.group, None
        if group is not None:
            name = f"groups-{_hash([key, study.train_share])}"
            groups = self._kept(name, lambda: {"groups": self._groups(study, group, arrays["rows"])})["groups"]
        return Task(y=y, ground_cost=cost, reg=reg, groups=groups, **{name: arrays[name] for name in names})

    def facts(self, study: Study) -> dict[str, Any]:
        """What a reader should know of the data."""
        data, task = self.source(study.source, study.subset), self.task(study, 0)
        return {
            "title": study.title,
            "kind": "covariance" if task.X.ndim == 3 else "histogram",
            "geometry": "jbld" if task.X.ndim == 3 else "sinkhorn",
            "protocol": _protocol(study, task),
            "features": study.features,
            "citation": data.citation,
            "n": len(data.y),
            "dims": task.X.shape[1],
            "n_classes": len(data.class_names),
            "class_names": list(data.class_names),
            "ratios": list(study.ratios),
        }

    def pictures(self, study: Study, rows: Indices) -> Sequence[Any]:
        """The images that the points come from, where they come from images."""
        data = self.source(study.source, study.subset)
        if isinstance(data, ImageDataset):
            return list(_chosen(data.images, rows))
        if study.source.startswith("digits"):
            from sklearn.datasets import load_digits

            images = load_digits().images / 16.0
            kept = _subset(load_digits().target, study.subset, self.seed)
            return [images[kept[row]] for row in rows]
        return []

    def _source(self, source: str, subset: int | None) -> Dataset | ImageDataset:
        if source in _READERS:
            data = _READERS[source]() if source.startswith("digits") else _READERS[source](self.data_dir)
        elif Path(source).is_dir():
            data = datasets.load_image_folder(source)
        elif Path(source).exists():
            data = _checked(datasets.load_points(source), source)
        else:
            raise FileNotFoundError(
                f"{source} is not there; give a folder of images, a file of points, or one of {', '.join(_READERS)}"
            )
        return _taken(data, _subset(data.y, subset, self.seed)) if subset else data

    def _divided(self, study: Study, split: int) -> dict[str, Array]:
        data = self.source(study.source, study.subset)
        train, test = divide(study, data, self.seed)[split]
        fixed = [step for step in study.descriptor if step["kind"] not in _LEARNING]
        learned = [step for step in study.descriptor if step["kind"] in _LEARNING]
        if [*fixed, *learned] != list(study.descriptor):
            raise ValueError(f"{study.name}: a descriptor that learns nothing comes first")
        X, cost = self._described(study, fixed)
        X_train, X_test = _chosen(X, train), _chosen(X, test)
        for step in learned:
            transformer = _transformer(step, self.seed)
            X_train = transformer.fit(X_train, data.y[train]).transform(X_train)
            X_test = transformer.transform(X_test)
            cost = getattr(transformer, "ground_cost_", cost)
        arrays = {"X": np.asarray(X_train), "y": data.y[train], "X_test": np.asarray(X_test), "y_test": data.y[test]}
        arrays |= {"rows": train, "test_rows": test}
        return arrays if cost is None else arrays | {"ground_cost": cost}

    def _groups(self, study: Study, group: str, rows: Indices) -> Indices:
        """Which rows belong together, as numbers: as the study holds groups out, within each class or across all."""
        data = self.source(study.source, study.subset)
        _, codes = np.unique(np.asarray(data.groups[group])[rows], return_inverse=True)
        if study.splits.startswith("half by "):
            _, codes = np.unique(np.stack([data.y[rows], codes]), axis=1, return_inverse=True)
        return np.asarray(codes).reshape(-1)

    def _described(self, study: Study, steps: list[Mapping[str, Any]]) -> tuple[Any, Array | None]:
        """All points, after the descriptors that learn nothing, or the images themselves where there are none."""
        data = self.source(study.source, study.subset)
        if not isinstance(data, ImageDataset):
            return data.X, data.ground_cost
        if not steps:
            return data.images, None

        def compute() -> dict[str, Array]:
            X: Any = data.images
            cost: Array | None = None
            for step in steps:
                transformer = _transformer(step, self.seed)
                X = transformer.fit(X, data.y).transform(X)
                cost = getattr(transformer, "ground_cost_", None)
            return {"X": X} if cost is None else {"X": X, "ground_cost": cost}

        arrays = self._kept(f"points-{_hash([study.source, study.subset, steps, self.seed])}", compute)
        return arrays["X"], arrays.get("ground_cost")

    def _kept(self, name: str, compute: Callable[[], dict[str, Array]]) -> dict[str, Array]:
        """Arrays from a file of the cache, computed where it is not there."""
        path = self.cache / f"{name}.npz"
        if path.exists():
            try:
                with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                    return dict(file)
            except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error):
                pass  # damaged: made anew
        arrays = compute()
        self.cache.mkdir(parents=True, exist_ok=True)
        with replacing(path) as out:
            np.savez(out, **arrays)  # type: ignore[arg-type]
        return arrays


def _checked(data: Dataset, source: str) -> Dataset:
    """The points of a file, refused by their rows in it where they are none; later they would be rows of a split."""
    geometry = JBLD() if data.ground_cost is None else Sinkhorn(data.ground_cost)
    try:
        return replace(data, X=geometry.check(data.X))
    except ValueError as error:
        raise type(error)(f"{source}: {error}") from error


def _with_noise(y: Indices, share: float, rng: np.random.Generator) -> Indices:
    """Labels of which a share has been replaced by others, evenly drawn."""
    n_classes = int(y.max()) + 1
    flipped = rng.permutation(len(y))[: round(share * len(y))]
    noisy = y.copy()
    noisy[flipped] = (y[flipped] + rng.integers(1, n_classes, len(flipped))) % n_classes
    return noisy


def _transformer(step: Mapping[str, Any], seed: int) -> Any:
    settings = {name: value for name, value in step.items() if name != "kind"}
    if step["kind"] not in descriptors.__all__:
        raise ValueError(f"there is no descriptor {step['kind']!r}; choose one of {', '.join(descriptors.__all__)}")
    made = getattr(descriptors, step["kind"])(**settings)
    return made.set_params(random_state=seed) if "random_state" in made.get_params() else made


def _subset(y: Indices, size: int | None, seed: int) -> Indices:
    """Rows drawn with a share of each class; all, where that is no more."""
    if size is None or size >= len(y):
        return np.arange(len(y))
    return np.sort(next(StratifiedShuffleSplit(1, train_size=size, random_state=seed).split(y, y))[0])


def _taken(data: Any, rows: Indices) -> Any:
    """The data set of some rows alone; suggested splits are lost."""
    groups = {name: np.asarray(values)[rows] for name, values in data.groups.items()}
    kept = {"y": data.y[rows], "class_names": data.class_names, "citation": data.citation, "groups": groups}
    if isinstance(data, ImageDataset):
        return ImageDataset(images=_chosen(data.images, rows), **kept)
    return Dataset(X=data.X[rows], ground_cost=data.ground_cost, **kept)


def _chosen(items: Any, rows: Indices) -> Any:
    return items[rows] if isinstance(items, np.ndarray) else [items[row] for row in rows]


def _protocol(study: Study, task: Task) -> str:
    kinds = {
        "half": "random halves, each with its share of every class",
        "own": "the authors' split, then random ones of the same size",
    }
    if study.splits.startswith("each "):
        how = f"each {study.group} held out in turn"
    elif study.splits.startswith("half by "):
        how = f"random halves of every class's {study.group}"
    else:
        how = kinds.get(study.splits, f"{study.splits} to train on, drawn at random")
    return f"{study.n_splits} splits: {how}; {len(task.y)} to train on, {len(task.y_test)} to test on in the first"


def _hash(thing: Any) -> str:
    return hashlib.sha256(json.dumps(thing, sort_keys=True, default=asdict).encode()).hexdigest()[:16]
