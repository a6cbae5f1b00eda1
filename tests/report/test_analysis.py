"""What is read, averaged and judged."""

import json

import numpy as np
import pytest
import synthetic

from knnpress.experiments.records import Record
from knnpress.report.analysis import cases_of, cells_of, judge
from knnpress.report.curves import alt_text, curves_of
from knnpress.report.findings import findings_of
from knnpress.report.looks import FAMILIES, common_name, family_of, looks
from knnpress.report.paper import PAPER
from knnpress.report.read import read_results
from knnpress.report.statistics import compare
from knnpress.report.tables import errors, minus_full, overviews

ABOUT = synthetic.about("Things", "covariance", (0.02, 0.04), ["a", "b"])
PLAN = {"name": "p", "fingerprint": synthetic.PLAN, "title": "T", "data": {"things": ABOUT}}
FULL = [0.02, 0.03, 0.04]


def run(method, split, error, ratio=None, **more):
    return synthetic.record("things", method, split, error, ratio, **more)


def read(tmp_path, lines, plan=PLAN, exhibits=None):
    return read_results(synthetic.write(tmp_path / "results", plan, lines, exhibits))


def test_errors_are_averaged_over_splits_and_seeds_first(tmp_path):
    lines = [run("full", split, error) for split, error in enumerate(FULL)]
    lines += [run("full", 0, 0.04) | {"id": "another seed"}]
    (case,) = cases_of(read(tmp_path, lines))["things"]
    summary = case.summary("full", None)
    assert summary.mean == pytest.approx(np.mean([0.03, 0.03, 0.04]))
    assert summary.n == 3


def test_differences_are_taken_on_the_splits_that_both_have(tmp_path):
    lines = [run("full", split, error, n_test=500) for split, error in enumerate(FULL)]
    lines += [run("SCC", split, error, 0.02, n_test=500) for split, error in [(0, 0.05), (2, 0.045), (7, 0.9)]]
    (case,) = cases_of(read(tmp_path, lines))["things"]
    assert case.compare(("SCC", 0.02), ("full", None)) == compare([0.05, 0.045], [0.02, 0.04], 0.5)
    assert case.compare(("SCC", 0.04), ("full", None)) is None


@pytest.mark.parametrize(
    ("full", "ours", "not_worse", "within"),
    [
        ([0.02, 0.03, 0.04, 0.05], [0.024, 0.026, 0.040, 0.05], True, True),
        ([0.02, 0.03, 0.04, 0.05], [0.023, 0.033, 0.043, 0.053], False, True),  # always 0.3 points worse
        ([0.02, 0.03, 0.04, 0.05], [0.01, 0.07, 0.03, 0.07], True, False),  # 1 point, but who knows
        ([0.02, 0.03, 0.04, 0.05], [0.12, 0.13, 0.14, 0.15], False, False),
        ([0.20, 0.30, 0.40, 0.30], [0.19, 0.34, 0.396, 0.31], True, True),  # 0.9 points, where one is let pass
        ([0.09, 0.10, 0.11, 0.10], [0.08, 0.14, 0.106, 0.11], True, False),  # 0.9 points at just 10 %: half a point is
    ],
)
def test_verdict(tmp_path, full, ours, not_worse, within):
    lines = [run("full", split, error) for split, error in enumerate(full)]
    lines += [run("SCC", split, error, 0.02) for split, error in enumerate(ours)]
    results = read(tmp_path, lines)
    verdict = judge(cases_of(results)["things"], results.planned)
    assert (verdict.not_worse, verdict.within, verdict.held) == (not_worse, within, not_worse and within)
    assert verdict.sentence() == (
        f"As good as the full training set in {int(not_worse and within)} of 1 cell. A cell is one data set at one "
        "size of the model. As good means that SCC is not significantly worse than the full training set "
        f"({int(not_worse)} of 1), and within 0.5 points of its error, or 1 point where that is above 10 % "
        f"({int(within)} of 1). The plan has 2 cells, of which 1 has been run."
    )


