"""All data sets together: mean ranks with Friedman's test and Nemenyi's critical difference, and signed ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from knnpress.report.analysis import Case
from knnpress.report.looks import common_name
from knnpress.report.statistics import LEVEL
from knnpress.typing import Array

#: Differences of error that count as none
ROPE = 0.005
_SAMPLES = 20_000  # of the weights of data sets
_MIN_RANKED = 3  # methods, and data sets


@dataclass(frozen=True)
class SignedRank:
    """Bayesian signed ranks of one method against another over data sets.

    Attributes
    ----------
    less, same, more : float
        Probability that, on a data set of this kind, the first most likely errs less by more than `ROPE`, no more than
        that apart, or more by more than it.
    """

    less: float
    same: float
    more: float


@dataclass(frozen=True)
class Ranks:
    """Methods by their mean rank over data sets; rank 1 is the fewest errors.

    Attributes
    ----------
    ranks : dict of str to float
        The best first.
    scores : dict of str to list of float
        Errors, data set by data set; for a method with sizes, the mean over the plan's sizes.
    data : list of str
        Titles of the data sets.
    p : float
        Of Friedman's test that all methods are as good.
    critical : float
        Nemenyi's critical difference at `LEVEL`: mean ranks that are nearer cannot be told apart.
    absent : list of str
        Data sets and methods that were left out, since not all that are compared were tried there.
    """

    ranks: dict[str, float]
    scores: dict[str, list[float]]
    data: list[str]
    p: float
    critical: float
    absent: list[str]


def rank_methods(plain: list[Case]) -> Ranks | None:
    """Rank all methods that were tried on the same data sets; None where there are fewer than three of either."""
    scores = {case.data.title: _scores(case) for case in plain if case.ours}
    scores = {title: some for title, some in scores.items() if "ours" in some}  # while an experiment runs, it may lack
    if not scores:
        return None
    titles = sorted(scores, key=lambda title: -len(scores[title]))
    best: tuple[int, list[str], list[str]] = (0, [], [])
    for n in range(_MIN_RANKED, len(titles) + 1):  # as many data sets times methods as there can be
        methods = [name for name in scores[titles[0]] if all(name in scores[title] for title in titles[:n])]
        if len(methods) >= _MIN_RANKED and n * len(methods) >= best[0]:
            best = n * len(methods), titles[:n], methods
    _, used, methods = best
    if not used:
        return None
    used = [title for title in scores if title in used]
    table = np.array([[scores[title][name] for name in methods] for title in used])
    mean = np.mean([stats.rankdata(row) for row in table], axis=0)
    n, k = table.shape
    same = bool((table == table[:, :1]).all())
    p = 1.0 if same else float(stats.friedmanchisquare(*table.T).pvalue)
    critical = (
        float(stats.studentized_range.ppf(1 - LEVEL, k, math.inf)) / math.sqrt(2) * math.sqrt(k * (k + 1) / 6 / n)
    )
    order = np.argsort(mean, kind="stable")
    everything = dict.fromkeys(name for some in scores.values() for name in some)
    absent = [title for title in scores if title not in used] + [name for name in everything if name not in methods]
    return Ranks(
        {methods[j]: float(mean[j]) for j in order},
        {methods[j]: table[:, j].tolist() for j in order},
        used,
        p,
        critical,
        absent,
    )


def _scores(case: Case) -> dict[str, float]:
    """The error of each method: over the sizes of ours where it has sizes, else at its own."""
    ours = [ratio for ratio in case.ratios if case.records(str(case.ours), ratio)]
    found: dict[str, float] = {}
    for method in case.methods:
        sizes: list[float | None] = [*ours] if case.sized(method) else [None]
        errors = [case.summary(method, one) for one in sizes if case.comparable(method, one)]
        means = [error.mean for error in errors if error is not None]
        if means and len(means) == len(sizes):
            found[common_name(method)] = math.fsum(means) / len(means)
    return found


def signed_rank(first: list[float], second: list[float]) -> SignedRank:
    """Compare two methods over data sets by signed ranks, with a region of practical equivalence.

    Benavoli, Corani, Demšar and Zaffalon, *Time for a change*, JMLR 18 (2017): weights w of the differences z are
    drawn from a Dirichlet distribution whose prior is half an observation of no difference, and the sums of w_i w_j
    over pairs with (z_i + z_j) / 2 below, within and above the region are compared.

    Parameters
    ----------
    first, second : list of float
        Errors, data set by data set.
    """
    z = np.concatenate([[0.0], np.subtract(first, second)])
    weights = np.random.default_rng(0).dirichlet(np.concatenate([[0.5], np.ones(len(first))]), _SAMPLES)
    middle = (z[:, None] + z) / 2
    regions = [middle < -ROPE, abs(middle) <= ROPE, middle > ROPE]
    masses: Array = np.stack([np.einsum("si,ij,sj->s", weights, region.astype(float), weights) for region in regions])
    shares = np.bincount(masses.argmax(axis=0), minlength=3) / _SAMPLES
    return SignedRank(*map(float, shares))
