"""What is wrong with the labels of points."""

from __future__ import annotations

import hashlib

import numpy as np

from knnpress.datasets.dataset import missing_labels
from knnpress.datasets.doctor.findings import Finding, PointSet, blocks, listed
from knnpress.typing import Array


def examine_labels(points: PointSet) -> list[Finding]:
    """Missing labels, labels that are not classes, and classes too small to learn."""
    y = points.y
    if y is None:
        cure = "add the array y, or a CSV file with --labels; predictions need none"
        return [Finding("no labels", "none in the file", cure, severity="note")]
    findings = []
    missing = missing_labels(y)
    if missing.any():
        found = f"{y[missing].tolist()[0]!r} at row {points.row[missing][0]}"
        findings.append(Finding("missing labels", found, "remove them", points.row[missing], remedy="drop"))
    known = y[~missing]
    if known.dtype.kind == "f" and len(known) and (known != np.round(known)).any():
        found = f"{known[known != np.round(known)][0]:g}"
        findings.append(Finding("labels that are not classes", found, "give whole numbers or names"))
        return findings
    names, counts = np.unique(known, return_counts=True)
    if len(names) == 1:
        found = f"all are {names[0]}"
        findings.append(Finding("a single class", found, "a classifier needs two; see how the labels were made"))
    lonely = names[counts == 1]
    if len(lonely):
        found = f"{listed(lonely)}: one point each"
        rows = points.row[np.isin(y, lonely)]
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


def examine_copies(points: PointSet) -> list[Finding]:
    """Equal points: of one class a note, of several a contradiction."""
    n = len(points.X)
    codes = np.concatenate([_hashes(points.X[rows]) for rows in blocks(points.X)])
    _, group = np.unique(codes, return_inverse=True)
    copies = np.bincount(group)[group] > 1
    if not copies.any():
        return []
    findings, torn = [], np.zeros(n, dtype=bool)
    if points.y is not None:
        _, codes = np.unique(points.y, return_inverse=True)
        least = np.full(group.max() + 1, n)
        most = np.full(group.max() + 1, -1)
        np.minimum.at(least, group, codes)
        np.maximum.at(most, group, codes)
        torn = (least != most)[group]
    if torn.any():
        assert points.y is not None
        same = np.flatnonzero(group == group[np.flatnonzero(torn)[0]])
        found = f"rows {listed(points.row[same])} are equal and of classes {listed(np.unique(points.y[same]))}"
        cure = "correct the labels, or remove all of them: nothing tells which is right"
        findings.append(Finding("equal points of different classes", found, cure, points.row[torn], remedy="drop"))
    plain = copies & ~torn
    if plain.any():
        same = np.flatnonzero(group == group[np.flatnonzero(plain)[0]])
        found = f"rows {listed(points.row[same])} are equal"
        cure = "keep one of each, so that copies do not end up in both training and test parts"
        findings.append(Finding("copies", found, cure, points.row[plain], "note"))
    return findings


def _hashes(X: Array) -> Array:
    """A code of each point that is the same for equal ones alone, (n,)."""
    codes = [hashlib.blake2b(row.data, digest_size=16).digest() for row in X + 0.0]  # -0.0 and 0.0 are equal
    return np.frombuffer(b"".join(codes), dtype="V16")
