"""Small labelled sets of points for every geometry."""

from __future__ import annotations

import numpy as np

from knnpress.geometries import AIRM, EMD, JBLD, Hellinger, LogEuclidean, Sinkhorn, SquaredEuclidean, Tangent

_GRID = np.stack(np.mgrid[0:3, 0:3], axis=-1).reshape(-1, 2).astype(float)
GROUND_COST = np.linalg.norm(_GRID[:, None] - _GRID, axis=-1)
GROUND_COST.setflags(write=False)

#: Every geometry of the package, by a name for the test report.
GEOMETRIES = {
    "jbld": JBLD(),
    "airm": AIRM(),
    "logeuclid": LogEuclidean(),
    "tangent": Tangent(),
    "sqeuclidean": SquaredEuclidean(),
    "sinkhorn-divergence": Sinkhorn(GROUND_COST),
    "sinkhorn-dual": Sinkhorn(GROUND_COST, value="dual"),
    "sinkhorn-transport": Sinkhorn(GROUND_COST, value="transport"),
    "emd": EMD(GROUND_COST),
    "hellinger": Hellinger(),
}
SPD = ["jbld", "airm", "logeuclid", "tangent"]
SINKHORN = ["sinkhorn-divergence", "sinkhorn-dual", "sinkhorn-transport"]
HISTOGRAMS = [*SINKHORN, "emd", "hellinger"]


def spd(rng: np.random.Generator, n: int, d: int = 4) -> np.ndarray:
    """Random symmetric positive definite matrices, (n, d, d)."""
    A = rng.normal(size=(n, d, 2 * d))
    return A @ A.transpose(0, 2, 1) / (2 * d)


def histograms(rng: np.random.Generator, n: int, d: int = len(GROUND_COST)) -> np.ndarray:
    """Random histograms, (n, d)."""
    return rng.dirichlet(np.ones(d), size=n)


def sample(name: str, n: int, seed: int = 0) -> np.ndarray:
    """Valid points of the geometry of that name."""
    rng = np.random.default_rng(seed)
    if name in SPD:
        return spd(rng, n)
    return histograms(rng, n) if name in HISTOGRAMS else rng.normal(size=(n, 4))


def labelled(name: str, n: int, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points in overlapping classes, and their labels 0, 1, ..."""
    X = sample(name, n, seed)
    y = np.arange(n) % n_classes
    for label in range(n_classes):
        centre = sample(name, 1, seed=1000 + label)
        X[y == label] = 0.5 * X[y == label] + 0.5 * centre  # valid points form a convex set
    return X, y
