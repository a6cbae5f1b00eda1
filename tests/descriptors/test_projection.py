"""Supervised projection: its derivative, its subspace, and what it is for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from points import spd
from reference import taylor_slope

from knnpress.descriptors import SPDProjection
from knnpress.descriptors.projection import _METRICS, affinity_graph, graph_loss, linear_start, project, projected_loss
from knnpress.geometries import AIRM, JBLD

METRICS = {"jbld": lambda X: JBLD().pairwise(X), "airm": lambda X: AIRM().pairwise(X) ** 2}
every_metric = pytest.mark.parametrize("metric", METRICS)


def hidden_classes(rng, n=90, d=10, noise=1.0):
    """Two classes that differ in two of d directions, under large class-free changes in all others."""
    y = np.arange(n) % 2
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    logs = noise * rng.normal(size=(n, d))
    logs[:, :2] = 0.3 * rng.normal(size=(n, 2)) + np.where(y[:, None], [1.0, 0.0], [0.0, 1.0])
    return basis @ (np.exp(logs)[:, :, None] * basis.T), y


def error(train, y_train, test, y_test):
    return np.mean(y_train[JBLD().pairwise(test, train).argmin(axis=1)] != y_test)


@every_metric
def test_the_gradient_is_that_of_the_loss(rng, metric):
    X, y = spd(rng, 12, 5), np.arange(12) % 3
    evaluate = projected_loss(X, graph_loss(affinity_graph(X, y, 2, 3), _METRICS[metric], 1))
    U = np.linalg.qr(rng.normal(size=(5, 2)))[0]
    slope = taylor_slope(lambda U: evaluate(U)[0], evaluate(U)[1], U, rng.normal(size=U.shape))
    assert slope > 1.9


@every_metric
def test_the_loss_is_the_weighted_sum_of_distances(rng, metric):
    X, y = spd(rng, 12, 5), np.arange(12) % 3
    affinity = affinity_graph(X, y, 2, 3)
    U = np.linalg.qr(rng.normal(size=(5, 2)))[0]
    value = projected_loss(X, graph_loss(affinity, _METRICS[metric], 1))(U)[0]
    assert_allclose(value, np.sum(affinity.toarray() * METRICS[metric](project(X, U))), rtol=1e-9)


@every_metric
def test_only_the_subspace_matters(rng, metric):
    X, y = spd(rng, 12, 5), np.arange(12) % 3
    evaluate = projected_loss(X, graph_loss(affinity_graph(X, y, 2, 3), _METRICS[metric], 1))
    U = rng.normal(size=(5, 2))
    assert_allclose(evaluate(U @ rng.normal(size=(2, 2)))[0], evaluate(U)[0], rtol=1e-9)


def test_the_graph_joins_the_nearest(rng):
    X, y = spd(rng, 20, 3), np.arange(20) % 2
    A = affinity_graph(X, y, 2, 3).toarray()
    D = METRICS["jbld"](X)
    same = y[:, None] == y
    assert np.array_equal(A, A.T)
    assert (A[same] >= 0).all()
    assert (A[~same] <= 0).all()
    assert not np.diagonal(A).any()
    assert ((A > 0).sum(axis=1) >= 2).all()
    assert ((A < 0).sum(axis=1) >= 3).all()
    joined, apart = same & (A > 0), same & (A == 0) & ~np.eye(20, dtype=bool)
    assert D[joined].mean() < D[apart].mean()


def test_a_class_smaller_than_the_neighbourhood_joins_all_it_has(rng):
    A = affinity_graph(spd(rng, 6, 3), np.array([0, 0, 0, 0, 0, 1]), 10, 10).toarray()
    assert np.array_equal(A[:5, :5], 1 - np.eye(5))
    assert np.array_equal(A[5], [-1, -1, -1, -1, -1, 0])


@every_metric
def test_it_finds_the_directions_in_which_classes_differ(rng, metric):
    X, y = hidden_classes(rng)
    fitted = SPDProjection(2, n_jobs=1, metric=metric).fit(X[:60], y[:60])
    U = fitted.components_
    assert_allclose(U.T @ U, np.eye(2), atol=1e-12)
    assert_allclose(fitted.transform(X), U.T @ X @ U, atol=1e-9)
    learned = error(fitted.transform(X[:60]), y[:60], fitted.transform(X[60:]), y[60:])
    others = [np.linalg.qr(rng.normal(size=(10, 2)))[0], np.linalg.eigh(X[:60].mean(axis=0))[1][:, -2:]]
    for other in others:  # random, and principal components
        assert learned < error(project(X[:60], other), y[:60], project(X[60:], other), y[60:])
    assert learned < error(X[:60], y[:60], X[60:], y[60:])


@every_metric
def test_the_search_only_improves_on_its_start(rng, metric):
    X, y = spd(rng, 40, 6), np.arange(40) % 2
    values, vectors = np.linalg.eigh(X.mean(axis=0))
    white = project(X, vectors / np.sqrt(values))
    affinity = affinity_graph(white, y, 5, 5)
    start = projected_loss(white, graph_loss(affinity, _METRICS[metric], 1))(linear_start(white, affinity, 2))[0] / len(
        X
    )
    few, many = (SPDProjection(2, metric=metric, max_iter=k, n_jobs=1).fit(X, y) for k in (2, 30))
    assert many.loss_ <= few.loss_ < start
    assert few.n_iter_ <= 3


def test_units_do_not_matter(rng):
    X, y = hidden_classes(rng, 60, 5)
    A = np.diag([1.0, 10.0, 0.1, 3.0, 1.0])
    plain, scaled = (SPDProjection(2, n_jobs=1).fit(data, y).transform(data) for data in (X, A @ X @ A))
    assert_allclose(JBLD().pairwise(plain), JBLD().pairwise(scaled), atol=1e-3)


def test_labels_may_be_of_any_kind_and_results_are_the_same_for_any_number_of_threads(rng):
    X, y = hidden_classes(rng, 80, 5)
    one = SPDProjection(2, max_iter=5, n_jobs=1).fit(X, y).components_
    assert np.array_equal(SPDProjection(2, max_iter=5, n_jobs=3).fit(X, np.array(["b", "a"])[y]).components_, one)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_dims": 5}, "n_dims is 5; give a number from 1 to 4"),
        ({"n_dims": 0}, "n_dims is 0"),
        ({"n_dims": 2, "n_within": 0}, "n_within is 0"),
        ({"n_dims": 2, "n_between": 0}, "n_between is 0"),
        ({"n_dims": 2, "metric": "euclid"}, "metric is 'euclid'; choose 'jbld' or 'airm'"),
    ],
)
def test_bad_parameters_are_refused(rng, parameters, message):
    with pytest.raises(ValueError, match=message):
        SPDProjection(**parameters).fit(spd(rng, 6), [0, 1, 0, 1, 0, 1])


def test_bad_input_is_refused(rng):
    X = spd(rng, 6)
    with pytest.raises(ValueError, match=r"y holds one class \(3\)"):
        SPDProjection(2).fit(X, [3] * 6)
    with pytest.raises(ValueError, match=r"y has shape \(5,\); give one label for each of the 6 matrices"):
        SPDProjection(2).fit(X, [0, 1, 0, 1, 0])
    with pytest.raises(ValueError, match="X holds matrices of size 3; the projection was fitted on 4"):
        SPDProjection(2, n_jobs=1).fit(X, [0, 1, 0, 1, 0, 1]).transform(spd(rng, 2, 3))
