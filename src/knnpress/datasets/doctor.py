"""What is wrong with somebody's points, and how to mend it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from knnpress.arrays import as_float_array
from knnpress.datasets.points import RawPoints
from knnpress.exceptions import InvalidPointError
from knnpress.execution.threads import row_blocks
from knnpress.geometries.histogram import check_histograms
from knnpress.geometries.spd import check_spd
from knnpress.typing import Array, Indices, Labels

__all__ = ["Finding", "Patient", "admit", "examine", "mend"]

Kind: TypeAlias = Literal["matrices", "histograms", "vectors"]

_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
_SYMMETRY = 1e-8  # relative asymmetry that every geometry takes for rounding
_LEAST_SHRINKAGE, _MOST_SHRINKAGE = 1e-6, 0.1
_FLOOR = 1e-2  # of the largest variance: what a constant feature is taken to have
_DOUBT = 1e-2  # error of a distance that is worth a word
_FAR = 1e-150, 1e150  # beyond, squares leave the range of doubles
_UNEVEN = 1e6  # between the scales of two features


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes
    ----------
    what : str
        In a few words, e.g. "not positive definite".
    found : str
        What was seen, at the first or worst place.
    cure : str
    rows : ndarray of int
        The points it is about; empty where it is about all.
    harm : {"problem", "note"}
        A problem is refused by knnpress or spoils a classifier; a note is worth knowing.
    remedy : str
        How `mend` goes about it: "drop", "symmetrise", "shrink", "clip", "average cost", or "" where it cannot.
    """

    what: str
    found: str
    cure: str
    rows: Indices = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    harm: Literal["problem", "note"] = "problem"
    remedy: str = ""


@dataclass(frozen=True)
class Patient:
    """Points to be looked at: numbers of the right shape, perhaps wrong ones.

    Attributes
    ----------
    X : ndarray of shape (n, d, d) or (n, d), float64
    kind : {"matrices", "histograms", "vectors"}
    y : ndarray of shape (n,), or None
    class_names, ground_cost : ndarray or None
    row : ndarray of shape (n,)
        Where each point stood in the file.
    """

    X: Array
    kind: Kind
    y: Labels | None
    class_names: Labels | None
    ground_cost: Array | None
    row: Indices


def admit(raw: RawPoints) -> tuple[Patient | None, list[Finding]]:
    """Make numbers of what a file holds; where that cannot be, say why: nothing else can be looked at then."""
    try:
        X = as_float_array(raw.X, "X")
    except (TypeError, ValueError) as error:
        return None, [Finding("not numbers", str(error), "save X as an array of real numbers")]
    square = X.ndim != 3 or X.shape[1] == X.shape[2]
    if X.ndim not in (2, 3) or not square or X.size == 0:
        cure = "save matrices as (n, d, d), histograms and vectors as (n, d)"
        return None, [Finding("no points", f"X has shape {X.shape}", cure)]
    if raw.y is not None and len(raw.y) != len(X):
        found = f"{len(raw.y)} labels for {len(X)} points"
        return None, [Finding("labels do not match", found, "give one label a point; which are missing cannot be told")]
    kind: Kind = "matrices" if X.ndim == 3 else "histograms" if raw.are_histograms else "vectors"
    cost = raw.ground_cost
    if cost is not None:
        try:
            cost = as_float_array(cost, "ground_cost")
        except (TypeError, ValueError) as error:
            return None, [Finding("ground cost is not numbers", str(error), "save it as an array of real numbers")]
    patient = Patient(X, kind, raw.y, raw.class_names, cost, np.arange(len(X)))
    findings = []
    if raw.labels_error:
        findings.append(Finding("labels cannot be used", raw.labels_error, "mend the file of labels"))
    return patient, findings


def examine(patient: Patient) -> list[Finding]:
    """All that is wrong or worth knowing, problems first.

    A point that holds NaN, infinity or nothing is reported as such and left out of further checks.
    """
    findings = _not_finite(patient)
    finite = _without(patient, findings)
    if len(finite.X):
        points: dict[Kind, Callable[[Patient], list[Finding]]] = {
            "matrices": _examine_matrices,
            "histograms": _examine_histograms,
            "vectors": _examine_vectors,
        }
        findings += points[patient.kind](finite) + _examine_scale(finite)
    if patient.ground_cost is not None:
        findings += _examine_cost(patient.ground_cost, patient.X.shape[1])
    findings += _examine_labels(patient) + (_examine_copies(finite) if len(finite.X) else [])
    return sorted(findings, key=lambda finding: finding.harm == "note")


