"""What is worth trying: kinds of points with their metrics, descriptors of images, sizes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from knnpress.clouds import Clouds
from knnpress.compression import ClassCentroids
from knnpress.descriptors import Recenter
from knnpress.descriptors.by_name import make_descriptor
from knnpress.estimators import SCC, SHC, SNC, SWC, PrototypeClassifier
from knnpress.geometries import JBLD, CloudSinkhorn, Geometry, Hellinger, Sinkhorn, SquaredEuclidean, Tangent
from knnpress.typing import Array

Method = Literal["learned", "full", "means"]


@dataclass(frozen=True)
class Kind:
    """What is tried on one kind of points.

    Attributes
    ----------
    learner : str
        What ``knnpress compress --method`` calls the classifier that learns.
    metrics : dict
        Geometries by the name that ``--metric`` has for them, each made from the ground cost; the quickest first.
    learn : callable
        ``learn(metric, ground_cost, **settings)`` makes that classifier.
    has_means : bool
        Whether a class has a mean.
    max_points : int
        Where there are more points, a sample of this size is enough to compare by.
    """

    learner: str
    metrics: dict[str, Callable[[Array | None], Geometry]]
    learn: Callable[..., Any]
    has_means: bool = True
    max_points: int = 4000


#: A new kind of points is an entry here and a line in `kind_of`
KINDS = {
    "matrices": Kind(
        "scc",
        {"tangent": lambda _: Tangent(), "jbld": lambda _: JBLD()},
        lambda metric, _, **settings: SCC(metric=metric, **settings),
    ),
    "histograms": Kind(
        "shc",
        {"hellinger": lambda _: Hellinger(), "sinkhorn": lambda cost: Sinkhorn(cost)},
        lambda metric, cost, **settings: SHC(cost, metric=metric, **settings),
    ),
    "vectors": Kind(
        "snc", {"euclidean": lambda _: SquaredEuclidean()}, lambda metric, cost, **settings: SNC(**settings)
    ),
    "clouds": Kind(
        "swc",
        {"clouds": lambda _: CloudSinkhorn()},
        lambda metric, cost, **settings: SWC(**settings),
        has_means=False,
        max_points=1000,
    ),
}

#: Descriptors by the names that ``--descriptor`` has for them, roughly from cheap to costly
COLOUR = (
    *("color-histogram", "grid-histogram", "shape-context", "gradient", "color-texture", "color-derivatives"),
    *("bag-of-words", "sift", "color-gabor", "gabor"),
)
GRAY = tuple(name for name in COLOUR if not name.startswith("color-"))

#: Stands where a descriptor's name does: matrices of which each group was re-centred
RECENTERED = "re-centred"
_SHARES = (0.02, 0.08)  # of the points, as prototypes, beside one per class


@dataclass(frozen=True)
class Candidate:
    """One way to a model.

    Attributes
    ----------
    descriptor : str or None
        None: the points are as they were given. `RECENTERED`: as `Recenter` made them.
    kind : {"matrices", "histograms", "vectors", "clouds"}
    method : {"learned", "full", "means"}
        Learned prototypes, all points, or the mean of each class.
    metric : str
    n_prototypes : int
    """

    descriptor: str | None
    kind: str
    method: Method
    metric: str
    n_prototypes: int

    def build(self, ground_cost: Array | None, seed: int, n_jobs: int | None, most: int | None = None) -> Any:
        """The classifier, not fitted, with at most `most` prototypes."""
        kind = KINDS[self.kind]
        if self.method == "full":
            return PrototypeClassifier(kind.metrics[self.metric](ground_cost), n_jobs=n_jobs, random_state=seed)
        m = self.n_prototypes if most is None else min(self.n_prototypes, most)
        if self.method == "means":
            geometry = kind.metrics[self.metric](ground_cost)
            return PrototypeClassifier(geometry, ClassCentroids(), m, n_jobs=n_jobs, random_state=seed)
        return kind.learn(self.metric, ground_cost, n_prototypes=m, random_state=seed, n_jobs=n_jobs)

    def options(self) -> list[str]:
        """The options that make ``knnpress compress`` learn this model."""
        told = ["--recenter"] if self.descriptor == RECENTERED else []
        told += ["--descriptor", self.descriptor] if self.descriptor not in (None, RECENTERED) else []
        learner = KINDS[self.kind].learner
        told += ["--method", {"learned": learner, "full": "full", "means": "centroids"}[self.method]]
        told += ["--metric", self.metric] if len(KINDS[self.kind].metrics) > 1 else []
        return told if self.method == "full" else [*told, "--prototypes", str(self.n_prototypes)]

    def takes_no_less_than(self, other: Candidate) -> bool:
        """Whether this surely takes as long to learn as another: as many prototypes or more, of the same points."""
        plain = {None, RECENTERED}
        same_points = self.descriptor == other.descriptor or {self.descriptor, other.descriptor} <= plain
        if not same_points or (self.kind, self.method) != (other.kind, other.method):
            return False
        metrics = list(KINDS[self.kind].metrics)
        slower = metrics.index(self.metric) >= metrics.index(other.metric)
        return slower and self.n_prototypes >= other.n_prototypes

    @property
    def words(self) -> str:
        """The candidate in a few words, for people."""
        what = {"learned": f"{self.n_prototypes} learned", "full": "full 1-NN", "means": "class means"}[self.method]
        where = "" if self.descriptor is None else f"{self.descriptor}, "
        return f"{where}{self.metric}, {what}"


def kind_of(X: Any, ground_cost: Any) -> str:
    """What X holds, by its shape: "matrices", "histograms", "vectors", "clouds" or "images"."""
    if isinstance(X, Clouds):
        return "clouds"
    rows_of_numbers = isinstance(X, Sequence) and len(X) > 0 and not isinstance(X[0], (str, os.PathLike))
    if isinstance(X, Sequence) and not (rows_of_numbers and np.ndim(X[0]) == 1):
        return "images"
    array = np.asarray(X)
    if array.ndim == 3 and array.shape[1] == array.shape[2] and _is_symmetric(array):
        return "matrices"
    if array.ndim == 2:
        return "vectors" if ground_cost is None and not _sums_to_one(array) else "histograms"
    return "images"


def _is_symmetric(X: Array) -> bool:
    some = X[:20].astype(np.float64)
    return bool(np.allclose(some, some.transpose(0, 2, 1), rtol=1e-6, atol=1e-9 * np.abs(some).max(initial=0.0)))


def _sums_to_one(X: Array) -> bool:
    return bool(X.dtype.kind == "f" and (X >= 0).all() and np.allclose(X.sum(axis=1), 1.0, atol=1e-6))


def sizes_of(n: int, n_classes: int) -> list[int]:
    """Numbers of prototypes worth trying: one per class, about 2 % of the points, about 8 %."""
    sizes = {n_classes, *(max(2**k * n_classes, round(share * n)) for k, share in enumerate(_SHARES, 1))}
    return sorted(size for size in sizes if size == n_classes or size <= n // 2)


def descriptor_of(name: str, seed: int, n_jobs: int | None) -> Any:
    """The descriptor of a candidate by its name, not fitted."""
    return Recenter(n_jobs=n_jobs) if name == RECENTERED else make_descriptor(name, seed, n_jobs)
