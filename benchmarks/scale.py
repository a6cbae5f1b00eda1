"""Learning from more points than fit into memory, on threads and on Dask workers.

    python benchmarks/scale.py fit --n 200000 --m 500      # memory, time and error, against a fit on 20,000 points
    python benchmarks/scale.py same --n 20000 --m 100      # threads and Dask: the same prototypes?
    python benchmarks/scale.py growth                      # time of an evaluation against n and m
    python benchmarks/scale.py speedup                     # two Dask workers against one

The points are a mixture of 50 Wishart classes of 19 x 19 matrices, written to a zarr store in --folder at first use.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", "65536")  # memory that is freed goes back at once, as on workers

import dask.array as da
import numpy as np
import zarr
from distributed import Client

import knnpress as kp
from knnpress.compression import ClassCentroids, StochasticCompression
from knnpress.execution.dask import ClusterPoints
from knnpress.execution.rows import LocalRows
from knnpress.geometries import JBLD
from knnpress.learning import objective as objectives
from knnpress.learning.loss import SoftNeighborLoss
from knnpress.learning.objective import Objective, Scale
from knnpress.learning.prior import Prior

D, CLASSES, CHUNK, TEST = 19, 50, 256, 5_000


def store(folder: Path, n: int) -> zarr.Group:
    """The store of n points to learn from and 5,000 to test on; made if it is not there."""
    path = folder / f"wishart-{n}.zarr"
    if not (path / "done").exists():
        group = zarr.open_group(path, mode="w")
        X = group.create_array("X", shape=(n + TEST, D, D), chunks=(CHUNK, D, D), dtype="f8")
        data = kp.datasets.make_wishart_classes(n + TEST, D, CLASSES, random_state=0, out=X, spread=0.05)
        group.create_array("y", shape=data.y.shape, dtype="i8")[:] = data.y
        (path / "done").touch()
    return zarr.open_group(path, mode="r")


def peak() -> float:
    """Peak memory of this process in MB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


def fresh_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def timed(name: str, model, X, y, test) -> np.ndarray:
    fresh_peak()
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    error = 1.0 - model.score(*test)
    facts = f"test error {100 * error:5.2f} %  {model.n_iter_} iterations  peak here {peak():.0f} MB"
    print(f"{name:28s} {seconds:8.1f} s  {facts}", flush=True)
    return model.prototypes_


def cluster(workers: int) -> Client:
    return Client(n_workers=workers, threads_per_worker=1, dashboard_address=":0")


def scc(m: int, max_iter: int, batch_size: int | None = None) -> kp.SCC:
    """SCC with all settings given: nothing is left to choose, and a fit is one descent."""
    compressor = StochasticCompression(init=ClassCentroids(quotas="need"), batch_size=batch_size)
    settings = {"metric": "jbld", "gamma": "scale", "prior": 1.0, "smoothing": 0.02, "vote": "nearest"}
    return kp.SCC(m, max_iter=max_iter, compressor=compressor, **settings)


def fit(args: argparse.Namespace) -> None:
    group = store(args.folder, args.n)
    y = group["y"][:]
    test = group["X"][args.n :], y[args.n :]
    path, y = args.folder / f"wishart-{args.n}.zarr", y[: args.n]
    lazy = da.from_zarr(str(path), component="X")[: args.n]
    some = np.sort(np.random.default_rng(0).permutation(args.n)[:20_000])
    model = scc(args.m, args.passes, args.batch)
    if "subset" in args.what:
        passes = max(1, round(args.passes * args.n / len(some)))  # as many steps
        timed("20,000 in memory", scc(args.m, passes, args.batch), lazy[some].compute(), y[some], test)
    if "threads" in args.what:
        timed("all, threads, from zarr", model, lazy, y, test)  # without a client: read block by block
    if "dask" in args.what:
        with cluster(2) as client:
            client.run(fresh_peak)
            timed("all, two Dask workers", model, lazy, y, test)
            print("peak of each worker:", [f"{mb:.0f} MB" for mb in client.run(peak).values()])


def same(args: argparse.Namespace) -> None:
    group = store(args.folder, args.n)
    y = group["y"][:]
    test = group["X"][args.n :], y[args.n :]
    lazy = da.from_zarr(str(args.folder / f"wishart-{args.n}.zarr"), component="X")[: args.n]
    model = scc(args.m, args.passes)
    expected = timed("threads, in memory", model, lazy.compute(), y[: args.n], test)
    with cluster(2):
        found = timed("two Dask workers", model, lazy, y[: args.n], test)
    print(f"largest difference of prototypes: {np.abs(found - expected).max():.1e}")


def objective(rows, X, y, m: int) -> tuple[Objective, np.ndarray]:
    labels = np.arange(m) % CLASSES
    Z = np.stack([X[y == c].mean(axis=0) for c in range(CLASSES)])[labels] * (1 + 0.01 * np.arange(m))[:, None, None]
    chart = JBLD().chart(Z)
    theta = chart.to_theta(Z)
    loss, prior = SoftNeighborLoss(3.0, 0.2, 0.02, CLASSES), Prior(1.0, float(len(y)))
    scale = Scale(chart, theta, 1.0)
    return Objective(rows, labels=labels, geometry=JBLD(), scale=scale, loss=loss, prior=prior), np.zeros_like(theta)


def seconds(function, theta: np.ndarray, repeats: int = 3) -> float:
    function(theta)  # packs the matrices
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(theta)
        times.append(time.perf_counter() - start)
    return min(times)


def growth(args: argparse.Namespace) -> None:
    objectives._REACH = max(args.ns)  # no pair is left out
    data = kp.datasets.make_wishart_classes(max(args.ns), D, CLASSES)
    print("     n     m  seconds an evaluation   ns a pair")
    for n, m in [*((n, 100) for n in args.ns), *((args.ns[0], m) for m in args.ms)]:
        X, y = data.X[:n], data.y[:n]
        t = seconds(*objective(LocalRows(X, y), X, y, m))
        print(f"{n:6d} {m:5d} {t:22.3f} {1e9 * t / n / m:11.0f}", flush=True)


def speedup(args: argparse.Namespace) -> None:
    data = kp.datasets.make_wishart_classes(args.ns[-1], D, CLASSES)
    lazy, times = da.from_array(data.X, chunks=(1000, D, D)), []
    for workers in (1, 2):
        with cluster(workers) as client:
            rows = ClusterPoints(lazy, JBLD().check, client).rows(data.y, None, None)
            times.append(seconds(*objective(rows, data.X, data.y, 200)))
            rows.close()
        print(f"{workers} worker(s): {times[-1]:.3f} s an evaluation", flush=True)
    print(f"two are {times[0] / times[1]:.2f} times as fast as one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what_to_do", choices=["fit", "same", "growth", "speedup"])
    parser.add_argument("--folder", type=Path, default=Path("build/scale"))
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--m", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--what", nargs="+", default=["subset", "threads", "dask"])
    parser.add_argument("--ns", type=int, nargs="+", default=[10_000, 20_000, 40_000, 80_000])
    parser.add_argument("--ms", type=int, nargs="+", default=[50, 100, 200, 400, 800])
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        {"fit": fit, "same": same, "growth": growth, "speedup": speedup}[args.what_to_do](args)


if __name__ == "__main__":
    main()