def test_a_single_split_is_not_called_good(tmp_path):
    results = read(tmp_path, [run("full", 0, 0.03), run("SCC", 0, 0.01, 0.02)])
    verdict = judge(cases_of(results)["things"], results.planned)
    assert (verdict.not_worse, verdict.within, verdict.held) == (0, 1, 0)
    said = "Too few splits, or splits that differ too much, to judge any of 1 cell. A cell is one data set at one size"
    assert verdict.sentence().startswith(said)


def test_cells_that_cannot_be_judged_do_not_count_against_ours(tmp_path):
    lines = [run("full", split, error) for split, error in enumerate([0.03, 0.04, 0.03, 0.05])]
    lines += [run("SCC", split, error, 0.02) for split, error in enumerate([0.02, 0.03, 0.03, 0.04])]
    results = read(tmp_path, [*lines, run("SCC", 0, 0.01, 0.04)])
    said = judge(cases_of(results)["things"], results.planned).sentence()
    assert said.startswith("As good as the full training set in 1 of the 1 cell that can be judged.")
    assert "(2 of 2). The other 1 has too few splits, or splits that differ too much." in said


@pytest.mark.parametrize("n", [2, 3])
def test_a_few_splits_get_no_tick(tmp_path, n):
    """Even a difference that is the same on each of them."""
    lines = [run("full", split, 0.03) for split in range(n)] + [run("SCC", split, 0.01, 0.02) for split in range(n)]
    cases = cases_of(read(tmp_path, lines))
    assert judge(cases["things"]).held == 0
    (table,) = overviews(cases)
    (row,) = table.groups[0][1]
    assert row[2].text.endswith("too few splits")
    assert "✓" not in row[2].text + row[2].html
    assert row[2].mark == ""
    assert "[" not in row[2].text
    assert minus_full(cases["things"]).groups[0][1][0][-1].text == "too few splits to judge"


def test_splits_that_disagree_are_not_called_few(tmp_path):
    lines = [run("full", s, e) for s, e in enumerate([0.3, 0.3, 0.3, 0.3])]
    lines += [run("SCC", s, e, 0.02) for s, e in enumerate([0.1, 0.5, 0.2, 0.4])]
    cases = cases_of(read(tmp_path, lines))
    assert minus_full(cases["things"]).groups[0][1][0][-1].text == "splits too unlike to judge"


def test_data_sets_that_share_a_size_share_a_table(tmp_path):
    sizes = {"a": (0.02, 0.04), "b": (0.04,), "c": (0.1,)}
    lines = [
        synthetic.record(data, method, split, 0.1, ratio)
        for data, ratios in sizes.items()
        for split in range(4)
        for method, ratio in [("full", None), *(("SCC", ratio) for ratio in ratios)]
    ]
    first, second = overviews(cases_of(read(tmp_path, lines)))
    assert [[row[0].values[0] for row in table.groups[0][1]] for table in (first, second)] == [["a", "b"], ["c"]]
    assert [column.title for column in first.columns[2:]] == ["at 2\u00a0%", "at 4\u00a0%"]
    assert first.groups[0][1][1][2].text == "–"


def test_variants_are_kept_apart_and_do_not_count(tmp_path):
    lines = [run("full", s, e, variant=v) for v in ("noise", "") for s, e in enumerate(FULL)]
    lines += [run("SCC", s, e, 0.02, variant="noise") for s, e in enumerate(FULL)]
    plain, noise = cases_of(read(tmp_path, lines))["things"]
    assert (plain.variant, noise.variant) == ("", "noise")
    assert cells_of(plain) == []
    assert len(cells_of(noise)) == 1
    assert findings_of(read_results(tmp_path / "results")).verdict.cells == []


