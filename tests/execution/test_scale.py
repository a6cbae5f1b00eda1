"""Points that are not in memory: stores that are read block by block, and the workers of a Dask cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from points import GROUND_COST, labelled

import knnpress as kp
from knnpress.cli import main
from knnpress.compression import ClassCentroids, Condensed, StochasticCompression
from knnpress.estimators import checks
from knnpress.exceptions import InvalidPointError
from knnpress.execution import dask as dask_module
from knnpress.execution import stored
from knnpress.execution.rows import LocalRows, Memory
from knnpress.execution.stored import StoredPoints, is_stored, stored_blocks
from knnpress.geometries import JBLD, CloudSinkhorn, SquaredEuclidean

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("default:.*unclosed"),
    pytest.mark.filterwarnings("ignore:CloudSinkhorn. . of .* pairs"),
]
#: One descent from a start that knows no order, with nothing left to be chosen
QUICK = {"max_iter": 4, "gamma": "scale", "prior": 1.0, "smoothing": 0.02, "vote": "nearest"}


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    """Small stores would be loaded at once."""
    monkeypatch.setattr(checks, "MEMORY_BYTES", 0)


@pytest.fixture(scope="module")
def started():
    """A cluster within this process: quick to start, and its workers talk as others do."""
    patience = {"distributed.comm.timeouts.connect": "120s", "distributed.comm.timeouts.tcp": "120s"}
    with (
        dask.config.set(patience),
        distributed.LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(started):
    with started.as_current():
        yield started


@pytest.fixture(autouse=True)
def no_warning_of_few_iterations(monkeypatch):
    monkeypatch.setattr("knnpress.compression.stochastic._still_falls", lambda curve: False)


class Store:
    """An array that may only be read by row slices, and counts what is read."""

    def __init__(self, array, chunks=16):
        self.array, self.shape, self.dtype, self.chunks = array, array.shape, array.dtype, (chunks, *array.shape[1:])
        self.read = np.zeros(len(array), dtype=int)

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        self.read[rows] += 1
        return self.array[rows]


def estimator(name, **options):
    models = {
        "jbld": lambda **o: kp.SCC(metric="jbld", **o),
        "sinkhorn-divergence": lambda **o: kp.SHC(GROUND_COST, metric="sinkhorn", **o),
        "sqeuclidean": kp.SNC,
    }
    # where points are averaged and compared to find a start; no geometry's rounding may decide between two
    init = ClassCentroids(SquaredEuclidean() if name == "sinkhorn-divergence" else None)
    expert = StochasticCompression(init=init, batch_size=options.pop("batch_size", None))
    return models[name](**{"n_prototypes": 6, "compressor": expert, **QUICK, **options})


@pytest.mark.parametrize("name", ["jbld", "sqeuclidean", "sinkhorn-divergence"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_store_gives_the_same_prototypes_as_memory(name, weighted, rng):
    X, y = labelled(name, 150)
    weight = rng.random(150) if weighted else None
    expected = estimator(name).fit(X, y, weight)
    found = estimator(name).fit(Store(X), y, weight)
    # points in memory are put in an order of their own, and sums round by it
    rounding = {"jbld": 1e-5, "sinkhorn-divergence": 1e-3, "sqeuclidean": 1e-9}[name]
    assert_allclose(found.prototypes_, expected.prototypes_, atol=rounding)
    assert_allclose(found.prototype_weights_, expected.prototype_weights_)
    assert found.gamma_ == pytest.approx(expected.gamma_)


def test_held_out_parts_are_the_same_too():
    X, y = labelled("sqeuclidean", 200)
    settings = {"gamma": "auto", "prior": "auto"}
    found = estimator("sqeuclidean", **settings).fit(Store(X), y)
    other = estimator("sqeuclidean", **settings).fit(Store(X, 50), y)
    assert_array_equal(found.prototypes_, other.prototypes_)
    assert found.selection_ == other.selection_
    assert len(found.selection_) > 3


@pytest.mark.parametrize("name", ["jbld", "sinkhorn-divergence"])
@pytest.mark.parametrize("chunks", [150, 37, (3, 100, 1, 46)], ids=str)
@pytest.mark.parametrize("tasks", [1, 4])
def test_a_cluster_gives_the_same_prototypes_as_threads(client, name, chunks, tasks, monkeypatch):
    monkeypatch.setattr(dask_module, "_CHUNKS_PER_THREAD", tasks)  # several blocks in a chunk, and one
    X, y = labelled(name, 150)
    y = np.sort(y)  # so that chunks lack classes
    expected = estimator(name).fit(Store(X), y)
    found = estimator(name).fit(da.from_array(X, chunks=(chunks, *X.shape[1:])), da.from_array(y, chunks=50))
    assert_allclose(found.prototypes_, expected.prototypes_, atol=1e-9)
    assert found.loss_curve_ == pytest.approx(expected.loss_curve_)
    assert_allclose(found.prototype_weights_, expected.prototype_weights_)


def test_weights_travel_too(client, rng):
    X, y = labelled("jbld", 100)
    weight = rng.random(100)
    found = estimator("jbld").fit(da.from_array(X, chunks=(30, 2, 4)), y, da.from_array(weight))
    assert_allclose(found.prototypes_, estimator("jbld").fit(Store(X), y, weight).prototypes_, atol=1e-9)


def test_without_a_client_a_dask_array_is_read_by_threads():
    X, y = labelled("jbld", 100)
    found = estimator("jbld").fit(da.from_array(X, chunks=(30, 4, 4)), da.from_array(y))
    assert_allclose(found.prototypes_, estimator("jbld").fit(X, y).prototypes_, atol=1e-6)


def test_batches_of_a_cluster_and_of_a_store_are_the_same(client):
    X, y = labelled("jbld", 300)
    settings = {"batch_size": 64, "max_iter": 3}
    expected = estimator("jbld", **settings).fit(Store(X, 8), y)
    found = estimator("jbld", **settings).fit(da.from_array(X, chunks=(8, 4, 4)), y)
    assert_allclose(found.prototypes_, expected.prototypes_, atol=1e-9)
    assert expected.loss_curve_[-1] < expected.loss_curve_[0]


def test_a_pass_reads_every_row_once():
    X, y = labelled("jbld", 300)
    reads = []
    for passes in (1, 4):
        store = Store(X, 8)
        estimator("jbld", batch_size=64, max_iter=passes).fit(store, y)
        assert store.read[1:].min() == store.read[1:].max()
        reads.append(store.read[-1])
    assert reads[1] - reads[0] == 3


def test_runs_of_rows_agree_with_the_chunks_of_a_store():
    for chunk, size in [(16, 32), (64, 32), (100, 25), (7, 28), (1, 32)]:
        blocks = stored_blocks((1000, 4, 4), 10, 256, (chunk, 4, 4))
        assert blocks[0].stop == size
        assert [b.start for b in blocks[1:]] == [b.stop for b in blocks[:-1]]
        assert blocks[-1].stop == 1000


def test_neither_points_nor_distances_of_a_block_exceed_its_bytes():
    for shape, m in [((10**6, 19, 19), 5000), ((10**6, 19, 19), 10), ((10**7, 4), 3)]:
        rows = stored_blocks(shape, m, None, None)[0].stop
        assert rows * 8 * max(m, int(np.prod(shape[1:]))) <= 16 * 2**20


def test_a_sample_speaks_for_what_is_larger(monkeypatch):
    monkeypatch.setattr("knnpress.compression.views._SAMPLE", 100)
    X, y = labelled("jbld", 400)
    settings = {"prior": "auto", "max_iter": 10}
    store = Store(X)
    found = estimator("jbld", **settings).fit(store, y)
    whole = estimator("jbld", **settings).fit(X, y)
    assert found.prototype_weights_.sum() == 400
    assert found.score(X, y) > whole.score(X, y) - 0.05
    assert not np.array_equal(found.prototypes_, whole.prototypes_)


def some_absent(n=200):
    """Points in four classes, weights of which some are zero, among them all of the last class, and what is left."""
    X, y = labelled("sqeuclidean", n, n_classes=4)
    weight = np.random.default_rng(1).integers(1, 4, n).astype(float)
    weight[(y == 3) | (np.arange(n) % 5 == 0)] = 0.0
    return X, y, weight, weight > 0


@pytest.mark.parametrize("most", [20_000, 60])  # in the sample
def test_points_of_weight_zero_in_a_store_are_absent(most, monkeypatch):
    monkeypatch.setattr("knnpress.compression.views._SAMPLE", most)
    X, y, weight, kept = some_absent()
    model = estimator("sqeuclidean", n_prototypes=0.1, gamma="auto", prior="auto")
    with_them = model.fit(Store(X), y, weight)
    found = with_them.classes_, with_them.compression_ratio_, with_them.selection_, with_them.prototypes_
    without = model.fit(Store(X[kept]), y[kept], weight[kept])
    assert_array_equal(found[0], without.classes_)
    assert found[1:3] == (without.compression_ratio_, without.selection_)
    assert_allclose(found[3], without.prototypes_, atol=1e-6)


def test_points_of_weight_zero_are_absent_on_a_cluster_too(client):
    X, y, weight, _ = some_absent()
    model = estimator("sqeuclidean", n_prototypes=0.1)
    there = model.fit(da.from_array(X, chunks=(37, 4)), y, weight).prototypes_
    assert_allclose(there, model.fit(Store(X), y, weight).prototypes_, atol=1e-9)
    assert_array_equal(model.classes_, [0, 1, 2])


def test_a_batch_of_absent_points_teaches_nothing():
    X, y = labelled("sqeuclidean", 128)
    weight = (np.arange(128) >= 124).astype(float)
    clf = estimator("sqeuclidean", n_prototypes=3, batch_size=16).fit(Store(X), y, weight)
    assert np.isfinite(clf.loss_curve_).all()
    assert np.isfinite(clf.prototypes_).all()


def test_levels_are_found_by_points_that_are_present(monkeypatch):
    monkeypatch.setattr("knnpress.estimators.outliers._MAX_ROWS", 20)
    X, y = labelled("sqeuclidean", 80)
    weight = np.arange(80) % 2.0  # every fourth row, the sample otherwise, is absent
    assert np.isfinite(estimator("sqeuclidean").fit(Store(X), y, weight).distance_levels_).all()


@pytest.mark.parametrize(("metric", "times"), [("jbld", 1), ("auto", 2)])
def test_all_points_are_placed_on_the_workers_only_in_the_geometries_they_may_be_learned_in(
    client, metric, times, monkeypatch
):
    placed, place = [], dask_module.ClusterRows._place
    monkeypatch.setattr(
        dask_module.ClusterRows, "_place", lambda rows, blocks: placed.append(blocks) or place(rows, blocks)
    )
    X, y = labelled("jbld", 100)
    clf = estimator("jbld", prior="auto", max_iter=2).set_params(metric=metric).fit(da.from_array(X), y)
    assert {seen["metric"] for seen in clf.selection_} >= {"tangent"}
    assert len(placed) == times


def test_memories_keep_to_their_budget(rng):
    X = rng.normal(size=(10, 3))
    memory = Memory(2.5 * X.nbytes)
    for start in (20, 10, 0):
        memory.keep(slice(start, start + 10), X.copy(), X)
    assert sorted(memory) == [0, 10]


def test_errors_name_the_row_among_all(client):
    X, y = labelled("jbld", 200)
    X[173] = -X[173]
    for points in (Store(X), da.from_array(X, chunks=(30, 4, 4))):
        with pytest.raises(InvalidPointError, match=r"^X\[173\] is not positive definite"):
            estimator("jbld").fit(points, y)
    model = estimator("jbld").fit(X[:150], y[:150])
    lazy = model.predict(da.from_array(X, chunks=(30, 4, 4)))
    with pytest.raises(InvalidPointError, match=r"^X\[173\] is not positive definite"):
        lazy.compute()
    with pytest.raises(InvalidPointError, match=r"^X\[173\] is not positive definite"):
        model.predict(Store(X))


@pytest.mark.parametrize(
    ("X", "y", "error", "match"),
    [
        (np.ones((20, 3)), np.arange(20) % 2, ValueError, "expected"),
        (labelled("jbld", 20)[0], np.arange(21) % 2, ValueError, "20 points and y 21 labels"),
        (labelled("jbld", 20)[0], np.zeros(20), ValueError, "at least two classes"),
        (labelled("jbld", 20)[0], None, ValueError, "requires y"),
        (labelled("jbld", 20)[0].astype(complex), np.arange(20) % 2, ValueError, "Complex"),
    ],
    ids=["shape", "length", "classes", "no y", "complex"],
)
def test_what_cannot_be_fitted_is_refused(client, X, y, error, match):
    for points in (da.from_array(X, chunks=7), Store(X)):
        with pytest.raises(error, match=match):
            estimator("jbld").fit(points, None if y is None else da.from_array(y, chunks=9))


def test_chunks_of_unknown_length_are_refused(client):
    X, y = labelled("jbld", 50)
    lazy = da.from_array(X, chunks=(10, 4, 4))
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        estimator("jbld").fit(lazy[da.from_array(y > 0)], y[y > 0])


def test_selection_says_that_it_wants_memory():
    X, y = labelled("jbld", 30)
    lazy = da.from_array(X, chunks=(10, 4, 4))
    with pytest.raises(TypeError, match=r"X\.compute\(\)"):
        kp.PrototypeClassifier("jbld", Condensed()).fit(lazy, y)
    with pytest.raises(TypeError, match=r"X\.compute\(\)"):
        kp.PrototypeSampler("jbld", Condensed()).fit_resample(lazy, y)
    for settings in ({"n_prototypes": "auto"}, {"gamma": "tune"}):
        with pytest.raises(ValueError, match="search on a part of it"):
            estimator("jbld", **settings).fit(lazy, y)


@pytest.mark.parametrize("name", ["jbld", "sqeuclidean"])
def test_predictions_of_dask_arrays_are_lazy(name):
    X, y = labelled(name, 100)
    model = estimator(name, max_iter=1).fit(X, np.array(["a", "b", "c"])[y])
    lazy = da.from_array(X, chunks=(30, *(2,) * (X.ndim - 1)))
    for method in ("predict", "predict_proba", "transform"):
        expected, found = getattr(model, method)(X), getattr(model, method)(lazy)
        assert isinstance(found, da.Array)
        assert found.chunks[0] == (30, 30, 30, 10)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert_array_equal(found.compute(), expected)
        assert_array_equal(getattr(model, method)(Store(X)), expected)
    assert model.score(lazy, da.from_array(np.array(["a", "b", "c"])[y])) == model.score(
        X, np.array(["a", "b", "c"])[y]
    )


@pytest.mark.parametrize("name", ["jbld", "sqeuclidean"])
@pytest.mark.parametrize("known", [True, False])
def test_an_empty_chunk_of_a_dask_array_gets_an_empty_answer(name, known):
    X, y = labelled(name, 60)
    model = estimator(name, max_iter=1).fit(X, np.array(["a", "b", "c"])[y])
    rows = np.arange(60)
    keep = (rows < 20) | (rows >= 40)  # the second of three chunks is emptied
    lazy = da.from_array(X, chunks=(20, *X.shape[1:]))[da.from_array(keep, chunks=20)]
    lazy = lazy.compute_chunk_sizes() if known else lazy
    for method in ("predict", "predict_proba", "transform"):
        found = getattr(model, method)(lazy)
        assert_array_equal(found.compute(), getattr(model, method)(X[keep]))
        none = getattr(model, method)(da.from_array(X[:0], chunks=X.shape)).compute()
        assert (none.shape, none.dtype) == ((0, *found.shape[1:]), found.dtype)


def test_a_memory_map_and_a_zarr_array_are_stores(tmp_path):
    X, y = labelled("jbld", 60)
    mapped = np.memmap(tmp_path / "X", dtype=float, mode="w+", shape=X.shape)
    mapped[:] = X
    stored = zarr.create_array(tmp_path / "X.zarr", shape=X.shape, chunks=(16, 4, 4), dtype="f8")
    stored[:] = X
    expected = estimator("jbld", max_iter=1).fit(Store(X), y).prototypes_
    for store in (mapped, stored):
        assert is_stored(store)
        assert_array_equal(estimator("jbld", max_iter=1).fit(store, y).prototypes_, expected)
    assert not is_stored(X)
    assert not is_stored(X.tolist())
    assert not is_stored(da.from_array(X))


def test_what_is_small_is_loaded_at_once(monkeypatch):
    monkeypatch.setattr(checks, "MEMORY_BYTES", 10**6)
    X, y = labelled("jbld", 60)
    points, _ = checks.check_training_set(kp.SCC(), JBLD(), da.from_array(X), y, out_of_core=True)
    assert isinstance(points, np.ndarray)


def test_a_checkpoint_of_a_store_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("knnpress.learning.checkpoint._SECONDS", 0.0)
    monkeypatch.setattr("knnpress.learning.checkpoint._PAUSE", 0.0)
    X, y = labelled("jbld", 100)

    def stop(step, total, facts):
        if step == 3:
            raise KeyboardInterrupt

    path = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        estimator("jbld", checkpoint=path, max_iter=8, callback=stop).fit(Store(X), y)
    assert path.exists()
    with pytest.raises(ValueError, match="X was"):
        estimator("jbld", checkpoint=path, max_iter=8).fit(Store(X[::-1].copy()), y)
    found = estimator("jbld", checkpoint=path, max_iter=8).fit(Store(X), y)
    assert_array_equal(found.prototypes_, estimator("jbld", max_iter=8).fit(Store(X), y).prototypes_)


@pytest.mark.parametrize(("metric", "most"), [("jbld", 1), ("tangent", 1), ("auto", 2)])
def test_workers_forget_when_a_fit_ends(client, metric, most):
    X, y = labelled("jbld", 100)
    before, seen = set(dask_module._memories), []
    settings = {"max_iter": 2, "callback": lambda *_: seen.append(len(set(dask_module._memories) - before)) and False}
    estimator("jbld", **settings).set_params(metric=metric).fit(da.from_array(X, chunks=(30, 4, 4)), y)
    assert 1 <= max(seen) <= most
    assert set(dask_module._memories) <= before


def test_an_error_of_a_worker_reaches_the_user(client):
    X, y = labelled("jbld", 100)

    def broken(block):
        if len(block):
            raise OSError("disk 7 is on fire")
        return block

    lazy = da.from_array(X, chunks=(30, 4, 4)).map_blocks(broken, dtype=float, meta=np.empty((0, 0, 0)))
    whole = da.concatenate([da.from_array(X[:50]), lazy[50:]])
    with pytest.raises(OSError, match="disk 7 is on fire"):
        estimator("jbld").fit(whole, y)


def test_blocks_are_read_from_a_store_as_checked_points(rng):
    X, y = labelled("sinkhorn-dual", 40)
    points = StoredPoints(Store(3.0 * X), lambda block: block / block.sum(axis=1, keepdims=True))
    rows = LocalRows(points, y)
    taken = rows.take(np.array([1, 17, 39]), [slice(0, 16), slice(16, 32), slice(32, 40)])
    assert_allclose(taken, X[[1, 17, 39]])


# Processes of their own: slow to start, and the only ones that can be killed.

HEADER = """
import os, signal, sys, time
import numpy as np
import dask.array as da
import knnpress as kp
from distributed import Client, LocalCluster

