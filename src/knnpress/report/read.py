"""Read a results folder: the plan, the records of finished runs, and what there is to show of each data set."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from knnpress.experiments.records import Record, finite_number
from knnpress.export.js import js_source
from knnpress.export.tables import exported
from knnpress.files import file_stem, read_npz
from knnpress.model_file import load
from knnpress.typing import Array

_DRAWN_PIXELS = 64  # of the 8 x 8 grid that a drawing on the page is reduced to


@dataclass(frozen=True)
class DataSet:
    """What the plan says of a data set."""

    name: str
    title: str = ""
    kind: str = ""
    protocol: str = ""
    features: str = ""
    citation: str = ""
    geometry: str = ""
    n: int | None = None
    dims: int | None = None
    n_classes: int | None = None
    class_names: tuple[str, ...] = ()
    ratios: tuple[float, ...] = ()

    def class_name(self, label: int) -> str:
        """The name of a class, or its number."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else str(label)

    def class_sign(self, label: int) -> str:
        """The name of a class where all names are short, or else its number, from one."""
        brief = all(len(name) <= 2 for name in self.class_names)
        return self.class_name(label) if brief else str(label + 1)

    def class_entry(self, label: int) -> str:
        """The sign of a class and what it stands for."""
        sign, name = self.class_sign(label), self.class_name(label)
        return name if sign == name else f"{sign} {name}"


@dataclass(frozen=True)
class Exhibit:
    """Arrays to show of one data set, and how they came about.

    `script` is a model in JavaScript, where points can be drawn by hand.
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    method: str = ""
    ratio: float | None = None
    map: str = ""
    script: str = ""

    def get(self, name: str, ndim: tuple[int, ...]) -> Array | None:
        """An array that is there, is not empty and has one of these numbers of dimensions; None otherwise."""
        array = self.arrays.get(name)
        return array if array is not None and array.ndim in ndim and array.size else None


@dataclass(frozen=True)
class Results:
    """All that a results folder holds.

    Attributes
    ----------
    name, title : str
    data : dict of str to DataSet
        Those that have records.
    records : list of Record
    exhibits : dict of str to Exhibit
    notices : list of str
        What could not be read.
    planned : int
        Sizes of all data sets of the plan.
    """

    name: str
    title: str
    data: dict[str, DataSet]
    records: list[Record]
    exhibits: dict[str, Exhibit]
    notices: list[str]
    planned: int


def read_results(folder: Path) -> Results:
    """Read what ``knnpress experiment`` wrote.

    Parameters
    ----------
    folder : path

    Raises
    ------
    ValueError
        Where there is no plan, or not a single record.
    """
    plan = _read_plan(folder)
    notices: list[str] = []
    records = _read_records(folder / "records.jsonl", notices)
    if not records:
        why = f" ({'; '.join(notices)})" if notices else ""
        raise ValueError(f"{folder} holds no finished run{why}; let knnpress experiment finish one")
    about = plan.get("data")
    about = about if isinstance(about, dict) else {}
    used = {record.data for record in records}
    names = [*(name for name in about if name in used), *sorted(used - set(about))]
    data = {name: _data_set(name, about.get(name)) for name in names}
    exhibits = {name: _read_exhibit(folder / "exhibits", name, notices) for name in data}
    title = _text(plan.get("title")) or _text(plan.get("name")) or "Results"
    planned = sum(len(_data_set(name, facts).ratios) for name, facts in about.items())
    return Results(_text(plan.get("name")), title, data, records, exhibits, notices, planned)


def _read_plan(folder: Path) -> dict[str, Any]:
    path = folder / "plan.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no plan.json; give a folder that knnpress experiment wrote")
    try:
        plan = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error})") from error
    if not isinstance(plan, dict):
        raise ValueError(f"{path} holds no plan")
    return plan


def _read_records(path: Path, notices: list[str]) -> list[Record]:
    """The last record of each run, in the order of the file; of a study that was planned twice, the later plan's."""
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    found: dict[str, Record] = {}
    strange: list[int] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
            if raw.get("kind", "run") != "run":  # older ones hold what was tuned before
                continue
            record = Record.from_json(raw)
            found[record.id or str(number)] = record
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            strange.append(number)
    if strange:
        shown = ", ".join(map(str, strange[:5])) + (", …" if len(strange) > 5 else "")
        notices.append(f"{path.name}: left out {len(strange)} broken line{'s' * (len(strange) > 1)} ({shown})")
    plans = {(record.data, record.variant): record.plan for record in found.values()}
    kept = [record for record in found.values() if record.plan == plans[record.data, record.variant]]
    others = len(found) - len(kept)
    if others:
        notices.append(f"{path.name}: left out {others} record{'s' * (others > 1)} of another plan")
    return kept


def _data_set(name: str, about: object) -> DataSet:
    raw = _mapping(about)
    text = {key: _text(raw.get(key)) for key in ("title", "kind", "protocol", "features", "citation", "geometry")}
    count = {key: raw[key] if isinstance(raw.get(key), int) else None for key in ("n", "dims", "n_classes")}
    known: dict[str, Any] = {**text, **count, "title": text["title"] or name}
    ratios = tuple(number for ratio in _items(raw.get("ratios")) if (number := finite_number(ratio)) is not None)
    return DataSet(name, **known, class_names=tuple(map(str, _items(raw.get("class_names")))), ratios=ratios)


def _read_exhibit(folder: Path, name: str, notices: list[str]) -> Exhibit:
    stem = file_stem(name)  # a name is not a path
    path, about = folder / f"{stem}.npz", folder / f"{stem}.json"
    arrays: dict[str, Array] = {}
    if path.is_file():
        try:
            arrays = read_npz(path)
        except Exception as error:  # the reader raises many kinds
            notices.append(f"exhibits/{path.name} cannot be read ({type(error).__name__}), so its pictures are missing")
            arrays = {}
    try:
        facts = _mapping(json.loads(about.read_bytes())) if about.is_file() else {}
    except (ValueError, RecursionError):
        notices.append(f"exhibits/{about.name} is not JSON and was left out")
        facts = {}
    script = _script(folder / f"{stem}.knnp", notices)
    return Exhibit(
        arrays, _text(facts.get("method")), finite_number(facts.get("ratio")), _text(facts.get("map")), script
    )


def _script(path: Path, notices: list[str]) -> str:
    """A model on 8 x 8 pixels as JavaScript. It is written here: a page runs no program that a folder brings along."""
    if not path.is_file():
        return ""
    try:
        facts = exported(load(path), "float64")
    except Exception as error:  # the model may be of any kind, and the file broken in any way
        notices.append(f"exhibits/{path.name} cannot be read ({type(error).__name__}), so there is nothing to draw on")
        return ""
    return js_source(facts) if facts.point_size == _DRAWN_PIXELS else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
