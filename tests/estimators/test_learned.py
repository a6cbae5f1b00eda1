"""SCC, SHC, SNC and the sampler as scikit-learn estimators."""

import pickle
import subprocess
import sys
import warnings
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from cases import one_at_a_time
from numpy.testing import assert_allclose, assert_array_equal
from points import GROUND_COST, labelled
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, check_sample_weight_equivalence_on_dense_data

import knnpress
from knnpress import SCC, SHC, SNC, PrototypeSampler
from knnpress.compression import ClassCentroids, KeepAll, RandomMutation, StochasticCompression, Subsample, stochastic
from knnpress.estimators import checks
from knnpress.geometries import SquaredEuclidean
from knnpress.learning import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:the loss was still falling")

#: One descent, with nothing left to be chosen
FIXED = {"gamma": 2.0, "prior": 1.0, "smoothing": 0.02, "vote": "nearest"}
QUICK = {"n_prototypes": 6, "max_iter": 5, "compressor": StochasticCompression(init=ClassCentroids()), **FIXED}
#: Folds, with few settings to try in them: the start and the vote are left open
QUICK_FOLDS = {"gamma": "scale", "prior": 1.0, "smoothing": 0.02}
#: Averages bin by bin, which is quicker than barycenters
OF_BINS = QUICK | {"compressor": StochasticCompression(init=ClassCentroids(SquaredEuclidean()))}
MODELS = {
    "scc": (SCC(metric="jbld", **QUICK), "jbld"),
    "scc-logeuclid": (SCC(metric="logeuclid", **QUICK), "logeuclid"),
    "scc-tangent": (SCC(metric="tangent", **QUICK), "jbld"),
    "shc": (SHC(GROUND_COST, metric="sinkhorn", **OF_BINS), "sinkhorn-divergence"),
    "shc-dual": (SHC(GROUND_COST, metric="sinkhorn", value="dual", **OF_BINS), "sinkhorn-dual"),
    "shc-hellinger": (SHC(metric="hellinger", **QUICK), "sinkhorn-divergence"),
    "snc": (SNC(**QUICK), "sqeuclidean"),
}
every_model = pytest.mark.parametrize("name", MODELS)


def fitted(name, **params):
    model, points = MODELS[name]
    X, y = labelled(points, 90)
    return clone(model).set_params(**params).fit(X, y), X, y


@cache
def fitted_once(name):
    """For tests that only ask the model, and leave it as it is."""
    return fitted(name)


@pytest.mark.parametrize("settings", [FIXED, pytest.param(QUICK_FOLDS, marks=pytest.mark.slow)], ids=["fixed", "folds"])
def test_scikit_learn_finds_nothing_wrong_with_snc(settings):
    # the folds hold out rows: those of a repeated row and of a weight of two are others
    expected = {"check_sample_weight_equivalence_on_dense_data": "folds are drawn from the rows"}
    with pytest.warns(match="SNC"):
        # all the settings would take a minute
        check_estimator(SNC(8, max_iter=2, **settings), expected_failed_checks=expected)


def test_with_everything_fixed_a_weight_is_a_repetition_to_scikit_learn_too():
    check_sample_weight_equivalence_on_dense_data("SNC", SNC(**QUICK | {"n_prototypes": 3, "max_iter": 30}))


@every_model
def test_the_contract_of_fitted_attributes_holds(name):
    clf, X, y = fitted_once(name)
    assert clf.prototypes_.shape == (6, *X.shape[1:])
    assert_array_equal(np.unique(clf.prototype_labels_), clf.classes_)
    assert_allclose(clf.compression_ratio_, 6 / 90)
    assert clf.gamma_ == 2.0
    assert len(clf.loss_curve_) == clf.n_iter_ + 1
    assert clf.n_features_in_ == X.shape[1]
    assert clf.score(X, y) > 0.6


@every_model
def test_a_clone_and_a_pickle_predict_the_same(name):
    clf, X, y = fitted_once(name)
    assert_array_equal(clone(clf).fit(X, y).prototypes_, clf.prototypes_)
    assert_array_equal(pickle.loads(pickle.dumps(clf)).predict(X), clf.predict(X))


