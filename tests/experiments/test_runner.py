"""Working off a plan: records, resumption, and what they hold."""

import json
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from knnpress import SCC
from knnpress.experiments import load_plan, read_records, run_plan
from knnpress.experiments.measure import _queries, measure
from knnpress.experiments.methods import METHODS, Setting
from knnpress.experiments.records import Recorder
from knnpress.experiments.study import Cell
from knnpress.experiments.tasks import Tasks
from knnpress.report.read import read_results

PLAN = """
seed = 1
[defaults]
subset = 160
n_splits = 2
ratios = [0.15]
settings.SCC = { max_iter = 5, gamma = "scale", smoothing = 0.02 }
settings.SHC = { max_iter = 2, gamma = "scale", smoothing = 0.02 }
[[study]]
data = "covariances"
source = "digits-covariances"
methods = ["full", "Subsample", "Condensed", "SCC"]
once = ["full LogEuclidean"]
[[study]]
data = "histograms"
source = "digits-histograms"
methods = ["full", "SHC"]
once = ["full chi-square"]
"""
TIMINGS = {
    name for part in ("query", "full_query", "full_search", "distance", "full_distance") for name in [f"{part}_seconds"]
}
TIMINGS |= {"train_seconds", "train_cpu_seconds", "finished"}


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A plan, the file of its records, and what was told and seen on the way."""
    folder, told, seen = tmp_path_factory.mktemp("finished"), [], []
    (folder / "mine.toml").write_text(PLAN)
    plan = load_plan(folder / "mine.toml")
    return plan, run_plan(plan, folder / "out", tell=told.append, callback=lambda *a: seen.append(a)), told, seen


def begun(finished, folder, n):
    """A folder with the first n records of the finished plan."""
    folder.mkdir()
    path = folder / "records.jsonl"
    path.write_bytes(b"".join(finished[1].read_bytes().splitlines(keepends=True)[:n]))
    return path


def untimed(path):
    return {r["id"]: {k: v for k, v in r.items() if k not in TIMINGS} for r in read_records(path)}


def test_a_plan_is_worked_off_and_resumed(finished):
    plan, path, told, seen = finished
    records = read_records(path)
    assert [record["id"] for record in records] != [cell.id for cell in plan.cells()]  # cheapest first
    assert {record["id"] for record in records} == {cell.id for cell in plan.cells()}
    assert told[:2] == ["described covariances, split 0", "described histograms, split 0"]
    assert any("16 of 16 runs to do; about" in sentence for sentence in told)
    assert seen[-1][:2] == (16, 16)
    assert all(isinstance(fact, str) for fact in seen[-1][2].values())
    for record in records:
        assert "failure" not in record
        assert 0 <= record["test_error"] < 0.9
        assert record["n_train"] == record["n_test"] == 80
        assert {"numpy", "knnpress"} <= set(record["versions"])
        assert record["machine"]["cores"] >= 1
        assert record["train_seconds"] > 0
    by_id = {record["id"]: record for record in records}
    scc = by_id["covariances / 0 / SCC 0.15"]
    assert (scc["n_prototypes"], scc["params"]) == (12, {"max_iter": 5, "gamma": "scale", "smoothing": 0.02})
    assert scc["full_distance_seconds"] > scc["distance_seconds"] > 0
    assert by_id["covariances / 0 / full"]["n_prototypes"] == 80
    assert (
        by_id["covariances / 0 / full LogEuclidean"]["reference_error"] == by_id["covariances / 0 / full"]["test_error"]
    )
    about = json.loads((path.parent / "plan.json").read_text())
    assert about["data"]["histograms"]["kind"] == "histogram"
    assert about["data"]["covariances"]["dims"] == 11
    run_plan(plan, path.parent, callback=lambda *_: pytest.fail("there is nothing left to do"))
    assert len(read_records(path)) == 16


def test_exhibits_show_the_smallest_learned_set(finished):
    folder = finished[1].parent / "exhibits"
    for data, shape in {"covariances": (12, 11, 11), "histograms": (12, 64)}.items():
        with np.load(folder / f"{data}.npz", allow_pickle=False) as file:
            found = dict(file)
        assert found["prototypes"].shape == shape
        assert found["nearest_images"].shape == (12, 64, 64, 3)
        assert found["nearest_images"].dtype == np.uint8
        assert found["confusion"].sum() == 80
        assert (np.diff(found["suspects_loss"]) <= 0).all()
        assert found["map_train"].shape == (80, 2)
        assert json.loads((folder / f"{data}.json").read_text())["ratio"] == 0.15


def test_processes_give_the_records_of_one_process(finished, tmp_path):
    plan, path, _, _ = finished
    assert untimed(run_plan(plan, tmp_path, n_jobs=2)) == untimed(path)


def test_data_sets_can_be_run_one_after_the_other(finished, tmp_path):
    plan, whole, *_ = finished
    with pytest.raises(ValueError, match=r"no data words; it has covariances, histograms"):
        run_plan(plan, tmp_path, only=["words"])
    run_plan(plan, tmp_path, only=["histograms"])
    assert {r["data"] for r in read_records(tmp_path / "records.jsonl")} == {"histograms"}
    counts = []
    run_plan(plan, tmp_path, only=["covariances"], callback=lambda step, total, facts: counts.append((step, total)))
    assert counts == [(k, len(counts)) for k in range(1, len(counts) + 1)]  # the other data set's runs do not count
    assert untimed(tmp_path / "records.jsonl") == untimed(whole)
    assert set(json.loads((tmp_path / "plan.json").read_text())["data"]) == {"covariances", "histograms"}


def test_a_name_of_any_kind_stays_within_the_folder_and_its_exhibit_is_found(tmp_path):
    names = ["../../pwn", "a/b", "/abs", "..", ".hidden", "x" * 300, "a\\u0000b", "ü % 1"]
    plan = PLAN.split("[[study]]")[0].replace("max_iter = 5", 'prior = inf, vote = "soft"')
    for old, new in {"n_splits = 2": "n_splits = 1", "160": "60", "0.15": "0.4"}.items():
        plan = plan.replace(old, new)
    for name in names:
        plan += f'[[study]]\ndata = "{name}"\nsource = "digits-covariances"\nmethods = ["full", "SCC"]\n'
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "mine.toml").write_text(plan)
    out = tmp_path / "deep" / "er" / "out"
    plan = load_plan(tmp_path / "plans" / "mine.toml")
    records = read_records(run_plan(plan, out))
    assert sorted(record["method"] for record in records) == ["SCC"] * len(names) + ["full"] * len(names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "plans"]
    assert sorted(path.name for path in out.parent.iterdir()) == ["out"]
    shown = read_results(out)
    assert shown.notices == []
    assert len(shown.exhibits) == len(names)
    for exhibit in shown.exhibits.values():
        assert exhibit.method == "SCC"
        assert "prototypes" in exhibit.arrays
    assert read_records(run_plan(plan, out)) == records


def test_another_plan_is_refused_and_one_of_other_runs_goes_on(finished, plan_file, tmp_path):
    path = begun(finished, tmp_path / "out", 2)
    plan_file.write_text(PLAN.replace("seed = 1", "seed = 2"))
    with pytest.raises(ValueError, match=r"holds records of another plan, e\.g\. .*; give another folder"):
        run_plan(load_plan(plan_file), tmp_path / "out")
    plan_file.write_text(PLAN.replace("n_splits = 2", "n_splits = 1").replace('"SCC"]', "]").replace('"SHC"]', "]"))
    plan = load_plan(plan_file)
    run_plan(plan, tmp_path / "out")
    records = [record["id"] for record in read_records(path)]
    assert len(records) == len(set(records))
    assert {cell.id for cell in plan.cells()} <= set(records)


def test_a_broken_last_line_is_cut_off_and_other_nonsense_is_refused(finished, tmp_path):
    plan, path = finished[0], begun(finished, tmp_path / "out", 2)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert len(read_records(path)) == 2
    Recorder(tmp_path / "out", plan)
    assert path.read_bytes() == whole
    path.write_bytes(b"nonsense\n" + whole)
    with pytest.raises(ValueError, match="line 1 is no record"):
        Recorder(tmp_path / "out", plan)


@pytest.mark.parametrize(
    "line",
    [
        '{"a": 1}',
        '{"id": 3, "plan": "x"}',
        '{"id": "x"}',
        '{"id": "x", "plan": []}',
    ],
)
def test_a_line_without_its_fields_is_named(line, finished, tmp_path):
    plan, path = finished[0], begun(finished, tmp_path / "out", 1)
    fingerprint = plan.study_fingerprint(plan.studies[0])
    path.write_bytes(path.read_bytes() + line.replace('"x"}', f'"{fingerprint}"}}').encode() + b"\n")
    with pytest.raises(ValueError, match=r"records.jsonl, line 2 is no record \(.*\); delete the line"):
        run_plan(plan, tmp_path / "out")


def test_a_setting_that_a_method_has_not_is_its_failure(plan_file, tmp_path):
    plan_file.write_text(PLAN.replace("max_iter = 5", "nonsense = 5"))
    plan = load_plan(plan_file).part(["covariances"])
    failures = [record["failure"] for record in read_records(run_plan(plan, tmp_path / "out")) if "failure" in record]
    assert len(failures) == 2
    assert "nonsense" in failures[0]


def test_a_missing_package_is_recorded_and_tried_again(plan_file, tmp_path, monkeypatch):
    methods = 'methods = ["full", "Subsample", "Condensed", "SCC"]\nonce = ["full LogEuclidean"]'
    plan_file.write_text(PLAN.replace(methods, 'methods = ["full"]\nonce = ["MDM"]'))
    plan = load_plan(plan_file).part(["covariances"])
    monkeypatch.setitem(sys.modules, "pyriemann.classification", None)
    path = run_plan(plan, tmp_path / "out")
    failed = [record for record in read_records(path) if "failure" in record]
    assert [record["failure"] for record in failed] == ["ImportError: needs pyriemann: pip install pyriemann"]
    monkeypatch.delitem(sys.modules, "pyriemann.classification")
    run_plan(plan, tmp_path / "out")
    assert read_records(path)[-1]["method"] == "MDM"
    assert read_records(path)[-1]["n_prototypes"] == 10


def test_a_learned_run_says_what_was_chosen(finished):
    records = {record["id"]: record for record in read_records(finished[1])}
    for name, metrics in {
        "covariances / 0 / SCC 0.15": {"jbld", "tangent"},
        "histograms / 1 / SHC 0.15": {"sinkhorn", "hellinger"},
    }.items():
        chosen = records[name]["chosen"]
        assert chosen["metric"] in metrics
        assert chosen["sharpness"] in (1.0, 0.25)
        assert chosen["start"] in ("centroids", "grown")
        assert chosen["vote"] in ("nearest", "soft")
        assert {"prior", "smoothing", "gamma", "error"} <= set(chosen)
        assert 1 <= chosen["n_iter"] <= 5
        assert records[name]["n_prototypes"] == 12
    assert "chosen" not in records["covariances / 0 / Subsample 0.15"]


def test_infinity_can_be_written_down(plan_file, tmp_path):
    plan_file.write_text(PLAN.replace("max_iter = 5", "prior = inf, max_iter = 5"))
    path = run_plan(load_plan(plan_file), tmp_path / "out", only=["covariances"])
    scc = next(record for record in read_records(path) if record["method"] == "SCC")
    assert "failure" not in scc
    assert (scc["params"]["prior"], scc["chosen"]["prior"], scc["chosen"]["n_iter"]) == ("inf", "inf", 0)


def test_settings_that_are_not_the_models_are_its_compressors(plan_file, tmp_path):
    task = Tasks(tmp_path, None, 1).task(load_plan(plan_file).studies[0], 0)
    setting = Setting(task.geometry, None, None, 12, 7, {"batch_size": 40, "max_iter": 3})
    ours, paper = (METHODS[name].build(setting) for name in ("SCC", "SCC paper"))
    assert (ours.max_iter, ours.compressor.batch_size, ours.compressor.chart) == (3, 40, "normal")
    assert (paper.max_iter, paper.compressor.batch_size, paper.compressor.chart) == (3, 40, "paper")
    assert METHODS["SCC"].build(replace(setting, params={})).get_params() == SCC(12, random_state=7).get_params()


@pytest.mark.parametrize("method", ["SCC", "SCC groups"])
def test_only_scc_groups_is_told_the_groups(method, plan_file, tmp_path, monkeypatch):
    study = replace(load_plan(plan_file).studies[0], splits="half by object", settings={})
    task = Tasks(tmp_path, None, 1).task(load_plan(plan_file).studies[0], 0)
    task, given = replace(task, groups=np.arange(80) % 7), []

    def fit(self, X, y, sample_weight=None, groups=None):
        given.append(groups)
        raise ValueError("enough")

    monkeypatch.setattr(SCC, "fit", fit)
    record, _ = measure(Cell(study, 0, method, 0.15), task, 1)
    assert record["failure"] == "ValueError: enough"
    if method == "SCC":
        assert given == [None]
    else:
        np.testing.assert_array_equal(given[0], task.groups)


def test_records_of_earlier_versions_are_gone_on_from(finished, tmp_path):
    plan, path, *_ = finished
    fingerprint = plan.study_fingerprint(plan.studies[0])
    tuning = {"id": "covariances / tuning / SCC", "plan": fingerprint, "kind": "tuning", "data": "covariances"}
    (tmp_path / "records.jsonl").write_text(json.dumps(tuning | {"params": {"sharpness": 4.0}}) + "\n")
    with open(tmp_path / "records.jsonl", "ab") as file:
        file.write(path.read_bytes())
    run_plan(plan, tmp_path, callback=lambda *_: pytest.fail("there is nothing left to do"))
    found = read_results(tmp_path)
    assert (len(found.records), found.notices) == (16, [])


@pytest.mark.slow
def test_killed_at_any_moment_the_records_end_up_the_same(plan_file, tmp_path):
    finished = run_plan(load_plan(plan_file), tmp_path / "whole")
    records, size = tmp_path / "out" / "records.jsonl", finished.stat().st_size
    command = [Path(sys.executable).parent / "knnpress", "experiment", plan_file, "-o", tmp_path / "out"]
    draw, kills = random.Random(0), 0
    for k in range(10):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        moment = size * (k + draw.random()) / 11  # by what is written: all ten come while there is work to do
        while process.poll() is None and (records.stat().st_size if records.exists() else 0) < moment:
            time.sleep(0.001)
        time.sleep(draw.uniform(0.0, 0.02))
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert kills == 10
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert untimed(records) == untimed(finished)


@pytest.mark.parametrize("damage", ["", "{}", "[]", "null", '{"data": 5}', "[" * 100_000])
def test_a_damaged_plan_json_is_told_by_name(damage, plan_file, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text(damage)
    with pytest.raises(ValueError, match=r"plan\.json is damaged .*; delete it"):
        run_plan(load_plan(plan_file), tmp_path / "out", only=["covariances"])


def test_queries_of_large_points_are_timed_in_bounded_memory():
    """1024 matrices of 300 x 300 would take 737 MB."""
    assert _queries(np.broadcast_to(np.eye(300), (10, 300, 300)), 10).nbytes <= 2**27
    assert len(_queries(np.zeros((5, 4, 4)), 10)) == 1024
