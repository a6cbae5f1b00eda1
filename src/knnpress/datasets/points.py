"""Points that somebody has already made: NumPy and MATLAB files."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from knnpress.arrays import as_float_array
from knnpress.clouds import Clouds
from knnpress.datasets.dataset import Dataset, class_labels, encode
from knnpress.datasets.matlab import read_mat
from knnpress.datasets.stored import is_zarr, read_zarr
from knnpress.files import check_room, read_npy, read_npz
from knnpress.typing import Array, Labels

_POINTS = ("X", "points", "covariances", "histograms", "x", "data")
_LABELS = ("y", "labels", "label", "class", "classes", "Y", "target")
_COST = ("ground_cost", "M", "cost")
_LONGEST = 1000  # letters of a label


def load_points(path: str | os.PathLike[str], labels: str | os.PathLike[str] | None = None) -> Dataset:
    """Covariance matrices, histograms or clouds with their labels, from a file.

    Parameters
    ----------
    path : path
        - ``.npz``: arrays X, (n, d, d) or (n, d), and y, (n,); and ground_cost and class_names if it has them. For
          clouds, what ``clouds.save(path, y=labels)`` writes.
        - ``.npy``: X alone; labels in a CSV file.
        - ``.mat`` (MATLAB, up to version 7): the same names; matrices may be stacked along the last axis or be cells.

        For X also points, covariances, histograms or data; for y also labels, class or target.
    labels : path or None
        CSV with a label per row, in the column label, class or y, or else the last. None: for ``.npy`` the file of the
        same name that ends in .csv; else from `path` itself.

    Returns
    -------
    Dataset
        y is 0-based; class_names holds the labels found.
    """
    path = Path(path)
    arrays = _read(path)
    X = _clouds(arrays, path)
    if X is None:
        X = _numbers(_pick(arrays, _POINTS, path, "points"), path, "X")
    if labels is None and path.suffix == ".npy":
        labels = path.with_suffix(".csv")
    if labels is None and isinstance(X, Clouds) and _find(arrays, _LABELS) is None:
        raise ValueError(f"{path} has no labels; save them beside the clouds, clouds.save(path, y=labels)")
    y = _pick(arrays, _LABELS, path, "labels").reshape(-1) if labels is None else _read_labels(Path(labels), len(X))
    if isinstance(X, Clouds):
        if len(X) != len(y):
            raise ValueError(f"{path} holds {len(X)} clouds and {len(y)} labels; give one for each")
    else:
        X = _points_first(X, len(y), from_matlab=path.suffix == ".mat")
    if not isinstance(X, Clouds) and (X.ndim not in (2, 3) or len(X) != len(y)):
        raise ValueError(
            f"{path} holds points of shape {X.shape} and {len(y)} labels; expected (n, d, d) or (n, d), and n"
        )
    y = class_labels(y, path)
    codes, names = encode(y)
    given = arrays.get("class_names")
    if (
        given is not None
        and y.size
        and np.issubdtype(y.dtype, np.integer)
        and y.min() >= 0
        and y.max() < np.size(given)
    ):
        codes, names = y.astype(np.intp), tuple(str(name).strip() for name in np.ravel(given).tolist())
    cost = _find(arrays, _COST)
    cost = None if cost is None else _numbers(cost, path, "ground_cost")
    return Dataset(X, codes, names, f"points of the file {path}", cost)


def load_unlabelled(path: str | os.PathLike[str]) -> Any:
    """Covariance matrices or histograms of a file that may have no labels: (n, d, d) or (n, d), to be predicted.

    Parameters
    ----------
    path : path
        As in `load_points`. In a MATLAB file without labels, points are taken to be stacked along the last axis where
        the first two are equal, or where the ground cost says so.
    """
    path = Path(path)
    arrays = _read(path)
    clouds = _clouds(arrays, path)
    if clouds is not None:
        return clouds
    X = _numbers(_pick(arrays, _POINTS, path, "points"), path, "X")
    labels, cost = _find(arrays, _LABELS), _find(arrays, _COST)
    in_columns = X.ndim == 3 or (X.ndim == 2 and cost is not None and X.shape[1] != len(cost))
    n = labels.size if labels is not None else X.shape[-1] if in_columns else len(X)
    X = _points_first(X, n, from_matlab=path.suffix == ".mat")
    if X.ndim not in (2, 3):
        raise ValueError(f"{path} holds points of shape {X.shape}; expected (n, d, d) or (n, d)")
    return X


def read_array(path: str | os.PathLike[str], name: str) -> Array | None:
    """A further array of a file of points, such as the subject of each; None where there is none of that name."""
    array = _read(Path(path)).get(name)
    return None if array is None else np.asarray(array).squeeze()


def load_groups(path: str | os.PathLike[str], column: str, labels: str | os.PathLike[str] | None = None) -> Labels:
    """What group each point of a file belongs to, e.g. its subject, (n,).

    Parameters
    ----------
    path : path
        As in `load_points`.
    column : str
        Name of an array of the file, one entry per point; or of a column of the CSV file of labels.
    labels : path or None
        As in `load_points`.
    """
    path = Path(path)
    arrays = _read(path)
    table = Path(labels) if labels is not None else path.with_suffix(".csv") if path.suffix == ".npy" else None
    rows = [] if table is None else _read_csv(table)
    if rows and column in rows[0]:
        place = rows[0].index(column)
        short = next((k for k, row in enumerate(rows[1:], 1) if len(row) <= place), None)
        if short is not None:
            raise ValueError(f"{table} has no column {column!r} in row {short} below its header; give every row one")
        groups = np.array([row[place].strip() for row in rows[1:]])
    elif column in arrays:
        groups = np.ravel(arrays[column])
    else:
        columns = [*arrays, *(rows[0] if rows else [])]
        raise ValueError(f"{path} has no groups {column!r}; choose from what it holds: {', '.join(columns)}")
    n = len(load_points(path, labels).y)
    if len(groups) != n:
        raise ValueError(f"{path}: {column} has {len(groups)} entries for {n} points; give one group for each point")
    return groups


@dataclass(frozen=True)
class RawPoints:
    """What a file holds, as found, whatever its type and shape, sound or not.

    Attributes
    ----------
    X : ndarray
    y, class_names, ground_cost : ndarray or None
        Where the file has them.
    labels_error : str
        Why a file of labels could not be used, if it could not.
    are_histograms : bool
        By the names in the file: there is a ground cost, or the points are called histograms.
    others : tuple of str
        Names of further arrays.
    """

    X: Array
    y: Array | None
    class_names: Array | None
    ground_cost: Array | None
    labels_error: str
    are_histograms: bool
    others: tuple[str, ...]


def read_raw_points(path: str | os.PathLike[str], labels: str | os.PathLike[str] | None = None) -> RawPoints:
    """The points of a file or zarr store as they are, for a look at what `load_points` refuses.

    Parameters
    ----------
    path, labels : path
        As in `load_points`.
    """
    path = Path(path)
    arrays = read_zarr(path) if is_zarr(path) else _read(path)
    if _clouds(arrays, path) is not None:
        raise ValueError(f"{path} holds clouds, which were checked as they were read; there is no more to examine")
    X = _pick(arrays, _POINTS, path, "points")
    if labels is None and path.suffix == ".npy" and path.with_suffix(".csv").is_file():
        labels = path.with_suffix(".csv")
    y, why = _find(arrays, _LABELS), ""
    if labels is not None:
        try:
            y = _read_labels(Path(labels), len(X) if X.ndim else 0)
        except (ValueError, IndexError) as error:
            y, why = None, str(error)
    y = None if y is None else y.reshape(-1)
    names, cost = arrays.get("class_names"), _find(arrays, _COST)
    n = len(y) if y is not None else X.shape[-1] if X.ndim == 3 else -1
    X = _points_first(X, n, from_matlab=path.suffix == ".mat")
    used = {name for group in (_POINTS, _LABELS, _COST) for name in group if name in arrays} | {"class_names"}
    are_histograms = X.ndim == 2 and (cost is not None or "histograms" in arrays)
    return RawPoints(X, y, names, cost, why, are_histograms, tuple(name for name in arrays if name not in used))


def _read(path: Path) -> Mapping[str, Array]:
    """The arrays of a file, by name."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there; give a .npz, .npy or .mat file of points")
    try:
        if path.suffix == ".npz":
            return read_npz(path)
        if path.suffix == ".npy":
            return {"X": read_npy(path)}
        if path.suffix == ".mat":
            return {name: _unpack(value) for name, value in read_mat(path).items()}
    except NotImplementedError as error:  # scipy's word for MATLAB's HDF5 files
        raise ValueError(f"{path} is a MATLAB 7.3 file; save it with save(..., '-v7')") from error
    except PermissionError:
        raise
    except Exception as error:  # the readers raise many kinds
        if "allow_pickle" in str(error):  # a sound file, of objects
            raise ValueError(
                f"{path} cannot be read as {path.suffix[1:]}: it holds Python objects, which are never unpickled "
                f"({error}); save its arrays as numbers or text"
            ) from error
        raise ValueError(f"{path} cannot be read as {path.suffix[1:]} ({error}); copy it again") from error
    raise ValueError(f"{path} ends in {path.suffix!r}; points are read from .npz, .npy and .mat files")