@pytest.mark.parametrize(("name", "how"), one_at_a_time(MODELS, [("soft", 1), ("nearest", 1), ("nearest", 3)]))
def test_the_largest_probability_is_the_prediction(name, how):
    vote, k = how
    clf, X, _ = fitted(name, vote=vote, n_neighbors=k)
    P = clf.predict_proba(X)
    assert_allclose(P.sum(axis=1), 1.0)
    chosen = P[np.arange(len(X)), np.searchsorted(clf.classes_, clf.predict(X))]
    assert_allclose(chosen, P.max(axis=1))


@every_model
def test_one_neighbour_predicts_the_label_of_the_nearest_prototype(name):
    clf, X, _ = fitted_once(name)
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


def test_one_class_and_too_few_prototypes_are_refused_and_a_small_share_is_raised_with_a_notice(monkeypatch):
    X, y = labelled("jbld", 60)
    with pytest.raises(ValueError, match="needs at least two classes; y has one class"):
        SCC().fit(X, np.zeros(60))
    with pytest.raises(ValueError, match="n_prototypes is 2, but there are 3 classes; give each at least one"):
        SCC(n_prototypes=2).fit(X, y)
    for bad in (0, -1, 1.5, "many", True):
        with pytest.raises(ValueError, match="n_prototypes is"):
            SCC(n_prototypes=bad).fit(X, y)
    monkeypatch.setattr(checks, "_warned", set())
    with pytest.warns(UserWarning, match="0.01 of 60 points is fewer than the 3 classes"):
        clf = SCC(metric="jbld", **QUICK | {"n_prototypes": 0.01}).fit(X, y)
    assert len(clf.prototypes_) == 3


def test_unknown_settings_are_refused_by_name():
    X, y = labelled("jbld", 60)
    with pytest.raises(ValueError, match="metric is 'airm'; choose one of 'auto', 'jbld', 'tangent', 'logeuclid'"):
        SCC(metric="airm").fit(X, y)
    with pytest.raises(ValueError, match="vote is 'loud'; choose"):
        SCC(6, vote="loud").fit(X, y)
    with pytest.raises(ValueError, match="sample_weight has shape"):
        SCC().fit(X, y, sample_weight=np.ones(3))


def test_they_work_in_pipelines_grids_and_cross_validation():
    X, y = labelled("sqeuclidean", 90)
    pipeline = make_pipeline(StandardScaler(), SNC(**QUICK))
    grid = GridSearchCV(pipeline, {"snc__gamma": [0.5, 2.0]}, cv=2).fit(X, y)
    assert grid.best_params_["snc__gamma"] in (0.5, 2.0)
    covariances, y = labelled("jbld", 90)
    assert cross_val_score(SCC(metric="jbld", **QUICK), covariances, y, cv=3).mean() > 0.5


def test_scc_follows_pyriemanns_covariances(rng):
    estimation = pytest.importorskip("pyriemann.estimation")
    y = np.repeat([0, 1], 40)
    signals = rng.normal(size=(80, 4, 60))
    signals[y == 1, 0] *= 2.0
    model = make_pipeline(estimation.Covariances(), SCC(n_prototypes=2, max_iter=10))
    assert model.fit(signals, y).score(signals, y) > 0.9


def test_snc_beats_nearest_centroid_where_a_class_has_two_clusters(rng):
    X = np.concatenate([rng.normal(size=(100, 2)) + c for c in ([0, 0], [6, 0], [3, 0])])
    y = np.repeat([0, 0, 1], 100)
    snc = SNC(n_prototypes=3).fit(X, y)
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


def test_verbose_tells_what_was_seen_of_each_setting(capsys):
    clf, _, _ = fitted("snc", prior="auto", verbose=1)
    said = " ".join(capsys.readouterr().err.split())
    assert len(clf.selection_) > 2
    for one in clf.selection_:
        assert f"prior {one['prior']}" in said
        assert f"held-out error {one['error']:.2%} ± {one['standard_error']:.2%}" in said


