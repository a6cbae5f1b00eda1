"""Means over splits, and a test for results of splits that overlap."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest
from scipy.stats import t as student

#: With fewer splits their spread says next to nothing: with two, the interval is nine times as wide as with five
MIN_SPLITS = 4
#: Where a difference is not significant, how far its interval may reach to either side for that to say anything
WIDEST = 0.1
#: What is significant: the chance of a difference that large, if there were none, is below this
LEVEL = 0.05
#: The same in per cent, and what the two-sided intervals cover
LEVEL_TEXT, COVERED_TEXT = f"{100 * LEVEL:g} %", f"{100 * (1 - LEVEL):g} %"


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of a figure over splits; of a single split there is no deviation."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Comparison:
    """One method minus another on the same splits, by the corrected resampled t-test.

    Attributes
    ----------
    difference : float
        Mean over the splits.
    low, high : float or None
        The two-sided interval that covers 1 - `LEVEL`; None where there are too few splits for one.
    p_worse : float or None
        One-sided: how likely a difference at least so large would be if the first were not worse.
    p_better : float or None
        The same for the other side.
    n : int
        Splits.
    """

    difference: float
    low: float | None
    high: float | None
    p_worse: float | None
    p_better: float | None
    n: int

    @property
    def judged(self) -> bool:
        """Whether there are splits enough to tell a difference from luck, and they agree well enough."""
        if self.low is None or self.high is None or self.p_worse is None or self.p_better is None:
            return False
        clear = min(self.p_worse, self.p_better) < LEVEL
        return self.n >= MIN_SPLITS and (clear or self.high - self.low <= 2 * WIDEST)

    @property
    def worse(self) -> bool | None:
        """Whether the first is significantly worse, at `LEVEL`; None where that cannot be told."""
        return None if self.p_worse is None or not self.judged else self.p_worse < LEVEL

    @property
    def better(self) -> bool | None:
        """Whether the first is significantly better, at `LEVEL`; None where that cannot be told."""
        return None if self.p_better is None or not self.judged else self.p_better < LEVEL


@dataclass(frozen=True)
class Pooled:
    """Two methods on the same test points, all splits together.

    Attributes
    ----------
    better, worse : int
        Test points that the first method answered rightly more often, or less often, than the second.
    p : float
        Of the sign test: how likely so uneven a count would be if either method were as good as the other.
    """

    better: int
    worse: int
    p: float

    @property
    def luck(self) -> bool:
        """Whether chance alone could well make such a difference."""
        return self.p >= LEVEL


def pool(first: Sequence[Collection[int]], second: Sequence[Collection[int]]) -> Pooled:
    """Compare two methods test point by test point.

    A point that several splits test counts once, for the method that was right on it more often: answers to one point
    are not independent, points are.

    Parameters
    ----------
    first, second : sequence of collections of int
        The test points that each method got wrong, split by split.

    Examples
    --------
    >>> pool([{1}, {2}], [{1, 3}, {3, 4}])
    Pooled(better=2, worse=1, p=1.0)
    """
    net: dict[int, int] = {}
    for ours, theirs in zip(first, second, strict=True):
        for row in {*ours, *theirs}:
            net[row] = net.get(row, 0) + (row in theirs) - (row in ours)
    better, worse = sum(value > 0 for value in net.values()), sum(value < 0 for value in net.values())
    p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return Pooled(better, worse, p)


def summarize(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation.

    Parameters
    ----------
    values : sequence of float
        At least one.

    Examples
    --------
    >>> summarize([1.0, 3.0])
    Summary(mean=2.0, std=1.4142135623730951, n=2)
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Summary(mean, None, 1)
    return Summary(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)), n)


def compare(first: Sequence[float], second: Sequence[float], test_share: float) -> Comparison:
    """Test whether one method errs more than another on the same splits.

    Splits of one data set share most of their training points, so that the ordinary t-test is far too sure. Nadeau and
    Bengio, *Inference for the generalization error*, Machine Learning 52 (2003), take (1/k + n_test/n_train) s² for the
    variance of the mean of k differences, and Student's t with k - 1 degrees of freedom.

    Parameters
    ----------
    first, second : sequence of float
        Errors, split by split.
    test_share : float
        n_test / n_train.
    """
    spread = summarize([a - b for a, b in zip(first, second, strict=True)])
    difference, k = spread.mean, spread.n
    if spread.std is None:
        return Comparison(difference, None, None, None, None, k)
    error = math.sqrt(1 / k + test_share) * spread.std
    half_width = float(student.ppf(1 - LEVEL / 2, k - 1)) * error
    if error > 0:
        worse, better = (float(student.sf(sign * difference / error, k - 1)) for sign in (1, -1))
    else:  # the same difference on every split
        worse, better = (0.5 if difference == 0 else float(sign * difference < 0) for sign in (1, -1))
    return Comparison(difference, difference - half_width, difference + half_width, worse, better, k)