def _clouds(arrays: Mapping[str, Array], path: Path) -> Any:
    """The clouds of a file, or None where it holds none."""
    return Clouds.from_arrays(arrays, str(path)) if "offsets" in arrays and "table" in arrays else None


def _unpack(value: Any) -> Array:
    """A MATLAB array; cells of matrices as one stack."""
    array = np.asarray(value)
    if array.dtype != object:
        return array
    cells = [np.squeeze(cell) if np.size(cell) == 1 else np.asarray(cell) for cell in array.ravel()]
    return np.stack(cells)


def _numbers(array: Any, path: Path, name: str) -> Array:
    try:
        check_room(np.asarray(array))
    except ValueError as error:
        raise ValueError(f"{path}: {name} {error}") from error
    try:
        return as_float_array(array, name)
    except TypeError as error:  # records, sparse matrices: the file is to blame
        raise ValueError(f"{path}: {error}") from error


def _points_first(X: Array, n: int, from_matlab: bool) -> Array:
    """Points along the first axis; MATLAB has them along the last, (d, d, n) or (d, n)."""
    if not from_matlab or X.ndim not in (2, 3):
        return X
    last = X.shape[-1] == n and (X.shape[0] == X.shape[1] if X.ndim == 3 else X.shape[0] != n)
    return np.ascontiguousarray(np.moveaxis(X, -1, 0)) if last else X