def mend(patient: Patient, findings: list[Finding], shrinkage: float | None = None) -> Patient:
    """A copy without the problems that can be mended; X of the patient is left as it is.

    Points that hold no information (NaN, all zero, far from positive definite, or equal points of different classes)
    are left out. Asymmetric matrices are averaged with their transpose. Where a matrix is not positive definite, all
    are shrunk alike: X becomes (1 - s) X + s diag(X). Negative bins become zero.

    Parameters
    ----------
    patient : Patient
    findings : list of Finding
        Of `examine`.
    shrinkage : float or None
        s; None: what the findings suggest, if they do.
    """
    remedies = {finding.remedy for finding in findings if finding.harm == "problem"}
    kept = _without(patient, findings)
    X, cost = kept.X.copy(), kept.ground_cost
    if kept.kind == "matrices" and len(X):
        X = _symmetrised(X) if "symmetrise" in remedies else X
        share = shrinkage if shrinkage is not None else suggested_shrinkage(X) if "shrink" in remedies else 0.0
        X = shrink(X, share) if share else X
    if kept.kind == "histograms" and "clip" in remedies:
        X = np.maximum(X, 0.0)
    if "average cost" in remedies and cost is not None:
        cost = 0.5 * cost + 0.5 * cost.T
    return replace(kept, X=X, ground_cost=cost)


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
    least = max(_LEAST_SHRINKAGE, -2.0 * smallest)
    return float(f"1e{math.ceil(math.log10(least) - 1e-9)}")


def _correlation_eigenvalues(X: Array) -> Array:
    """Of each symmetric matrix scaled to unit variances, ascending, (n, d): what is left when units do not matter.

    A feature without variance counts as one of eigenvalue zero, unless it varies with others: then as -1.
    """
    return np.concatenate([_block_eigenvalues(X[rows]) for rows in _blocks(X)])


def _block_eigenvalues(X: Array) -> Array:
    variance = np.diagonal(X, axis1=1, axis2=2)
    root = np.sqrt(np.where(variance > 0, variance, 1.0))
    with np.errstate(over="ignore"):
        R = np.clip(X / root[:, :, None] / root[:, None, :], -1e3, 1e3)
    lost = ((variance <= 0) & (np.abs(X).max(axis=2) > 0)).any(axis=1)
    R[lost] = -np.eye(X.shape[1])
    values: Array = np.linalg.eigvalsh(0.5 * (R + R.transpose(0, 2, 1)))
    return values


def _without(patient: Patient, findings: list[Finding]) -> Patient:
    """The points that no finding wants dropped."""
    dropped = [finding.rows for finding in findings if finding.remedy == "drop" and finding.harm == "problem"]
    keep = ~np.isin(patient.row, np.concatenate([np.empty(0, dtype=np.intp), *dropped]))
    if keep.all():
        return patient
    y = None if patient.y is None else patient.y[keep]
    return replace(patient, X=patient.X[keep], y=y, row=patient.row[keep])


def _not_finite(patient: Patient) -> list[Finding]:
    bad = ~np.isfinite(patient.X).all(axis=tuple(range(1, patient.X.ndim)))
    findings = []
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        where = tuple(int(k) for k in np.argwhere(~np.isfinite(patient.X[first]))[0])
        found = f"{patient.X[first][where]} in X[{patient.row[first]}] at {list(where)}"
        cure = "remove them, or fill the gaps before the points are made"
        findings.append(Finding("NaN or infinity", found, cure, patient.row[bad], remedy="drop"))
    return findings