data = kp.datasets.make_wishart_classes(600, 5, 3)
lazy, y = da.from_array(data.X, chunks=(100, 5, 5)), data.y
settings = dict(n_prototypes=6, metric="jbld", gamma="scale", prior=1.0, smoothing=0.02, vote="nearest", max_iter=12)
"""
LOSS = (
    HEADER
    + """
if __name__ == "__main__":
    expected = kp.SCC(**settings).fit(data.X, y).prototypes_
    with LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        def kill(step, total, facts):
            if step == 4:
                os.kill(cluster.workers[0].pid, signal.SIGKILL)
        found = kp.SCC(**settings, callback=kill).fit(lazy, y).prototypes_
    print(np.abs(found - expected).max())
"""
)
VANISH = (
    HEADER
    + """
if __name__ == "__main__":
    address, pid = sys.argv[1], int(sys.argv[2])
    with Client(address) as client:
        def kill(step, total, facts):
            if step == 4:
                os.kill(pid, signal.SIGKILL)
        try:
            kp.SCC(**settings, callback=kill).fit(lazy, y)
        except ConnectionError as error:
            print(error, flush=True)
            os._exit(0)
"""
)


def run(tmp_path, code, *arguments):
    script = tmp_path / "script.py"
    script.write_text(code)
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


CLOUDS = """
from types import SimpleNamespace

