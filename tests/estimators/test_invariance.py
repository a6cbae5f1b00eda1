"""What must not matter to a learned model: the order of points, names of classes, threads, coordinates."""

import copy
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from points import GROUND_COST, labelled
from sklearn.base import clone

from knnpress import SCC, SHC, SNC
from knnpress.compression import ClassCentroids, StochasticCompression
from knnpress.datasets import load_digits_covariances
from knnpress.geometries import SquaredEuclidean

pytestmark = pytest.mark.filterwarnings("ignore:the loss was still falling")

FIXED = {"gamma": 2.0, "prior": 1.0, "smoothing": 0.02, "vote": "nearest"}
OWN = {"n_prototypes": 6, "compressor": StochasticCompression(init=ClassCentroids())}
#: Averages bin by bin, which is quicker than barycenters
OF_BINS = OWN | {"compressor": StochasticCompression(init=ClassCentroids(SquaredEuclidean()))}
MODELS = {
    "scc": (SCC(metric="jbld", max_iter=4, **OWN, **FIXED), "jbld"),
    "scc-auto": (SCC(6, max_iter=2, smoothing=0.02), "jbld"),
    "shc": (SHC(GROUND_COST, metric="sinkhorn", max_iter=3, **OF_BINS, **FIXED), "sinkhorn-divergence"),
    "shc-auto": (SHC(GROUND_COST, n_prototypes=6, max_iter=2, prior=1.0, smoothing=0.02), "sinkhorn-divergence"),
    "snc": (SNC(max_iter=5, **OWN, **FIXED), "sqeuclidean"),
    "snc-auto": (SNC(6, max_iter=3), "sqeuclidean"),
}
every_model = pytest.mark.parametrize("name", MODELS)


@cache
def original(name):
    """The fitted model that others are compared with, and its training points; not to be changed."""
    model, points = MODELS[name]
    X, y = labelled(points, 60)
    return clone(model).fit(X, y), X, y


@every_model
def test_the_order_of_the_points_does_not_matter(name, rng):
    one, X, y = original(name)
    order = rng.permutation(60)
    other = clone(one).fit(X[order], y[order])
    assert_array_equal(one.prototypes_, other.prototypes_)
    assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    assert one.selection_ == other.selection_


@every_model
def test_the_names_of_the_classes_do_not_matter(name):
    one, X, y = original(name)
    names = np.array(["z", "a", "m"])  # in another order than 0, 1, 2
    other = clone(one).fit(X, names[y])
    assert_array_equal(names[one.predict(X)], other.predict(X))
    assert one.selection_ == other.selection_


def test_the_names_of_the_groups_do_not_matter(rng):
    X, y = labelled("sqeuclidean", 60)
    groups = np.arange(60) % 12
    names = rng.permutation(12).astype(str)
    model = SNC(6, max_iter=3)
    one, other = clone(model).fit(X, y, groups=groups), clone(model).fit(X, y, groups=names[groups])
    assert one.selection_ == other.selection_
    assert_array_equal(one.prototypes_, other.prototypes_)


@pytest.mark.usefixtures("many_blocks")
@every_model
def test_the_number_of_threads_does_not_matter(name):
    model, points = MODELS[name]
    X, y = labelled(points, 60)
    one, other = (clone(model).set_params(n_jobs=n).fit(X, y) for n in (1, 3))
    assert_array_equal(one.prototypes_, other.prototypes_)
    assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_two_fits_are_the_same_unless_a_seed_is_to_be_drawn(monkeypatch):
    X, y = labelled("sqeuclidean", 60)
    seeds = []
    descent = StochasticCompression.descent
    monkeypatch.setattr(
        StochasticCompression, "descent", lambda self, seed: (seeds.append(seed), descent(self, seed))[1]
    )
    for random_state in (0, 0, 1, None, None):
        clone(MODELS["snc"][0]).set_params(random_state=random_state).fit(X, y)
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 4
    assert all(model.random_state == 0 for model, _ in MODELS.values())


@pytest.mark.parametrize("metric", ["jbld", "tangent"])
def test_a_congruence_of_all_matrices_changes_hardly_any_prediction(rng, metric):
    data = load_digits_covariances()
    X, y, X_test = data.X[:100], data.y[:100], data.X[100:400]
    A = rng.normal(size=(11, 11)) + 3.0 * np.eye(11)
    model = SCC(20, metric=metric, max_iter=10, compressor=OWN["compressor"], **FIXED | {"gamma": "scale"})
    one, other = clone(model).fit(X, y), clone(model).fit(A @ X @ A.T, y)
    assert_allclose(one.gamma_, other.gamma_, rtol=1e-4)
    assert_allclose(one.loss_curve_, other.loss_curve_, rtol=1e-3)
    assert (one.predict(X_test) == other.predict(A @ X_test @ A.T)).mean() > 0.98


