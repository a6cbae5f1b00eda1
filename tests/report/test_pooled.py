"""All data sets together: fronts, wins, mean ranks and signed ranks."""

import numpy as np
import pytest
import synthetic
from scipy import stats

from knnpress.report.findings import findings_of
from knnpress.report.fronts import front, points_of, sentences, wins_said
from knnpress.report.headline import fronts, ranks_figure
from knnpress.report.pooled import rank_methods, signed_rank
from knnpress.report.read import read_results
from knnpress.report.tables import others_win, ranks_table


def found(tmp_path, lines):
    plan = {"title": "T", "fingerprint": synthetic.PLAN, "data": {}}
    return findings_of(read_results(synthetic.write(tmp_path / "results", plan, lines)))


def runs(data, errors, ratio=None, splits=4, **more):
    """Runs of some methods, each with its own error, a little other on each split."""
    return [
        synthetic.record(data, method, split, error + 0.001 * split, ratio, **more)
        for method, error in errors.items()
        for split in range(splits)
    ]


def test_no_point_is_ahead_of_the_front(rng):
    places = [tuple(map(float, place)) for place in rng.random((60, 2))]
    found = front(places)
    for cost, error in places:
        ahead = any(c <= cost and e <= error for c, e in found)
        assert ahead
    for place in found:
        assert not any(c <= place[0] and e <= place[1] for c, e in places if (c, e) != place)
    assert found == sorted(found)


def test_points_are_in_per_cent_and_those_of_other_queries_are_left_out(tmp_path):
    lines = runs("d", {"full": 0.1}) + runs("d", {"SCC": 0.05}, 0.02, n_prototypes=15)
    lines += runs("d", {"tangent space + LR": 0.04}, n_prototypes=None)
    lines += runs("d", {"full EMD": 0.01}, n_test=300) + runs("d", {"full AIRM": 0.01}, splits=1)
    (case,) = found(tmp_path, lines).plain
    points = {point.method: point for point in points_of(case)}
    assert set(points) == {"full", "SCC", "tangent space + LR"}
    assert points["SCC"].share == pytest.approx(1.5)
    assert points["SCC"].error == pytest.approx(5.15)
    assert points["full"].share == pytest.approx(100)
    assert points["tangent space + LR"].share is None


def test_where_others_win_the_worst_comes_first(tmp_path):
    lines = runs("a", {"full": 0.10}) + runs("a", {"SCC": 0.12, "Reduced": 0.3}, 0.02)
    lines += runs("b", {"full": 0.30}) + runs("b", {"SHC": 0.28, "Reduced": 0.20}, 0.1)
    wins = found(tmp_path, lines).wins
    assert [(win.method, win.its_ratio) for win in wins] == [("full", None), ("Reduced", 0.1)]
    rows = others_win(wins).groups[0][1]
    assert [[row[0].values[0], row[2].text, row[3].text] for row in rows] == [
        ["b", "Reduced", "−8.00"],
        ["a", "full 1-NN", "−2.00"],
    ]
    assert rows[1][5].text.endswith("(100.0 %)")
    assert wins_said(wins, found(tmp_path, lines).verdict.cells) == (
        "Another method errs significantly less than ours in 2 of 2 cells: full 1-NN in 1; Reduced in 1."
    )
    said = sentences(found(tmp_path, lines).plain)
    assert said[0].startswith("In 1 of 2 cells")  # the full set keeps more points, Reduced no more
    assert "in 1 of 2, nothing that answers at least as fast does." in said[0]


def test_a_winner_without_points_counts_as_small(tmp_path):
    lines = runs("a", {"full": 0.2}) + runs("a", {"SCC": 0.12}, 0.02)
    lines += runs("a", {"SPDNet": 0.05}, n_prototypes=None)
    lines += runs("b", {"full": 0.2}) + runs("b", {"SCC": 0.12}, 0.02)
    assert sentences(found(tmp_path, lines).plain)[0].startswith("In 1 of 2 cells")