def test_a_warm_start_goes_on_from_the_last_prototypes():
    X, y = labelled("sqeuclidean", 300)
    settings = {"init": ClassCentroids(), "tol": 1e-4}
    clf = SNC(9, max_iter=2, warm_start=True, compressor=StochasticCompression(**settings), **FIXED | {"prior": 0.0})
    with pytest.warns(ConvergenceWarning, match="still falling"):
        clf.fit(X, y)
    first = clf.loss_curve_
    clf.set_params(max_iter=200).fit(X, y)
    assert_allclose(clf.loss_curve_[0], first[-1], rtol=1e-9)
    assert clf.loss_curve_[-1] < first[-1]
    clf.set_params(n_prototypes=6).fit(X, y)  # another size starts afresh
    assert len(clf.prototypes_) == 6


def test_a_warm_start_keeps_the_setting_but_for_what_is_given():
    X, y = labelled("sqeuclidean", 90)
    clf = SNC(6, max_iter=3, warm_start=True).fit(X, y)
    before = clf.gamma_, clf.prior_, clf.smoothing_, clf.vote_
    assert len(clf.selection_) > 3
    clf.fit(X, y)
    assert (clf.gamma_, clf.prior_, clf.smoothing_, clf.vote_) == before
    assert clf.selection_ == []
    clf.set_params(gamma=0.5, prior=3.0).fit(X, y)
    assert (clf.gamma_, clf.prior_, clf.smoothing_, clf.vote_) == (0.5, 3.0, *before[2:])


@pytest.mark.parametrize("name", ["scc", "shc", "snc", "scc-tangent", "shc-hellinger"])
def test_a_warm_start_with_other_classes_starts_afresh(name):
    model, points = MODELS[name]
    X, y = labelled(points, 90)
    clf = clone(model).set_params(warm_start=True).fit(X, y)
    clf.fit(X, y)
    names = np.array(["b", "c", "a"])[y]
    clf.fit(X, names)
    assert_array_equal(clf.prototypes_, clone(model).fit(X, names).prototypes_)
    assert_array_equal(clf.classes_, ["a", "b", "c"])
    fewer = clf.fit(X[y < 2], y[y < 2])
    assert_array_equal(fewer.classes_, [0, 1])


def test_a_warm_start_goes_by_labels_and_not_by_their_place():
    """Classes 0, 1 and then 1, 2: the codes are the same, the classes are not."""
    X, y = labelled("sqeuclidean", 90)
    model = clone(MODELS["snc"][0]).set_params(warm_start=True, max_iter=0)
    clf = clone(model).fit(X[y < 2], y[y < 2])
    clf.fit(X[y > 0], y[y > 0])
    assert_array_equal(clf.classes_, [1, 2])
    assert_array_equal(clf.prototypes_, clone(model).fit(X[y > 0], y[y > 0]).prototypes_)


def test_a_warm_start_asks_which_classes_are_present_and_not_which_are_absent():
    X, y = labelled("sqeuclidean", 90)
    settings = StochasticCompression(init=ClassCentroids(), tol=1e-4)
    clf = SNC(6, max_iter=2, warm_start=True, compressor=settings, **FIXED | {"prior": 0.0})
    weight = (y < 2).astype(float)
    first = clf.fit(X, y, sample_weight=weight).loss_curve_
    assert_allclose(clf.fit(X, y, sample_weight=weight).loss_curve_[0], first[-1], rtol=1e-9)
    assert first[-1] < first[0]


def test_a_warm_start_learns_with_the_gamma_that_is_given():
    X, y = labelled("sqeuclidean", 90)
    plain = StochasticCompression(init=ClassCentroids(), label_noise=0.0)
    clf = SNC(6, warm_start=True, gamma="scale", prior=0.0, smoothing=0.0, max_iter=3, compressor=plain).fit(X, y)
    start = clf.prototypes_
    clf.set_params(gamma=0.25).fit(X, y)
    assert clf.gamma_ == 0.25
    kernel = np.exp(-(0.25**2) * SquaredEuclidean().pairwise(X, start))
    share = (kernel * (y[:, None] == clf.prototype_labels_)).sum(axis=1) / kernel.sum(axis=1)
    assert_allclose(clf.loss_curve_[0], -np.log(share).mean(), rtol=1e-6)


