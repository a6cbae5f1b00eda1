"""Full nearest neighbours hold blocks of distances, never all of them; files do not grow without measure."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from points import labelled
from test_model_file import contents, rewrite

import knnpress as kp
from knnpress import files
from knnpress.datasets import load_points
from knnpress.datasets.points import load_unlabelled

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
@pytest.mark.parametrize("k", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_search_holds_less_than_its_distances(k):
    n, m = 12_000, 3_000  # all distances: 275 MB
    assert megabytes_added(n, m, 3, k) < 150


@linux_only
@pytest.mark.slow
def test_20000_queries_against_5000_matrices_add_less_than_300_megabytes():
    assert megabytes_added(20_000, 5_000, 19, 1) < 300


LOAD = """
import sys
import knnpress as kp
from knnpress.exceptions import ModelFileError

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))

kp.load(sys.argv[1])
for path in sys.argv[2:]:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    try:
        kp.load(path)
    except ModelFileError:
        pass
    print(status("VmHWM") - before)
"""
MILLION = 1_000_000


def grown(name, size):
    """A value of so many bytes of a model file, and its tensors, that would take far more room in memory."""
    zeros = np.zeros(size, dtype=np.uint8)
    return {
        "lists": ([[]] * (size // 3), {}),
        "dicts": ([{"dict": []}] * (size // 14), {}),
        "objects": ({"objects": [0] * (size // 2), "shape": [size // 2]}, {}),
        "floats": ({"floats": "z"}, {"z": zeros}),
        "half floats": ({"floats": "z"}, {"z": zeros.view(np.float16)}),
        "text": ({"array": "z", "text": True}, {"z": zeros[:, None]}),
        "triangle": ({"array": "z", "symmetric": True}, {"z": zeros[: 4000 * 4001 // 2]}),
    }[name]


@linux_only
def test_a_model_file_takes_no_more_than_four_times_its_size(tmp_path):
    X, y = labelled("jbld", 30)
    kp.SCC(n_prototypes=3).fit(X, y).save(tmp_path / "small")
    about, tensors = contents(tmp_path / "small")
    names = ("lists", "dicts", "objects", "floats", "half floats", "text", "triangle")
    for name in names:
        value, more = grown(name, 12 * MILLION)
        about["model"]["fitted"]["loss_curve_"] = value
        rewrite(tmp_path / name, about, tensors | more)
    # what really is large: 40,000 prototypes
    X = np.repeat(X, 40_000 // 30, axis=0)
    kp.PrototypeClassifier("jbld").fit(X, np.resize(y, len(X))).save(tmp_path / "large")
    paths = [tmp_path / name for name in ("small", *names, "large")]
    done = subprocess.run([sys.executable, "-c", LOAD, *paths], capture_output=True, text=True, check=True)
    for path, added in zip(paths[1:], map(float, done.stdout.split()), strict=True):
        assert added < 4.2 * path.stat().st_size / 2**20 + 4, path.name


DOCTOR = """
import sys
from knnpress.cli import main

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))

main(["doctor", sys.argv[1]])
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
main(["doctor", *sys.argv[2:]])
print(status("VmHWM") - before)
"""


@linux_only
@pytest.mark.parametrize(
    "kind",
    ["bytes", *(pytest.param(k, marks=pytest.mark.slow) for k in ("matrices", "vectors", "histograms", "asymmetric"))],
)
def test_the_doctor_takes_no_more_than_four_times_the_size_of_the_points_as_doubles(kind, tmp_path, rng):
    points = {
        "matrices": lambda: np.eye(20) + 0.1 * np.ones((20, 20)) * rng.random((10_000, 1, 1)),
        "asymmetric": lambda: np.eye(20) + 0.1 * rng.random((10_000, 20, 20)),
        "vectors": lambda: rng.normal(size=(100_000, 40)),
        "histograms": lambda: rng.random((100_000, 40)),
        "bytes": lambda: rng.integers(0, 255, (4_000, 1_000)).astype(np.uint8),
    }
    X = points[kind]()
    cost = {"ground_cost": np.ones((40, 40)) - np.eye(40)} if kind == "histograms" else {}
    np.savez(tmp_path / "small.npz", X=X[:20], y=np.arange(20) % 2, **cost)
    np.savez(tmp_path / "large.npz", X=X, y=np.arange(len(X)) % 2, **cost)
    command = [sys.executable, "-c", DOCTOR, tmp_path / "small.npz", tmp_path / "large.npz"]
    for more in ([], ["--fix", "-o", tmp_path / "mended.npz"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
        assert float(done.stdout.split()[-1]) < 4 * 8 * X.size / 2**20 + 64, more  # and the blocks of two threads


def test_points_that_would_not_fit_are_refused_before_they_are_taken(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", X=np.zeros((1000, 1000), dtype=np.uint8), y=np.arange(1000) % 2)
    monkeypatch.setattr(files, "free_memory", lambda: 7_000_000)
    for read in (load_points, load_unlabelled):
        with pytest.raises(
            ValueError, match=r"a\.npz: X would take 8,000,000 bytes as float64, and 7,000,000 are free"
        ):
            read(tmp_path / "a.npz")
    monkeypatch.setattr(files, "free_memory", lambda: None)  # where the system does not say
    assert load_points(tmp_path / "a.npz").X.dtype == np.float64
