"""A training set as learning takes it: in an order of its own, sampled, and under each geometry that a fit may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from knnpress.execution.rows import LocalRows, Rows
from knnpress.execution.threads import MEMORY_BYTES
from knnpress.geometries import EmbeddedGeometry, Geometry, SmoothGeometry, SquaredEuclidean, geometry_name
from knnpress.geometries.base import SmoothCloudGeometry, TimedGeometry
from knnpress.learning.job import MakeStart, View
from knnpress.typing import Array, Indices

_SAMPLE = 20_000  # points, at most, that the start and the setting are chosen by


class Views(ExitStack):
    """Makes views of a training set; on leaving, workers forget what was made for them.

    Parameters
    ----------
    rows : Rows
    blocks : list of slice
    sample : LocalRows
    n_prototypes : int
    batch_size : int or None
    make_start : callable
        From a geometry, and how its classes share the prototypes, to what makes a start.
    n_jobs : int or None

    Attributes
    ----------
    embeddings : dict of str to Embedding
        Of the views that embed points, by their names.
    """

    def __init__(
        self,
        rows: Rows,
        blocks: Sequence[slice],
        sample: LocalRows,
        n_prototypes: int,
        batch_size: int | None,
        make_start: Callable[[SmoothGeometry, Literal["size", "need"]], MakeStart],
        n_jobs: int | None,
    ) -> None:
        super().__init__()
        self.rows, self.blocks, self.sample, self.n_prototypes = rows, blocks, sample, n_prototypes
        self.batch_size, self.make_start, self.n_jobs = batch_size, make_start, n_jobs
        self.embeddings: dict[str, Embedding] = {}

    def of(self, geometry: SmoothGeometry) -> View:
        """The training set under a geometry that has derivatives."""
        make_start = self.make_start(geometry, geometry.start_quotas)
        return View(geometry_name(geometry), geometry, self.sample, self.rows, self.blocks, make_start)

    def embedded(self, geometry: EmbeddedGeometry, sample_only: bool = False) -> View:
        """The training set, or the sample alone, as the vectors of a geometry."""
        sample, name, euclidean = self.sample, geometry_name(geometry), SquaredEuclidean()
        embedding = Embedding.of(geometry.fitted_to(sample.X, sample.weight), sample, self.n_jobs)
        self.embeddings[name] = embedding
        inside = sample.transformed(embedding)
        all_inside: Rows = inside if self.rows is sample or sample_only else self.rows.transformed(embedding)
        self.callback(all_inside.close)
        make_start = self.make_start(euclidean, geometry.start_quotas)
        cut = all_inside.cut(self.n_prototypes, self.batch_size)
        return View(name, euclidean, inside, all_inside, cut, make_start, embedding.to_points)

    def work(self, geometry: SmoothGeometry) -> float:
        """How long all pairs take under a geometry, in units of `TimedGeometry.pair_work`."""
        d = self.rows.shape[1]
        pair_work = geometry.pair_work(d) if isinstance(geometry, TimedGeometry) else float(d)
        return len(self.sample.y) * self.n_prototypes * pair_work


@dataclass(frozen=True)
class Embedding:
    """Points as vectors, in the span of a sample where that has fewer dimensions: what is learned lies within it.

    Attributes
    ----------
    geometry : EmbeddedGeometry
        Fitted.
    basis : ndarray of shape (p, r) or None
        Orthonormal.
    n_jobs : int or None
    """

    geometry: EmbeddedGeometry
    basis: Array | None
    n_jobs: int | None

    @classmethod
    def of(cls, geometry: EmbeddedGeometry, sample: LocalRows, n_jobs: int | None) -> Embedding:
        """That of a fitted geometry; the span is exact where the sample is all there is."""
        one = geometry.embed(sample.X[:1], 1)
        basis = None
        if one.shape[1] > len(sample.y):
            basis = np.linalg.qr(geometry.embed(sample.X, n_jobs).T)[0]
        return cls(geometry, basis, n_jobs)

    def __call__(self, X: Array) -> Array:
        """Vectors of checked points, (n, r)."""
        V = self.geometry.embed(X, self.n_jobs)
        return V if self.basis is None else V @ self.basis

    def to_points(self, inside: Array) -> Array:
        """The points that vectors in the span stand for."""
        return self.geometry.unembed(self.to_vectors(inside))

    def to_vectors(self, inside: Array) -> Array:
        """Vectors of the geometry, (m, p), from those in the span."""
        return inside if self.basis is None else inside @ self.basis.T


def in_reproducible_order(
    rows: Rows, groups: Array | None, geometry: Geometry, seed: int, rename: bool
) -> tuple[Rows, Array | None, Indices]:
    """Points in memory in an order that does not depend on the one they came in, nor on the names of classes.

    Points are sorted by how far they are from the mean of all, which no congruence of matrices and no permutation of
    bins changes, and then shuffled. Groups are numbered in the order of their first points, and so are classes, if
    `rename`; the last result tells which is which.
    """
    names = np.arange(int(rows.y.max()) + 1)
    if not (isinstance(rows, LocalRows) and rows.in_memory):
        return rows, groups, names
    metric = geometry.start_geometry if isinstance(geometry, SmoothGeometry) else geometry
    seen = rows
    if isinstance(geometry, SmoothCloudGeometry):
        metric, seen = SquaredEuclidean(), rows.transformed(geometry.summarize)
    to_mean = metric.distances_to(seen.X.mean(axis=0, keepdims=True))
    key = np.concatenate(seen.map(lambda: lambda X, *_: (to_mean(X)[:, 0], None), seen.cut(1)))
    order = np.argsort(key, kind="stable")[np.random.default_rng(seed).permutation(len(key))]
    if rename:
        names = np.argsort(np.unique(rows.y[order], return_index=True)[1])
    sorted_rows = rows.subset(order)
    sorted_rows = replace(sorted_rows, y=np.argsort(names)[sorted_rows.y])
    return sorted_rows, None if groups is None else _numbered(groups[order]), names


def _numbered(groups: Array) -> Array:
    """Groups by number, in the order of their first points: folds know nothing of their names."""
    _, first, codes = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[codes]


def sample_of(rows: Rows, blocks: Sequence[slice], groups: Array | None, seed: int) -> tuple[LocalRows, Array | None]:
    """At most 20,000 of the rows (and groups), with a share of each class, in memory; none of weight zero."""
    present = np.arange(len(rows.y)) if rows.weight is None else np.flatnonzero(rows.weight)
    n, most = len(present), rows.sample_size(_SAMPLE)
    if n <= most and isinstance(rows, LocalRows) and rows.in_memory:
        return rows, groups
    kept = present
    if n > most:
        share, rng = most / n, np.random.default_rng(seed)
        members = [present[rows.y[present] == c] for c in np.unique(rows.y[present])]
        drawn = [rng.choice(rows_c, max(1, round(share * len(rows_c))), replace=False) for rows_c in members]
        kept = np.sort(np.concatenate(drawn))
    weight = None if rows.weight is None else rows.weight[kept]
    X = rows.X[kept] if isinstance(rows, LocalRows) and rows.in_memory else rows.take(kept, blocks)
    n_jobs = getattr(rows, "n_jobs", None)
    return LocalRows(X, rows.y[kept], weight, n_jobs, MEMORY_BYTES), None if groups is None else groups[kept]
