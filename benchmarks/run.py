"""Measure knnpress against its peers and against this machine's matrix product; write benchmarks/RESULTS.md.

Every figure is a ratio of times taken in one run, with the same number of threads. Run by `make bench`; nothing else
should be running.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path
from unittest import mock

THREADS = 2
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(THREADS)

import numpy as np  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402

from knnpress import Clouds, _core, datasets  # noqa: E402
from knnpress.compression import ClassCentroids, StochasticCompression  # noqa: E402
from knnpress.estimators import SCC, SHC, PrototypeClassifier  # noqa: E402
from knnpress.execution.rows import LocalRows  # noqa: E402
from knnpress.execution.threads import map_blocks, row_blocks  # noqa: E402
from knnpress.geometries import AIRM, JBLD, CloudSinkhorn, Sinkhorn, base  # noqa: E402
from knnpress.geometries.base import SmoothGeometry  # noqa: E402
from knnpress.geometries.spectral import eigh, eigvalsh, matrix_log  # noqa: E402
from knnpress.learning import objective as objectives  # noqa: E402
from knnpress.learning.loss import SoftNeighborLoss  # noqa: E402
from knnpress.learning.objective import Objective, Scale  # noqa: E402
from knnpress.learning.prior import Prior  # noqa: E402

NOTHING = 1e-300  # is negligible: every pair is computed
RESULTS = Path(__file__).with_name("RESULTS.md")
PICTURE = Path(__file__).parents[1] / "docs" / "speed.svg"


def seconds(function: Callable[[], object], repeats: int = 5, at_least: float = 0.3) -> float:
    """Best time of several runs."""
    best, spent, done = np.inf, 0.0, 0
    while done < repeats or spent < at_least:
        start = time.perf_counter()
        function()
        took = time.perf_counter() - start
        best, spent, done = min(best, took), spent + took, done + 1
    return best


def best_of(functions: list[Callable[[], object]], rounds: int = 3, at_least: float = 2.0) -> list[float]:
    """Best time of each function. They take turns, so that all meet the machine in the same moods; each turn is a few
    runs, since the threads of the one before may still be spinning."""
    best, spent, done = [np.inf] * len(functions), 0.0, 0
    while done < rounds or spent < at_least:
        for k, function in enumerate(functions):
            for _ in range(4):
                start = time.perf_counter()
                function()
                took = time.perf_counter() - start
                best[k], spent = min(best[k], took), spent + took
        done += 1
    return best


def random_spd(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    A = rng.normal(size=(n, d, 2 * d))
    return A @ A.transpose(0, 2, 1) / (2 * d)


MATRIX = np.random.default_rng(0).normal(size=(1500, 1500))


def matmul() -> object:
    """The physical limit: this machine's float64 matrix product."""
    return MATRIX @ MATRIX


def matmul_rate(best: float) -> float:
    """Flops a second of `matmul`, from its best time."""
    return 2 * len(MATRIX) ** 3 / best


