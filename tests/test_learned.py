"""SCC, SHC, SNC and the sampler as scikit-learn estimators."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from points import GROUND_COST, labelled
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import knnpress
from knnpress import SCC, SHC, SNC, PrototypeSampler
from knnpress.compression import KeepAll, RandomMutation, StochasticCompression, Subsample, checkpoint

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
        check_estimator(SNC(max_iter=5, n_prototypes=8), expected_failed_checks=expected)


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


def test_a_warm_start_goes_on_from_the_last_prototypes():
    X, y = labelled("sqeuclidean", 300)
    clf = SNC(n_prototypes=9, gamma=1.0, max_iter=2, warm_start=True, early_stopping=False, random_state=0)
    with pytest.warns(ConvergenceWarning, match="still falling"):
        clf.fit(X, y)
    first = clf.loss_curve_
    clf.set_params(max_iter=200).fit(X, y)
    assert_allclose(clf.loss_curve_[0], first[-1], rtol=1e-9)
    assert clf.loss_curve_[-1] < first[-1]
    clf.set_params(n_prototypes=6).fit(X, y)  # another size starts afresh
    assert len(clf.prototypes_) == 6


@pytest.mark.parametrize("name", ["scc", "shc", "snc"])
def test_batches_one_after_the_other_teach_what_all_points_do(name):
    model, points = MODELS[name]
    X, y = labelled(points, 240)
    clf = clone(model).set_params(max_iter=20)
    for rows in np.array_split(np.arange(180), 4):
        clf.partial_fit(X[rows], y[rows])
    whole = clone(model).set_params(max_iter=20).fit(X[:180], y[:180])
    assert clf.score(X[180:], y[180:]) > whole.score(X[180:], y[180:]) - 0.1
    assert_allclose(clf.prototype_weights_.sum(), 180)
    assert_allclose(clf.compression_ratio_, 6 / 180)


def test_a_class_that_comes_later_is_learned_and_an_old_one_not_forgotten():
    X, y = labelled("sqeuclidean", 400)
    names = np.array(["a", "b", "c"])[y]
    clf = SNC(n_prototypes=6, max_iter=30, random_state=0)
    for c in "abc":  # one class a batch: the worst case
        clf.partial_fit(X[:300][names[:300] == c], names[:300][names[:300] == c], classes=["a", "b", "c"])
    at_once = SNC(n_prototypes=6, max_iter=30, random_state=0).fit(X[:300], names[:300])
    assert clf.score(X[300:], names[300:]) > at_once.score(X[300:], names[300:]) - 0.15
    assert clf.predict_proba(X[:5]).shape == (5, 3)


def test_before_a_class_has_come_it_is_never_predicted():
    X, y = labelled("sqeuclidean", 90)
    clf = SNC(n_prototypes=6, max_iter=5, random_state=0).partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    assert_allclose(clf.predict_proba(X)[:, 2], 0.0)
    assert set(clf.predict(X)) == {0, 1}


def test_partial_fit_refuses_what_it_cannot_use():
    X, y = labelled("sqeuclidean", 90)
    with pytest.raises(ValueError, match=r"n_prototypes is 0\.1; partial_fit cannot know a share"):
        SNC(n_prototypes=0.1).partial_fit(X, y)
    with pytest.raises(ValueError, match="n_prototypes is 2, but there are 3 classes"):
        SNC(n_prototypes=2).partial_fit(X, y)
    clf = SNC(n_prototypes=6, max_iter=2).partial_fit(X[y < 2], y[y < 2])
    with pytest.raises(ValueError, match=r"y contains \[2\], which the first call did not announce"):
        clf.partial_fit(X, y)
    with pytest.raises(ValueError, match="the first call said"):
        clf.partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    with pytest.raises(ValueError, match="is expecting"):
        clf.partial_fit(X[y < 2][:, :1], y[y < 2])


def test_the_automatic_size_is_the_smallest_that_loses_nothing_and_shows_its_evidence():
    X, y = labelled("sqeuclidean", 300)
    clf = SNC(n_prototypes="auto", max_iter=10, random_state=0).fit(X, y)
    trials = clf.selection_
    assert [t["accepted"] for t in trials] == [False] * (len(trials) - 1) + [True]
    chosen = trials[-1]
    assert len(clf.prototypes_) == chosen["n_prototypes"]
    assert chosen["error"] - chosen["full_error"] <= min(chosen["standard_error"], 0.01)


def test_where_no_size_is_enough_the_largest_is_taken_with_a_warning(rng):
    """A checkerboard: every point of the full set matters, and a few prototypes cannot follow it."""
    cells = rng.integers(0, 14, (500, 2))
    X, y = cells + 0.2 * rng.random((500, 2)), cells.sum(axis=1) % 2
    clf = SNC(n_prototypes="auto", max_iter=5, gamma=1.0, random_state=0)
    with pytest.warns(UserWarning, match=r"even 160 prototypes \(32%\) lose to the full training set"):
        clf.fit(X, y)
    assert [t["ratio"] for t in clf.selection_] == [0.02, 0.04, 0.08, 0.16, 0.32]


def test_the_callback_sees_loss_and_error_and_is_not_called_by_a_clone_it_was_not_given_to():
    seen = []
    clf, _, _ = fitted("scc", callback=lambda step, total, facts: seen.append((step, total, facts["loss"])))
    assert len(seen) > clf.n_iter_
    assert seen[-1][2] == clf.loss_curve_[-1]


def test_ctrl_c_leaves_the_estimator_unfitted_and_the_next_fit_works():
    def interrupt(step, total, facts):
        if step == 2:
            raise KeyboardInterrupt

    model, points = MODELS["scc"]
    X, y = labelled(points, 90)
    clf = clone(model).set_params(callback=interrupt)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X, y)
    with pytest.raises(NotFittedError):
        clf.predict(X)
    assert not [name for name in vars(clf) if name.endswith("_")]
    assert clf.set_params(callback=None).fit(X, y).score(X, y) > 0.6


def test_a_signal_in_the_middle_of_a_long_fit_stops_it_at_once(tmp_path):
    script = """