def _examine_matrices(patient: Patient) -> list[Finding]:
    X, row = patient.X, patient.row
    findings = []
    size = _sizes(X)
    gap = np.concatenate([_asymmetry(X[rows]) for rows in _blocks(X)]) / np.maximum(size / 2, _TINY)
    if (gap > _SYMMETRY).any():
        worst = int(gap.argmax())
        found = f"asymmetry {gap[worst]:.1e} of its largest entry at X[{row[worst]}]"
        cure = "average with the transpose: (X + X.transpose(0, 2, 1)) / 2" + (
            "; so large a gap is no rounding: see how the matrices were made" if gap[worst] > 1e-3 else ""
        )
        findings.append(Finding("not symmetric", found, cure, row[gap > _SYMMETRY], remedy="symmetrise"))
    S = _symmetrised(X) if gap.any() else X
    empty = size == 0
    if empty.any():
        findings.append(Finding("all zero", f"X[{row[empty][0]}]", "remove them", row[empty], remedy="drop"))
        S, row = S[~empty], row[~empty]
    return findings + _examine_definiteness(S, row)


def _blocks(X: Array) -> list[slice]:
    return row_blocks(len(X), 8 * X[0].size)


def _sizes(X: Array) -> Array:
    """The largest entry of each point, whatever its sign, (n,)."""
    inner = tuple(range(1, X.ndim))
    return np.maximum(X.max(axis=inner), -X.min(axis=inner))


def _asymmetry(X: Array) -> Array:
    """Half the largest difference of each matrix from its transpose, (n,)."""
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(X / 2 - X.transpose(0, 2, 1) / 2).max(axis=(1, 2)))


def _symmetrised(X: Array) -> Array:
    S = np.empty_like(X)
    for rows in _blocks(X):
        S[rows] = 0.5 * X[rows] + 0.5 * X[rows].transpose(0, 2, 1)
    return S


def _examine_definiteness(S: Array, row: Indices) -> list[Finding]:
    """Of symmetric matrices that are not zero."""
    if not len(S):
        return []
    d, values = S.shape[1], _correlation_eigenvalues(S)
    bad = _refused(S)
    hopeless = bad & ((values[:, 0] < -0.5 * _MOST_SHRINKAGE) | (np.diagonal(S, axis1=1, axis2=2).max(axis=1) <= 0))
    findings = []
    if hopeless.any():
        at = int(np.flatnonzero(hopeless)[0])
        found = f"smallest eigenvalue {np.linalg.eigvalsh(S[at])[0]:.1e}, largest {_largest(S[at]):.1e} at X[{row[at]}]"
        cure = "these are no covariances; see how they were made, or remove them"
        findings.append(Finding("far from positive definite", found, cure, row[hopeless], remedy="drop"))
    mendable = bad & ~hopeless
    constant = (np.diagonal(S, axis1=1, axis2=2) == 0) & mendable[:, None]
    if mendable.any():
        at = int(np.flatnonzero(mendable)[0])
        share = suggested_shrinkage(S[mendable])
        rank = int((values[at] > d * _EPS).sum())
        found = f"smallest eigenvalue {np.linalg.eigvalsh(S[at])[0]:.1e}, rank {rank} of {d} at X[{row[at]}]"
        if constant.any():
            found += f"; constant features: {_listed(np.flatnonzero(constant.any(axis=0)))}"
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
        cure = f"shrink all, e.g. with s = {_LEAST_SHRINKAGE:g} (--fix --shrinkage {_LEAST_SHRINKAGE:g})"
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


def _examine_histograms(patient: Patient) -> list[Finding]:
    X, row = patient.X, patient.row
    findings = []
    negative = (X < 0).any(axis=1)
    if negative.any():
        least = X.min(axis=1) / np.maximum(np.abs(X).max(axis=1), _TINY)
        worst = int(least.argmin())
        found = f"{X[worst].min():.2g} in bin {int(X[worst].argmin())} of X[{row[worst]}]"
        cure = "set them to zero: np.maximum(X, 0)" + (
            "; these are not rounding: are the points histograms?" if least[worst] < -1e-6 else ""
        )
        findings.append(Finding("negative bins", found, cure, row[negative], remedy="clip"))
    empty = X.max(axis=1) <= 0
    if empty.any():
        cure = "remove them, or add a small constant to every bin"
        findings.append(Finding("empty histograms", f"X[{row[empty][0]}]", cure, row[empty], remedy="drop"))
    sound = X[~(negative | empty)] if (negative | empty).any() else X
    if len(sound):
        totals = sound.sum(axis=1)
        if not np.allclose(totals, 1.0, atol=1e-8):
            found = f"sums from {totals.min():.4g} to {totals.max():.4g}"
            findings.append(Finding("not of sum one", found, "nothing: knnpress scales them itself", harm="note"))
        for rows in _blocks(sound):
            check_histograms(sound[rows])
        unused = np.flatnonzero((sound == 0).all(axis=0))
        if len(unused):
            found = f"bins {_listed(unused)}"
            findings.append(Finding("bins that are always empty", found, "leave them out, to save time", harm="note"))
    return findings


