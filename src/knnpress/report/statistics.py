"""Means over splits, and a test for results of splits that overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import t as student

__all__ = ["Comparison", "Summary", "compare", "summarize"]

_LEVEL = 0.05


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
        Two-sided 95 % interval; None where there are too few splits for one.
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
    def worse(self) -> bool | None:
        """Whether the first is significantly worse, at 5 %; None where that cannot be told."""
        return None if self.p_worse is None else self.p_worse < _LEVEL

    @property
    def better(self) -> bool | None:
        """Whether the first is significantly better, at 5 %; None where that cannot be told."""
        return None if self.p_better is None else self.p_better < _LEVEL


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
    reach = float(student.ppf(1 - _LEVEL / 2, k - 1)) * error
    if error > 0:
        worse, better = (float(student.sf(sign * difference / error, k - 1)) for sign in (1, -1))
    else:  # the same difference on every split
        worse, better = (0.5 if difference == 0 else float(sign * difference < 0) for sign in (1, -1))
    return Comparison(difference, difference - reach, difference + reach, worse, better, k)