def test_what_cannot_be_read_is_left_out_and_said(tmp_path):
    good = run("full", 0, 0.03)
    lines = [
        good,
        '{"id": "cut of',
        "[1, 2]",
        json.dumps(run("full", 1, 0.03) | {"test_error": float("nan")}),
        json.dumps(run("full", 2, 0.03) | {"test_error": 3}),
        json.dumps({"id": "t", "plan": synthetic.PLAN, "kind": "tuning", "params": {}}),
        json.dumps(run("full", 0, 0.05)),  # the same run again: the last counts
    ]
    results = read(tmp_path, lines)
    assert [record.test_error for record in results.records] == [0.05]
    assert results.notices == ["records.jsonl: left out 4 broken lines (2, 3, 4, 5)"]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"train_seconds": "fast"}, {"n_train": "12"}, {"ratio": "0.02"}, {"split": "1"}, {"split": 1.5}),
        *({"query_seconds": [1]}, {"n_prototypes": "six"}, {"train_error": float("nan")}, {"params": 3}, {"data": 7}),
        *({"n_test": True}, {"wrong_rows": 3}, {"wrong_rows": ["a"]}, {"full_search_seconds": "soon"}),
    ],
)
def test_a_line_with_something_else_for_a_number_or_text_is_left_out_and_said(tmp_path, wrong):
    results = read(tmp_path, [run("full", 0, 0.03), json.dumps(run("SCC", 1, 0.02, 0.02) | wrong)])
    assert [record.method for record in results.records] == ["full"]
    assert results.notices == ["records.jsonl: left out 1 broken line (2)"]


def test_a_record_is_read_as_it_was_written():
    chosen = {"metric": "tangent", "gamma": 2.5}
    whole = Record("d", "SCC", 1, id="x", ratio=0.02, n_train=5, test_error=0.25, wrong_rows=[3, 4], chosen=chosen)
    for record in (whole, Record("d", "SPDNet", 0, failure="no torch")):
        assert Record.from_json(json.loads(json.dumps(record.as_json()))) == record
    assert "train_error" not in whole.as_json()
    assert (whole.metric, Record("d", "full", 0).metric) == ("tangent", "")
    with pytest.raises(TypeError, match="unheard"):
        Record("d", "full", 0, unheard=1)  # what nobody would read cannot be written


def test_each_study_has_its_plan_and_the_later_one_counts(tmp_path):
    lines = [run("full", 0, 0.01) | {"plan": "old"}, run("full", 1, 0.02) | {"plan": "new"}]
    lines += [run("full", 0, 0.03, variant="noise") | {"plan": "another"}]
    results = read(tmp_path, lines)
    assert [record.test_error for record in results.records] == [0.02, 0.03]
    assert results.notices == ["records.jsonl: left out 1 record of another plan"]


def test_a_failed_run_does_not_count_as_a_result(tmp_path):
    lines = [run("full", 0, 0.03), {**run("SPDNet", 0, 0.0), "failure": "no torch", "test_error": None}]
    (case,) = cases_of(read(tmp_path, lines))["things"]
    assert case.methods == ["full"]
    assert [record.failure for record in case.failures] == ["no torch"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "plan.json").unlink(), "has no plan.json"),
        (lambda folder: (folder / "plan.json").write_text("{"), "is not JSON"),
        (lambda folder: (folder / "plan.json").write_text("3"), "holds no plan"),
        (lambda folder: (folder / "records.jsonl").unlink(), "no finished run"),
        (lambda folder: (folder / "records.jsonl").write_text(""), "no finished run"),
        (lambda folder: (folder / "records.jsonl").write_text('{"plan'), r"no finished run .*left out 1 broken line"),
    ],
)
def test_a_folder_without_results_is_refused(tmp_path, spoil, message):
    folder = synthetic.write(tmp_path / "results", PLAN, [run("full", 0, 0.1)])
    spoil(folder)
    with pytest.raises(ValueError, match=message):
        read_results(folder)


def test_exhibits_that_cannot_be_read_are_left_out(tmp_path):
    arrays = {"prototypes": np.eye(3)[None], "objects": np.array([{}], dtype=object)}
    results = read(tmp_path, [run("full", 0, 0.1)], exhibits={"things": (arrays, {})})
    assert results.exhibits["things"].arrays == {}  # objects could hold code
    assert "cannot be read" in results.notices[0]
    (tmp_path / "results/exhibits/things.npz").write_bytes(b"PK\x03\x04 broken")
    assert "cannot be read" in read_results(tmp_path / "results").notices[0]