rng = np.random.default_rng(0)
offsets, y = np.arange(0, 6001, 10), np.arange(600) % 2
points = rng.normal(size=(6000, 3)) * (1.0 + np.repeat(y, 10))[:, None]
data = SimpleNamespace(X=kp.Clouds(points, offsets))
lazy = kp.StoredClouds(da.from_array(points, chunks=(700, 3)), offsets)
kp.SCC, settings = kp.SWC, {**settings, "n_prototypes": 2, "n_points": 5, "reg": 1.0}
del settings["metric"]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "most"),
    # sums of points in memory round by another order; the potentials of clouds that the worker held start from nothing
    [(LOSS, 1e-4), (LOSS.replace("if __name__", f"{CLOUDS}\nif __name__", 1), 0.05)],
    ids=["matrices", "clouds"],
)
def test_a_fit_survives_the_loss_of_a_worker(tmp_path, code, most):
    assert float(run(tmp_path, code)) < most


@pytest.mark.slow
def test_a_fit_does_not_wait_for_a_scheduler_that_vanished(tmp_path):
    port = 18000 + os.getpid() % 2000
    address = f"tcp://127.0.0.1:{port}"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1"]
    scheduler = subprocess.Popen([*command, "--port", str(port), "--no-dashboard"], stderr=subprocess.DEVNULL)
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
    worker = subprocess.Popen([*command, "--death-timeout", "60"], stderr=subprocess.DEVNULL, cwd=tmp_path)
    try:
        start = time.monotonic()
        assert "the Dask cluster has gone" in run(tmp_path, VANISH, address, str(scheduler.pid))
        assert time.monotonic() - start < 240
    finally:
        for process in (scheduler, worker):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def rings(n=150, seed=0):
    """Points of clouds on a small or a large ring, where clouds begin, and labels."""
    rng = np.random.default_rng(seed)
    y, sizes = np.arange(n) % 2, rng.integers(4, 12, n)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    angle = rng.uniform(0, 2 * np.pi, offsets[-1])
    radius = np.repeat(1.0 + 2.0 * y, sizes)[:, None]
    points = radius * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(0, 0.3, (len(angle), 2))
    return points, offsets, y