def many(n=6, seed=1):
    """Data sets with methods that were tried on all, and one that was not; names of ours differ."""
    rng = np.random.default_rng(seed)
    scores, lines = [], []
    for k in range(n):
        errors = rng.uniform(0.05, 0.4, 4).round(3)
        scores.append(errors)
        lines += runs(f"data {k}", {"full": errors[1]})
        for ratio in (0.02, 0.04):
            lines += runs(f"data {k}", {"SHC" if k % 2 else "SCC": errors[0]}, ratio)
            lines += runs(f"data {k}", {"Reduced": errors[2], "Subsample": errors[3]}, ratio)
    lines += runs("data 0", {"MDM": 0.5})
    return lines, np.array(scores)


def test_mean_ranks_are_scipys_and_the_critical_difference_is_demsars(tmp_path):
    lines, scores = many()
    ranks = found(tmp_path, lines).ranks
    mean = stats.rankdata(scores, axis=1).mean(axis=0)
    names = ["ours", "full 1-NN", "Reduced", "Subsample"]
    assert ranks.ranks == pytest.approx(dict(zip(names, mean, strict=True)))
    assert list(ranks.ranks.values()) == sorted(mean)
    assert ranks.p == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)
    assert ranks.critical == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 6)), rel=1e-3)  # q of his table for 4 methods
    assert ranks.absent == ["MDM"]


def test_data_sets_without_most_methods_are_left_out(tmp_path):
    lines, _ = many(4)
    ranks = found(tmp_path, lines + runs("lonely", {"SCC": 0.1}, 0.02) + runs("lonely", {"full": 0.1})).ranks
    assert len(ranks.data) == 4
    assert set(ranks.absent) == {"lonely", "MDM"}


def test_while_an_experiment_runs_data_sets_without_ours_are_left_out(tmp_path):
    others = {"full": 0.1, "MDM": 0.2, "tangent space + LR": 0.05, "tangent space + SVM": 0.06}
    lines = [line for k in range(6) for line in runs(f"d{k}", others)]
    lines += [line for k in range(6) for line in runs(f"d{k}", {"SCC": 0.04}, 0.02, splits=4 if k < 3 else 1)]
    ranks = rank_methods(found(tmp_path, lines).plain)
    assert len(ranks.data) == 3
    assert "ours" in ranks.ranks


def test_few_data_sets_are_not_ranked(tmp_path):
    lines, _ = many(2)
    findings = found(tmp_path, lines)
    assert rank_methods(findings.plain) is None
    assert not findings.begins_with_all


def test_signed_ranks_know_what_is_clear_and_what_is_not():
    clear = signed_rank([0.1] * 8, [0.2 + 0.01 * k for k in range(8)])
    assert clear.less > 0.99
    other = signed_rank([0.2 + 0.01 * k for k in range(8)], [0.1] * 8)
    assert (other.less, other.more) == pytest.approx((clear.more, clear.less))
    same = signed_rank([0.1, 0.2, 0.3, 0.4], [0.103, 0.203, 0.302, 0.404])  # always better, and never by much
    assert same.same > 0.99
    torn = signed_rank([0.1, 0.3, 0.1, 0.3], [0.3, 0.1, 0.3, 0.1])
    assert 0.3 < torn.less < 0.7
    assert torn.less + torn.same + torn.more == pytest.approx(1)


def test_the_tables_of_ranks_are_in_order(tmp_path):
    lines, _ = many()
    rows = ranks_table(found(tmp_path, lines).ranks).groups[0][1]
    ranks = [row[1].values[0] for row in rows]
    assert ranks == sorted(ranks)
    assert [row[3].text for row in rows if row[0].text == "ours"] == ["–"]


@pytest.mark.parametrize("width", [346, 860])
def test_figures_have_a_panel_for_each_data_set_and_tell_values(tmp_path, width):
    findings = found(tmp_path, many()[0])
    drawn = fronts(findings.plain, width)
    for k in range(6):
        assert drawn.count(f">data {k}</text>") == 2  # against size, against time
    assert drawn.count("<title>full 1-NN: ") == 2 * 6
    ranks = ranks_figure(findings.ranks, width)
    assert "Mean ranks over 6 data sets: " in ranks
    assert ranks.count("critical difference") == 1