def _examine_vectors(patient: Patient) -> list[Finding]:
    findings = []
    with np.errstate(over="ignore", invalid="ignore"):
        mean = patient.X.mean(axis=0)
        squares = [((patient.X[rows] - mean) ** 2).sum(axis=0) for rows in _blocks(patient.X)]
        spread = np.sqrt(np.sum(squares, axis=0) / len(patient.X))
    constant = np.flatnonzero(spread == 0)
    if len(constant) and len(patient.X) > 1:
        cure = "leave them out: they tell nothing apart"
        findings.append(Finding("constant features", f"columns {_listed(constant)}", cure, harm="note"))
    varied = spread[spread > 0]
    if len(varied) and varied.max() > _UNEVEN * varied.min():
        found = f"standard deviations from {varied.min():.1e} to {varied.max():.1e}"
        findings.append(
            Finding("features of unlike scale", found, "standardise them, e.g. StandardScaler", harm="note")
        )
    if len(patient.X) > 1 and (patient.X >= 0).all() and np.allclose(patient.X.sum(axis=1), 1.0, atol=1e-6):
        cure = "for Sinkhorn's distances, add the (d, d) costs between bins as the array ground_cost"
        findings.append(Finding("histograms without a ground cost", "rows that sum to one", cure, harm="note"))
    return findings


def _examine_scale(patient: Patient) -> list[Finding]:
    size = _sizes(patient.X)
    with np.errstate(invalid="ignore"):
        far = (size > _FAR[1]) | ((size < _FAR[0]) & (size > 0))
    if not far.any() or patient.kind == "histograms":
        return []
    at = int(np.flatnonzero(far)[0])
    found = f"largest entry {size[at]:.1e} at X[{patient.row[at]}]"
    cure = f"divide all points by one number, e.g. X / {float(np.median(size[size > 0])):.0e}"
    return [Finding("numbers near the end of the range of doubles", found, cure, patient.row[far])]


def _examine_cost(M: Array, n_bins: int) -> list[Finding]:
    if M.shape != (n_bins, n_bins):
        found = f"shape {M.shape} for {n_bins} bins"
        return [Finding("ground cost of another size", found, f"give a ({n_bins}, {n_bins}) matrix")]
    bad = ~(np.isfinite(M) & (M >= 0))
    if bad.any():
        i, j = (int(k) for k in np.argwhere(bad)[0])
        found = f"{M[i, j]} at [{i}, {j}], and {bad.sum()} entries in all"
        return [Finding("ground cost with NaN, infinity or negatives", found, "costs must be finite and non-negative")]
    findings = []
    if np.abs(M - M.T).max() > _SYMMETRY * M.max():
        i, j = (int(k) for k in np.unravel_index(np.abs(M - M.T).argmax(), M.shape))
        found = f"{M[i, j]:.4g} at [{i}, {j}], {M[j, i]:.4g} at [{j}, {i}]"
        cure = "average with the transpose, or use Sinkhorn(value='dual') or 'transport'"
        findings.append(Finding("ground cost is not symmetric", found, cure, remedy="average cost"))
    if np.diagonal(M).any():
        found = f"up to {np.diagonal(M).max():.4g}"
        findings.append(
            Finding("staying costs something", found, "set the diagonal of ground_cost to zero", harm="note")
        )
    free = (M == 0) & ~np.eye(n_bins, dtype=bool)
    if free.any():
        i, j = (int(k) for k in np.argwhere(free)[0])
        found = f"bins {i} and {j}, and {free.sum()} entries in all"
        findings.append(Finding("different bins at no cost", found, "merge them: no distance sees which", harm="note"))
    positive = M[M > 0]
    if positive.size and M.max() > 1e5 * np.median(positive):
        found = f"largest {M.max():.1e}, median {np.median(positive):.1e}"
        cure = "cut it off, e.g. at ten times the median, or Sinkhorn converges slowly"
        findings.append(Finding("ground cost of huge range", found, cure, harm="note"))
    return findings


