"""One run: fit, test, time, and write down what is needed to repeat it."""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from knnpress import _core
from knnpress.estimators import PrototypeClassifier
from knnpress.estimators.checks import resolve_n_prototypes
from knnpress.experiments.methods import METHODS, Setting
from knnpress.experiments.records import Record
from knnpress.experiments.study import Cell
from knnpress.experiments.tasks import Task
from knnpress.geometries.search import MIN_QUERIES
from knnpress.neighbors import nearest
from knnpress.typing import Array

_PACKAGES = ("knnpress", "numpy", "scipy", "scikit-learn", "pyriemann", "POT", "torch", "spd_learn", "optuna")
_TIMED_PAIRS = {3: 300_000, 2: 2_000}  # by the number of axes of X
_TIMED_QUERIES = (16, 1024)
_TIMED_BYTES = 2**27  # that large points, repeated, may take
_REPEATS, _LONG_ENOUGH = 3, 0.05  # calls, at most, and seconds


def measure(cell: Cell, task: Task, seed: int) -> tuple[dict[str, Any], Any]:
    """The record of one run, and the fitted classifier (None where it failed)."""
    method, setting = METHODS[cell.method], _setting(cell, task, seed)
    record = _about(cell, task, setting)
    queries = np.arange(len(task.y_test))
    if method.most_queries is not None:
        queries = np.random.default_rng(seed).permutation(queries)[: method.most_queries]
    X_test, y_test = task.X_test[queries], task.y_test[queries]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wall, cpu = time.perf_counter(), time.process_time()
            groups = {"groups": task.groups} if method.takes_groups else {}
            classifier = method.build(setting).fit(task.X, task.y, **groups)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            start = time.perf_counter()
            wrong = classifier.predict(X_test) != y_test
            predicting = (time.perf_counter() - start) / len(y_test)
            record |= {
                "n_test": len(y_test),
                "n_prototypes": _size(classifier, cell.method),
                "test_error": float(np.mean(wrong)),
                "wrong_rows": np.sort(task.test_rows[queries[wrong]]).tolist(),
                "train_error": _train_error(classifier, cell.method, task),
                "train_seconds": wall,
                "train_cpu_seconds": cpu,
                "query_seconds": predicting,
            }
            if hasattr(classifier, "selection_"):
                record["chosen"] = _finite(_chosen(classifier))
            if cell.method in cell.study.once:
                reference = PrototypeClassifier(task.geometry).fit(task.X, task.y)
                start = time.perf_counter()
                record["reference_error"] = float(np.mean(reference.predict(X_test) != y_test))
                record["full_query_seconds"] = (time.perf_counter() - start) / len(y_test)
            elif isinstance(classifier, PrototypeClassifier) or hasattr(classifier, "gamma_"):
                record |= _query_times(classifier, task)
    except (ImportError, TypeError, ValueError, ArithmeticError) as error_:  # TypeError: a setting it does not have
        record["failure"] = f"{type(error_).__name__}: {error_}"
        classifier = None
    record["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(**record).as_json(), classifier


def _about(cell: Cell, task: Task, setting: Setting) -> dict[str, Any]:
    """What is known before the run."""
    return {
        "id": cell.id,
        "data": cell.study.data,
        "variant": cell.study.variant,
        "split": cell.split,
        "method": cell.method,
        "ratio": cell.ratio,
        "seed": setting.seed,
        "n_train": len(task.y),
        "versions": _versions(),
        "machine": _machine(),
        "params": _finite(setting.params),
    }


def _setting(cell: Cell, task: Task, seed: int) -> Setting:
    """What the method of a cell runs on, its parameters included."""
    params = dict(cell.study.settings.get(cell.method, {}))
    m = None
    if cell.ratio is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a share is raised to one per class
            m = resolve_n_prototypes(cell.ratio, len(task.y), len(np.unique(task.y)))
    return Setting(task.geometry, task.ground_cost, task.reg, m, seed, params)


def _chosen(classifier: Any) -> dict[str, Any]:
    """The setting of a learned classifier, and its held-out result where it was chosen by that."""
    tried = [setting for setting in classifier.selection_ if setting["chosen"] and "prior" in setting]
    return {
        **{name: value for name, value in (tried[-1] if tried else {}).items() if name != "chosen"},
        "metric": classifier.metric_,
        "gamma": classifier.gamma_,
        "prior": classifier.prior_,
        "smoothing": classifier.smoothing_,
        "vote": classifier.vote_,
        "n_iter": classifier.n_iter_,
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """The same for JSON, which has no infinity."""
    return {name: "inf" if value == np.inf else value for name, value in values.items()}


def _size(classifier: Any, method: str) -> int | None:
    if method == "MDM":
        return len(classifier.classes_)
    prototypes = getattr(classifier, "prototypes_", None)
    return None if prototypes is None else len(prototypes)


def _train_error(classifier: Any, method: str, task: Task) -> float | None:
    """None for full sets, whose points are their own neighbours."""
    return None if method.startswith("full") else float(np.mean(classifier.predict(task.X) != task.y))


def _query_times(classifier: Any, task: Task) -> dict[str, float]:
    """Seconds per query on one thread, by the prototypes and by the full set, one after the other.

    By the processor's clock, which does not run while other programs do: on a busy machine factors stay what they are.
    """
    seconds = partial(best_seconds, clock=time.process_time)
    full = PrototypeClassifier(task.geometry, n_jobs=1).fit(task.X, task.y)
    few, many = _queries(task.X_test, len(task.X)), _queries(task.X_test, len(classifier.prototypes_))
    searched = task.X_test[np.arange(max(len(few), MIN_QUERIES)) % len(task.X_test)]
    geometry, n_jobs = task.geometry, classifier.n_jobs
    own = getattr(classifier, "geometry_", geometry)  # that it has chosen
    classifier.set_params(n_jobs=1)
    try:
        short = own.distances_to(classifier.prototypes_)
        long = geometry.distances_to(full.prototypes_)
        return {
            "query_seconds": seconds(lambda: classifier.predict(many)) / len(many),
            # without the pruned search, which leaves most of the full set out
            "full_query_seconds": seconds(lambda: nearest(long, geometry.check(few), len(full.prototypes_), 1, 1))
            / len(few),
            "full_search_seconds": seconds(lambda: full.predict(searched)) / len(searched),
            "distance_seconds": seconds(lambda: short(many)) / len(many),
            "full_distance_seconds": seconds(lambda: long(few)) / len(few),
        }
    finally:
        classifier.set_params(n_jobs=n_jobs)


def _queries(X: Array, n_points: int) -> Array:
    """Rows of X, repeated where there are few, to time a search among many points."""
    count = int(np.clip(_TIMED_PAIRS[X.ndim] // n_points, *_TIMED_QUERIES))
    count = min(count, max(_TIMED_QUERIES[0], _TIMED_BYTES // X[0].nbytes))
    return X[np.arange(count) % len(X)]


def best_seconds(function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """The shortest time of several calls, or of a single one that takes long enough to be trusted."""
    times: list[float] = []
    while len(times) < _REPEATS and sum(times) < _LONG_ENOUGH:
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _machine() -> dict[str, Any]:
    names = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": names[0] if names else platform.machine(), "cores": cores, "kernels": _core.target()}


def _cpuinfo() -> list[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []
