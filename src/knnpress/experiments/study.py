"""One data set, described and divided one way, and what is tried on it; and how a plan's table says so."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from knnpress import descriptors
from knnpress.experiments.methods import METHODS, OURS
from knnpress.names import DESCRIPTORS, command_name, descriptor_class, same_name
from knnpress.names import METHODS as COMMAND_METHODS

_NO_ARRAYS = ("LocalFeatures", "ContourPoints", "WordClouds")  # but clouds
_MAX_SPLITS = 10_000


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
        Use only this many points, drawn at random from each class.
    train_share : float
        Share of the training points that are learned from, drawn at random from each class; all are tested.
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
    train_share: float = 1.0
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


def read_study(table: dict[str, Any], path: Path) -> Study:
    """The study that a table of the plan at `path` describes; names may be written in any way that is understood."""
    where = f"{path}, study {table.get('data', '?')!r}"
    _check_keys(table, where)
    for name in ("methods", "once"):
        table = {**table, name: [_method(method, where) for method in _texts(table.get(name, []), name, where)]}
    _check_numbers(table, where)
    if "descriptor" in table:
        table = {**table, "descriptor": _descriptor(table["descriptor"], where)}
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


def _check_keys(table: dict[str, Any], where: str) -> None:
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
    settings = table.get("settings", {})
    if not isinstance(settings, dict) or not all(isinstance(value, dict) for value in settings.values()):
        raise ValueError(
            f"{where} has settings {settings!r}; give a table for each method, e.g. SCC = {{ gamma = 2.0 }}"
        )
    unknown = sorted(set(settings) - set(METHODS))
    if unknown:
        raise ValueError(f"{where} has settings for {unknown[0]!r}; known methods: {', '.join(METHODS)}")
    _check_splits(table.get("splits", "half"), where)


def _check_splits(splits: str, where: str) -> None:
    if splits.endswith(" a class"):
        count = splits.removesuffix(" a class")
        if not count.isdecimal() or int(count) < 1:
            raise ValueError(
                f"{where} has splits {splits!r}; give how many points of each class to learn from, e.g. '100 a class'"
            )


def _check_numbers(table: dict[str, Any], where: str) -> None:
    ratios = table.get("ratios", [])
    if (
        not isinstance(ratios, list)
        or ("ratios" in table and not ratios)
        or not all(_is_number(ratio) and 0 < ratio <= 1 for ratio in ratios)
    ):
        raise ValueError(f"{where} has ratios {ratios!r}; give shares of the training set, e.g. [0.02, 0.04]")
    n_splits, subset = table.get("n_splits", 5), table.get("subset", 1)
    if not isinstance(n_splits, int) or not 1 <= n_splits <= _MAX_SPLITS:
        raise ValueError(f"{where} has n_splits {n_splits!r}; give 1 to {_MAX_SPLITS}")
    if not isinstance(subset, int) or subset < 1:
        raise ValueError(f"{where} has subset {subset!r}; give how many points to take, or leave it out")
    reg, noise = table.get("reg", 0.1), table.get("label_noise", 0.0)
    if not _is_number(reg) or reg <= 0:
        raise ValueError(f"{where} has reg {reg!r}; give a number above 0, e.g. 0.1")
    if not _is_number(noise) or not 0 <= noise < 1:
        raise ValueError(f"{where} has label_noise {noise!r}; give a share from 0 to below 1")
    train_share = table.get("train_share", 1.0)
    if not _is_number(train_share) or not 0 < train_share <= 1:
        raise ValueError(f"{where} has train_share {train_share!r}; give a share of the training points, above 0 to 1")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _texts(value: object, name: str, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f'{where} has {name} = {value!r}; give a list of names, e.g. ["full", "SCC"]')
    return value


def _method(name: str, where: str) -> str:
    """The name of a method in records, of any way to write it."""
    command = command_name(name, COMMAND_METHODS)
    ways = (same_name(way, METHODS) for way in (name, command, COMMAND_METHODS.get(command, "")))
    known = next(filter(None, ways), None)
    if known is None:
        raise ValueError(f"{where} asks for {name!r}; known methods: {', '.join(METHODS)}")
    return known


def _descriptor(value: object, where: str) -> list[dict[str, Any]]:
    """The steps of a descriptor: each a name, or a table with its `kind` and settings."""
    found = []
    for step in value if isinstance(value, list) else [value]:
        table = {"kind": step} if isinstance(step, str) else step
        if not isinstance(table, dict) or not isinstance(table.get("kind"), str):
            raise ValueError(
                f'{where} has the descriptor {step!r}; give a name, e.g. "shape-context", or a table with its kind, '
                'e.g. { kind = "ShapeContext" }'
            )
        kind = same_name(table["kind"], descriptors.__all__)
        settings: dict[str, Any] = {}
        if kind is None:
            kind, settings = descriptor_class(table["kind"]) or ("", {})
        if not kind:
            known = ", ".join([*DESCRIPTORS, *descriptors.__all__])
            raise ValueError(f"{where} asks for the descriptor {table['kind']!r}; known: {known}")
        found.append({**settings, **table, "kind": kind})
        _check_step(found[-1], where)
    return found


def _check_step(step: dict[str, Any], where: str) -> None:
    """Refuse settings that a descriptor does not have, and what makes no points that experiments compare."""
    kind = step["kind"]
    made = getattr(descriptors, kind)
    if kind in _NO_ARRAYS or not hasattr(made, "transform"):
        raise ValueError(
            f"{where} asks for the descriptor {kind!r}, which does not turn images into matrices or histograms; "
            "choose another, e.g. RegionCovariance"
        )
    known = list(inspect.signature(made).parameters)
    unknown = sorted(set(step) - {"kind", *known})
    if unknown:
        raise ValueError(f"{where} has {unknown[0]!r} for {kind}, which has {', '.join(known)}")


def ours(study: Study) -> str | None:
    """The learned method of a study, if it has one."""
    return next((method for method in study.methods if method in OURS), None)
