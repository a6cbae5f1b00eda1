"""Texts that tell one piece of work from another: whether a file from an earlier run belongs to it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import is_dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.clouds import Clouds


def describe(value: Any) -> str:
    """A text that is the same for equal values, in another process too."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        digest = _digest(np.asarray(value, order="C").data)
        return f"array of shape {value.shape} and dtype {value.dtype}, {digest}"
    if isinstance(value, Clouds):
        return f"{value!r}, {_digest(value.tobytes())}"
    if isinstance(value, BaseEstimator):
        return _described(value, value.get_params(deep=False))
    if is_dataclass(value) and not isinstance(value, type):
        return _described(value, vars(value))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name!r}: {describe(v)}' for name, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        text = ", ".join(map(describe, value))
        return f"{type(value).__name__}({text if len(text) < 200 else _digest(text.encode())})"
    if value is None or isinstance(value, (str, Real, np.generic)):
        return repr(value)
    return f"{type(value).__name__} {getattr(value, '__qualname__', '')}"


def describe_all(values: Mapping[str, Any]) -> dict[str, str]:
    """Texts of values by their names; the parameters of an estimator one by one, as ``"name.parameter"``."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, BaseEstimator):
            texts[name] = type(value).__name__
            texts |= {f"{name}.{key}": describe(part) for key, part in value.get_params(deep=False).items()}
        else:
            texts[name] = describe(value)
    return texts


def _described(value: Any, parts: Mapping[str, Any]) -> str:
    return f"{type(value).__name__}({', '.join(f'{name}={describe(part)}' for name, part in parts.items())})"


def _digest(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has changed, in words; empty where nothing has."""

    def differs(name: str) -> bool:
        return before.get(name) != now.get(name)

    # where the estimator is another one, its parameters say nothing
    changed = [name for name in now if differs(name) and ("." not in name or not differs(name.split(".")[0]))]
    return "; ".join(f"{name} was {before.get(name, 'unknown'):.80} and is {now[name]:.80}" for name in changed)
