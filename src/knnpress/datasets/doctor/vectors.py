"""What is wrong with histograms and vectors, the cost between bins, and numbers of any kind."""

from __future__ import annotations

import numpy as np

from knnpress.datasets.doctor.findings import Finding, PointSet, blocks, listed, sizes
from knnpress.geometries.histogram_checks import check_histograms
from knnpress.typing import Array

_TINY = float(np.finfo(np.float64).tiny)
_SYMMETRY = 1e-8  # relative asymmetry that is taken for rounding
_FAR = 1e-150, 1e150  # beyond, squares leave the range of doubles
_UNEVEN = 1e6  # between the scales of two features


def examine_finiteness(points: PointSet) -> list[Finding]:
    """Points that hold NaN or infinity."""
    bad = ~np.isfinite(points.X).all(axis=tuple(range(1, points.X.ndim)))
    findings = []
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        where = tuple(int(k) for k in np.argwhere(~np.isfinite(points.X[first]))[0])
        found = f"{points.X[first][where]} in X[{points.row[first]}] at {list(where)}"
        cure = "remove them, or fill the gaps before the points are made"
        findings.append(Finding("NaN or infinity", found, cure, points.row[bad], remedy="drop"))
    return findings


def examine_histograms(points: PointSet) -> list[Finding]:
    """Negative bins, empty histograms, sums other than one and bins that nothing is in."""
    X, row = points.X, points.row
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
            findings.append(Finding("not of sum one", found, "nothing: knnpress scales them itself", severity="note"))
        for rows in blocks(sound):
            check_histograms(sound[rows])
        unused = np.flatnonzero((sound == 0).all(axis=0))
        if len(unused):
            found = f"bins {listed(unused)}"
            findings.append(
                Finding("bins that are always empty", found, "leave them out, to save time", severity="note")
            )
    return findings


def examine_vectors(points: PointSet) -> list[Finding]:
    """Constant features, features of unlike scale, and histograms without a ground cost."""
    findings = []
    with np.errstate(over="ignore", invalid="ignore"):
        mean = points.X.mean(axis=0)
        squares = [((points.X[rows] - mean) ** 2).sum(axis=0) for rows in blocks(points.X)]
        spread = np.sqrt(np.sum(squares, axis=0) / len(points.X))
    constant = np.flatnonzero(spread == 0)
    if len(constant) and len(points.X) > 1:
        cure = "leave them out: they tell nothing apart"
        findings.append(Finding("constant features", f"columns {listed(constant)}", cure, severity="note"))
    varied = spread[spread > 0]
    if len(varied) and varied.max() > _UNEVEN * varied.min():
        found = f"standard deviations from {varied.min():.1e} to {varied.max():.1e}"
        findings.append(
            Finding("features of unlike scale", found, "standardise them, e.g. StandardScaler", severity="note")
        )
    if len(points.X) > 1 and (points.X >= 0).all() and np.allclose(points.X.sum(axis=1), 1.0, atol=1e-6):
        cure = "for Sinkhorn's distances, add the (d, d) costs between bins as the array ground_cost"
        findings.append(Finding("histograms without a ground cost", "rows that sum to one", cure, severity="note"))
    return findings


def examine_scale(points: PointSet) -> list[Finding]:
    """Numbers whose squares leave the range of doubles."""
    size = sizes(points.X)
    with np.errstate(invalid="ignore"):
        far = (size > _FAR[1]) | ((size < _FAR[0]) & (size > 0))
    if not far.any() or points.kind == "histograms":
        return []
    at = int(np.flatnonzero(far)[0])
    found = f"largest entry {size[at]:.1e} at X[{points.row[at]}]"
    usual = float(np.median(size[size > 0]))
    what = "numbers near the end of the range of doubles"
    if _FAR[0] <= usual <= _FAR[1]:  # a scale that suits these few would not suit the rest
        cure = f"remove them; the largest entry of the others is about {usual:.0e}"
        return [Finding(what, found, cure, points.row[far], remedy="drop")]
    return [Finding(what, found, f"divide all points by one number, e.g. X / {usual:.0e}", points.row[far])]


def examine_cost(M: Array, n_bins: int) -> list[Finding]:
    """A ground cost, (d, d), that does not fit the bins, is invalid, or is strange."""
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
            Finding("staying costs something", found, "set the diagonal of ground_cost to zero", severity="note")
        )
    free = (M == 0) & ~np.eye(n_bins, dtype=bool)
    if free.any():
        i, j = (int(k) for k in np.argwhere(free)[0])
        found = f"bins {i} and {j}, and {free.sum()} entries in all"
        findings.append(
            Finding("different bins at no cost", found, "merge them: no distance tells them apart", severity="note")
        )
    positive = M[M > 0]
    if positive.size and M.max() > 1e5 * np.median(positive):
        found = f"largest {M.max():.1e}, median {np.median(positive):.1e}"
        cure = "cut it off, e.g. at ten times the median, or Sinkhorn converges slowly"
        findings.append(Finding("ground cost of huge range", found, cure, severity="note"))
    return findings