def test_more_prototypes_than_points_are_told_and_the_model_can_be_saved(tmp_path):
    X, y = labelled("jbld", 40)
    with pytest.warns(UserWarning, match="n_prototypes is 500, but there are 40 points; learning 40"):
        clf = SCC(500, metric="jbld", max_iter=2, **FIXED).fit(X, y)
    assert len(clf.prototypes_) == len(clf.prototype_weights_) == 40
    clf.save(tmp_path / "model.knnp")
    assert_array_equal(knnpress.load(tmp_path / "model.knnp").predict(X), clf.predict(X))


class _Asked(Subsample):
    """Rows of the training set, and how many were asked for."""

    asked: ClassVar[list[int]] = []

    def compress(self, X, y, **context):
        self.asked.append(context["n_prototypes"])
        return super().compress(X, y, **context)


def test_no_start_is_asked_for_more_prototypes_than_there_are_points():
    """Not every start makes do with those there are, and each prototype needs a weight of its own."""
    X, y = labelled("jbld", 40)
    plain = {"metric": "jbld", "max_iter": 2, "warm_start": True, **FIXED | {"prior": 0.0}}
    clf = SCC(500, compressor=StochasticCompression(init=_Asked()), **plain)
    with pytest.warns(UserWarning, match="learning 40"):
        clf.fit(X, y)
    assert set(_Asked.asked) == {40}
    _Asked.asked.clear()
    with pytest.warns(UserWarning, match="learning 40"):  # from those, not from new ones
        clf.fit(X, y)
    assert _Asked.asked == []
    assert len(clf.prototype_weights_) == len(clf.prototypes_) == 40


@pytest.mark.parametrize("vote", ["nearest", "soft"])
@pytest.mark.parametrize("name", ["scc", "snc"])
def test_however_small_gamma_is_the_nearest_wins(name, vote):
    """Probabilities are then all alike to the last bit; a tie among them must not decide."""
    model, points = MODELS[name]
    X, y = labelled(points, 60)
    clf = clone(model).set_params(gamma=1e-8, vote=vote, max_iter=0).fit(X, y)
    assert_array_equal(np.bincount(clf.prototype_labels_), [2, 2, 2])
    assert np.ptp(clf.predict_proba(X), axis=1).max() < 1e-14
    assert_array_equal(clf.predict(X), clf.prototype_labels_[clf.transform(X).argmin(axis=1)])


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


def test_batches_and_other_geometries_leave_reg_as_it_is_documented():
    X, y = labelled("sinkhorn-divergence", 30)
    clf = SHC(GROUND_COST, n_prototypes=3, metric="sinkhorn", max_iter=1, gamma=1.0).partial_fit(X, y)
    assert clf.reg_ == clf.geometry_.effective_reg
    assert not hasattr(clf.set_params(metric="hellinger").fit(X, y), "reg_")


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
    with pytest.raises(ValueError, match=r'gamma is "tune", which is many fits on all points, and partial_fit sees'):
        SNC(n_prototypes=6, gamma="tune").partial_fit(X, y)
    clf = SNC(n_prototypes=6, max_iter=2).partial_fit(X[y < 2], y[y < 2])
    with pytest.raises(ValueError, match=r"y contains \[2\], which the first call did not announce"):
        clf.partial_fit(X, y)
    with pytest.raises(ValueError, match="the first call said"):
        clf.partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    with pytest.raises(ValueError, match="is expecting"):
        clf.partial_fit(X[y < 2][:, :1], y[y < 2])


def test_the_automatic_size_is_the_smallest_that_no_larger_one_beats_and_shows_its_evidence():
    X, y = labelled("sqeuclidean", 150)
    clf = SNC("auto", **{name: value for name, value in QUICK.items() if name != "n_prototypes"}).fit(X, y)
    sizes = [one for one in clf.selection_ if "n_prototypes" in one]
    counts = [one["n_prototypes"] for one in sizes]
    assert counts == sorted(set(counts))
    assert set(counts) <= {3, 6, 12, 24, 48}
    (chosen,) = [k for k, one in enumerate(sizes) if one["chosen"]]
    assert len(clf.prototypes_) == counts[chosen]
    assert chosen in (len(sizes) - 1, len(sizes) - 2)
    assert all(0 <= one["error"] <= 1 and one["standard_error"] >= 0 for one in sizes)


