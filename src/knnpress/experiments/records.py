"""Records of finished runs: a JSON object per line, appended as they come."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from knnpress.experiments.plan import Plan
from knnpress.files import check_folder, name_file


@dataclass(frozen=True)
class Record:
    """One run, as a line of ``records.jsonl`` has it: these fields are written, and these are read.

    Times are in seconds, query times per query; None is unknown, and `ratio` None a size of its own.
    `full_search_seconds` times the exact search that leaves out what cannot be nearest, `full_query_seconds` one by
    all distances. `chosen` is the setting of a learned model, `wrong_rows` the test points that it got wrong.
    `reference_error` is the error of full 1-NN on the same queries, where the method was not tried on all.
    """

    data: str
    method: str
    split: int
    id: str = ""
    plan: str | None = None
    variant: str = ""
    ratio: float | None = None
    seed: int | None = None
    n_train: int = 0
    n_test: int = 0
    n_prototypes: int | None = None
    test_error: float | None = None
    train_error: float | None = None
    reference_error: float | None = None
    wrong_rows: list[int] | None = None
    train_seconds: float | None = None
    train_cpu_seconds: float | None = None
    query_seconds: float | None = None
    full_query_seconds: float | None = None
    full_search_seconds: float | None = None
    distance_seconds: float | None = None
    full_distance_seconds: float | None = None
    params: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, Any] | None = None
    versions: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    finished: str = ""
    failure: str | None = None

    @property
    def metric(self) -> str:
        """The metric that a learned model chose; empty where that is unknown."""
        metric = (self.chosen or {}).get("metric")
        return metric if isinstance(metric, str) else ""

    def as_json(self) -> dict[str, Any]:
        """What is known of the run."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Record:
        """Read a line; what it does not say is unknown.

        Raises
        ------
        ValueError
            Where a field holds something of another kind than it should, or a run has neither failed nor an error.
        """
        known: dict[str, Any] = {}
        for one in fields(cls):
            value = raw.get(one.name)
            if value is None:
                continue
            if not _KINDS[str(one.type).removesuffix(" | None")](value):
                raise ValueError(f"{one.name} is {value!r:.40}")
            known[one.name] = int(value) if str(one.type).startswith("int") else value
        if not {"data", "method", "split"} <= known.keys():
            raise ValueError("no data, method or split")
        if "failure" not in known and not 0 <= known.get("test_error", -1) <= 1:
            raise ValueError("no test error")
        return cls(**known)


def finite_number(value: object) -> float | None:
    """A number that is finite; None where it is anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def _is_whole(value: object) -> bool:
    number = finite_number(value)
    return number is not None and number == int(number)


#: Whether a value is of the kind that a field is declared as
_KINDS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": _is_whole,
    "float": lambda value: finite_number(value) is not None,
    "list[int]": lambda value: isinstance(value, list) and all(type(row) is int for row in value),
    "dict[str, Any]": lambda value: isinstance(value, dict),
}


def read_records(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of a file; a last line that was cut off is left out.

    Raises
    ------
    ValueError
        Where another line is not a record.
    """
    lines = Path(path).read_bytes().split(b"\n")
    whole, records = lines[:-1], []
    for number, line in enumerate(whole, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        fault = _fault(record)
        if fault:
            raise ValueError(f"{path}, line {number} is no record ({fault}); delete the line to go on without it")
        records.append(record)
    return records


def _fault(record: Any) -> str:
    """Why an experiment cannot go on from a line; empty where it can."""
    if not isinstance(record, dict):
        return "it is not a JSON object"
    for name in ("id", "plan"):
        if not isinstance(record.get(name), str):
            return f"its {name} is missing" if name not in record else f"its {name} is {record[name]!r}"
    return ""


class Recorder:
    """The results folder of a plan: refuses another plan's, and appends records so that a kill loses at most one."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.fingerprints = {(s.data, s.variant): plan.study_fingerprint(s) for s in plan.studies}
        self.path = folder / "records.jsonl"
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            self._mend()
            for record in read_records(self.path):
                if record.get("plan") not in self.fingerprints.values():
                    raise ValueError(
                        f"{self.path} holds records of another plan, e.g. {record.get('id')!r}; give another folder, "
                        "or take back what changed in the plan"
                    )

    def done(self) -> set[str]:
        """Ids of the runs that need not be repeated."""
        return {record["id"] for record in self.read() if "failure" not in record}

    def read(self) -> list[dict[str, Any]]:
        """All records so far."""
        return read_records(self.path) if self.path.exists() else []

    def append(self, record: dict[str, Any]) -> None:
        """Write a record, and make sure that it is on disk."""
        fingerprint = self.fingerprints[record["data"], record["variant"]]
        line = json.dumps({"id": record["id"], "plan": fingerprint, **record}, allow_nan=False)
        try:
            with open(self.path, "ab") as file:
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            name_file(error, self.path)
            raise

    def _mend(self) -> None:
        """Cut off an unfinished last line: the run was killed while it was written."""
        with open(self.path, "rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
