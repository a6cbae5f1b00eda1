"""Records of finished runs: a JSON object a line, appended as they come."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from knnpress.experiments.plan import Plan
from knnpress.files import check_folder, name_file

__all__ = ["Recorder", "read_records"]


def read_records(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of a file; a last line that was broken off is left out.

    Raises
    ------
    ValueError
        Where another line is no record.
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
    """What keeps a line from being a record that an experiment can go on from; nothing where all is well."""
    if not isinstance(record, dict):
        return "it is no JSON object"
    for name in ("id", "plan"):
        if not isinstance(record.get(name), str):
            return f"its {name} is missing" if name not in record else f"its {name} is {record[name]!r}"
    return ""


class Recorder:
    """The results folder of a plan: refuses that of another, and appends records so that a kill loses at most one."""

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
        """Ids of the runs that need no repeating."""
        return {record["id"] for record in self.read() if "failure" not in record}

    def read(self) -> list[dict[str, Any]]:
        """All records so far."""
        return read_records(self.path) if self.path.exists() else []

    def append(self, record: dict[str, Any]) -> None:
        """Write a record, and see it to the disk."""
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
        """Cut off a last line without an end: the run it was of was killed while it was written."""
        with open(self.path, "rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
