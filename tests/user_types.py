"""What a type checker sees of knnpress from outside; checked by mypy in strict mode (make lint)."""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import knnpress as kp
from knnpress.compression import ClassCentroids, Condensed, Prototypes
from knnpress.geometries import JBLD, Geometry, Sinkhorn, SmoothGeometry

Floats = NDArray[np.float64]


def learn(X: Floats, y: NDArray[np.str_]) -> Floats:
    """Fit, ask and save."""
    clf = kp.SCC(n_prototypes=0.02, gamma="auto", random_state=0, n_jobs=2)
    assert_type(clf.fit(X, y), kp.SCC)
    clf.save("model.knnp")
    chances: Floats = clf.predict_proba(X)
    assert chances.shape == (len(X), len(clf.prototypes_))
    return clf.transform(X)


def measure(X: Floats, cost: Floats) -> tuple[Floats, Floats]:
    """Distances and centroids of any geometry."""
    geometries: list[Geometry] = [JBLD(), Sinkhorn(cost, reg="auto", value="dual")]
    smooth: SmoothGeometry = JBLD()
    assert_type(smooth.exact_gradient, bool)
    return geometries[0].pairwise(X), geometries[1].centroid(X)


def compress(X: Floats, y: NDArray[np.intp]) -> Prototypes:
    """A compressor by itself, and in a classifier."""
    kp.PrototypeClassifier("jbld", Condensed(), n_neighbors=3).fit(X, y)
    return ClassCentroids().compress(X, y, geometry=JBLD(), n_prototypes=20)


def follow(step: int, total: int | None, facts: dict[str, float]) -> Any:
    """A callback."""
    return facts["loss"] < 1e-3


kp.SHC(np.eye(3), n_prototypes="auto", callback=follow)
