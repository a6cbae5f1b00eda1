"""What is wrong with somebody's points, and how to mend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from knnpress.arrays import as_float_array
from knnpress.datasets.doctor.findings import Finding, Kind, PointSet
from knnpress.datasets.doctor.labels import examine_copies, examine_labels
from knnpress.datasets.doctor.matrices import examine_matrices, shrink, suggested_shrinkage, symmetrised
from knnpress.datasets.doctor.vectors import (
    examine_cost,
    examine_finiteness,
    examine_histograms,
    examine_scale,
    examine_vectors,
)
from knnpress.datasets.points import RawPoints

__all__ = ["Finding", "PointSet", "as_point_set", "examine", "mend", "shrink", "suggested_shrinkage"]


def as_point_set(raw: RawPoints) -> tuple[PointSet | None, list[Finding]]:
    """The contents of a file as numbers; where that fails, the reason, since nothing else can be examined then."""
    try:
        X = as_float_array(raw.X, "X")
    except (TypeError, ValueError) as error:
        return None, [Finding("not numbers", str(error), "save X as an array of real numbers")]
    square = X.ndim != 3 or X.shape[1] == X.shape[2]
    if X.ndim not in (2, 3) or not square or X.size == 0:
        cure = "save matrices as (n, d, d), histograms and vectors as (n, d)"
        if X.ndim == 3 and X.size:
            cure += "; of signals, (n, channels, times), knnpress.descriptors.SignalCovariance makes matrices"
        return None, [Finding("no points", f"X has shape {X.shape}", cure)]
    if raw.y is not None and len(raw.y) != len(X):
        found = f"{len(raw.y)} labels for {len(X)} points"
        return None, [
            Finding("labels do not match", found, "give one label per point; which are missing cannot be told")
        ]
    kind: Kind = "matrices" if X.ndim == 3 else "histograms" if raw.are_histograms else "vectors"
    cost = raw.ground_cost
    if cost is not None:
        try:
            cost = as_float_array(cost, "ground_cost")
        except (TypeError, ValueError) as error:
            return None, [Finding("ground cost is not numbers", str(error), "save it as an array of real numbers")]
    points = PointSet(X, kind, raw.y, raw.class_names, cost, np.arange(len(X)))
    findings = []
    if raw.labels_error:
        findings.append(Finding("labels cannot be used", raw.labels_error, "mend the file of labels"))
    return points, findings


def examine(points: PointSet) -> list[Finding]:
    """All that is wrong or worth knowing, problems first.

    A point that holds NaN, infinity or nothing is reported as such and left out of further checks.
    """
    findings = examine_finiteness(points)
    finite = _without(points, findings)
    if len(finite.X):
        by_kind: dict[Kind, Callable[[PointSet], list[Finding]]] = {
            "matrices": examine_matrices,
            "histograms": examine_histograms,
            "vectors": examine_vectors,
        }
        findings += by_kind[points.kind](finite) + examine_scale(finite)
    if points.ground_cost is not None:
        findings += examine_cost(points.ground_cost, points.X.shape[1])
    findings += examine_labels(points) + (examine_copies(finite) if len(finite.X) else [])
    return sorted(findings, key=lambda finding: finding.severity == "note")


def mend(points: PointSet, findings: list[Finding], shrinkage: float | None = None) -> PointSet:
    """A copy without the problems that can be mended; `points` themselves stay as they are.

    Points that hold no information (NaN, all zero, far from positive definite, or equal points of different classes)
    are left out. Asymmetric matrices are averaged with their transpose. Where a matrix is not positive definite, all
    are shrunk alike: X becomes (1 - s) X + s diag(X). Negative bins become zero.

    Parameters
    ----------
    points : PointSet
    findings : list of Finding
        Of `examine`.
    shrinkage : float or None
        s; None: what the findings suggest, if they do.
    """
    remedies = {finding.remedy for finding in findings if finding.severity == "problem"}
    kept = _without(points, findings)
    X, cost = kept.X.copy(), kept.ground_cost
    if kept.kind == "matrices" and len(X):
        X = symmetrised(X) if "symmetrise" in remedies else X
        share = shrinkage if shrinkage is not None else suggested_shrinkage(X) if "shrink" in remedies else 0.0
        X = shrink(X, share) if share else X
    if kept.kind == "histograms" and "clip" in remedies:
        X = np.maximum(X, 0.0)
    if "average cost" in remedies and cost is not None:
        cost = 0.5 * cost + 0.5 * cost.T
    return replace(kept, X=X, ground_cost=cost)


def _without(points: PointSet, findings: list[Finding]) -> PointSet:
    """The points that no finding wants dropped."""
    dropped = [finding.rows for finding in findings if finding.remedy == "drop" and finding.severity == "problem"]
    keep = ~np.isin(points.row, np.concatenate([np.empty(0, dtype=np.intp), *dropped]))
    if keep.all():
        return points
    y = None if points.y is None else points.y[keep]
    return replace(points, X=points.X[keep], y=y, row=points.row[keep])