def cloud_estimator(**options):
    own = {name: options.pop(name) for name in ("batch_size", "optimizer") if name in options}
    expert = StochasticCompression(**own)
    return kp.SWC(**{"n_prototypes": 4, "n_points": 4, "compressor": expert, **QUICK, **options})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["store", "float32", "memory map", "zarr", "dask"])
def test_clouds_in_a_store_give_the_same_prototypes_as_in_memory(kind, weighted, tmp_path, rng):
    points, offsets, y = rings()
    heavy = rng.uniform(0.5, 2.0, len(points)) if weighted else None
    weight = rng.integers(0, 3, len(y)).astype(float) if weighted else None
    kept = points
    if kind == "float32":
        kept = points = points.astype(np.float32)
    elif kind == "memory map":
        kept = np.lib.format.open_memmap(tmp_path / "points.npy", "w+", shape=points.shape)
        kept[:] = points
    elif kind == "zarr":
        kept = zarr.create_array(tmp_path / "points.zarr", shape=points.shape, chunks=(100, 2), dtype="f8")
        kept[:] = points
    elif kind == "dask":
        kept = da.from_array(points, chunks=(100, 1))
    X, S = kp.Clouds(points, offsets, heavy), kp.StoredClouds(Store(kept) if kind == "store" else kept, offsets, heavy)
    # one per class: where several begin depends on the order of points, which memory changes
    expected = cloud_estimator(n_prototypes=2).fit(X, y, weight)
    found = cloud_estimator(n_prototypes=2).fit(S, y, weight)
    assert (found.reg_, found.n_features_in_) == (expected.reg_, 2)
    assert_allclose(found.prototypes_, expected.prototypes_, atol=1e-9)
    assert_allclose(found.prototype_weights_, expected.prototype_weights_)
    assert_allclose(found.distance_levels_, expected.distance_levels_)
    for method in ("predict", "predict_proba", "transform", "outlier_score", "score_samples"):
        assert_allclose(np.asarray(getattr(found, method)(S)), getattr(found, method)(X), atol=1e-9)