def test_few_prototypes_are_enough_for_a_few_clusters_and_not_for_a_checkerboard(rng):
    own = {name: value for name, value in QUICK.items() if name != "n_prototypes"}
    X = np.repeat([[0.0, 0.0], [9.0, 0.0]], 60, axis=0) + rng.normal(size=(120, 2))
    easy = SNC("auto", **own).fit(X, np.repeat([0, 1], 60))
    assert len(easy.prototypes_) == 2
    cells = rng.integers(0, 6, (300, 2))
    X, y = cells + 0.2 * rng.random((300, 2)), cells.sum(axis=1) % 2
    hard = SNC("auto", **own | {"gamma": 3.0}).fit(X, y)
    assert len(hard.prototypes_) >= 48


def test_too_few_points_to_judge_sizes_by_get_the_smallest():
    X, y = labelled("sqeuclidean", 3)
    clf = SNC("auto", max_iter=300).fit(X, y)
    assert len(clf.prototypes_) == 3


def test_the_callback_sees_loss_and_error_and_is_not_called_by_a_clone_it_was_not_given_to():
    seen = []
    clf, X, y = fitted("scc", callback=lambda step, total, facts: seen.append((step, total, facts["loss"])))
    assert len(seen) > clf.n_iter_
    assert seen[-1][2] == clf.loss_curve_[-1]
    clone(clf).set_params(callback=None).fit(X, y)
    assert len(seen) == clf.n_iter_ + 1


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


