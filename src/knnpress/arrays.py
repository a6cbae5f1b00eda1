"""User input as arrays of floats, or refused."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np

from knnpress.exceptions import InvalidPointError
from knnpress.typing import Array, ArrayLike


def as_float_array(X: ArrayLike, name: str) -> Array:
    """X as a float64 C-array of any shape; refuses what is sparse, complex, ragged, masked or not numbers."""
    if type(X) is np.ndarray and X.dtype == np.float64 and X.flags.c_contiguous and X.flags.aligned:
        return X  # the usual case, quick to recognise
    if hasattr(X, "toarray"):
        raise TypeError(f"Sparse data was passed as {name}, but dense data is required; use {name}.toarray()")
    _refuse_masked(X, name)
    try:
        raw = np.asarray(X)
        strange = _strange(raw)  # which NumPy would turn into numbers
        if strange:
            raise ValueError(f"it holds {strange}; give numbers")
        array = raw if np.iscomplexobj(raw) else np.require(raw, np.float64, ["C", "A"])
    except OverflowError as error:
        raise ValueError(f"{name} cannot be read as numbers: {error}") from error
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} cannot be read as numbers: {error}") from error
    if np.iscomplexobj(array):
        raise ValueError(f"Complex data not supported: {name} has dtype {array.dtype}; split it into real features")
    return array


def _refuse_masked(X: Any, name: str) -> None:
    if not np.ma.is_masked(X):
        return
    mask = np.atleast_1d(np.ma.getmaskarray(X))
    rows = np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1))
    where = [int(k) for k in np.argwhere(mask[rows[0]])[0]]
    at = f" at {where}" if where else ""
    raise InvalidPointError(
        f"{name}[{rows[0]}] is masked{at}, as are {len(rows)} of {len(mask)} points; remove them or fill the gaps"
    )


def _strange(raw: Array) -> str:
    """The text or times that an array holds, in words; empty where it holds neither."""
    if raw.dtype.kind in "mM":
        return "times"
    for item in raw.flat[:1] if raw.dtype.kind in "US" else raw.flat if raw.dtype.kind == "O" else ():
        if isinstance(item, (str, bytes)):
            return f"text ({item!r:.40})"
        if isinstance(item, (timedelta, date, np.timedelta64, np.datetime64)):
            return "times"
    return ""
