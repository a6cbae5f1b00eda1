"""Points in stores that may be larger than memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from knnpress.datasets.dataset import Dataset, encode
from knnpress.geometries.base import as_float_array
from knnpress.typing import Array

__all__ = ["is_zarr", "open_zarr", "read_zarr"]


def is_zarr(path: str | os.PathLike[str]) -> bool:
    """Whether there is a zarr store at `path`."""
    return any((Path(path) / name).exists() for name in ("zarr.json", ".zgroup", ".zarray"))


def open_zarr(path: str | os.PathLike[str]) -> Dataset:
    """Labelled points of a zarr group; X stays in the store.

    Parameters
    ----------
    path : path
        A group with the arrays X, (n, d, d) or (n, d), and y, (n,); ground_cost if there is.

    Returns
    -------
    Dataset
        X is a zarr array; y is 0-based; class_names holds the labels found.
    """
    group = _open(path)
    if not (hasattr(group, "arrays") and "X" in group and "y" in group):
        raise ValueError(f"{path} is no zarr group with the arrays X and y")
    X, codes_names = group["X"], encode(np.asarray(group["y"][:]))
    if X.ndim not in (2, 3) or X.shape[0] != len(codes_names[0]):
        raise ValueError(
            f"{path} holds points of shape {X.shape} and {len(codes_names[0])} labels; expected (n, d, d) or (n, d), "
            "and n"
        )
    cost = as_float_array(group["ground_cost"][:], "ground_cost") if "ground_cost" in group else None
    return Dataset(X, *codes_names, f"points of the store {path}", cost)


def read_zarr(path: str | os.PathLike[str]) -> dict[str, Array]:
    """All arrays of a zarr group, in memory."""
    group = _open(path)
    if not hasattr(group, "arrays"):
        raise ValueError(f"{path} is a zarr array; give a group with the arrays X and y")
    try:
        return {name: np.asarray(array[...]) for name, array in group.arrays()}
    except Exception as error:  # the readers raise many kinds
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
