"""SCC, SHC, SNC and the sampler as scikit-learn estimators."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from points import GROUND_COST, labelled
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from knnpress import SCC, SHC, SNC, PrototypeSampler
from knnpress.compression import KeepAll, Subsample

QUICK = {"n_prototypes": 6, "gamma": 2.0, "max_iter": 5, "random_state": 0}
MODELS = {
    "scc": (SCC(**QUICK), "jbld"),
    "scc-logeuclid": (SCC(**QUICK, metric="logeuclid"), "logeuclid"),
    "shc": (SHC(GROUND_COST, **QUICK), "sinkhorn-divergence"),
    "shc-dual": (SHC(GROUND_COST, value="dual", **QUICK), "sinkhorn-dual"),
    "snc": (SNC(**QUICK), "sqeuclidean"),
}
every_model = pytest.mark.parametrize("name", MODELS)


def fitted(name, **params):
    model, points = MODELS[name]
    X, y = labelled(points, 90)
    return clone(model).set_params(**params).fit(X, y), X, y


def test_scikit_learn_finds_nothing_wrong_with_snc():
    # k-means++ draws rows, not weights: a repeated row and a weight of two start elsewhere
    expected = {"check_sample_weight_equivalence_on_dense_data": "the start is drawn from the rows"}
    with pytest.warns(match="SNC"):
        check_estimator(SNC(max_iter=5, n_prototypes=0.5), expected_failed_checks=expected)


@every_model
def test_the_contract_of_fitted_attributes_holds(name):
    clf, X, y = fitted(name)
    assert clf.prototypes_.shape == (6, *X.shape[1:])
    assert_array_equal(np.unique(clf.prototype_labels_), clf.classes_)
    assert_allclose(clf.compression_ratio_, 6 / 90)
    assert clf.gamma_ == 2.0
    assert len(clf.loss_curve_) == clf.n_iter_ + 1
    assert clf.n_features_in_ == X.shape[1]
    assert clf.score(X, y) > 0.6


@every_model
def test_a_clone_and_a_pickle_predict_the_same(name):
    clf, X, y = fitted(name)
    assert_array_equal(clone(clf).fit(X, y).prototypes_, clf.prototypes_)
    assert_array_equal(pickle.loads(pickle.dumps(clf)).predict(X), clf.predict(X))


@every_model
@pytest.mark.parametrize(("vote", "k"), [("nearest", 1), ("nearest", 3), ("soft", 1)])
def test_the_largest_probability_is_the_prediction(name, vote, k):
    clf, X, _ = fitted(name, vote=vote, n_neighbors=k)
    P = clf.predict_proba(X)
    assert_allclose(P.sum(axis=1), 1.0)
    chosen = P[np.arange(len(X)), np.searchsorted(clf.classes_, clf.predict(X))]
    assert_allclose(chosen, P.max(axis=1))


@every_model
def test_one_neighbour_predicts_the_label_of_the_nearest_prototype(name):
    clf, X, _ = fitted(name)
    assert_array_equal(clf.predict(X), clf.prototype_labels_[clf.kneighbors(X, 1, return_distance=False)[:, 0]])
    assert_array_equal(clf.transform(X).argmin(axis=1), clf.kneighbors(X, 1, return_distance=False)[:, 0])


@every_model
def test_labels_may_be_strings_and_a_class_may_have_one_member(name):
    model, points = MODELS[name]
    X, y = labelled(points, 90)
    names = np.array(["zebra", "ape", "cat"], dtype=object)[y]
    names[0] = "lone wolf"
    clf = clone(model).fit(X, names)
    assert set(clf.prototype_labels_) == {"zebra", "ape", "cat", "lone wolf"}
    assert set(clf.predict(X)) <= set(clf.classes_)


def test_one_class_and_too_few_prototypes_are_refused_and_a_small_share_is_raised_with_a_notice():
    X, y = labelled("jbld", 60)
    with pytest.raises(ValueError, match="needs at least two classes; y has one class"):
        SCC().fit(X, np.zeros(60))
    with pytest.raises(ValueError, match="n_prototypes is 2, but there are 3 classes; give each at least one"):
        SCC(n_prototypes=2).fit(X, y)
    for bad in (0, -1, 1.5, "many", True):
        with pytest.raises(ValueError, match="n_prototypes is"):
            SCC(n_prototypes=bad).fit(X, y)
    with pytest.warns(UserWarning, match="0.01 of 60 points is fewer than the 3 classes"):
        clf = SCC(n_prototypes=0.01, gamma=2.0, max_iter=2).fit(X, y)
    assert len(clf.prototypes_) == 3


def test_unknown_settings_are_refused_by_name():
    X, y = labelled("jbld", 60)
    with pytest.raises(ValueError, match="metric is 'airm'; choose one of 'jbld', 'logeuclid'"):
        SCC(metric="airm").fit(X, y)
    with pytest.raises(ValueError, match="vote is 'loud'; choose"):
        SCC(vote="loud").fit(X, y)
    with pytest.raises(ValueError, match="sample_weight has shape"):
        SCC().fit(X, y, sample_weight=np.ones(3))


def test_a_weight_of_zero_leaves_a_point_out(rng):
    X, y = labelled("sqeuclidean", 120)
    noise = rng.random(120) < 0.3
    spoilt = np.where(noise, (y + 1) % 3, y)
    clf = SNC(n_prototypes=3, gamma=1.0, early_stopping=False)
    trusting = clone(clf).fit(X, spoilt).score(X, y)
    careful = clone(clf).fit(X, spoilt, sample_weight=np.where(noise, 0.0, 1.0)).score(X, y)
    assert careful >= trusting


def test_they_work_in_pipelines_grids_and_cross_validation():
    X, y = labelled("sqeuclidean", 90)
    pipeline = make_pipeline(StandardScaler(), SNC(**QUICK))
    grid = GridSearchCV(pipeline, {"snc__gamma": [0.5, 2.0]}, cv=2).fit(X, y)
    assert grid.best_params_["snc__gamma"] in (0.5, 2.0)
    covariances, y = labelled("jbld", 90)
    assert cross_val_score(SCC(**QUICK), covariances, y, cv=3).mean() > 0.5


def test_scc_follows_pyriemanns_covariances(rng):
    estimation = pytest.importorskip("pyriemann.estimation")
    y = np.repeat([0, 1], 40)
    signals = rng.normal(size=(80, 4, 60))
    signals[y == 1, 0] *= 2.0
    model = make_pipeline(estimation.Covariances(), SCC(n_prototypes=2, gamma=2.0, max_iter=10, random_state=0))
    assert model.fit(signals, y).score(signals, y) > 0.9


def test_snc_beats_nearest_centroid_where_a_class_has_two_clusters(rng):
    X = np.concatenate([rng.normal(size=(100, 2)) + c for c in ([0, 0], [6, 0], [3, 0])])
    y = np.repeat([0, 0, 1], 100)
    snc = SNC(n_prototypes=3, random_state=0).fit(X, y)
    assert snc.score(X, y) > NearestCentroid().fit(X, y).score(X, y) + 0.1


@pytest.mark.parametrize("compressor", [Subsample(), KeepAll()])
def test_the_sampler_returns_rows_of_x_and_says_which(compressor):
    X, y = labelled("jbld", 60)
    sampler = PrototypeSampler("jbld", compressor, n_prototypes=None, random_state=0)
    points, labels = sampler.fit_resample(X, y)
    assert_array_equal(points, X[sampler.sample_indices_])
    assert_array_equal(labels, y[sampler.sample_indices_])
    assert len(points) == 60


def test_the_sampler_takes_a_share():
    X, y = labelled("jbld", 60)
    points, labels = PrototypeSampler("jbld", Subsample(), 0.2, random_state=0).fit_resample(X, y)
    assert len(points) == len(labels) == 12


def test_verbose_follows_the_descent_on_standard_error_and_silence_is_the_default(capsys):
    fitted("snc", verbose=1)
    assert "error" in capsys.readouterr().err
    fitted("snc")
    assert capsys.readouterr() == ("", "")