@pytest.mark.parametrize("chunks", [2000, 37, (3, 500, 1, -1)], ids=str)
def test_clouds_on_a_cluster_give_the_same_prototypes_as_in_a_store(client, chunks, monkeypatch):
    monkeypatch.setattr("knnpress.execution.stored.BLOCK_BYTES", 5000)  # several blocks
    points, offsets, y = rings()
    heavy = np.random.default_rng(1).uniform(0.5, 2.0, len(points))
    y = np.sort(y)
    chunks = (*chunks[:-1], len(points) - 504) if isinstance(chunks, tuple) else chunks
    X = kp.StoredClouds(da.from_array(points, chunks=(chunks, 1)), offsets, heavy)
    expected = cloud_estimator(gamma="auto", prior="auto").fit(kp.StoredClouds(Store(points), offsets, heavy), y)
    found = cloud_estimator(gamma="auto", prior="auto").fit(X, y)
    assert_allclose(found.prototypes_, expected.prototypes_, atol=1e-9)
    assert found.loss_curve_ == pytest.approx(expected.loss_curve_)
    assert found.reg_ == expected.reg_
    assert len(found.selection_) > 3
    lazy = found.predict_proba(X)
    assert isinstance(lazy, da.Array)
    assert len(lazy.chunks[0]) > 3
    assert_allclose(lazy.compute(), found.predict_proba(kp.Clouds(points, offsets, heavy)), atol=1e-9)
    assert found.score(X, y) == found.score(kp.Clouds(points, offsets, heavy), y)


