"""Points in stores that may be larger than memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from knnpress.datasets.dataset import Dataset, encode
from knnpress.geometries.base import as_float_array

__all__ = ["is_zarr", "open_zarr"]


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
    try:
        import zarr
    except ImportError as error:
        raise ImportError("zarr is not installed: pip install knnpress[dask]") from error
    group = zarr.open(os.fspath(path), mode="r")
    if not (isinstance(group, zarr.Group) and "X" in group and "y" in group):
        raise ValueError(f"{path} is no zarr group with the arrays X and y")
    X, codes_names = group["X"], encode(np.asarray(group["y"][:]))
    if X.ndim not in (2, 3) or X.shape[0] != len(codes_names[0]):
        raise ValueError(
            f"{path} holds points of shape {X.shape} and {len(codes_names[0])} labels; expected (n, d, d) or (n, d), "
            "and n"
        )
    cost = as_float_array(group["ground_cost"][:], "ground_cost") if "ground_cost" in group else None
    return Dataset(X, *codes_names, f"points of the store {path}", cost)
