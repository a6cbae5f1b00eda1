"""What the page and the demo say first: sentences, computed from the records."""

import pytest
import synthetic

from knnpress.report.analysis import cases_of
from knnpress.report.message import message_of
from knnpress.report.read import read_results


def message(tmp_path, ours, full, ratios=(0.02,), kind="covariance", **more):
    """The message of runs with these errors, split by split; `more` goes into the runs of ours."""
    plan = {"title": "T", "fingerprint": synthetic.PLAN, "data": {"d": synthetic.about("D", kind, ratios, ["a", "b"])}}
    lines = [synthetic.record("d", "full", split, error, n_train=500) for split, error in enumerate(full)]
    for ratio, errors in zip(ratios, ours, strict=True):
        for split, error in enumerate(errors):
            one = synthetic.record("d", "SCC", split, error, ratio, n_train=500)
            lines.append(one | {key: value[split] for key, value in more.items()})
    (case,) = cases_of(read_results(synthetic.write(tmp_path / "results", plan, lines)))["d"]
    return message_of(case)


def test_points_errors_and_speed_are_those_of_the_records(tmp_path):
    speeds = {"query_seconds": [2e-6] * 5, "full_search_seconds": [1e-5] * 5}
    said = message(tmp_path, [[0.04, 0.05, 0.05, 0.05, 0.05]], [0.07, 0.07, 0.07, 0.07, 0.08], **speeds)
    assert said.headline == "10 learned covariances instead of 500: 4.8 % errors instead of 7.2 %, 5 times faster."
    assert said.ratio == 0.02
    assert said.judgement == (
        "Over five splits into training and test points, that is fewer errors than luck would explain."
    )
    assert "which skips points that cannot be the nearest" in said.speed


@pytest.mark.parametrize(
    ("query", "full", "said"),
    [
        (1e-6, 12.4e-6, ", 12 times faster."),
        (1e-6, 2.54e-6, ", 2.5 times faster."),
        (1e-6, 1.1e-6, ", as fast."),
        (2e-6, 1e-6, ", 2 times slower."),
        (None, 1e-6, "instead of 5.0 %."),
    ],
)
def test_speed_in_words(tmp_path, query, full, said):
    speeds = {"query_seconds": [query] * 4, "full_search_seconds": [full] * 4}
    assert message(tmp_path, [[0.05] * 4], [0.05] * 4, **speeds).headline.endswith(said)


def test_speed_is_of_mean_times_and_says_which_metric_was_chosen(tmp_path):
    """A quick metric on two of four splits makes the mean query half as slow, not hundreds of times faster."""
    chosen = [{"metric": name} for name in ("jbld", "tangent", "jbld", "tangent")]
    times = {"query_seconds": [1e-4, 1e-9, 1e-4, 1e-9], "full_search_seconds": [2e-4] * 4}
    said = message(tmp_path, [[0.05] * 4], [0.05] * 4, chosen=chosen, **times)
    assert said.headline.endswith(", 4 times faster.")
    assert "In 2 of 4 splits, the learned model chose the tangent space instead." in said.speed


def test_the_smallest_size_that_is_as_good_is_spoken_of(tmp_path):
    full = [0.05, 0.05, 0.05, 0.05]
    sizes = [[0.09, 0.09, 0.09, 0.09], [0.05, 0.05, 0.05, 0.05], [0.03, 0.03, 0.03, 0.03]]
    assert message(tmp_path, sizes, full, (0.02, 0.04, 0.08)).ratio == 0.04


def test_where_no_size_is_as_good_the_best_is_spoken_of_and_said_to_be_worse(tmp_path):
    said = message(tmp_path, [[0.4] * 4, [0.2, 0.21, 0.2, 0.2]], [0.1] * 4, (0.02, 0.04))
    assert said.headline.startswith("20 learned covariances instead of 500: 20.2 % errors instead of 10.0 %")
    assert "more errors than luck would explain" in said.judgement


def test_too_few_splits_are_said_to_be_too_few(tmp_path):
    said = message(tmp_path, [[0.01, 0.01]], [0.2, 0.2])
    assert said.judgement.startswith("Measured on two splits into training and test points: too few")
    assert "luck" in said.judgement


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ([[1], [7], [13], [19]], "on 20 test points and the full training set on 0: more than luck would explain."),
        ([[30, 31], [32], [], []], "on 24 test points and the full training set on 3: more than luck would explain."),
        ([[*range(30, 50)], [], [], []], "on 24 test points and the full training set on 20: that could be luck."),
    ],
)
def test_test_points_are_compared_where_the_records_name_them(tmp_path, ours, expected):
    full = [[*range(first, first + 6)] for first in (1, 7, 13, 19)]
    plan = {"title": "T", "fingerprint": synthetic.PLAN, "data": {}}
    lines = []
    for split in range(4):
        lines.append(synthetic.record("d", "full", split, 0.05, wrong_rows=full[split]))
        lines.append(synthetic.record("d", "SCC", split, 0.05, 0.02, wrong_rows=ours[split]))
    (case,) = cases_of(read_results(synthetic.write(tmp_path / "results", plan, lines)))["d"]
    assert message_of(case).judgement.endswith(expected)


def test_without_ours_or_the_full_set_there_is_no_message(tmp_path):
    plan = {"title": "T", "fingerprint": synthetic.PLAN, "data": {}}
    for method, ratio in (("full", None), ("SCC", 0.02)):
        lines = [synthetic.record("d", method, split, 0.05, ratio) for split in range(4)]
        (case,) = cases_of(read_results(synthetic.write(tmp_path / method, plan, lines)))["d"]
        assert message_of(case) is None
