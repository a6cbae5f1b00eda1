"""What a distance does not see: the geometries of covariance matrices under a change of the sensors.

Every measurement is mixed by the same invertible matrix, as if the sensors had been moved and their units changed. JBLD
and the affine-invariant distance (AIRM) are blind to that. The log-Euclidean distance and the plain one are not.
"""

import numpy as np

import knnpress as kp
from knnpress.geometries import AIRM, JBLD, LogEuclidean, SquaredEuclidean

data = kp.datasets.make_wishart_classes(n=600, d=8, n_classes=4, random_state=0, spread=0.15)
X, y, X_test, y_test = data.X[:300], data.y[:300], data.X[300:], data.y[300:]

rng = np.random.default_rng(0)
A = rng.normal(size=(8, 8)) * np.logspace(-2, 2, 8)  # sensors in quite different units


def mixed(C):
    """What the same signals look like to the other sensors."""
    return A @ C @ A.T


class Flat(SquaredEuclidean):
    """The plain distance between matrices, entry by entry."""

    point_ndim = 2

    def check(self, X, name="X", n_jobs=None):
        """Return the matrices as vectors."""
        return super().check(np.reshape(X, (len(X), -1)), name, n_jobs)


print(f"{'geometry':14}{'as measured':>12}{'as mixed':>10}   errors of the nearest neighbour")
errors = {}
for geometry in [JBLD(), AIRM(), LogEuclidean(), Flat()]:
    name = type(geometry).__name__
    for task, change in {"measured": lambda C: C, "mixed": mixed}.items():
        D = geometry.pairwise(change(X_test), change(X))
        errors[name, task] = np.mean(y[D.argmin(axis=1)] != y_test)
    print(f"{name:14}{errors[name, 'measured']:12.1%}{errors[name, 'mixed']:10.1%}")

assert errors["JBLD", "measured"] == errors["JBLD", "mixed"]
assert errors["AIRM", "measured"] == errors["AIRM", "mixed"]
assert errors["Flat", "mixed"] > errors["Flat", "measured"] + 0.05
assert abs(errors["JBLD", "measured"] - errors["AIRM", "measured"]) < 0.03  # and JBLD is far quicker