def _examine_labels(patient: Patient) -> list[Finding]:
    y = patient.y
    if y is None:
        cure = "add the array y, or a CSV file with --labels; predictions need none"
        return [Finding("no labels", "none in the file", cure, harm="note")]
    findings = []
    missing = _missing(y)
    if missing.any():
        found = f"{y[missing][0]!r} at row {patient.row[missing][0]}"
        findings.append(Finding("missing labels", found, "remove them", patient.row[missing], remedy="drop"))
    known = y[~missing]
    if known.dtype.kind == "f" and len(known) and (known != np.round(known)).any():
        found = f"{known[known != np.round(known)][0]!r}"
        findings.append(Finding("labels that are no classes", found, "give whole numbers or names"))
        return findings
    names, counts = np.unique(known, return_counts=True)
    if len(names) == 1:
        found = f"all are {names[0]}"
        findings.append(Finding("a single class", found, "a classifier needs two; see how the labels were made"))
    lonely = names[counts == 1]
    if len(lonely):
        found = f"{_listed(lonely)}: one point each"
        rows = patient.row[np.isin(y, lonely)]
        findings.append(
            Finding(
                "classes of one point",
                found,
                "add points: such a class can be learned or tested, not both",
                rows,
                "note",
            )
        )
    return findings


def _missing(y: Labels) -> Labels:
    if y.dtype.kind == "f":
        return ~np.isfinite(y)
    if y.dtype.kind in "US":
        return np.char.strip(y) == y.dtype.type()
    return np.zeros(len(y), dtype=bool)


def _examine_copies(patient: Patient) -> list[Finding]:
    """Equal points: of one class a note, of several a contradiction."""
    n = len(patient.X)
    codes = np.concatenate([_hashes(patient.X[rows]) for rows in _blocks(patient.X)])
    _, group = np.unique(codes, return_inverse=True)
    copies = np.bincount(group)[group] > 1
    if not copies.any():
        return []
    findings, torn = [], np.zeros(n, dtype=bool)
    if patient.y is not None:
        _, codes = np.unique(patient.y, return_inverse=True)
        least = np.full(group.max() + 1, n)
        most = np.full(group.max() + 1, -1)
        np.minimum.at(least, group, codes)
        np.maximum.at(most, group, codes)
        torn = (least != most)[group]
    if torn.any():
        assert patient.y is not None
        same = np.flatnonzero(group == group[np.flatnonzero(torn)[0]])
        found = f"rows {_listed(patient.row[same])} are equal and of classes {_listed(np.unique(patient.y[same]))}"
        cure = "correct the labels, or remove all of them: nothing tells which is right"
        findings.append(Finding("equal points of different classes", found, cure, patient.row[torn], remedy="drop"))
    plain = copies & ~torn
    if plain.any():
        same = np.flatnonzero(group == group[np.flatnonzero(plain)[0]])
        found = f"rows {_listed(patient.row[same])} are equal"
        cure = "keep one of each, lest copies stand in training and test parts"
        findings.append(Finding("copies", found, cure, patient.row[plain], "note"))
    return findings


def _hashes(X: Array) -> Array:
    """A code of each point that is the same for equal ones alone, (n,)."""
    codes = [hashlib.blake2b(row.data, digest_size=16).digest() for row in X + 0.0]  # -0.0 and 0.0 are equal
    return np.frombuffer(b"".join(codes), dtype="V16")


def _listed(items: Any, most: int = 8) -> str:
    shown = ", ".join(map(str, items[:most]))
    return f"{shown}, … ({len(items)} in all)" if len(items) > most else shown