def test_a_permutation_of_the_bins_changes_hardly_any_prediction(rng):
    X, y = labelled("sinkhorn-divergence", 160)
    order = rng.permutation(9)
    model, _ = MODELS["shc"]
    one = clone(model).fit(X[:60], y[:60])
    other = clone(model).set_params(ground_cost=GROUND_COST[np.ix_(order, order)]).fit(X[:60][:, order], y[:60])
    assert_allclose(one.loss_curve_, other.loss_curve_, rtol=1e-3)
    assert (one.predict(X) == other.predict(X[:, order])).mean() > 0.98


def test_a_rotation_of_vectors_changes_hardly_any_prediction(rng):
    X, y = labelled("sqeuclidean", 120)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    model = SNC(9, max_iter=5, prior=1.0)
    one, other = clone(model).fit(X[:80], y[:80]), clone(model).fit(X[:80] @ turn + 5.0, y[:80])
    assert (one.predict(X) == other.predict(X @ turn + 5.0)).mean() > 0.98


def test_another_seed_changes_few_predictions():
    """It draws the folds, and so may change what is chosen; docs/notes/figures.md says how much that was."""
    X, y = labelled("sqeuclidean", 180)
    one, other = (SNC(6, max_iter=5, smoothing=0.02, random_state=seed).fit(X[:60], y[:60]) for seed in (0, 1))
    assert (one.predict(X) == other.predict(X)).mean() > 0.93


# What partial_fit leaves behind


@pytest.mark.parametrize("name", ["scc", "shc", "snc"])
def test_a_fit_forgets_what_partial_fit_learned(name):
    fresh, X, y = original(name)
    other = np.array(["p", "q", "r"])[y]
    clf = clone(fresh).partial_fit(X[:30], other[:30]).fit(X, y)
    assert_array_equal(clf.prototypes_, fresh.prototypes_)
    assert_array_equal(clf.prototype_weights_, fresh.prototype_weights_)
    assert (clf.gamma_, clf.prior_, clf.vote_) == (fresh.gamma_, fresh.prior_, fresh.vote_)
    assert_array_equal(clf.classes_, [0, 1, 2])


@pytest.mark.parametrize("name", ["scc", "shc", "snc"])
def test_what_came_before_a_fit_does_not_act_on_the_batches_after_it(name):
    """partial_fit(A), fit(B), partial_fit(C) is fit(B), partial_fit(C): no anchor, chart or weight of A is left."""
    model, points = MODELS[name]
    A, B, C = (labelled(points, 30, seed=seed) for seed in (1, 2, 3))
    clf = clone(model).partial_fit(*A).partial_fit(*A).fit(*B).partial_fit(*C)
    fresh = clone(model).fit(*B).partial_fit(*C)
    assert_array_equal(clf.prototypes_, fresh.prototypes_)
    assert_array_equal(clf.prototype_weights_, fresh.prototype_weights_)
    assert_array_equal(clf.distance_levels_, fresh.distance_levels_)
    assert_array_equal(clf.predict_proba(C[0]), fresh.predict_proba(C[0]))


@cache
def model_of_digits(metric):
    data = load_digits_covariances()
    model = SCC(20, metric=metric, max_iter=30, compressor=OWN["compressor"], **FIXED | {"gamma": "scale"})
    return model.fit(data.X[:300], data.y[:300]), data


@pytest.mark.parametrize("metric", ["jbld", "tangent"])
@pytest.mark.parametrize("n_classes", [10, 3])  # of three alone, the prototypes of the others would suffer
def test_thirty_known_points_again_do_not_hurt(metric, n_classes):
    clf, data = copy.deepcopy(model_of_digits(metric))
    before, Z = clf.score(data.X[300:], data.y[300:]), clf.prototypes_
    again = np.flatnonzero(data.y[:300] < n_classes)[:30]
    clf.partial_fit(data.X[again], data.y[again])
    assert np.abs(clf.prototypes_ - Z).max() > 0.0
    assert clf.score(data.X[300:], data.y[300:]) > before - 0.01
    assert_allclose(clf.prototype_weights_.sum(), 330)
