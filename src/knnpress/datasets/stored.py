"""Points in stores that may be larger than memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from knnpress.arrays import as_float_array
from knnpress.clouds import StoredClouds
from knnpress.datasets.dataset import Dataset, class_labels, encode
from knnpress.files import check_unpacked
from knnpress.typing import Array

#: What may stand between the bytes of a store and its numbers; "pickle" may not
_CODECS = {
    *("bytes", "transpose", "sharding_indexed", "crc32c", "vlen-utf8", "fixed_length_utf32", "scale_offset"),
    *("blosc", "gzip", "zstd", "zlib", "lz4", "bz2", "lzma", "shuffle", "delta", "adler32", "crc32", "fletcher32"),
}


def is_zarr(path: str | os.PathLike[str]) -> bool:
    """Whether there is a zarr store at `path`."""
    return any((Path(path) / name).exists() for name in ("zarr.json", ".zgroup", ".zarray"))


def open_zarr(path: str | os.PathLike[str]) -> Dataset:
    """Labelled points of a zarr group; X stays in the store.

    Parameters
    ----------
    path : path
        A group with the arrays X, (n, d, d) or (n, d), and y, (n,); ground_cost if there is. Clouds have the arrays
        points, (n_points, d), and offsets, (n + 1,), instead of X, and weights, (n_points,), if there are.

    Returns
    -------
    Dataset
        X is a zarr array, or `StoredClouds` of one; y is 0-based; class_names holds the labels found.
    """
    group = _open(path)
    names = _names(group, path)
    if {"points", "offsets", "y"} <= set(names):
        return _open_clouds(group, names, path)
    if not {"X", "y"} <= set(names):
        raise ValueError(f"{path} is not a zarr group with the arrays X and y, or points, offsets and y for clouds")
    arrays = {name: _checked(group, name, path) for name in names if name in ("X", "y", "ground_cost")}
    X, codes_names = arrays["X"], encode(class_labels(_in_memory(arrays["y"], path).reshape(-1), Path(path)))
    if X.ndim not in (2, 3) or X.shape[0] != len(codes_names[0]):
        raise ValueError(
            f"{path} holds points of shape {X.shape} and {len(codes_names[0])} labels; expected (n, d, d) or (n, d), "
            "and n"
        )
    cost = None
    if "ground_cost" in arrays:
        cost = as_float_array(_in_memory(arrays["ground_cost"], path), "ground_cost")
    return Dataset(X, *codes_names, f"points of the store {path}", cost)


def _open_clouds(group: Any, names: list[str], path: str | os.PathLike[str]) -> Dataset:
    arrays = {name: _checked(group, name, path) for name in names if name in ("points", "offsets", "weights", "y")}
    offsets, y = (_in_memory(arrays[name], path) for name in ("offsets", "y"))
    try:
        X = StoredClouds(arrays["points"], offsets, arrays.get("weights"))
    except ValueError as error:
        raise type(error)(f"{path} holds no sound clouds: {error}") from error
    codes, class_names = encode(class_labels(y.reshape(-1), Path(path)))
    if len(X) != len(codes):
        raise ValueError(f"{path} holds {len(X)} clouds and {len(codes)} labels; give one for each")
    return Dataset(X, codes, class_names, f"clouds of the store {path}")


def read_zarr(path: str | os.PathLike[str]) -> dict[str, Array]:
    """All arrays of a zarr group, in memory."""
    group = _open(path)
    return {name: _in_memory(_checked(group, name, path), path) for name in _names(group, path)}


def _names(group: Any, path: str | os.PathLike[str]) -> list[str]:
    """The names of a group's arrays; none where it is not a group."""
    try:
        return sorted(group.array_keys()) if hasattr(group, "array_keys") else []
    except Exception as error:  # the readers raise many kinds
        raise ValueError(f"{path} cannot be read as zarr ({error}); copy it again") from error


def _checked(group: Any, name: str, path: str | os.PathLike[str]) -> Any:
    """An array of a group, once it is certain that to read it runs nothing: some filters of zarr unpickle."""
    try:
        array = group[name]
        strange = [name for name in _codec_names(array) if name not in _CODECS]
    except Exception as error:
        raise ValueError(f"{path} cannot be read as zarr ({error}); copy it again") from error
    if strange or array.dtype.kind not in "biufcUST":
        what = f"is stored with {strange[0]!r}" if strange else f"has dtype {array.dtype}"
        raise ValueError(f"{name} of {path} {what}; store it as plain numbers or text")
    return array


def _codec_names(array: Any) -> list[str]:
    """What an array is stored with, in zarr 3 and in zarr 2."""
    if hasattr(array, "metadata"):
        known = array.metadata.to_dict()
        parts = [*(known.get("codecs") or ()), *(known.get("filters") or ()), known.get("compressor")]
    else:
        parts = [codec and codec.get_config() for codec in (*(array.filters or ()), array.compressor)]
    return [str(part.get("id") or part.get("name")) for part in parts if part]


def _in_memory(array: Any, path: str | os.PathLike[str]) -> Array:
    packed = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
    try:
        check_unpacked(int(array.nbytes), packed)
        return np.asarray(array[...])
    except Exception as error:
        raise ValueError(f"{path} cannot be read as zarr ({error}); copy it again") from error


def _open(path: str | os.PathLike[str]) -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError("zarr is not installed: pip install knnpress[dask]") from error
    try:
        return zarr.open(os.fspath(path), mode="r")
    except Exception as error:
        raise ValueError(f"{path} cannot be read as zarr ({error}); copy it again") from error
