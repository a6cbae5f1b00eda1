"""What is wrong with covariance matrices, and the shrinkage that mends them."""

from __future__ import annotations

import math

import numpy as np

from knnpress.datasets.doctor.findings import Finding, PointSet, blocks, listed, sizes
from knnpress.exceptions import InvalidPointError
from knnpress.geometries.matrices import check_spd
from knnpress.typing import Array, Indices

_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
_SYMMETRY = 1e-8  # relative asymmetry that every geometry takes for rounding
_MIN_SHRINKAGE, _MAX_SHRINKAGE = 1e-6, 0.1
_FLOOR = 1e-2  # of the largest variance: what a constant feature is taken to have
_DOUBT = 1e-2  # error of a distance that is worth a word


def examine_matrices(points: PointSet) -> list[Finding]:
    """Asymmetry, and what is not or hardly positive definite; of finite matrices."""
    X, row = points.X, points.row
    findings = []
    size = sizes(X)
    gap = np.concatenate([_asymmetry(X[rows]) for rows in blocks(X)]) / np.maximum(size / 2, _TINY)
    if (gap > _SYMMETRY).any():
        worst = int(gap.argmax())
        found = f"asymmetry {gap[worst]:.1e} of its largest entry at X[{row[worst]}]"
        cure = "average with the transpose: (X + X.transpose(0, 2, 1)) / 2" + (
            "; so large a gap is not rounding: see how the matrices were made" if gap[worst] > 1e-3 else ""
        )
        findings.append(Finding("not symmetric", found, cure, row[gap > _SYMMETRY], remedy="symmetrise"))
    S = symmetrised(X) if gap.any() else X
    empty = size == 0
    if empty.any():
        findings.append(Finding("all zero", f"X[{row[empty][0]}]", "remove them", row[empty], remedy="drop"))
        S, row = S[~empty], row[~empty]
    return findings + examine_definiteness(S, row)


def examine_definiteness(S: Array, row: Indices) -> list[Finding]:
    """What is not, or hardly, positive definite among symmetric matrices that are not zero."""
    if not len(S):
        return []
    d, values = S.shape[1], _correlation_eigenvalues(S)
    bad = _refused(S)
    hopeless = bad & ((values[:, 0] < -0.5 * _MAX_SHRINKAGE) | (np.diagonal(S, axis1=1, axis2=2).max(axis=1) <= 0))
    findings = []
    if hopeless.any():
        at = int(np.flatnonzero(hopeless)[0])
        found = f"smallest eigenvalue {np.linalg.eigvalsh(S[at])[0]:.1e}, largest {_largest(S[at]):.1e} at X[{row[at]}]"
        cure = "these are not covariances; see how they were made, or remove them"
        findings.append(Finding("far from positive definite", found, cure, row[hopeless], remedy="drop"))
    mendable = bad & ~hopeless
    constant = (np.diagonal(S, axis1=1, axis2=2) == 0) & mendable[:, None]
    if mendable.any():
        at = int(np.flatnonzero(mendable)[0])
        share = suggested_shrinkage(S[mendable])
        rank = int((values[at] > d * _EPS).sum())
        found = f"smallest eigenvalue {np.linalg.eigvalsh(S[at])[0]:.1e}, rank {rank} of {d} at X[{row[at]}]"
        if constant.any():
            found += f"; constant features: {listed(np.flatnonzero(constant.any(axis=0)))}"
        cure = (
            f"shrink all: (1 - s) X + s diag(X) with s = {share:g}, "
            "or drop features that are constant or combinations of others"
        )
        findings.append(Finding("not positive definite", found, cure, row[mendable], remedy="shrink"))
    condition = np.where(bad, 1.0, values[:, -1] / np.maximum(values[:, 0], _EPS * _EPS))
    error = 100 * _EPS * d * condition
    if (error > _DOUBT).any():
        worst = int(error.argmax())
        found = (
            f"condition {condition[worst]:.1e}, units apart, at X[{row[worst]}]: distances good to {error.max():.0e}"
        )
        cure = f"shrink all, e.g. with s = {_MIN_SHRINKAGE:g} (--fix --shrinkage {_MIN_SHRINKAGE:g})"
        findings.append(Finding("nearly singular", found, cure, row[error > _DOUBT], "note"))
    return findings


def _refused(S: Array) -> Array:
    """Which symmetric matrices `check_spd` refuses, (n,)."""

    def sound(block: Array) -> bool:
        try:
            check_spd(block, n_jobs=1)
        except InvalidPointError:
            return False
        return True

    if sound(S):
        return np.zeros(len(S), dtype=bool)
    return np.array([not sound(matrix[None]) for matrix in S])


def _largest(matrix: Array) -> float:
    return float(np.linalg.eigvalsh(matrix)[-1])


def _asymmetry(X: Array) -> Array:
    """Half the largest difference of each matrix from its transpose, (n,)."""
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(X / 2 - X.transpose(0, 2, 1) / 2).max(axis=(1, 2)))


def symmetrised(X: Array) -> Array:
    """The mean of each matrix and its transpose."""
    S = np.empty_like(X)
    for rows in blocks(X):
        S[rows] = 0.5 * X[rows] + 0.5 * X[rows].transpose(0, 2, 1)
    return S


def shrink(X: Array, share: float) -> Array:
    """(1 - s) X + s diag(v): v a feature's own variance, or, where it has none, a hundredth of the largest."""
    variance = np.diagonal(X, axis1=1, axis2=2)
    variance = np.where(variance > 0, variance, _FLOOR * variance.max(axis=1, keepdims=True))
    shrunk = (1.0 - share) * X
    k = np.arange(X.shape[1])
    shrunk[:, k, k] += share * variance
    return shrunk


def suggested_shrinkage(X: Array) -> float:
    """The least power of ten, from 1e-6, that makes symmetric matrices positive definite."""
    smallest = min(0.0, float(_correlation_eigenvalues(X)[:, 0].min()))
    least = max(_MIN_SHRINKAGE, -2.0 * smallest)
    return float(f"1e{math.ceil(math.log10(least) - 1e-9)}")


def _correlation_eigenvalues(X: Array) -> Array:
    """Eigenvalues of each symmetric matrix scaled to unit variances, ascending, (n, d): units do not matter then.

    A feature without variance counts as one of eigenvalue zero, unless it varies with others: then as -1.
    """
    return np.concatenate([_block_eigenvalues(X[rows]) for rows in blocks(X)])


def _block_eigenvalues(X: Array) -> Array:
    variance = np.diagonal(X, axis1=1, axis2=2)
    root = np.sqrt(np.where(variance > 0, variance, 1.0))
    with np.errstate(over="ignore"):
        R = np.clip(X / root[:, :, None] / root[:, None, :], -1e3, 1e3)
    lost = ((variance <= 0) & (np.abs(X).max(axis=2) > 0)).any(axis=1)
    R[lost] = -np.eye(X.shape[1])
    return np.linalg.eigvalsh(0.5 * (R + R.transpose(0, 2, 1)))
