"""What an experiment consists of, read from TOML."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from knnpress.experiments.methods import METHODS, OURS

__all__ = ["Cell", "Plan", "Study", "load_plan", "plan_names"]

_FOLDER = Path(__file__).parent / "plans"
_MOST_SPLITS = 10_000
#: What may change in a study without changing what any of its runs means
_WHICH_RUNS = ("title", "features", "n_splits", "ratios", "methods", "once")


@dataclass(frozen=True)
class Study:
    """One data set, described one way and divided one way, and what is to be tried on it.

    Attributes
    ----------
    data : str
        The name of the data set in records and figures.
    source : str
        A reader of `knnpress.datasets` by name ("eth80", "digits-covariances", …), or a folder of images, or a file of
        points.
    title : str
    descriptor : tuple of mapping
        Transformers of `knnpress.descriptors`, one after the other: ``{kind = "RegionCovariance", …}``. Those that
        learn are fitted on each training part alone.
    features : str
        What the descriptor measures, for the reader.
    variant : str
        Sets apart several studies of one data set, e.g. "by object".
    splits : str
        "half", "half by GROUP" (of the groups of each class), "N a class", "each GROUP" (held out in turn) or "own"
        (the data set's own, then random ones of the same size).
    n_splits : int
    ratios : tuple of float
        Sizes of compressed sets, as shares of the training set.
    methods : tuple of str
        On all splits; those that compress, at all ratios.
    once : tuple of str
        Only on the first split.
    reg : float
        Of Sinkhorn's distance, in units of the median positive cost.
    label_noise : float
        Share of training labels to replace by wrong ones.
    subset : int or None
        Only so many points, drawn at random from each class.
    settings : mapping of str to mapping
        Parameters of a method that differ from its usual ones; of a learned one also those of its compressor.
    """

    data: str
    source: str
    title: str = ""
    descriptor: tuple[Mapping[str, Any], ...] = ()
    features: str = ""
    variant: str = ""
    splits: str = "half"
    n_splits: int = 5
    ratios: tuple[float, ...] = (0.02, 0.04, 0.08, 0.16)
    methods: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    reg: float = 0.1
    label_noise: float = 0.0
    subset: int | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def cells(self) -> Iterator[Cell]:
        """All runs of the study."""
        for split in range(self.n_splits):
            for method in self.methods if split else (*self.methods, *self.once):
                sized, alone = METHODS[method].sized, METHODS[method].alone
                for ratio in (*(self.ratios if sized else ()), *((None,) if alone else ())):
                    yield Cell(self, split, method, ratio)

    @property
    def name(self) -> str:
        """The data set and the variant."""
        return f"{self.data} {self.variant}".strip()

    @property
    def group(self) -> str | None:
        """What the splits divide by, e.g. "object_id"; None where they divide by points."""
        starts = [start for start in ("half by ", "each ") if self.splits.startswith(start)]
        return self.splits.removeprefix(starts[0]) if starts else None


@dataclass(frozen=True)
class Cell:
    """One run: a method at one size (None: its own) on one split."""

    study: Study
    split: int
    method: str
    ratio: float | None

    @property
    def id(self) -> str:
        """Names the run within its plan."""
        size = "" if self.ratio is None else f" {self.ratio:g}"
        return f"{self.study.name} / {self.split} / {self.method}{size}"


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
    """Read a plan: one that ships with knnpress, by name, or a TOML file.

    Paths in a file are relative to it. ``include = ["eth80", …]`` takes over the studies of other plans.
    """
    path = Path(plan)
    if path.suffix != ".toml":
        path = _FOLDER / f"{plan}.toml"
        if not path.is_file():
            raise ValueError(
                f"there is no plan {str(plan)!r}; choose one of {', '.join(plan_names())}, or a .toml file"
            )
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no TOML ({error}); see the plans that ship with knnpress") from error
    try:
        return _plan(content, path)
    except (TypeError, AttributeError, KeyError, RecursionError) as error:  # a number for a list, a plan within itself
        raise ValueError(
            f"{path} is no plan ({type(error).__name__}: {error}); see those that ship with knnpress"
        ) from error


def _plan(content: dict[str, Any], path: Path) -> Plan:
    unknown = set(content) - {"title", "seed", "include", "defaults", "study"}
    if unknown:
        raise ValueError(f"{path} says {', '.join(sorted(unknown))}, which means nothing in a plan")
    included = [study for name in content.get("include", []) for study in load_plan(name).studies]
    defaults = content.get("defaults", {})
    own = [_study({**defaults, **table}, path) for table in content.get("study", [])]
    studies = (*included, *own)
    if not studies:
        raise ValueError(f"{path} has no [[study]]; a plan needs at least one")
    names = [study.name for study in studies]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{path} has two studies {twice.pop()!r}; give one of them a variant")
    return Plan(path.stem, content.get("title", path.stem), studies, int(content.get("seed", 0)))


def _study(table: dict[str, Any], path: Path) -> Study:
    where = f"{path}, study {table.get('data', '?')!r}"
    known = {f.name for f in fields(Study)}
    if set(table) - known:
        raise ValueError(
            f"{where} says {', '.join(sorted(set(table) - known))}; a study knows {', '.join(sorted(known))}"
        )
    missing = {"data", "source", "methods"} - set(table)
    if missing:
        raise ValueError(f"{where} lacks {', '.join(sorted(missing))}")
    for name in ("data", "source", "title", "variant", "features", "splits"):
        if not isinstance(table.get(name, ""), str):
            raise ValueError(f"{where} has {name} = {table[name]!r}; give text")
    for method in (*table["methods"], *table.get("once", ())):
        if method not in METHODS:
            raise ValueError(f"{where} asks for {method!r}; known methods: {', '.join(METHODS)}")
    if not all(isinstance(r, (int, float)) and 0 < r <= 1 for r in table.get("ratios", ())):
        raise ValueError(f"{where} has ratios {table['ratios']}; give shares of the training set, e.g. 0.02")
    if not isinstance(table.get("n_splits", 5), int) or not 1 <= table.get("n_splits", 5) <= _MOST_SPLITS:
        raise ValueError(f"{where} has n_splits {table['n_splits']!r}; give 1 to {_MOST_SPLITS}")
    source = table["source"]
    beside = path.parent / source
    if beside.exists():
        table = {**table, "source": str(beside.resolve())}
    lists = {name: tuple(value) for name, value in table.items() if isinstance(value, list)}
    study = Study(**{"title": table["data"], **table, **lists})
    grouped = [method for method in (*study.methods, *study.once) if METHODS[method].takes_groups]
    if grouped and study.group is None:
        raise ValueError(
            f"{where} asks for {grouped[0]!r}, but its splits, {study.splits!r}, know no groups; choose 'half by "
            "GROUP' or 'each GROUP'"
        )
    return study


def ours(study: Study) -> str | None:
    """The learned method of a study, if it has one."""
    return next((method for method in study.methods if method in OURS), None)
