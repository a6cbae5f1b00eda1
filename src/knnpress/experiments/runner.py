"""Running a plan: describe, then run what is not yet recorded, the cheapest first."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from knnpress.execution.threads import map_tasks
from knnpress.experiments.exhibits import write_exhibit
from knnpress.experiments.measure import best_seconds, measure
from knnpress.experiments.methods import CONDENSING
from knnpress.experiments.plan import Plan
from knnpress.experiments.records import Recorder
from knnpress.experiments.study import Cell, ours
from knnpress.experiments.tasks import Task, Tasks
from knnpress.files import replacing
from knnpress.typing import Callback

_CALIBRATION = 96  # points on either side, to time a pair


@dataclass(frozen=True)
class _Job:
    """What a worker needs for one run; all of it is plain data."""

    cell: Cell
    seed: int
    folder: str
    data_dir: str | None


def run_plan(
    plan: Plan,
    folder: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    only: Collection[str] | None = None,
    n_jobs: int = 1,
    callback: Callback | None = None,
    tell: Callable[[str], Any] | None = None,
) -> Path:
    """Run all of a plan that its folder has no record of, and return the file of records.

    Parameters
    ----------
    plan : Plan
    folder : path
        Made where it is not there. Holds ``records.jsonl``, ``plan.json``, what the report shows (``exhibits``) and
        described points (``cache``, which may be deleted). Records of another plan are refused.
    data_dir : path or None
        Where local copies of research data sets are; None: as KNNPRESS_DATA says.
    only : collection of str or None
        Data sets to run now; None: all.
    n_jobs : int
        Runs at a time, by processes of joblib's backend. 1: one after another, each on all cores, which is how to
        measure training times.
    callback : callable or None
        Called after each run with the numbers of runs done and in all, and the facts "now" (what has finished, with its
        error) and "left" (time left).
    tell : callable or None
        Given a sentence before each stage: what is being described, and how long all will take.
    """
    recorder = Recorder(Path(folder), plan)
    plan = plan if only is None else plan.part(only)
    say = tell or (lambda sentence: None)
    where = None if data_dir is None else os.fspath(data_dir)
    tasks = Tasks(recorder.folder / "cache", where, plan.seed)
    done = recorder.done() & {cell.id for cell in plan.cells()}
    _divide(plan, recorder, where, n_jobs, say)
    seconds = _describe(plan, tasks, recorder)
    costs = {cell.id: seconds[cell.study.name](cell) for cell in plan.cells()}
    waiting = [cell for cell in plan.cells() if cell.id not in done]
    say(f"{len(waiting)} of {len(costs)} runs to do; about {_span(_left(waiting, [], costs) / n_jobs)} on this machine")
    waiting = _in_order(waiting, costs)
    jobs = [_Job(cell, plan.seed, str(recorder.folder), where) for cell in waiting]
    to_do, seen = {cell.id: cell for cell in waiting}, []
    for count, (record, took) in enumerate(map_tasks(_run, jobs, n_jobs), 1):
        recorder.append(record)
        seen.append((to_do.pop(record["id"]), took))
        left = _left(to_do.values(), seen, costs) / n_jobs
        error = f"error {100 * record['test_error']:.2f} %" if "test_error" in record else record["failure"]
        facts: dict[str, Any] = {"now": f"{record['id']}: {error}", "left": f"{_span(left)} left"}
        if callback is not None and callback(len(done) + count, len(costs), facts):
            break
    return recorder.path


@lru_cache(maxsize=1)
def _tasks(folder: str, data_dir: str | None, seed: int) -> Tasks:
    """One per process, so that points read once serve several runs."""
    return Tasks(Path(folder) / "cache", data_dir, seed)


def _in_order(cells: Iterable[Cell], costs: dict[str, float]) -> list[Cell]:
    """The cheap ones first, but before them one run of each method, by which to tell how long the others will take.

    Neighbours in cost and data: points are seldom read twice.
    """
    cells = sorted(
        cells, key=lambda cell: (round(np.log2(costs[cell.id])), cell.study.name, cell.split, costs[cell.id])
    )
    first: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first.setdefault((cell.study.name, cell.method), cell)
    ahead = {cell.id for cell in first.values()}
    return [*first.values(), *(cell for cell in cells if cell.id not in ahead)]


def _left(cells: Iterable[Cell], seen: list[tuple[Cell, float]], costs: dict[str, float]) -> float:
    """Seconds that runs will take one after another: the guesses, corrected by what runs like them took."""
    took: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for cell, seconds in seen:
        for like in _alike(cell):
            took.setdefault(like, []).append((seconds, costs[cell.id]))

    def slower(cell: Cell) -> float:
        known = next((took[like] for like in _alike(cell) if like in took), [(1.0, 1.0)])
        return sum(seconds for seconds, _ in known) / sum(guess for _, guess in known)

    return sum(costs[cell.id] * slower(cell) for cell in cells)


def _alike(cell: Cell) -> tuple[tuple[Any, ...], ...]:
    """What a run has in common with others, the most telling first."""
    return (cell.study.name, cell.method, cell.ratio), (cell.study.name, cell.method), (cell.study.name,), ()


def _run(job: _Job) -> tuple[dict[str, Any], float]:
    """The record of a run, and the seconds it took."""
    start, cell = time.monotonic(), job.cell
    tasks = _tasks(job.folder, job.data_dir, job.seed)
    task = tasks.task(cell.study, cell.split)
    record, classifier = measure(cell, task, job.seed)
    first = cell.split == 0 and not cell.study.variant and cell.ratio == min(cell.study.ratios)
    if classifier is not None and first and cell.method == ours(cell.study):
        write_exhibit(Path(job.folder) / "exhibits", cell, task, classifier, tasks)
    return record, time.monotonic() - start


def _divide(plan: Plan, recorder: Recorder, data_dir: str | None, n_jobs: int, say: Callable[[str], Any]) -> None:
    """Describe the points of every split that has runs to do: once, before several processes would each do it."""
    done = recorder.done()
    first: dict[tuple[str, int], _Job] = {}
    for cell in plan.cells():
        if cell.id not in done:
            job = _Job(cell, plan.seed, str(recorder.folder), data_dir)
            first.setdefault((cell.study.name, cell.split), job)
    jobs = sorted(first.values(), key=lambda job: job.cell.split)  # what all splits share comes with the first
    starts = [job for job in jobs if job.cell.split == 0]
    for stage in (starts, jobs[len(starts) :]):
        for name in map_tasks(_divide_one, stage, n_jobs):
            say(f"described {name}")


def _divide_one(job: _Job) -> str:
    _tasks(job.folder, job.data_dir, job.seed).task(job.cell.study, job.cell.split)
    return f"{job.cell.study.name}, split {job.cell.split}"


def _describe(plan: Plan, tasks: Tasks, recorder: Recorder) -> dict[str, Callable[[Cell], float]]:
    """Write plan.json, and return the costs of runs in seconds."""
    seconds: dict[str, Callable[[Cell], float]] = {}
    path = recorder.folder / "plan.json"
    facts = _facts(path) if path.exists() else {}
    for data in {study.data for study in plan.studies}:
        facts.pop(data, None)  # the rest is of earlier runs of other parts
    for study in plan.studies:
        task = tasks.task(study, 0)
        seconds[study.name] = partial(_cost, pair=_pair_seconds(task), n=len(task.y), n_test=len(task.y_test))
        if study.data not in facts:
            facts[study.data] = tasks.facts(study)
    about = {"name": plan.name, "fingerprint": plan.fingerprint, "title": plan.title, "data": facts}
    with replacing(path) as out:
        out.write(json.dumps(about, indent=1).encode())
    return seconds


def _facts(path: Path) -> dict[str, Any]:
    """What plan.json says of data sets."""
    try:
        facts = json.loads(path.read_bytes())["data"]
        if not isinstance(facts, dict):
            raise TypeError(f"data is {facts!r:.40}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged ({type(error).__name__}: {error}); delete it: it is written anew, with the data sets "
            "that are then run"
        ) from error
    return facts


def _pair_seconds(task: Task) -> float:
    """Time of one distance on all cores."""
    X, Z = task.X_test[:_CALIBRATION], task.X[:_CALIBRATION]
    return best_seconds(lambda: task.geometry.pairwise(X, Z)) / (len(X) * len(Z))


def _cost(cell: Cell, pair: float, n: int, n_test: int) -> float:
    """A rough guess at the seconds of a run, by the number of distances and derivatives it takes."""
    m = n * (cell.ratio or 0.15)
    pairs = {
        "full": n * n_test,
        "full AIRM": 300 * n * 60,
        "full EMD": 150 * n * 5,
        "Subsample": m * n_test,
        "RandomMutation": 1000 * n,
        "SCC": 300 * n * m,
        "SCC groups": 300 * n * m,
        "SCC paper": 200 * n * m,
        "SHC": 100 * n * m,  # distances are warm
        "SHC paper": 22 * (60 * n * m + 1000 * n),  # as many fits, to tune it
    }
    fixed = {"tangent space + LR": 20.0, "MDM": 3.0, "SPDNet": 300.0}
    condensing = dict.fromkeys(CONDENSING, 4 * n * m)
    return 0.2 + fixed.get(cell.method, pair * {**pairs, **condensing}.get(cell.method, n * n_test))


def _span(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