def _pick(arrays: Mapping[str, Array], names: tuple[str, ...], path: Path, what: str) -> Array:
    found = _find(arrays, names)
    if found is None:
        raise ValueError(f"{path} has no {what}: it holds {', '.join(arrays) or 'nothing'}; name them {names[0]!r}")
    return found


def _find(arrays: Mapping[str, Array], names: tuple[str, ...]) -> Array | None:
    """The first array that has one of the names."""
    return next((arrays[name] for name in names if name in arrays), None)


def _read_csv(path: Path) -> list[list[str]]:
    if not path.is_file():
        raise FileNotFoundError(f"the labels were looked for in {path}, which is not there; give labels, a CSV file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [row for row in csv.reader(file) if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as CSV ({error}); save it as UTF-8 text") from error


def _read_labels(path: Path, n: int) -> Array:
    rows = _read_csv(path)
    header = rows[0] if len(rows) == n + 1 else []
    rows = rows[1:] if header else rows
    if len(rows) != n:
        raise ValueError(f"{path} holds {len(rows)} labels for {n} points; give one per row")
    column = next((header.index(name) for name in _LABELS if name in header), -1)
    short = next((k for k, row in enumerate(rows) if len(row) <= column), None)
    if short is not None:
        raise ValueError(
            f"{path} has no column {header[column]!r} in row {short + 1} below its header; give every row one"
        )
    labels = [row[column].strip() for row in rows]
    longest = max(labels, key=len, default="")
    if len(longest) > _LONGEST:  # every label of an array takes the room of the longest
        raise ValueError(
            f"{path} has a label of {len(longest):,} letters, {longest[:20]!r}…; is the right column chosen?"
        )
    values = np.array(labels)
    try:
        return values.astype(np.intp)
    except (ValueError, OverflowError):
        return values