import os, signal, sys, threading, time
import numpy as np, knnpress as kp
from sklearn.exceptions import NotFittedError
data = kp.datasets.load_digits_covariances()
clf = kp.SCC(n_prototypes=0.2, max_iter=100000, early_stopping=False, gamma=5.0)
threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    clf.fit(data.X, data.y)
except KeyboardInterrupt:
    stopped = time.perf_counter()
try:
    clf.predict(data.X)
except NotFittedError:
    small = kp.SCC(n_prototypes=10, max_iter=2, gamma=5.0).fit(data.X[:300], data.y[:300])
    print("healthy", len(small.prototypes_), time.perf_counter() - stopped < 20)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.stdout.split() == ["healthy", "10", "True"], done.stderr


def test_the_papers_settings_clone_and_learn():
    X, y = labelled("jbld", 90)
    scc = SCC.paper(n_prototypes=6, max_iter=20, random_state=0)
    assert (scc.optimizer, scc.whiten, scc.early_stopping) == ("cg", False, False)
    twin = clone(scc)
    assert str(twin) == str(scc)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert twin.fit(X, y).score(X, y) > 0.8
    H, y = labelled("sinkhorn-transport", 60)
    assert SHC.paper(GROUND_COST).init.n_mutations == 1000
    shc = SHC.paper(GROUND_COST, n_prototypes=6, max_iter=3, init=RandomMutation(20), random_state=0)
    shc = clone(shc)
    assert (shc.value, shc.optimizer, shc.gamma) == ("transport", "descent", "tune")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert shc.fit(H, y).score(H, y) > 0.6


@pytest.mark.filterwarnings("ignore:the loss was still falling")
def test_whitening_changes_the_path_and_not_the_distance():
    X, y = labelled("jbld", 90)
    white, plain = (
        SCC(n_prototypes=3, gamma=2.0, max_iter=60, early_stopping=False, whiten=w, random_state=0).fit(X, y)
        for w in (True, False)
    )
    assert_allclose(white.loss_curve_[0], plain.loss_curve_[0], rtol=1e-6)
    assert white.loss_curve_[1] != plain.loss_curve_[1]


def test_the_sampler_serves_imbalanced_learns_pipeline(rng):
    from imblearn.pipeline import make_pipeline as make_sampling_pipeline
    from sklearn.neighbors import KNeighborsClassifier

    X, y = labelled("sqeuclidean", 200)
    sampler = PrototypeSampler("sqeuclidean", StochasticCompression(max_iter=10), 9, random_state=0)
    pipeline = make_sampling_pipeline(sampler, KNeighborsClassifier(1)).fit(X[:150], y[:150])
    assert pipeline[-1].n_samples_fit_ == 9
    assert pipeline.score(X[150:], y[150:]) > 0.7


def test_a_saved_model_predicts_the_same(tmp_path):
    clf, X, _ = fitted("scc")
    clf.save(tmp_path / "model.knnp")
    assert_array_equal(knnpress.load(tmp_path / "model.knnp").predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize("name", ["scc", "shc", "snc"])
@pytest.mark.parametrize("random_state", [0, None])
def test_a_fit_broken_off_goes_on_from_its_checkpoint(name, random_state, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_PAUSE", 0.0)
    seen = []

    def interrupt(step, total, facts):
        seen.append(facts["loss"])
        if step == 4:
            raise KeyboardInterrupt

    model, points = MODELS[name]
    X, y = labelled(points, 90)
    path = tmp_path / "fit"
    clf = clone(model).set_params(checkpoint=path, random_state=random_state, max_iter=10, early_stopping=False)
    with pytest.raises(KeyboardInterrupt):
        clone(clf).set_params(callback=interrupt).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        clf.fit(X, y)  # the callback does not make it another fit
        assert clf.loss_curve_[:5] == seen
        if random_state == 0:
            whole = clone(clf).set_params(checkpoint=None).fit(X, y)
            assert_array_equal(clf.prototypes_, whole.prototypes_)
    assert not path.exists()


def test_a_checkpoint_is_for_one_fit(tmp_path):
    X, y = labelled("sqeuclidean", 90)
    clf = SNC(checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match='n_prototypes="auto" is many fits, and a checkpoint serves one'):
        clone(clf).set_params(n_prototypes="auto").fit(X, y)
    with pytest.raises(ValueError, match='gamma="tune" is many fits, and a checkpoint serves one'):
        clone(clf).set_params(gamma="tune").fit(X, y)
    clone(clf).set_params(n_prototypes=6, max_iter=2).partial_fit(X, y)
    assert list(tmp_path.iterdir()) == []
