"""Means, deviations and the corrected resampled t-test."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from knnpress import report
from knnpress.report.looks import metric_title, metric_words
from knnpress.report.statistics import COVERED_TEXT, LEVEL, LEVEL_TEXT, compare, pool, summarize


def test_summary_is_numpys():
    values = [0.1, 0.4, 0.35, 0.2]
    summary = summarize(values)
    assert summary.mean == pytest.approx(np.mean(values))
    assert summary.std == pytest.approx(np.std(values, ddof=1))
    assert summary.n == 4


def test_one_split_gives_neither_a_deviation_nor_a_test():
    assert summarize([0.3]).std is None
    alone = compare([0.3], [0.1], 1.0)
    assert alone.difference == pytest.approx(0.2)
    assert (alone.low, alone.high, alone.p_worse, alone.p_better) == (None,) * 4
    assert alone.worse is None
    assert alone.better is None


def test_a_case_by_hand():
    """Differences 1, 2, 3: s² = 1; with n_test/n_train = 2/3 the variance of the mean is 1/3 + 2/3 = 1, so t = 2.

    With 2 degrees of freedom P(T > t) = 1/2 - t / (2 sqrt(2 + t²)), and the 97.5 % point is 4.302653.
    """
    found = compare([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], 2 / 3)
    assert found.difference == pytest.approx(2.0)
    assert found.p_worse == pytest.approx(0.5 - 2 / (2 * math.sqrt(6)))
    assert found.p_better == pytest.approx(1 - found.p_worse)
    assert found.low == pytest.approx(2 - 4.302653, abs=1e-6)
    assert found.high == pytest.approx(2 + 4.302653, abs=1e-6)
    assert (found.worse, found.better) == (None, None)  # three splits are too few to judge


def test_without_test_points_it_is_the_paired_t_test_of_scipy(rng):
    a, b = rng.random(7), rng.random(7)
    found = compare(a, b, 0.0)
    theirs = stats.ttest_rel(a, b, alternative="greater")
    assert found.p_worse == pytest.approx(theirs.pvalue)
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_the_correction_widens_the_interval_as_the_paper_says(rng):
    a, b, k, share = rng.random(5), rng.random(5), 5, 1.0
    narrow, wide = compare(a, b, 0.0), compare(a, b, share)
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(math.sqrt(1 + k * share))


def test_significance_is_one_sided_at_five_per_cent():
    better = compare([0.10, 0.11, 0.12, 0.10], [0.20, 0.22, 0.21, 0.21], 1.0)
    assert better.better is True
    assert better.worse is False
    worse = compare([0.20, 0.22, 0.21, 0.21], [0.10, 0.11, 0.12, 0.10], 1.0)
    assert worse.worse is True
    assert worse.better is False


@pytest.mark.parametrize(("shift", "p_worse"), [(0.0, 0.5), (0.25, 0.0), (-0.25, 1.0)])
def test_the_same_difference_on_every_split(shift, p_worse):
    base = [0.5, 0.25, 0.375]
    found = compare([x + shift for x in base], base, 1.0)
    assert (found.low, found.difference, found.high) == (shift,) * 3
    assert found.p_worse == p_worse


@pytest.mark.parametrize(("n", "judged"), [(1, False), (3, False), (4, True), (5, True)])
def test_few_splits_are_not_judged(n, judged):
    ours, full = [0.3 + 0.001 * k for k in range(n)], [0.1] * n
    found = compare(ours, full, 1.0)
    assert found.worse is (True if judged else None)
    assert found.better is (False if judged else None)


def test_an_interval_that_may_mean_anything_is_not_judged():
    """Splits that disagree by tens of points: neither worse nor as good."""
    vague = compare([0.1, 0.5, 0.2, 0.4], [0.3, 0.3, 0.3, 0.3], 1.0)
    assert vague.high - vague.low > 0.2
    assert (vague.worse, vague.better) == (None, None)
    clear = compare([0.5, 0.9, 0.7, 0.9], [0.1, 0.1, 0.1, 0.1], 1.0)  # as wide, but far from zero
    assert clear.high - clear.low > 0.2
    assert (clear.worse, clear.better) == (True, False)


def test_points_of_several_splits_count_once():
    """Row 5 was missed by the second method thrice and by the first once: one point for the first, not two."""
    first = [{5}, set(), set(), {8}]
    second = [{5, 9}, {5}, {5}, {9, 11}]
    found = pool(first, second)
    assert (found.better, found.worse) == (3, 1)  # 5, 9 and 11; 8
    assert found.p == pytest.approx(2 * (1 + 4) / 16)


def test_pooled_counts_are_mcnemars_on_one_split(rng):
    """On one split the sign test is the exact test of McNemar."""
    a, b = ({int(row) for row in rng.permutation(300)[:n]} for n in (12, 60))
    found = pool([a], [b])
    n, k = len(a ^ b), len(a - b)
    assert (found.better, found.worse) == (len(b - a), k)
    assert found.p == pytest.approx(2 * stats.binom.cdf(k, n, 0.5))
    assert not found.luck
    assert pool([a], [a]).luck


def test_splits_must_match():
    with pytest.raises(ValueError, match="longer"):
        compare([0.1, 0.2], [0.1, 0.2, 0.3], 1.0)


def test_sentences_take_the_level_from_where_it_is_defined():
    assert (LEVEL_TEXT, COVERED_TEXT) == (f"{100 * LEVEL:g} %", f"{100 - 100 * LEVEL:g} %") == ("5 %", "95 %")
    sources = {path.name: path.read_text(encoding="utf-8") for path in Path(report.__file__).parent.rglob("*.py")}
    assert [name for name, source in sources.items() if re.search(r"\b9?5 %", source)] == []


def test_metrics_are_called_by_their_names_and_unknown_ones_by_their_own():
    assert (metric_title("jbld"), metric_words("jbld")) == ("JBLD", "the log-det divergence")
    assert (metric_title("my metric"), metric_words("")) == ("my metric", "")
