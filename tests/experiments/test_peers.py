"""What people use today, as experiments run it."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import knnpress as kp
from knnpress.experiments.methods import METHODS, Setting
from knnpress.experiments.peers import NeighborsCV
from knnpress.geometries import JBLD, Sinkhorn

DIGITS = kp.datasets.load_digits_covariances()
X, Y = DIGITS.X[:150], DIGITS.y[:150]


def left_out_errors(D, y, k):
    """Errors of each point's vote among the k others nearest to it; of a tie, the nearest decides."""
    D = D.copy()
    np.fill_diagonal(D, np.inf)
    wrong = 0
    for row, label in zip(np.argsort(D, axis=1, kind="stable")[:, :k], y, strict=True):
        counts = np.bincount(y[row])
        wrong += next(other for other in y[row] if counts[other] == counts.max()) != label
    return wrong


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_k_is_what_leaves_the_fewest_points_wrong(noise):
    rng = np.random.default_rng(1)
    y = np.where(rng.random(len(Y)) < noise, rng.integers(0, 10, len(Y)), Y)
    model = NeighborsCV(JBLD(), most=9).fit(X, y)
    D = JBLD().pairwise(X)
    errors = {k: left_out_errors(D, y, k) for k in (1, 3, 5, 7, 9)}
    assert errors[model.n_neighbors] == min(errors.values())
    assert (model.n_neighbors > 1) == (noise > 0)


def test_copies_of_a_point_do_not_answer_for_it_twice():
    doubled = NeighborsCV(JBLD(), most=3).fit(np.repeat(X, 2, axis=0), np.repeat(Y, 2))
    assert doubled.n_neighbors == 1  # its copy is always right
    assert_array_equal(doubled.predict(X), Y)


def test_queries_can_be_timed_on_one_thread():
    model = NeighborsCV(JBLD(), most=3).fit(X, Y)
    assert_array_equal(model.set_params(n_jobs=1).predict(X), Y)


@pytest.mark.parametrize("name", ["tangent space + LR", "tangent space + SVM", "full k", "SCC jbld", "MDM"])
def test_rivals_on_covariances_beat_chance_by_far(name):
    model = METHODS[name].build(Setting(JBLD(), None, None, 10, 0, {})).fit(X, Y)
    assert np.mean(model.predict(DIGITS.X[150:300]) == DIGITS.y[150:300]) > 0.6


@pytest.mark.parametrize("name", ["roots + LR", "full k", "SHC sinkhorn", "LearningVectorQuantization"])
def test_rivals_on_histograms_beat_chance_by_far(name):
    data = kp.datasets.load_digits_histograms()
    reg = 0.1 * float(np.median(data.ground_cost[data.ground_cost > 0]))
    setting = Setting(Sinkhorn(data.ground_cost, reg), data.ground_cost, reg, 10, 0, {})
    model = METHODS[name].build(setting).fit(data.X[:150], data.y[:150])
    assert np.mean(model.predict(data.X[150:300]) == data.y[150:300]) > 0.6
