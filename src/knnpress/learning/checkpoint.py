"""What a long fit has done so far, in a file that outlives it: the numbers in safetensors, the rest in JSON."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from knnpress.files import check_output, replacing
from knnpress.learning.fingerprint import changes
from knnpress.learning.state import Arrays, DescentState, SaveState, pack, unpack

#: A step of a fit: from the state in which an earlier process left its descent, if any, to the step's result.
Compute = Callable[[DescentState | None, SaveState | None], Arrays]

_FORMAT, _VERSION = "knnpress-checkpoint", 3
_SECONDS = 2.0  # between two writings, at least
_PAUSE = 50.0  # and this many times as long as the last one took: large states must not slow the fit
_DTYPES = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}


class Checkpoint:
    """The results of the steps of a fit that are done, and the state of the descent that is under way.

    A fit is a sequence of steps, always the same for the same data and parameters, so a step is known by its number.

    Parameters
    ----------
    path : path or None
        The file; None: every step is computed and nothing is kept.
    about : dict of str
        What makes a fit this one and no other, by name.

    Attributes
    ----------
    reported : dict of str to int
        "iterations" and "notes" that the callback was called for: a resumed fit counts on from there.
    """

    def __init__(self, path: Path | None, about: dict[str, str]) -> None:
        self._path, self._about = path, {"knnpress": version("knnpress"), **about}
        self._done: list[Arrays] = []
        self._under_way: DescentState | None = None
        self._n_steps = 0
        self.reported = {"iterations": 0, "notes": 0}
        self._due = time.monotonic() + _SECONDS
        if path is not None and path.exists():
            self._read(path)

    def step(self, compute: Compute) -> Arrays:
        """The result of the next step: from the file, or computed, going on from where the file says it was."""
        if self._path is None:
            return compute(None, None)
        if self._n_steps == len(self._done):
            state, self._under_way = self._under_way, None
            self._done.append(compute(state, self._keep))
            self._keep(lambda: None)
        self._n_steps += 1
        return self._done[self._n_steps - 1]

    def remove(self) -> None:
        """Delete the file: the fit is over."""
        if self._path is not None:
            self._path.resolve().unlink(missing_ok=True)

    def _keep(self, read: Callable[[], DescentState | None]) -> None:
        begin = time.monotonic()
        if begin < self._due:
            return
        try:
            self._write(read())
        except OSError as error:
            warnings.warn(f"checkpoint {self._path} cannot be written ({error}); the fit goes on", stacklevel=2)
        now = time.monotonic()
        self._due = now + max(_SECONDS, _PAUSE * (now - begin))

    def _write(self, under_way: DescentState | None) -> None:
        assert self._path is not None
        arrays = {} if under_way is None else pack("under way", under_way.to_arrays())
        for k, result in enumerate(self._done):
            arrays |= pack(str(k), result)
        tensors = {key: np.asarray(array, order="C") for key, array in arrays.items()}
        facts = {"version": _VERSION, "about": self._about, "n_done": len(self._done), "told": self.reported}
        facts["checksum"] = _checksum(facts, tensors)
        header: dict[str, Any] = {"__metadata__": {_FORMAT: json.dumps(facts)}}
        end = 0
        for name, array in tensors.items():
            begin, end = end, end + array.nbytes
            header[name] = {"dtype": _DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with replacing(self._path) as file:  # array by array: a copy of all may not fit into memory
            file.write(len(text).to_bytes(8, "little") + text)
            for array in tensors.values():
                file.write(array.data)

    def _read(self, path: Path) -> None:
        remedy = "Delete it to start afresh, or give another file"
        try:
            with safe_open(path, "numpy") as file:
                facts = json.loads((file.metadata() or {})[_FORMAT])
                tensors = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            if facts["version"] != _VERSION:
                raise ValueError(f"it has version {facts['version']!r}, and this knnpress writes {_VERSION}")
            if facts.pop("checksum") != _checksum(facts, tensors):
                raise ValueError("it is damaged")
            changed = changes(facts["about"], self._about)
            self._done = [unpack(str(k), tensors) for k in range(facts["n_done"])]
            state = unpack("under way", tensors)
            self._under_way = DescentState.from_arrays(state) if state else None
            self.reported = {name: int(facts["told"][name]) for name in self.reported}
        except OSError:
            raise
        except Exception as error:  # whatever fails in here, it is the file that made it fail
            what = str(error) if isinstance(error, ValueError) else "no checkpoint of knnpress, or a damaged one"
            raise ValueError(f"checkpoint {path} cannot be used: {what}. {remedy}") from error
        if changed:
            raise ValueError(f"checkpoint {path} is of another fit: {changed}. {remedy}")


@contextmanager
def checkpoint_at(path: str | os.PathLike[str] | None, about: Callable[[], dict[str, str]]) -> Iterator[Checkpoint]:
    """The checkpoint at `path`, new or left by a fit that was interrupted; deleted when the block ends well.

    Parameters
    ----------
    path : str, path or None
        None: nothing is kept.
    about : callable
        Returns what makes a fit this one and no other; a checkpoint that says otherwise is refused.
    """
    file = None if path is None else Path(path)
    check_output(file)
    checkpoint = Checkpoint(file, {} if file is None else about())
    yield checkpoint
    checkpoint.remove()


def _checksum(facts: dict[str, Any], tensors: Arrays) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype.name} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()