def test_ctrl_c_in_the_first_batch_leaves_the_estimator_unfitted():
    def interrupt(*_):
        raise KeyboardInterrupt

    X, y = labelled("sqeuclidean", 60)
    clf = SNC(n_prototypes=6, callback=interrupt)
    with pytest.raises(KeyboardInterrupt):
        clf.partial_fit(X, y)
    assert not [name for name in vars(clf) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        clf.predict(X)
    assert clf.set_params(callback=None, max_iter=2).partial_fit(X, y).score(X, y) > 0.6


def test_a_signal_in_the_middle_of_a_long_fit_stops_it_at_once(tmp_path):
    script = """
import os, signal, sys, threading, time
import numpy as np, knnpress as kp
from sklearn.exceptions import NotFittedError
data = kp.datasets.load_digits_covariances()
clf = kp.SCC(n_prototypes=0.2, metric="jbld", max_iter=100000, prior=0.0)
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    clf.fit(data.X, data.y)
except KeyboardInterrupt:
    stopped = time.perf_counter()
try:
    clf.predict(data.X)
except NotFittedError:
    small = kp.SCC(n_prototypes=10, max_iter=2, gamma=5.0, prior=1.0).fit(data.X[:300], data.y[:300])
    print("healthy", len(small.prototypes_), time.perf_counter() - stopped < 20)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.stdout.split() == ["healthy", "10", "True"], done.stderr


def test_the_papers_settings_clone_and_learn():
    X, y = labelled("jbld", 90)
    scc = SCC.paper(n_prototypes=6, max_iter=20)
    own = scc.compressor
    assert (own.optimizer, own.chart, own.prior, own.smoothing, own.label_noise) == ("cg", "paper", 0.0, 0.0, 0.0)
    assert isinstance(own.init, Subsample)
    twin = clone(scc)
    assert str(twin) == str(scc)
    assert twin.fit(X, y).score(X, y) > 0.8
    assert twin.metric_ == "jbld"
    assert twin.vote_ == "nearest"
    assert SCC.paper(optimizer="lbfgs", label_noise=0.1).compressor.get_params()["optimizer"] == "lbfgs"
    H, y = labelled("sinkhorn-transport", 60)
    assert SHC.paper(GROUND_COST).compressor.init.n_mutations == 1000
    shc = SHC.paper(GROUND_COST, n_prototypes=6, max_iter=3, init=RandomMutation(20))
    shc = clone(shc)
    assert (shc.value, shc.compressor.optimizer, shc.gamma) == ("transport", "descent", "tune")
    assert shc.compressor.init.n_mutations == 20
    assert shc.fit(H, y).score(H, y) > 0.6


def test_what_is_the_models_own_wins_over_the_compressors():
    compressor = StochasticCompression(
        gamma=7.0, prior=3.0, smoothing=0.3, vote="soft", max_iter=9, optimizer="cg", checkpoint="there"
    )
    before = compressor.get_params()
    merged = SNC(compressor=compressor)._compressor()
    assert merged.get_params() == before  # "auto" and None leave all to it
    merged = SNC(gamma=1.0, prior=0.0, smoothing=0.0, vote="nearest", max_iter=4, compressor=compressor)._compressor()
    ours = {"gamma": 1.0, "prior": 0.0, "smoothing": 0.0, "vote": "nearest", "max_iter": 4}
    assert merged.get_params() == before | ours
    assert SNC(checkpoint="here", compressor=compressor)._compressor().checkpoint == "here"
    assert compressor.get_params() == before
    with pytest.raises(
        TypeError, match=r"compressor is a KeepAll; SNC learns with a StochasticCompression.*PrototypeC"
    ):
        SNC(compressor=KeepAll()).fit(*labelled("sqeuclidean", 60))


@pytest.mark.parametrize("model", [SCC, SHC, SNC])
def test_removed_parameters_say_what_to_do_instead(model):
    for name, instead in {
        "early_stopping": "descents end by themselves",
        "validation_fraction": "settings are cross-validated; see `selection_`",
        "attraction": "`prior` holds prototypes near their start",
        "whiten": r"compressor=StochasticCompression\(chart='paper'\)",
        "roots": r"compressor=StochasticCompression\(chart='paper'\)",
        "init": r"compressor=StochasticCompression\(init=...\)",
        "batch_size": r"compressor=StochasticCompression\(batch_size=...\)",
    }.items():
        with pytest.raises(TypeError, match=f"{model.__name__} has no parameter '{name}'; .*{instead}"):
            model(**{name: None})
    with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'colour'$"):
        model(colour="red")
    with pytest.raises(TypeError, match="positional argument"):
        model(None, 3)


def test_the_sampler_serves_imbalanced_learns_pipeline(rng):
    from imblearn.pipeline import make_pipeline as make_sampling_pipeline
    from sklearn.neighbors import KNeighborsClassifier

    X, y = labelled("sqeuclidean", 200)
    sampler = PrototypeSampler("sqeuclidean", StochasticCompression(max_iter=10, prior=1.0), 9, random_state=0)
    pipeline = make_sampling_pipeline(sampler, KNeighborsClassifier(1)).fit(X[:150], y[:150])
    assert pipeline[-1].n_samples_fit_ == 9
    assert pipeline.score(X[150:], y[150:]) > 0.7


def test_a_saved_model_predicts_the_same(tmp_path):
    clf, X, _ = fitted_once("scc")
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
    clf = clone(model).set_params(checkpoint=path, random_state=random_state, max_iter=10)
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


def test_where_the_geometry_wanted_would_take_too_long_only_the_quick_one_is_tried(monkeypatch):
    X, y = labelled("jbld", 60)

    def metrics(**params):
        return {seen["metric"] for seen in SCC(6, max_iter=3, **params).fit(X, y).selection_}

    assert metrics() == {"tangent", "jbld"}
    monkeypatch.setattr(stochastic, "_MAX_WORK", 60 * 6 * X.shape[1] ** 3 - 1)
    assert metrics() == {"tangent"}
    assert SCC(6, max_iter=3, metric="jbld").fit(X, y).metric_ == "jbld"  # who wants it gets it


@pytest.mark.parametrize("again", ["fit", "partial_fit"])
def test_a_fit_that_is_interrupted_at_its_end_leaves_the_model_as_it_was(again, monkeypatch):
    data = knnpress.datasets.load_digits_covariances()
    X, y = data.X[:120], data.y[:120]
    model = SCC(10, gamma="scale", prior=1.0, smoothing=0.02, vote="soft", metric="jbld").fit(X[:80], y[:80])
    before = {name: np.copy(value) for name, value in vars(model).items() if isinstance(value, np.ndarray)}

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(model), "_levels", interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(model, again)(X[40:], y[40:])
    after = {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray)}
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert_array_equal(after[name], value, err_msg=name)
