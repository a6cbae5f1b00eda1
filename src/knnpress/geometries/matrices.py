"""What the geometries of symmetric positive definite matrices share: the check of points, and an iterated centroid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from knnpress import _core
from knnpress.exceptions import InvalidPointError, how_many, warn_user
from knnpress.execution.threads import map_blocks, row_blocks
from knnpress.geometries.base import Geometry
from knnpress.geometries.checks import as_shaped_array, check_finite
from knnpress.typing import Array, ArrayLike

_SYMMETRY = 1e-8  # relative asymmetry taken for rounding
_RANGE = 1e-290, 4e307  # of variances
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


def check_spd(X: ArrayLike, name: str = "X", n_jobs: int | None = None) -> Array:
    """Return X as a float64 C-array (n, d, d) of symmetric positive definite matrices.

    Asymmetry below 1e-8 of a matrix's largest entry is taken for rounding and averaged away. A matrix counts as
    positive definite if every pivot of its LDL' factorisation exceeds d * eps of the diagonal entry it came from.
    """
    dtype = getattr(X, "dtype", None)
    if getattr(dtype, "kind", "") == "c":
        raise ValueError(
            f"Complex data not supported: {name} has dtype {dtype}; split it into real features: its "
            f"real part, {name}.real, or the real form of twice the size, np.block([[{name}.real, -{name}.imag], "
            f"[{name}.imag, {name}.real]]), which keeps all of it"
        )
    array = as_shaped_array(X, 3, name, "(n_matrices, d, d)", partial(_advice, name))
    square = array.shape[1] == array.shape[2]
    blocks = row_blocks(len(array), 8 * array[0].size)
    if square and all(map_blocks(lambda rows: _is_sound(array[rows]), blocks, n_jobs)):
        return array
    check_finite(array, name)
    if not square:
        raise ValueError(
            f"{name} has shape {array.shape}; expected square matrices (n_matrices, d, d). Of signals, (n, channels, "
            "times), knnpress.descriptors.SignalCovariance makes such matrices"
        )
    return _mend_or_refuse(array, name, blocks, n_jobs)


def _advice(name: str, shape: tuple[int, ...]) -> str:
    """What to do with an array that holds no matrices; nothing where it may be a single one."""
    if len(shape) != 2 or shape[0] == shape[1]:
        return ""
    d = math.isqrt(shape[1])
    if d > 1 and d * d == shape[1]:
        return f"Where each row is a flattened {d} x {d} matrix, give {name}.reshape(-1, {d}, {d})"
    return "Vectors are for SNC, and histograms for SHC"


def _is_sound(X: Array) -> bool:
    return _core.all_positive_definite(X, *_RANGE, X.shape[1] * _EPS)


def _mend_or_refuse(array: Array, name: str, blocks: Sequence[slice], n_jobs: int | None) -> Array:
    """Matrices of which not all are exactly as they should be: made symmetric, or refused with the reason."""

    def asymmetry(rows: slice) -> Array:
        block = array[rows]
        mirrored = block.transpose(0, 2, 1)
        if np.array_equal(block, mirrored):  # most are, and it is quickly seen
            return np.zeros(len(block))
        gap = np.abs(block - mirrored).max(axis=(1, 2))
        return gap / np.maximum(np.abs(block).max(axis=(1, 2)), _TINY)

    gap = np.concatenate(map_blocks(asymmetry, blocks, n_jobs))
    if (gap > _SYMMETRY).any():
        row = int(np.flatnonzero(gap > _SYMMETRY)[0])
        raise InvalidPointError(
            f"{name}[{row}] is not symmetric (asymmetry {gap[row]:.1e} of its largest entry), "
            f"{how_many((gap > _SYMMETRY).sum(), len(gap), 'matrices')}; if that is rounding, use "
            f"({name} + {name}.transpose(0, 2, 1)) / 2"
        )
    if gap.any():
        array = 0.5 * (array + array.transpose(0, 2, 1))
    _check_range(array, name)
    margin = np.concatenate(map_blocks(lambda rows: _core.SpdLanes(array[rows]).margin, blocks, n_jobs))
    bad = ~(margin > array.shape[1] * _EPS)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        smallest = float(np.linalg.eigvalsh(array[row])[0])
        raise InvalidPointError(
            f"{name}[{row}] is not positive definite (smallest eigenvalue {smallest:.1e}), "
            f"{how_many(bad.sum(), len(bad), 'matrices')}; shrink them, e.g. (1 - s) * {name} + s * trace / d * "
            "identity with s = 1e-6, or drop features that are constant or combinations of others"
        )
    return array


def _check_range(array: Array, name: str) -> None:
    """Refuse variances so large that sums of two overflow, or so small that pivots far below them lose digits."""
    diagonal = np.diagonal(array, axis1=1, axis2=2)
    far = ((diagonal > 0) & (diagonal < _RANGE[0])) | (diagonal > _RANGE[1])
    if far.any():
        row, k = (int(index) for index in np.argwhere(far)[0])
        count = int(far.any(axis=1).sum())
        raise InvalidPointError(
            f"{name}[{row}] has a variance of {diagonal[row, k]:.1e}, {how_many(count, len(array), 'matrices', 'do')}; "
            f"scale all matrices, or that feature, until variances are from {_RANGE[0]:g} to {_RANGE[1]:g}"
        )


def iterate_centroid(geometry: Geometry, X: Array, weights: Array, max_iter: int) -> Array:
    """Repeat `centroid_step` from the arithmetic mean until it no longer moves."""
    C: Array = np.einsum("i,iab->ab", weights, X)
    least = np.inf
    for _ in range(max_iter):
        last, C = C, geometry.centroid_step(X, weights[:, None], C[None])[0]
        whiten = np.linalg.inv(np.linalg.cholesky(last))
        moved = float(np.linalg.norm(whiten @ (C - last) @ whiten.T))
        if moved < 1e-11 * len(C) or least <= moved < 1e-5:  # or only rounding still moves it
            return C
        least = min(least, moved)
    name = type(geometry).__name__
    warn_user(f"the {name} centroid did not converge in {max_iter} steps", ConvergenceWarning)
    return C


def symmetric(A: Array) -> Array:
    """The symmetric part of matrices: what rounding made of symmetric ones, mended."""
    return 0.5 * (A + A.swapaxes(-1, -2))
