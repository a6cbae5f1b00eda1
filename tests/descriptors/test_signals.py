"""Covariances of signals, against pyRiemann's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from pyriemann.estimation import Covariances

from knnpress.descriptors import SignalCovariance
from knnpress.exceptions import InvalidPointError


@pytest.mark.parametrize(("ours", "theirs"), [("empirical", "scm"), ("ledoit_wolf", "lwf"), ("oas", "oas")])
def test_estimates_are_pyriemanns(rng, ours, theirs):
    X = rng.normal(size=(5, 4, 60)) * np.array([1, 2, 0.1, 5])[:, None]
    assert_allclose(SignalCovariance(ours).fit_transform(X), Covariances(theirs).fit_transform(X), rtol=1e-10)


def test_shrinking_estimates_survive_short_and_dependent_signals(rng):
    X = rng.normal(size=(3, 8, 5))
    X[1, 3] = X[1, 2]
    X[2, 0] = 7.0
    for estimator in ("ledoit_wolf", "oas"):
        assert (np.linalg.eigvalsh(SignalCovariance(estimator).fit_transform(X)) > 0).all()
    with pytest.raises(
        InvalidPointError, match=r"X\[0\] is singular, as are 3 of 3.*SignalCovariance\('ledoit_wolf'\)"
    ):
        SignalCovariance("empirical").fit_transform(X)


def test_results_are_the_same_for_any_number_of_threads(rng):
    X = rng.normal(size=(100, 3, 20))
    alone = SignalCovariance(n_jobs=1).fit_transform(X)
    assert np.array_equal(SignalCovariance(n_jobs=4).fit_transform(X), alone)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((3, 20)), r"X has shape \(3, 20\); expected \(n_signals, channels, times\)"),
        (np.zeros((2, 3, 1)), r"X has 1 time\(s\)"),
        (np.full((2, 3, 4), np.nan), r"X\[0\] contains NaN"),
        (np.ones((2, 3, 4)), r"X\[0\] is singular"),
    ],
)
def test_bad_signals_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        SignalCovariance().fit_transform(X)


def test_an_unknown_estimator_lists_the_known():
    with pytest.raises(ValueError, match="estimator is 'mcd'; choose one of 'empirical', 'ledoit_wolf', 'oas'"):
        SignalCovariance("mcd").fit(None)