class Report:
    """Rows of the results table, printed as they come."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bars: list[tuple[str, list[tuple[str, float]]]] = []  # group, (name, seconds a pair)

    def say(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)

    def section(self, title: str) -> None:
        self.say(f"\n## {title}\n")
        self.say("| what | measured | goal | |")
        self.say("| --- | ---: | ---: | --- |")

    def row(self, what: str, value: float, goal: float | None, unit: str = "x", at_most: bool = False) -> None:
        shown, wanted = ("" if v is None else f"{v:.0%}" if unit == "%" else f"{v:.3g}{unit}" for v in (value, goal))
        if goal is None:
            self.say(f"| {what} | {shown} | | |")
            return
        met = value <= goal if at_most else value >= goal
        self.say(f"| {what} | {shown} | {'≤' if at_most else '≥'} {wanted} | {'met' if met else 'NOT MET'} |")


def jbld(report: Report) -> None:
    from pyriemann.geometry.distance import pairwise_distance

    report.section("JBLD, all pairs of n = 2000 and m = 200")
    rng = np.random.default_rng(1)
    notes: list[str] = []
    for d, goal in [(19, 0.35), (40, 0.50), (128, 0.40)]:
        n, m = 2000, 200
        X, Z = random_spd(rng, n, d), random_spd(rng, m, d)
        geometry = JBLD()
        distances, blocks = geometry.distances_to(Z), row_blocks(n, 8 * m)
        ours, limit = best_of([lambda: map_blocks(lambda rows: distances(X[rows]), blocks, THREADS), matmul])
        rate = matmul_rate(limit)
        report.row(
            f"d = {d}: share of the matmul rate ({ours / n / m * 1e9:.0f} ns a pair)",
            n * m * d**3 / 3 / ours / rate,
            goal,
            "%",
        )
        if d != 19:
            continue

        # NumPy's batched LAPACK runs on one thread; on two, shared out by us, for fairness' sake
        chunks = [slice(k, k + 20) for k in range(0, 400, 20)]
        one, two = best_of(
            [lambda t=t: map_blocks(lambda r: np.linalg.slogdet((X[r, None] + Z) / 2), chunks, t) for t in (1, THREADS)]
        )
        numpy_one = one * n / 400
        notes.append(
            f"NumPy's batch takes {one / 400 / m * 1e6:.1f} us a pair at d = 19 on one thread and "
            f"{two / 400 / m * 1e6:.1f} us on two; the matrix product's own rate would be "
            f"{one / 400 / m * rate / (d**3 / 3):.0f} times as fast as the first."
        )
        peer = seconds(lambda: pairwise_distance(X[:20], Z, metric="logdet"), repeats=1) * n / 20
        bars = [("knnpress", ours), ("NumPy, a batch of slogdet", numpy_one), ("pyRiemann", peer)]
        report.bars.append(("log-det divergence of two 19 x 19 matrices", [(w, s / n / m) for w, s in bars]))
        report.row("d = 19: times as fast as a NumPy batch of slogdet", numpy_one / ours, 120)
        report.row("d = 19: times as fast as pyRiemann's pairwise logdet", peer / ours, 300)
        memories = map_blocks(lambda rows: geometry.linearize(X[rows], Z).memory, blocks, THREADS)
        by_start = {rows.start: memory for rows, memory in zip(blocks, memories, strict=True)}
        weights = rng.normal(size=(n, m))

        def value(rows: slice) -> object:
            return geometry.linearize(X[rows], Z, by_start[rows.start])

        def value_and_pullback(rows: slice) -> object:
            return geometry.linearize(X[rows], Z, by_start[rows.start]).pullback(weights[rows])

        both, alone = best_of([lambda f=f: map_blocks(f, blocks, THREADS) for f in (value_and_pullback, value)])
        report.row("d = 19: value and full pullback against the value alone", both / alone, 5, at_most=True)
    report.say("\n" + " ".join(notes))


def spectral(report: Report) -> None:
    n = 2000
    report.section(f"Functions of n = {n} symmetric matrices, against NumPy's batched eigh and product on one thread")
    rng = np.random.default_rng(9)
    for d, goal in [(5, None), (19, 8), (40, 3), (64, None), (128, None)]:
        X = random_spd(rng, n if d < 64 else 200, d)

        def numpy_log(rows: slice) -> np.ndarray:
            values, vectors = np.linalg.eigh(X[rows])
            return (vectors * np.log(values)[:, None, :]) @ vectors.transpose(0, 2, 1)

        whole = [slice(0, len(X))]  # one block: BLAS is held to one thread
        calls: list[Callable[[], object]] = [
            lambda: matrix_log(X, THREADS),
            lambda: eigh(X, THREADS),
            lambda: eigvalsh(X, THREADS),
            lambda: map_blocks(numpy_log, whole, 1),
            lambda: map_blocks(lambda rows: np.linalg.eigh(X[rows]), whole, 1),
            lambda: map_blocks(lambda rows: np.linalg.eigvalsh(X[rows]), whole, 1),
        ]
        log, vectors, values, *numpy = best_of(calls, rounds=2, at_least=0.5)
        report.row(f"d = {d}: logarithms ({log / len(X) * 1e6:.2f} us each)", numpy[0] / log, goal)
        report.row(f"d = {d}: eigenvectors ({vectors / len(X) * 1e6:.2f} us each)", numpy[1] / vectors, None)
        report.row(f"d = {d}: eigenvalues ({values / len(X) * 1e6:.2f} us each)", numpy[2] / values, None)


def svd_distances(factors: np.ndarray, whiteners: np.ndarray) -> np.ndarray:
    """AIRM by NumPy's batched singular values."""
    values = [np.linalg.svd(A @ factors, compute_uv=False) for A in whiteners]
    return 2.0 * np.linalg.norm(np.log(values), axis=-1).T


def airm(report: Report) -> None:
    from pyriemann.geometry.distance import pairwise_distance
    from pyriemann.geometry.mean import mean_riemann

    n, m = 500, 40
    report.section(f"AIRM, all pairs of n = {n} and m = {m}, two threads")
    rng = np.random.default_rng(10)
    for d, goals in [(5, (None, None)), (19, (10, 30)), (40, (None, None))]:
        X, Z = random_spd(rng, n, d), random_spd(rng, m, d)
        whiteners, blocks = np.linalg.inv(np.linalg.cholesky(Z)), row_blocks(n, 8 * m)
        distances = AIRM().distances_to(Z)
        calls: list[Callable[[], object]] = [
            lambda: map_blocks(lambda rows: distances(X[rows]), blocks, THREADS),
            lambda: map_blocks(lambda rows: svd_distances(np.linalg.cholesky(X[rows]), whiteners), blocks, THREADS),
        ]
        ours, numpy = best_of(calls, rounds=2, at_least=0.5)
        theirs = seconds(lambda: pairwise_distance(X[:100], Z, metric="riemann"), repeats=2) * n / 100
        report.row(
            f"d = {d}: times as fast as NumPy's svd ({ours / n / m * 1e6:.2f} us a pair)", numpy / ours, goals[0]
        )
        report.row(
            f"d = {d}: times as fast as pyRiemann ({theirs / n / m * 1e6:.1f} us a pair)", theirs / ours, goals[1]
        )
    X = random_spd(rng, 1000, 19)
    ours, theirs = best_of([lambda: AIRM().centroid(X), lambda: mean_riemann(X, tol=1e-10)], rounds=1, at_least=0.5)
    report.row(
        f"Karcher mean of 1000 matrices, d = 19 ({ours * 1e3:.0f} ms): times as fast as pyRiemann", theirs / ours, None
    )