def test_batches_of_clouds_on_a_cluster_and_in_a_store_are_the_same(client, monkeypatch):
    monkeypatch.setattr("knnpress.estimators.swc._MANY", 100)
    monkeypatch.setattr("knnpress.estimators.swc._BATCH", 32)
    points, offsets, y = rings(300)
    expected = cloud_estimator(max_iter=3).fit(kp.StoredClouds(Store(points), offsets), y)
    found = cloud_estimator(max_iter=3).fit(kp.StoredClouds(da.from_array(points, chunks=(100, 2)), offsets), y)
    assert_allclose(found.prototypes_, expected.prototypes_, atol=1e-9)
    assert (expected.n_iter_, expected.stopped_by_) == (3, "max_iter")
    assert expected.loss_curve_[-1] < expected.loss_curve_[0]


def test_a_pass_over_stored_clouds_reads_every_point_once():
    points, offsets, y = rings(300)
    reads = []
    for passes in (1, 4):
        store = Store(points)
        cloud_estimator(reg=1.0, batch_size=64, max_iter=passes).fit(kp.StoredClouds(store, offsets), y)
        assert store.read[offsets[1] : offsets[-2]].min() == store.read[offsets[1] : offsets[-2]].max()
        reads.append(store.read[-1])
    assert reads[1] - reads[0] == 3


def test_blocks_of_stored_clouds_take_no_more_than_a_blocks_bytes(rng):
    sizes = np.where(rng.random(5000) < 0.01, 4000, 20)  # some clouds are large
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = kp.StoredClouds(np.broadcast_to(np.float32(0), (offsets[-1], 63)), offsets)
    for batch_size in (None, 256):
        blocks = stored.blocks_of(X, 40, batch_size)
        assert [b.start for b in blocks] == [0, *(b.stop for b in blocks[:-1])]
        assert blocks[-1].stop == 5000
        assert max(stored.n_bytes(X, block) for block in blocks) <= 16 * 2**20
        # distances to 40 prototypes of as many points, and their potentials
        assert max(b.stop - b.start for b in blocks) * 8 * 40 * X.sizes.mean() <= 16 * 2**20
    blocks = stored.reading_blocks(X)
    assert max(stored.n_bytes(X, block) for block in blocks) <= 16 * 2**20 < stored.n_bytes(X, slice(0, 5000)) / 5
    one = kp.StoredClouds(np.broadcast_to(0.0, (2**20, 63)), [0, 1, 2**20 - 1, 2**20])
    assert stored.reading_blocks(one) == [slice(0, 1), slice(1, 2), slice(2, 3)]  # a cloud is never cut


