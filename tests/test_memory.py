"""Full nearest neighbours hold blocks of distances, never all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The peak is reset after the data are made, so that it is the peak of the search alone.
CODE = """
import sys
import numpy as np
from knnpress.estimators import PrototypeClassifier

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))

n, m, d, k = map(int, sys.argv[1:])
rng = np.random.default_rng(0)

def spd(n):
    X = np.empty((n, d, d))
    for start in range(0, n, 500):
        A = rng.normal(size=(len(X[start : start + 500]), d, 2 * d))
        X[start : start + 500] = A @ A.transpose(0, 2, 1)
    X[:, 0, 1] *= 1 + 1e-15  # asymmetric by rounding, so that the check has to make a copy
    return X

X, Z = spd(n), spd(m)
y = np.arange(m) % 5
PrototypeClassifier("jbld", n_neighbors=k).fit(Z[:100], y[:100]).predict(X[:100])  # load what is loaded at first use
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
PrototypeClassifier("jbld", n_neighbors=k).fit(Z, y).predict(X)
print(status("VmHWM") - before)
"""


def megabytes_added(n, m, d, k):
    """What predicting n points from m training matrices adds to the memory of a process."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, (n, m, d, k))], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux_only
@pytest.mark.parametrize("k", [1, 5])
def test_a_search_holds_less_than_its_distances(k):
    n, m = 12_000, 3_000  # all distances: 275 MB
    assert megabytes_added(n, m, 3, k) < 150


@linux_only
@pytest.mark.slow
def test_20000_queries_against_5000_matrices_add_less_than_300_megabytes():
    assert megabytes_added(20_000, 5_000, 19, 1) < 300