def sinkhorn(report: Report) -> None:
    import ot

    report.section("Sinkhorn, d = 64, all pairs of 500 and 40 histograms")
    data = datasets.load_digits_histograms()
    rng = np.random.default_rng(2)
    M = data.ground_cost / np.median(data.ground_cost[data.ground_cost > 0])
    X, Z = rng.dirichlet(np.ones(64), 500), rng.dirichlet(np.ones(64), 40)
    n, m, d, reg, forced = 500, 40, 64, 0.1, 100
    cost = _core.SinkhornCost(M, reg)
    blocks = row_blocks(n, 8 * m)

    def solve(rows: slice) -> object:
        return _core.sinkhorn(cost, X[rows], Z, None, None, 0.0, forced, False)

    ours, limit = best_of([lambda: map_blocks(solve, blocks, THREADS), matmul])
    rate = matmul_rate(limit)
    report.row(
        f"{forced} iterations: share of the matmul rate ({ours / n / m * 1e6:.1f} us a pair)",
        n * m * forced * 4 * d**2 / ours / rate,
        0.55,
        "%",
    )
    options = {"numItermax": forced, "stopThr": 0.0, "warn": False}
    loop = seconds(lambda: [ot.sinkhorn2(X[i], Z[0], M, reg, **options) for i in range(20)], repeats=2) * n * m / 20
    report.row("times as fast as a loop of ot.sinkhorn2", loop / ours, 100)
    many = seconds(lambda: [ot.sinkhorn2(X[i], Z.T.copy(), M, reg, **options) for i in range(20)], repeats=2) * n / 20
    report.row("times as fast as ot.sinkhorn2 with many histograms", many / ours, 2.5)
    small_reg(report, data)
    bars = [("knnpress", ours), ("POT, many histograms", many), ("POT, a loop", loop)]
    report.bars.append((f"{forced} Sinkhorn iterations on two 64-bin histograms", [(w, s / n / m) for w, s in bars]))
    moved = 0.99 * Z + 0.01 * rng.dirichlet(np.ones(d), m)
    for tol, goal in [(1e-3, 4.0), (1e-6, 1.5)]:
        potential, relaxation = np.zeros((n, m, d)), np.zeros((n, m))
        _core.sinkhorn(cost, X, Z, potential, relaxation, tol, 2000, False)
        cold = _core.sinkhorn(cost, X, moved, None, None, tol, 2000, False)[1].mean()
        warm = _core.sinkhorn(cost, X, moved, potential, relaxation, tol, 2000, False)[1].mean()
        report.row(f"tol {tol:g}: mean iterations cold ({cold:.1f}) over warm ({warm:.1f})", cold / warm, goal)


def small_reg(report: Report, data: datasets.Dataset) -> None:
    """Digits at a thousandth of the median cost, where plain iterations would take tens of thousands."""
    import ot

    M, X, Z = data.ground_cost, data.X[:60], data.X[100:160]
    median = float(np.median(M[M > 0]))
    small, usual = (_core.SinkhornCost(M, share * median) for share in (1e-3, 0.1))
    took, before, exact = best_of(
        [
            *(lambda c=c: _core.sinkhorn(c, X, Z, None, None, 1e-5, 2000, False) for c in (small, usual)),
            lambda: [ot.emd2(a, b, M) for a in X[:10] for b in Z[:10]],
        ],
        rounds=1,
    )
    report.row(
        f"digits, reg 0.001 of the median cost, tol 1e-5 ({took / 3600 * 1e6:.0f} us a pair, one thread): times "
        "that at 0.1",
        took / before,
        10,
        at_most=True,
    )
    report.row("the same: times as fast as ot.emd2", exact / 100 / (took / 3600), None)
    _, _, error = _core.sinkhorn(small, X, Z, None, None, 1e-5, 2000, False)
    report.row("the same: pairs that reach tol", float((error <= 1e-5).mean()), 1.0, "%")
    values = _core.sinkhorn(small, X[:10], Z[:10], None, None, 1e-5, 2000, True)[0]
    emd = np.array([[ot.emd2(a, b, M) for b in Z[:10]] for a in X[:10]])
    report.row(
        "the same: transport above the exact EMD at most", float((values / emd - 1).max()), 1e-3, "", at_most=True
    )