def test_samples_of_stored_clouds_are_small_and_hold_no_block(monkeypatch):
    monkeypatch.setattr("knnpress.execution.stored.MEMORY_BYTES", 20_000)
    points, offsets, y = rings(300)
    X = kp.StoredClouds(Store(points), offsets)
    rows = StoredPoints(X, CloudSinkhorn().check).rows(y, None, 1)
    assert 50 < rows.sample_size(20_000) == 20_000 * 300 // X.nbytes < 150
    taken = rows.take(np.array([0, 7, 299]), rows.cut(4))
    assert taken == kp.Clouds(points, offsets)[[0, 7, 299]]
    assert len(taken.table) == len(taken.index)
    assert cloud_estimator(reg=1.0).fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize("batch_size", [None, 256])
def test_memory_does_not_grow_with_the_clouds_of_a_store(tmp_path, monkeypatch, batch_size):
    for name, size in (("BLOCK_BYTES", 50_000), ("MEMORY_BYTES", 250_000)):
        monkeypatch.setattr(f"knnpress.execution.stored.{name}", size)
    n, k, d = 1000, 10, 100
    points = np.lib.format.open_memmap(tmp_path / "points.npy", "w+", np.float32, (n * k, d))
    points[:] = np.random.default_rng(0).normal(size=points.shape)
    points[: len(points) // 2, 0] += 3.0
    X, y = kp.StoredClouds(points, np.arange(0, n * k + 1, k)), (np.arange(n) < n // 2) + 0
    model = cloud_estimator(n_prototypes=2, reg=50.0, max_iter=1, batch_size=batch_size, optimizer="adam", n_jobs=1)
    tracemalloc.start()
    score = model.fit(X, y).score(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert score > 0.9
    assert peak < X.nbytes / 4


def test_clouds_of_weight_zero_in_a_store_are_absent():
    points, offsets, y = rings()
    points[: offsets[40]] *= 100.0
    weight = (np.arange(len(y)) >= 40).astype(float)
    found = cloud_estimator().fit(kp.StoredClouds(Store(points), offsets), y, weight)
    alone = cloud_estimator().fit(kp.StoredClouds(Store(points), offsets[40:]), y[40:])
    assert found.reg_ == alone.reg_
    assert_allclose(found.prototypes_, alone.prototypes_, atol=1e-9)
    assert_allclose(found.distance_levels_, alone.distance_levels_)


def test_errors_name_the_cloud_among_all(client):
    points, offsets, y = rings()
    spoilt = points.copy()
    spoilt[offsets[73] + 2] = np.nan
    zero = points.copy()
    zero[offsets[73] + 2] = 0.0
    model = cloud_estimator(cost="cosine").fit(kp.Clouds(points, offsets), y)
    for bad, said in ((spoilt, "^point 2 of cloud 73 contains NaN"), (zero, r"^point 2 of X\[73\] is zero")):
        for kept in (Store(bad), da.from_array(bad, chunks=(100, 2))):
            X = kp.StoredClouds(kept, offsets)
            with pytest.raises(InvalidPointError, match=said):
                cloud_estimator(cost="cosine").fit(X, y)
            with pytest.raises(InvalidPointError, match=said):
                np.asarray(model.predict(X))


def test_a_checkpoint_of_stored_clouds_goes_on(tmp_path, monkeypatch):
    for often in ("_SECONDS", "_PAUSE"):
        monkeypatch.setattr(f"knnpress.learning.checkpoint.{often}", 0.0)
    points, offsets, y = rings()

    def stop(step, total, facts):
        if step == 3:
            raise KeyboardInterrupt

    path = tmp_path / "checkpoint"
    X = kp.StoredClouds(Store(points), offsets)
    with pytest.raises(KeyboardInterrupt):
        cloud_estimator(checkpoint=path, max_iter=8, callback=stop).fit(X, y)
    with pytest.raises(ValueError, match="X was"):
        cloud_estimator(checkpoint=path, max_iter=8).fit(kp.StoredClouds(Store(2.0 * points), offsets), y)
    found = cloud_estimator(checkpoint=path, max_iter=8).fit(X, y)
    assert_array_equal(found.prototypes_, cloud_estimator(max_iter=8).fit(X, y).prototypes_)


def test_what_needs_clouds_in_memory_says_so_or_reads_them():
    points, offsets, y = rings(60)
    lazy, X = kp.StoredClouds(da.from_array(points), offsets), kp.StoredClouds(Store(points), offsets)
    with pytest.raises(TypeError, match=r"of StoredClouds, X\[:\]"):
        kp.PrototypeClassifier("clouds").fit(lazy, y)
    for settings in ({"n_prototypes": "auto"}, {"gamma": "tune"}):
        with pytest.raises(ValueError, match="search on a part of it"):
            cloud_estimator(**settings).fit(lazy, y)
    near = kp.PrototypeClassifier(CloudSinkhorn(1.0)).fit(X, y)
    assert near.prototypes_ == kp.Clouds(points, offsets)
    one, other = (cloud_estimator(reg=1.0).partial_fit(clouds, y) for clouds in (X, X[:]))
    assert_array_equal(one.prototypes_, other.prototypes_)
    assert_allclose(one.kneighbors(X)[0], one.kneighbors(X[:])[0])


@pytest.fixture
def store(tmp_path):
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    data = kp.datasets.make_wishart_classes(200, 4, 3)
    for name, values in (("X", data.X), ("y", data.y)):
        group.create_array(name, shape=values.shape, chunks=(32, *values.shape[1:]), dtype=values.dtype)[:] = values
    return tmp_path / "data.zarr"


def test_the_command_line_learns_from_a_zarr_store(store, tmp_path, capsys, monkeypatch, started):
    monkeypatch.setattr("knnpress.execution.dask.connect", lambda scheduler: started.as_current())
    models = []
    for more in ([], ["--scheduler", "local"]):
        path = tmp_path / "model.knnp"
        assert main(["compress", str(store), "-o", str(path), "--prototypes", "6", *more]) == 0, capsys.readouterr()
        models.append(kp.load(path).prototypes_)
    assert_allclose(models[0], models[1], atol=1e-9)
    assert main(["compress", str(store), "-o", str(path), "--prototypes", "6", "--batch-size", "64"]) == 0
    capsys.readouterr()
    for wrong in (["--method", "condensed"], ["--auto"]):
        assert main(["compress", str(store), "-o", str(path), "--scheduler", "local", *wrong]) == 2
        assert "--scheduler is for" in capsys.readouterr().err or wrong == ["--auto"]
    (tmp_path / "photos").mkdir()
    assert main(["compress", str(tmp_path / "photos"), "-o", str(path), "--scheduler", "local"]) == 2
    assert "zarr stores" in capsys.readouterr().err


def test_the_command_line_learns_clouds_from_a_zarr_store(tmp_path, capsys, monkeypatch, started):
    monkeypatch.setattr("knnpress.execution.dask.connect", lambda scheduler: started.as_current())
    points, offsets, y = rings(60)
    points *= 0.01 + np.repeat(y, np.diff(offsets))[:, None]  # small clouds and large ones
    path, model = tmp_path / "clouds.zarr", tmp_path / "model.knnp"
    group = zarr.open_group(path, mode="w")
    for name, values in (("points", points), ("offsets", offsets), ("y", y), ("weights", np.ones(len(points)))):
        group.create_array(name, shape=values.shape, dtype=values.dtype)[:] = values
    for more in ([], ["--scheduler", "local"], ["--method", "subsample"]):
        assert main(["compress", str(path), "-o", str(model), "--prototypes", "2", *more]) == 0, capsys.readouterr()
        found = kp.load(model)
        assert isinstance(found, kp.PrototypeClassifier if "--method" in more else kp.SWC)
        assert found.score(kp.Clouds(points, offsets), y.astype(str)) > 0.8
    capsys.readouterr()
    del group["y"]
    group.create_array("y", data=y[1:])
    with pytest.raises(ValueError, match=r"60 clouds and 59 labels"):
        kp.datasets.open_zarr(path)
    group["offsets"][3] = 0
    with pytest.raises(ValueError, match=r"clouds\.zarr holds no sound clouds: offsets does not ascend"):
        kp.datasets.open_zarr(path)


def test_a_store_without_labels_is_refused(tmp_path):
    zarr.open_group(tmp_path / "data.zarr", mode="w").create_array("X", shape=(3, 2), dtype="f8")
    with pytest.raises(ValueError, match="is not a zarr group with the arrays X and y"):
        kp.datasets.open_zarr(tmp_path / "data.zarr")


def test_nobody_at_an_address_is_said(monkeypatch):
    from knnpress.execution.dask import connect

    monkeypatch.setattr(distributed, "Client", lambda *_, **__: (_ for _ in ()).throw(OSError("timed out")))
    with pytest.raises(ConnectionError, match="no Dask scheduler answers at tcp://nowhere:1"):
        connect("tcp://nowhere:1")
