"""What an experiment consists of, read from TOML."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from knnpress.datasets import load_image_folder, load_points
from knnpress.descriptors.images import are_gray
from knnpress.experiments.study import Cell, Study, read_study

_FOLDER = Path(__file__).parent / "plans"
#: What may change in a study without changing what any of its runs means
_WHICH_RUNS = ("title", "features", "n_splits", "ratios", "methods", "once")


@dataclass(frozen=True)
class Plan:
    """Studies, and the seed of all that is random in them."""

    name: str
    title: str
    studies: tuple[Study, ...]
    seed: int = 0

    @property
    def fingerprint(self) -> str:
        """Differs between plans whose runs differ in anything."""
        return _hash([self.study_fingerprint(study) for study in self.studies])

    def study_fingerprint(self, study: Study) -> str:
        """Differs between studies whose runs of one name differ; which runs there are does not matter."""
        kept = {name: value for name, value in asdict(study).items() if name not in _WHICH_RUNS}
        return _hash([self.seed, kept])

    def cells(self) -> list[Cell]:
        """All runs, study by study."""
        return [cell for study in self.studies for cell in study.cells()]

    def part(self, only: Collection[str]) -> Plan:
        """The studies of some data sets."""
        known = {study.data for study in self.studies}
        unknown = sorted(set(only) - known)
        if unknown:
            raise ValueError(f"{self.name} has no data {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        return replace(self, studies=tuple(study for study in self.studies if study.data in only))


def _hash(thing: Any) -> str:
    return hashlib.sha256(json.dumps(thing, sort_keys=True).encode()).hexdigest()[:16]


def plan_names() -> list[str]:
    """The plans that ship with knnpress."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_plan(plan: str | os.PathLike[str]) -> Plan:
    """Read a plan: one that ships with knnpress, by name, or a TOML file; or make one for a folder or a file of points.

    Paths in a file are relative to it. ``include = ["eth80", …]`` takes over the studies of other plans.
    """
    path = Path(plan)
    if path.suffix != ".toml":
        shipped = _FOLDER / f"{plan}.toml"
        if not shipped.is_file():
            if path.exists():
                return _plan_of(path)
            raise ValueError(
                f"there is no plan {str(plan)!r}; choose one of {', '.join(plan_names())}, or give a .toml file, a "
                "folder of images or a file of points"
            )
        path = shipped
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML ({error}); see the plans that ship with knnpress") from error
    try:
        return _plan(content, path)
    except (TypeError, AttributeError, KeyError, RecursionError) as error:  # a number for a list, a plan within itself
        raise ValueError(
            f"{path} is not a plan ({type(error).__name__}: {error}); see those that ship with knnpress"
        ) from error


def _plan(content: dict[str, Any], path: Path) -> Plan:
    unknown = set(content) - {"title", "seed", "include", "defaults", "study"}
    if unknown:
        raise ValueError(f"{path} says {', '.join(sorted(unknown))}, which means nothing in a plan")
    include, tables, seed = content.get("include", []), content.get("study", []), content.get("seed", 0)
    if not isinstance(include, list) or not all(isinstance(name, str) for name in include):
        raise ValueError(f'{path} has include = {include!r}; give a list of plans, e.g. ["eth80"]')
    if not isinstance(tables, list):
        raise ValueError(f"{path} has one [study]; write [[study]], with two brackets, as there may be several")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"{path} has seed = {seed!r}; give a whole number from 0 to 2**32 - 1")
    included = [study for name in include for study in load_plan(name).studies]
    defaults = content.get("defaults", {})
    own = [read_study({**defaults, **table}, path) for table in tables]
    studies = (*included, *own)
    if not studies:
        raise ValueError(f"{path} has no [[study]]; a plan needs at least one")
    names = [study.name for study in studies]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{path} has two studies {twice.pop()!r}; give one of them a variant")
    return Plan(path.stem, content.get("title", path.stem), studies, seed)


def _plan_of(path: Path) -> Plan:
    """The usual methods on somebody's own images or points."""
    name = path.resolve().stem
    table: dict[str, Any] = {"data": name, "source": str(path.resolve())}
    if path.is_dir():
        images = load_image_folder(path)
        gray, y, n_classes = are_gray(images.images), images.y, len(images.class_names)
        learned, table["descriptor"] = "SCC", "gradient" if gray else "color-texture"
    else:
        points = load_points(path)
        if points.X.ndim == 2 and points.ground_cost is None:
            raise ValueError(
                f"{path} holds vectors, or histograms without a ground_cost; an experiment needs matrices, or "
                "histograms with the array ground_cost in the file. `knnpress compare` takes vectors"
            )
        learned, y, n_classes = "SCC" if points.X.ndim == 3 else "SHC", points.y, len(points.class_names)
    # Half of the points are learned from. Below one prototype per class, all sizes would be the same model
    smallest = max(0.02, math.ceil(100 * n_classes / (len(y) / 2)) / 100)
    table["ratios"] = [share for k in range(3) if (share := round(2**k * smallest, 2)) <= 0.5] or [0.5]
    table["methods"] = ["full", "Subsample", "Condensed", learned]
    return Plan(name, name, (read_study(table, path),))
