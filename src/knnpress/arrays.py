"""User input as arrays of floats, or refused."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np

from knnpress.exceptions import InvalidPointError, how_many
from knnpress.typing import Array, ArrayLike, Indices, Labels


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


def named_groups(groups: ArrayLike, thing: str = "point") -> tuple[Labels, Indices]:
    """Names of the groups, sorted, and which one each point belongs to; refuses what names no group."""
    if np.ma.is_masked(groups):
        raise ValueError(f"groups has missing entries (it is masked); give every {thing} a group")
    array = np.asarray(groups)
    if array.dtype.kind in "cV":
        raise ValueError(f"groups is of type {array.dtype}; give numbers or names")
    if array.dtype.kind in "fmM" and (missing := array != array).any():
        row = int(np.flatnonzero(missing)[0])
        raise ValueError(f"groups[{row}] is {'NaN' if array.dtype.kind == 'f' else 'NaT'}; give every {thing} a group")
    if array.dtype.kind == "O" and any(map(is_missing, array)):
        raise ValueError(f"groups has missing entries (None or NaN); give every {thing} a group")
    try:
        names, member = np.unique(array, return_inverse=True)
    except TypeError:
        raise ValueError(f"groups has names of several kinds ({kinds(array)}); use one, e.g. text") from None
    return names, member


def is_missing(label: Any) -> bool:
    """Whether it is None, NaN, NaT or pandas.NA."""
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas.NA does not say
        return True


def kinds(labels: Array) -> str:
    """The types of an array's entries, for a message."""
    return ", ".join(sorted({type(label).__name__ for label in labels.tolist()}))


def _refuse_masked(X: Any, name: str) -> None:
    if not np.ma.is_masked(X):
        return
    mask = np.atleast_1d(np.ma.getmaskarray(X))
    rows = np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1))
    where = [int(k) for k in np.argwhere(mask[rows[0]])[0]]
    at = f" at {where}" if where else ""
    raise InvalidPointError(
        f"{name}[{rows[0]}] is masked{at}, {how_many(len(rows), len(mask), 'points')}; remove them or fill the gaps"
    )


def _strange(raw: Array) -> str:
    """The text or times that an array holds, in words; empty where it holds neither."""
    if raw.dtype.kind in "mM":
        return "times"
    for item in raw.flat[:1] if raw.dtype.kind in "US" else raw.flat if raw.dtype.kind == "O" else ():
        if isinstance(item, (str, bytes)):
            return f"text ({_plain(item)!r:.40})"
        if isinstance(item, (timedelta, date, np.timedelta64, np.datetime64)):
            return "times"
    return ""


def _plain(item: Any) -> Any:
    """Without NumPy's wrapping, whose name would only disturb in a message."""
    return item.item() if isinstance(item, np.generic) else item