def test_curves(tmp_path):
    lines = [run("full", s, e) for s, e in enumerate(FULL)]
    lines += [run("Reduced", 0, 0.06, 0.02), run("Reduced", 0, 0.05, 0.04)]
    lines += [run("Reduced", 0, 0.04, n_prototypes=300), run("MDM", 0, 0.3), run("full EMD", 0, 0.01)]
    (case,) = cases_of(read(tmp_path, lines))["things"]
    series = {one.name: one for one in curves_of(case)}
    assert list(series) == ["full", "Reduced", "MDM", "full EMD"]
    assert series["full"].line == (3.0, 1.0)
    assert series["Reduced"].curve == [(2.0, 6.0, None), (4.0, 5.0, None)]
    assert series["Reduced"].own == (30.0, 4.0, None)
    assert series["Reduced"].line is None
    assert series["MDM"].line == (30.0, None)
    assert [one.hidden for one in series.values()] == [False, False, False, True]
    assert "the full training set errs in 3.00 ± 1.00 %" in alt_text(case)


def test_a_model_that_was_learned_smaller_than_asked_for_shows_its_size(tmp_path):
    lines = [run("full", s, e) for s, e in enumerate(FULL)]
    lines += [run("SCC", s, 0.02, 0.04, n_prototypes=9) for s in range(3)]
    lines += [run("SCC", s, 0.03, 0.02, n_prototypes=19) for s in range(3)]  # hardly smaller
    (case,) = cases_of(read(tmp_path, lines))["things"]
    (curve,) = [one.curve for one in curves_of(case) if one.name == "SCC"]
    assert [point[0] for point in curve] == [2.0, 0.9]
    texts = {row[0].text: [cell.text for cell in row[1:]] for row in errors([case]).groups[0][1]}
    assert texts["SCC (ours)"][:2] == ["3.00 ± 0.00", "2.00 ± 0.00 (at 0.90 %)"]


def test_no_two_methods_look_alike_but_for_colour():
    known = ["full", "SCC", "SCC paper", "Subsample", "Condensed", "Reduced", "FastCondensed", "RandomMutation", "MDM"]
    known += ["tangent space + LR", "SPDNet", "full AIRM", "full Euclidean", "full LogEuclidean", "one", "two", "three"]
    known += ["SCC jbld", "tangent space + SVM", "full k", "ClassCentroids", "LearningVectorQuantization", "roots + LR"]
    shapes = [(look.dash, look.marker) for look in looks(known).values()]
    assert len(set(shapes)) == len(known)


@pytest.mark.parametrize(
    ("method", "family", "name"),
    [
        *[("SCC", "ours", "ours"), ("SHC", "ours", "ours"), ("SHC paper", "paper", "the paper's settings")],
        ("SCC jbld", "alone", "ours, the paper's geometry alone"),
        ("SHC sinkhorn", "alone", "ours, the paper's geometry alone"),
        *[("RandomMutation", "same size", "RandomMutation"), ("full", "full", "full 1-NN")],
        *[("full k", "today", "full k-NN"), ("full chi-square", "today", "full 1-NN, chi-square")],
        *[("tangent space + SVM", "today", "tangent space + SVM"), ("never heard of", "today", "never heard of")],
    ],
)
def test_methods_have_a_role(method, family, name):
    assert (family_of(method), common_name(method)) == (family, name)
    assert family in FAMILIES


def test_the_papers_tables_are_as_printed():
    assert sum(cell.matches_full for row in PAPER.values() for cell in row.values()) == 16
    assert {len(row) for row in PAPER.values()} == {4}
    assert PAPER["eth80"][0.02].train_seconds == 69
    assert PAPER["rgbd"][0.16].train_seconds == 2 * 3600 + 11 * 60
    assert PAPER["mpeg7"][0.4].speed_up == 2.4
    for name, row in PAPER.items():
        seconds = [row[ratio].train_seconds for ratio in sorted(row)]
        speeds = [row[ratio].speed_up for ratio in sorted(row)]
        assert seconds == sorted(seconds), name
        assert speeds == sorted(speeds, reverse=True), name