def clouds(report: Report) -> None:
    """Costs and scalings of pairs of clouds, each with points of its own."""
    import ot

    n, m, p, q, d, reg, forced = 128, 16, 84, 32, 300, 0.1, 50
    report.section(f"Clouds of {p} and {q} points in {d} dimensions, all pairs of {n} and {m}, {forced} iterations")
    rng = np.random.default_rng(3)
    points, places = rng.normal(size=(n, p, d)), rng.normal(size=(m, q, d))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    places /= np.linalg.norm(places, axis=-1, keepdims=True)
    X = Clouds.from_list(points)
    Z = np.concatenate([places, np.full((m, q, 1), 1.0 / q)], axis=-1)
    geometry = CloudSinkhorn(reg, value="dual", tol=0.0, max_iter=forced)
    blocks = [slice(i, i + 8) for i in range(0, n, 8)]
    W = np.ones((8, m)) / n

    def value() -> object:
        distances = geometry.distances_to(Z)
        return map_blocks(lambda rows: distances(X[rows]), blocks, THREADS)

    def gradient() -> object:
        step = geometry.linearize_at(Z)
        return map_blocks(lambda rows: step(X[rows]).pullback(W), blocks, THREADS)

    def batched() -> np.ndarray:
        x, z = torch.tensor(points, dtype=torch.float32), torch.tensor(places, dtype=torch.float32)
        K = torch.exp(-(torch.cdist(x[:, None], z[None]) ** 2) / reg)  # (n, m, p, q)
        v = torch.full((n, m, q), 1.0 / q)
        for _ in range(forced):
            u = (1.0 / p) / torch.einsum("nmpq,nmq->nmp", K, v)
            v = (1.0 / q) / torch.einsum("nmpq,nmp->nmq", K, u)
        return (u.log().mean(-1) + v.log().mean(-1)).numpy()

    options = {"numItermax": forced, "stopThr": 0.0, "warn": False}

    def loop() -> object:
        even = np.full(p, 1.0 / p), np.full(q, 1.0 / q)
        return [ot.sinkhorn2(*even, ot.dist(points[i], places[0]), reg, **options) for i in range(10)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so many iterations, and no more
        ours, both, limit = best_of([value, gradient, matmul])
    work = n * m * (2 * p * q * d + 4 * forced * p * q)
    what = f"costs and scalings: share of the matmul rate ({ours / n / m * 1e6:.0f} us a pair)"
    report.row(what, work / ours / matmul_rate(limit), 0.4, "%")
    report.row("values and gradient, against values alone", both / ours, 3.0, at_most=True)
    looped = seconds(loop, repeats=2) * n * m / 10
    report.row("times as fast as a loop of ot.dist and ot.sinkhorn2", looped / ours, 100)
    report.row("the same, were all at the matmul rate", looped * matmul_rate(limit) / work, None)
    try:
        import torch
    except ImportError:
        report.say("| against PyTorch, one batch in float32 | torch is not installed | | skipped |")
    else:
        torch.set_num_threads(THREADS)
        report.row("times as fast as PyTorch, one batch in float32", seconds(batched, repeats=2) / ours, 10)
    documents(report)


def documents(report: Report, n_queries: int = 32) -> None:
    """The search of the nearest documents of R8 among all training documents, and what its bounds save."""
    from clouds import documents as read

    try:
        (Z, _, Q, _), _ = read(os.environ.get("KNNPRESS_DATA", "."), "clouds")
    except FileNotFoundError:
        report.say("| full k-NN, R8 | not at hand: give --data-dir | | skipped |")
        return
    geometry = CloudSinkhorn().fitted_to(Z)
    queries = Q[np.linspace(0, len(Q) - 1, n_queries).astype(int)]
    for k in (1, 13):
        search, plain = geometry.nearest_to(Z, k), geometry.distances_to(Z)
        left_out = float(np.isinf(search(queries)).mean())
        pruned, whole = (seconds(lambda f=f: f(queries), repeats=2) for f in (search, plain))
        what = f"full {k}-NN, {n_queries} documents of R8 among {len(Z)}"
        report.row(f"{what}: pairs that are solved to the end, in %", 100 * (1 - left_out), None, "")
        per_query = f"{pruned / n_queries * 1e3:.1f} ms a document"
        report.row(f"{what}: times as fast as with all pairs, one thread ({per_query})", whole / pruned, None)


def knn(report: Report) -> None:
    from pyriemann.classification import KNearestNeighbor

    report.section("Full 1-NN of 1640 queries against 1640 matrices, d = 19 (the size of a half split of ETH-80)")
    rng = np.random.default_rng(3)
    X, X_test, y = random_spd(rng, 1640, 19), random_spd(rng, 1640, 19), rng.integers(0, 8, 1640)
    ours_model = PrototypeClassifier("jbld", n_jobs=THREADS).fit(X, y)
    ours = seconds(lambda: ours_model.predict(X_test), repeats=3)
    peer_model = KNearestNeighbor(n_neighbors=1, metric="logdet", n_jobs=THREADS).fit(X, y)
    queries = 20
    peer = seconds(lambda: peer_model.predict(X_test[:queries]), repeats=1) * len(X_test) / queries
    report.row(f"times as fast as pyRiemann's KNearestNeighbor ({ours:.2f} s)", peer / ours, 60)
    agree = float((ours_model.predict(X_test[:queries]) == peer_model.predict(X_test[:queries])).mean())
    report.row("predictions that agree with it", agree, 1.0, "%")


def query_times(report: Report) -> None:
    from queries import queries

    queries(report, best_of, THREADS)


def spd_classes(rng: np.random.Generator, n: int, d: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Covariances of n_classes kinds, four clusters each, hard to tell apart: learning takes all its iterations."""
    y = rng.integers(0, n_classes, n)
    mixes = np.eye(d) + 0.04 * rng.normal(size=(4 * n_classes, d, d))
    A = mixes[4 * y + rng.integers(0, 4, n)] @ rng.normal(size=(n, d, 40))
    return A @ A.transpose(0, 2, 1) / 40, y


def objective_at(
    geometry: SmoothGeometry, X: np.ndarray, y: np.ndarray, Z: np.ndarray, labels: np.ndarray, loss: SoftNeighborLoss
) -> tuple[Objective, np.ndarray]:
    """The loss of a training set as a function of the prototypes' normal coordinates, and those of Z."""
    chart = geometry.chart(Z)
    theta = chart.to_theta(Z)
    rows, scale = LocalRows(X, y, None, THREADS), Scale(chart, theta, 1.0)
    function = Objective(
        rows, labels=labels, geometry=geometry, scale=scale, loss=loss, prior=Prior(1.0, float(len(y)))
    )
    return function, np.zeros_like(theta)


def given(geometry: SmoothGeometry, **more: object) -> dict[str, object]:
    """All settings of a learned model: nothing is left to choose, and a fit is one descent."""
    start = StochasticCompression(init=ClassCentroids(geometry.start_geometry, quotas="need"))
    plain = {"gamma": "scale", "prior": 1.0, "smoothing": 0.02, "vote": "nearest", "compressor": start}
    return {**plain, "random_state": 0, "n_jobs": THREADS, **more}


def learning(report: Report) -> None:
    report.section("Learning")
    X, y = spd_classes(np.random.default_rng(4), 1640, 19, 8)
    autograd(report, X, y)
    digits, histograms = datasets.load_digits_covariances(), datasets.load_digits_histograms()
    few, labels = histograms.X[:720], histograms.y[:720]
    matrices, cost = given(JBLD(), metric="jbld"), {"ground_cost": histograms.ground_cost}
    bins = given(Sinkhorn(histograms.ground_cost), metric="sinkhorn", **cost)
    what = "SCC, n = 1640, d = 19, m = "
    once = one_descent(report, f"{what}33", SCC(33, **matrices), X, y, 4)
    default_fit(report, f"{what}33", SCC(33, n_jobs=THREADS), X, y, once)
    one_descent(report, f"{what}262", SCC(262, **matrices), X, y, 25)
    what = "SCC, digits, n = 898, d = 11, m = 18"
    once = one_descent(report, what, SCC(18, **matrices), digits.X[::2], digits.y[::2], None)
    default_fit(report, what, SCC(18, n_jobs=THREADS), digits.X[::2], digits.y[::2], once)
    what = "SHC, digits, n = 720, d = 64, m = "
    once = one_descent(report, f"{what}20", SHC(n_prototypes=20, **bins), few, labels, 10)
    default_fit(report, f"{what}20", SHC(n_prototypes=20, **cost, n_jobs=THREADS), few, labels, once)
    one_descent(report, f"{what}115", SHC(n_prototypes=115, **bins), few, labels, 60)


def one_descent(report: Report, what: str, model: SCC | SHC, X: np.ndarray, y: np.ndarray, goal: float | None) -> float:
    """Time a fit whose settings are all given, and return the seconds of one evaluation of loss and gradient."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        took = seconds(lambda: model.fit(X, y), repeats=1, at_least=0)
    assert not model.selection_
    loss = SoftNeighborLoss(model.gamma_, 0.2, model.smoothing_, len(model.classes_))
    points = model.geometry_.check(X)
    function, u = objective_at(model.geometry_, points, y, model.prototypes_, model.prototype_labels_, loss)
    # back and forth, so that warm distances are as far from what is asked for as in a descent
    moves = [u, u + 1e-3 * np.random.default_rng(0).normal(size=u.shape)]
    once = seconds(lambda: [function(u) for u in moves], repeats=3) / len(moves)
    report.row(f"{what}: one descent, {model.n_iter_} iterations, all settings given", took, goal, " s", True)
    report.row(f"{what}: that, in evaluations of loss and gradient ({once * 1e3:.1f} ms)", took / once, None)
    return once


def default_fit(
    report: Report, what: str, model: SCC | SHC, X: np.ndarray, y: np.ndarray, once: float, goal: float | None = None
) -> None:
    """Time a fit as it comes, the choice of its settings included."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        took = seconds(lambda: model.fit(X, y), repeats=1, at_least=0)
    tried = f"{len(model.selection_)} settings tried, {model.metric_} chosen"
    report.row(f"{what}: a default fit, {tried}", took, goal, " s", True)
    report.row(f"{what}: that, in evaluations of loss and gradient", took / once, None)


def fits(report: Report) -> None:
    """Fits as they come, and with all settings given, of digits and of the real data that are at hand."""
    report.section("Fits of real covariances: as they come, and one descent with all settings given")
    digits = datasets.load_digits_covariances()
    sets: list[tuple[str, float, float, Callable[[], tuple[np.ndarray, np.ndarray]]]] = [
        ("digits", 0.02, 2, lambda: (digits.X[:899], digits.y[:899])),
        ("ETH-80", 0.02, 5, eth80_half),
        ("FPHA", 0.1, 25, fpha_training),
    ]
    for name, share, goal, read in sets:
        try:
            X, y = read()
        except FileNotFoundError:
            report.say(f"| {name} | not at hand: give --data-dir | | skipped |")
            continue
        what = f"SCC, {name}, n = {len(X)}, d = {X.shape[1]}"
        m = max(len(np.unique(y)), round(share * len(X)))
        once = one_descent(report, what, SCC(m, **given(JBLD(), metric="jbld")), X, y, None)
        default_fit(report, what, SCC(share, n_jobs=THREADS), X, y, once, goal)


def eth80_half() -> tuple[np.ndarray, np.ndarray]:
    """Half of ETH-80 as covariances of colour and texture."""
    from knnpress.descriptors import RegionCovariance

    data = datasets.load_eth80()
    X = RegionCovariance("color-texture", n_jobs=THREADS).fit_transform(data.images)
    rows = np.random.default_rng(0).permutation(len(X))[: len(X) // 2]
    return X[rows], data.y[rows]


def fpha_training() -> tuple[np.ndarray, np.ndarray]:
    """The training half of first-person hand actions' own split."""
    data = datasets.load_fpha()
    rows = data.splits[0][0]
    return data.X[rows], data.y[rows]


def autograd(report: Report, X: np.ndarray, y: np.ndarray) -> None:
    """One evaluation of loss and gradient against PyTorch's."""
    try:
        import torch
    except ImportError:
        report.say("| one evaluation against PyTorch | torch is not installed | | skipped |")
        return
    n, m, d = len(X), 132, X.shape[1]
    labels = y[:m]
    objective, u = objective_at(JBLD(), X, y, X[:m], labels, SoftNeighborLoss(3.0))
    u = u + 0.05 * np.random.default_rng(0).normal(size=u.shape)
    objective.prior = Prior(0.0, float(n))
    torch.set_num_threads(THREADS)
    R, x = (torch.tensor(a) for a in (objective.scale.chart.root, X))
    same = torch.tensor(y[:, None] == labels)
    upper = torch.triu_indices(d, d)
    half = torch.where(upper[0] == upper[1], 0.5, 0.5**0.5).double()

    def logdet(S: torch.Tensor) -> torch.Tensor:
        return 2 * torch.linalg.cholesky(S).diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def theirs() -> tuple[float, np.ndarray]:
        free = torch.tensor(u, requires_grad=True)
        H = torch.zeros(m, d, d, dtype=torch.float64).index_put(
            (torch.arange(m)[:, None], *upper[:, None]), half * free
        )
        P = R @ torch.linalg.matrix_exp(H + H.transpose(1, 2)) @ R
        D = logdet((x[:, None] + P) / 2) - (logdet(x)[:, None] + logdet(P)) / 2
        logits = -9.0 * D
        own = torch.where(same, logits, -torch.inf)
        loss = (torch.logsumexp(logits, 1) - torch.logsumexp(own, 1)).mean()
        loss.backward()
        return loss.item(), free.grad.numpy()

    with mock.patch.object(objectives, "_NEGLIGIBLE", NOTHING):
        ours, other = best_of([lambda: objective(u), theirs], rounds=1, at_least=0.0)
    report.row(
        f"n = {n}, m = {m}, d = {d}: loss and gradient ({ours * 1e3:.0f} ms), times as fast as PyTorch "
        f"{torch.__version__}'s autograd",
        other / ours,
        25,
    )
    _, gradient = theirs()
    worst = np.abs(objective(u).gradient - gradient).max() / np.abs(gradient).max()
    report.row("largest difference of the two gradients, relative", worst, 1e-8, "", at_most=True)


def families(rng: np.random.Generator, n: int, d: int, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """Covariances of 80 classes in 8 families: so far `apart` within a family, and far from the others."""
    y = rng.integers(0, 80, n)
    spread = np.eye(d) + 0.35 * rng.normal(size=(8, d, d))
    mixes = np.concatenate([a @ (np.eye(d) + apart * rng.normal(size=(10, d, d))) for a in spread])
    A = mixes[y] @ rng.normal(size=(n, d, 60))
    return A @ A.transpose(0, 2, 1) / 60, y


@contextmanager
def all_pairs() -> Iterator[None]:
    """Nothing is left out, neither distances nor derivatives."""
    with mock.patch.object(objectives, "_NEGLIGIBLE", NOTHING), mock.patch.object(base, "_NEGLIGIBLE_WEIGHT", 0.0):
        yield


def last_half(X: np.ndarray, y: np.ndarray, m: int) -> tuple[float, SCC]:
    """Seconds of the later ten of twenty iterations, and what was learned."""
    times: list[float] = []
    model = SCC(m, **given(JBLD(), metric="jbld", max_iter=20))
    model.set_params(callback=lambda *_: times.append(time.perf_counter()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return times[-1] - times[len(times) // 2], model


def difference(X: np.ndarray, y: np.ndarray, model: SCC) -> float:
    """Of the gradient with some pairs left out, one step after the model, from that with all: relative."""
    loss = SoftNeighborLoss(model.gamma_, 0.2, model.smoothing_, len(model.classes_))
    step = 1e-3 * np.random.default_rng(0).normal(size=(len(model.prototypes_), X.shape[1] * (X.shape[1] + 1) // 2))

    def gradient() -> np.ndarray:
        function, u = objective_at(JBLD(), X, y, model.prototypes_, model.prototype_labels_, loss)
        function(u)
        return function(u + step).gradient

    some = gradient()
    with all_pairs():
        every = gradient()
    return float(np.abs(some - every).max() / np.abs(every).max())


def pruning(report: Report) -> None:
    n, m = 20_000, 800
    report.section(f"Pairs that need no computing (n = {n}, m = {m}, d = 19, 80 classes in 8 families)")
    for kind, apart in [("overlapping classes", 0.04), ("separate classes", 0.06)]:
        X, y = families(np.random.default_rng(8), n, 19, apart)
        few, model = last_half(X, y, m)
        with all_pairs():
            every, whole = last_half(X, y, m)
        report.row(f"{kind}, last half of a fit: times as fast as with all pairs", every / few, 2)
        worst = difference(X, y, model)
        report.row(f"{kind}: largest difference of the gradient at its end, relative", worst, 1e-9, "", at_most=True)
        worst = float(np.abs(model.prototypes_ - whole.prototypes_).max() / np.abs(whole.prototypes_).max())
        report.row(f"{kind}: largest difference of the prototypes, relative", worst, 1e-6, "", at_most=True)
    digits, histograms = datasets.load_digits_covariances(), datasets.load_digits_histograms()
    sets = [
        ("digits, covariances", JBLD(), digits.X),
        ("digits, histograms", Sinkhorn(histograms.ground_cost), histograms.X),
    ]
    if os.environ.get("KNNPRESS_DATA"):
        from knnpress.descriptors import RegionCovariance

        sets.append(("ETH-80", JBLD(), RegionCovariance("color-texture").fit_transform(datasets.load_eth80().images)))
    for name, geometry, points in sets:
        points = geometry.check(points)[np.random.default_rng(0).permutation(len(points))]
        Z, queries = points[: len(points) // 2], points[len(points) // 2 :][: 64 if points.ndim == 2 else None]
        search, plain = geometry.nearest_to(Z, 1), geometry.distances_to(Z)
        left_out = float(np.isinf(search(queries)).mean())
        pruned, whole = best_of([lambda: search(queries), lambda: plain(queries)], at_least=0.5)
        report.row(f"full 1-NN, {name}: share of pairs never computed", left_out, None, "%")
        report.row(f"full 1-NN, {name}: times as fast as with all pairs, one thread", whole / pruned, None)


def images(n: int = 200) -> np.ndarray:
    """Pictures of 96 x 96 pixels, RGB: n of ETH-80 where they are at hand, else a disc in noise."""
    try:
        return datasets.load_eth80().images[:: 3280 // n, ..., :3][:n] / 255.0
    except FileNotFoundError:
        rng = np.random.default_rng(5)
        disc = np.hypot(*np.mgrid[-48:48, -48:48]) < 30
        return np.clip(rng.normal(0.3 + 0.4 * disc[..., None], 0.1, (n, 96, 96, 3)), 0, 1)


def descriptors(report: Report) -> None:
    import plain

    from knnpress.descriptors import BagOfWords, ColorHistogram, GridHistogram, RegionCovariance, ShapeContext

    report.section("Descriptors of 96 x 96 colour images, two threads, against a plain loop of the same features")
    pictures = images()
    bag = BagOfWords(random_state=0, n_jobs=THREADS).fit(pictures)
    cases = {
        "color-texture": plain.covariance(plain.color_texture),
        "color-derivatives": plain.covariance(plain.color_derivatives),
        "gradient": plain.covariance(plain.gradient),
        "gabor": plain.covariance(lambda image: plain.gabor_magnitudes(image, 8)),
        "color-gabor": plain.covariance(plain.color_gabor),
        "sift": plain.covariance(plain.sift),
        bag: plain.words(bag),
        ShapeContext(n_jobs=THREADS): plain.shape_context,
        ColorHistogram(n_jobs=THREADS): plain.color_histogram,
        GridHistogram(n_jobs=THREADS): plain.grid_histogram,
    }
    for described, loop in cases.items():
        name = described if isinstance(described, str) else type(described).__name__
        descriptor = RegionCovariance(name, n_jobs=THREADS) if isinstance(described, str) else described
        descriptor.fit(pictures)
        ours = seconds(lambda: descriptor.transform(pictures), repeats=3) / len(pictures)
        few = pictures[:: 50 if name in ("gabor", "color-gabor", "sift") else 10]
        theirs = seconds(lambda: [loop(image) for image in few], repeats=1) / len(few)
        report.row(
            f"{name}: times as fast as the loop ({1 / ours:.0f} against {1 / theirs:.0f} images/s)", theirs / ours, 1
        )
        if name == "color-texture":
            report.row(
                "color-texture: 3280 images, the size of ETH-80, at this rate", 3280 * ours, 60, " s", at_most=True
            )
    report.say(
        "\nThe loops are benchmarks/plain.py: SciPy and scikit-image on one thread; for SIFT, OpenCV's at every pixel."
    )


def signals(report: Report) -> None:
    """Covariances of EEG trials, and subjects re-centred; the sizes are those of PhysioNet's motor imagery."""
    from sklearn import covariance

    from knnpress.descriptors import Recenter, SignalCovariance

    report.section("Signals: 21 channels, 3 s at 160 Hz, against a loop of scikit-learn's estimators; two threads")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 21, 480))
    few = X[:200]
    for name, goal in (("oas", 20), ("ledoit_wolf", 20)):
        model, one = SignalCovariance(name, n_jobs=THREADS), getattr(covariance, name)
        ours, theirs = best_of([lambda: model.transform(X), lambda: [one(x.T) for x in few]])
        ours, theirs = ours / len(X), theirs / len(few)
        what = f"{name}: times as fast as the loop ({1e6 * ours:.0f} against {1e6 * theirs:.0f} µs a trial)"
        report.row(what, theirs / ours, goal)
    short = rng.normal(size=(2000, 8, 250))
    model = SignalCovariance("oas", n_jobs=THREADS)
    ours, theirs = best_of([lambda: model.transform(short), lambda: [covariance.oas(x.T) for x in short[:200]]])
    report.row("oas, 8 channels of 250 times: times as fast as the loop", 10 * theirs / ours, None)
    matrices, groups = random_spd(rng, 4500, 21), np.arange(4500) % 97
    took = seconds(lambda: Recenter(n_jobs=THREADS).fit_transform(matrices, groups=groups), repeats=3)
    report.row("Recenter: 4500 matrices of 21 channels, 97 groups", took, 1, " s", at_most=True)


def picture(groups: list[tuple[str, list[tuple[str, float]]]]) -> str:
    """An SVG of the times of one pair, on a logarithmic scale; readable on white and on dark."""
    low, high, left, width, parts, y = 1e-8, 1e-2, 230, 420, [], 30

    def shown(t: float) -> str:
        return f"{t * 1e9:.0f} ns" if t < 1e-6 else f"{t * 1e6:.3g} µs" if t < 1e-3 else f"{t * 1e3:.2g} ms"

    for title, bars in groups:
        parts.append(f'<text x="{left}" y="{y}" font-weight="bold">{title}</text>')
        y += 12
        for k, (name, t) in enumerate(bars):
            length = width * np.log10(t / low) / np.log10(high / low)
            parts.append(f'<text x="{left - 10}" y="{y + 16}" text-anchor="end">{name}</text>')
            colour = "#1f77b4" if k == 0 else "#999999"
            parts.append(f'<rect x="{left}" y="{y}" width="{length:.0f}" height="22" rx="3" fill="{colour}"/>')
            parts.append(f'<text x="{left + length + 8:.0f}" y="{y + 16}">{shown(t)}</text>')
            y += 30
        y += 24
    parts.append(f'<text x="{left}" y="{y}" font-size="12">time of one pair, {THREADS} threads, logarithmic</text>')
    style = "text{font:15px sans-serif;fill:#24292f}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {y + 14}" width="780" role="img">'
        f"<title>Time of one distance</title><style>{style}</style>{''.join(parts)}</svg>\n"
    )


def machine() -> str:
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    sections = {
        "jbld": jbld,
        "spectral": spectral,
        "airm": airm,
        "sinkhorn": sinkhorn,
        "clouds": clouds,
        "knn": knn,
        "queries": query_times,
        "learning": learning,
        "fits": fits,
        "pruning": pruning,
        "descriptors": descriptors,
        "signals": signals,
    }
    parser.add_argument("--only", nargs="+", choices=list(sections), help="sections to run (default: all, and write)")
    parser.add_argument("--data-dir", help="where data sets are, for sections that use real ones")
    arguments = parser.parse_args()
    chosen = arguments.only
    if arguments.data_dir:
        os.environ["KNNPRESS_DATA"] = arguments.data_dir
    report = Report()
    report.say("# Benchmarks")
    report.say(
        f"\nMade by `make bench` on {date.today()}, {THREADS} threads, float64. {machine()}; "
        f"instruction set {_core.target()}."
    )
    packages = ("numpy", "scipy", "scikit-learn", "scikit-image", "pyriemann", "POT")
    report.say("Versions: " + ", ".join(f"{p} {version(p)}" for p in packages) + ".")
    rate = matmul_rate(seconds(matmul)) / 1e9
    report.say(
        f"\nThe physical limit is NumPy's float64 matrix product: {rate:.1f} Gflop/s here, measured again beside each "
        "figure that refers to it."
    )
    for name, section in sections.items():
        if not chosen or name in chosen:
            section(report)
    if not chosen:
        RESULTS.write_text("\n".join(report.lines) + "\n")
        PICTURE.write_text(picture(report.bars))


if __name__ == "__main__":
    main()
