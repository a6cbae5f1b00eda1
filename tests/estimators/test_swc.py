"""SWC: learning, prediction, files, batches, and what must not matter."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedShuffleSplit,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import Pipeline

import knnpress as kp
from knnpress.compression import ClassCentroids, CloudCentroids, LearningVectorQuantization, StochasticCompression
from knnpress.compression.tuning import tune
from knnpress.geometries import CloudSinkhorn

PLAIN = {"prior": 1.0, "smoothing": 0.02, "gamma": "scale", "vote": "nearest", "reg": 1.0}


def rings(n=60, seed=0):
    """Clouds on a small or a large ring: their means are alike, only their shapes differ."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    angle = [rng.uniform(0, 2 * np.pi, int(rng.integers(6, 12))) for _ in y]
    parts = [
        (1.0 + 2.0 * label) * np.column_stack([np.cos(a), np.sin(a)]) + rng.normal(0, 0.3, (len(a), 2))
        for label, a in zip(y, angle, strict=True)
    ]
    return kp.Clouds.from_list(parts), y


def test_it_learns_shapes_that_means_do_not_show():
    X, y = rings()
    Q, labels = rings(seed=1)
    clf = kp.SWC(2, n_points=5, **PLAIN).fit(X, y)
    assert clf.prototypes_.shape == (2, 5, 3)
    np.testing.assert_allclose(clf.prototypes_[:, :, -1].sum(axis=1), 1.0)
    assert clf.score(Q, labels) > 0.9
    assert kp.SNC(2).fit(X.means(), y).score(Q.means(), labels) < 0.75
    assert clf.loss_curve_[-1] < clf.loss_curve_[0]
    assert clf.prototype_clouds.shape == (2, 2)
    assert (clf.n_features_in_, clf.metric_, clf.reg_) == (2, "clouds", 1.0)


def test_probabilities_agree_with_predictions_and_distances():
    X, y = rings()
    clf = kp.SWC(4, n_points=4, **{**PLAIN, "vote": "soft"}).fit(X, np.array(["small", "large"])[y])
    P = clf.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert (clf.classes_[P.argmax(axis=1)] == clf.predict(X)).all()
    D = CloudSinkhorn(1.0).pairwise(X, clf.prototypes_)
    np.testing.assert_allclose(clf.transform(X), D, atol=1e-6)


def test_auto_settings_are_chosen_by_held_out_clouds():
    X, y = rings(40)
    clf = kp.SWC(2, n_points=3, reg=1.0, max_iter=10).fit(X, y)
    assert len(clf.selection_) > 3
    assert sum(one["chosen"] for one in clf.selection_) == 1
    assert {one["start"] for one in clf.selection_} == {"given"}


def test_files_give_the_same_model(tmp_path):
    X, y = rings()
    clf = kp.SWC(2, n_points=4, **{**PLAIN, "reg": "auto"}).fit(X, y)
    clf.save(tmp_path / "model.kp")
    again = kp.load(tmp_path / "model.kp")
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert again.reg_ == clf.reg_ == again.geometry_.reg


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("batch_size", [None, 16])
def test_neither_threads_nor_the_order_of_clouds_matter(batch_size):
    X, y = rings(130)
    model = kp.SWC(4, n_points=4, max_iter=4, compressor=StochasticCompression(batch_size=batch_size), **PLAIN)
    one, two = (clone(model).set_params(n_jobs=n).fit(X, y).prototypes_ for n in (1, 3))
    np.testing.assert_array_equal(one, two)
    order = np.random.default_rng(0).permutation(len(y))
    np.testing.assert_allclose(clone(model).fit(X[order], y[order]).prototypes_, one, atol=1e-6)


def test_shared_words_are_learned_like_copies_of_them():
    rng = np.random.default_rng(0)
    vectors, y = rng.normal(size=(30, 4)), np.arange(40) % 2
    counts = rng.poisson(np.where(y[:, None] == (np.arange(30) < 15), 1.0, 0.2))
    counts[:, 0] += 1
    shared = kp.Clouds.from_csr(csr_array(counts), vectors)
    copied = kp.Clouds.from_list([one.points for one in shared], [one.weights for one in shared])
    Z = CloudCentroids(3).compress(shared, y, geometry=CloudSinkhorn(1.0), n_prototypes=2).points
    one, other = (CloudSinkhorn(1.0).linearize(X, Z) for X in (shared, copied))
    np.testing.assert_allclose(one.D, other.D, atol=1e-10)
    W = rng.normal(size=one.D.shape)
    np.testing.assert_allclose(one.pullback(W), other.pullback(W), atol=1e-10)


def test_many_clouds_are_taken_in_batches_and_the_error_does_not_rise(monkeypatch):
    monkeypatch.setattr("knnpress.estimators.swc._MANY", 100)
    monkeypatch.setattr("knnpress.estimators.swc._BATCH", 20)
    X, y = rings(160)
    errors = []
    clf = kp.SWC(2, n_points=4, reg=1.0, callback=lambda *said: errors.append(said[2]["error"])).fit(X, y)
    assert (clf.prior_, clf.smoothing_, clf.vote_, clf.selection_) == (1.0, 0.02, "nearest", [])
    assert clf.stopped_by_ == "max_iter"
    assert len(errors) == 31
    assert errors[-1] <= min(errors) + 0.02


def test_settings_are_not_searched_where_that_would_take_minutes(monkeypatch):
    X, y = rings(40)
    clf = kp.SWC(2, n_points=3, reg=1.0, max_iter=5)
    assert len(clf.fit(X, y).selection_) > 1
    monkeypatch.setattr("knnpress.estimators.swc._MAX_SEARCHED", 1e3)
    assert clf._work(2, X, y) == clf._work(0.05, X, y) == 2 * len(X.points) * 3 * 2
    clf.fit(X, y)
    assert (clf.prior_, clf.smoothing_, clf.vote_, clf.selection_) == (1.0, 0.02, "nearest", [])


def test_scikit_learn_searches_it():
    X, y = rings(40)
    model = kp.SWC(2, n_points=3, max_iter=5, **PLAIN)
    assert cross_val_score(model, X, y, cv=2).mean() > 0.9
    found = GridSearchCV(model, {"n_points": [1, 3]}, cv=2).fit(X, y)
    assert found.best_params_ == {"n_points": 3}  # one point cannot tell rings apart


def test_a_weight_of_two_counts_as_two_and_none_as_absent():
    X, y = rings(40)
    twice = np.concatenate([np.arange(40), np.arange(0, 40, 4)])
    weight = np.where(np.arange(40) % 4 == 0, 2.0, 1.0)
    start = [
        CloudCentroids(3).compress(X[rows], y[rows], geometry=CloudSinkhorn(1.0), n_prototypes=2, sample_weight=w)
        for rows, w in ((np.arange(40), weight), (twice, None))
    ]
    np.testing.assert_allclose(start[0].points, start[1].points, atol=1e-8)
    weight[:10] = 0.0
    absent = kp.SWC(2, n_points=3, max_iter=3, **PLAIN).fit(X, y, sample_weight=np.where(weight > 0, 1.0, 0.0))
    alone = kp.SWC(2, n_points=3, max_iter=3, **PLAIN).fit(X[10:], y[10:])
    np.testing.assert_allclose(absent.prototypes_, alone.prototypes_, atol=1e-6)


def test_neither_reg_nor_the_way_of_learning_goes_by_absent_clouds(monkeypatch):
    monkeypatch.setattr("knnpress.estimators.swc._MANY", 30)
    monkeypatch.setattr("knnpress.estimators.swc._BATCH", 5)
    X, y = rings(40)
    parts = [100.0 * cloud.points if k < 10 else cloud.points for k, cloud in enumerate(X)]
    model = kp.SWC(2, n_points=3, max_iter=3, **{**PLAIN, "reg": "auto"})
    absent = clone(model).fit(kp.Clouds.from_list(parts), y, sample_weight=(np.arange(40) >= 10).astype(float))
    alone = clone(model).fit(X[10:], y[10:])
    assert absent.reg_ == alone.reg_
    np.testing.assert_allclose(absent.prototypes_, alone.prototypes_, atol=1e-6)


@pytest.mark.filterwarnings("ignore:CloudSinkhorn. 1 of 80 pairs")
def test_batches_that_come_one_by_one():
    X, y = rings(80)
    clf = kp.SWC(2, n_points=4, **{**PLAIN, "reg": "auto"})
    for first in (0, 40):
        clf.partial_fit(X[first : first + 40], y[first : first + 40], classes=[0, 1])
        assert clf.reg_ == clf.geometry_.reg == CloudSinkhorn().fitted_to(X[:40]).reg  # of the first batch, for good
    assert clf.score(X, y) > 0.9


def test_bad_input_is_named():
    X, y = rings(20)
    with pytest.raises(TypeError, match=r"give knnpress\.Clouds"):
        kp.SWC(2).fit(np.zeros((20, 2)), y)
    clf = kp.SWC(2, n_points=3, max_iter=2, **PLAIN).fit(X, y)
    with pytest.raises(ValueError, match="X has 3 features, but SWC is expecting 2"):
        clf.predict(kp.Clouds.from_list([np.zeros((2, 3))]))
    for n_points in (0, 2.5, 10**9):
        with pytest.raises(ValueError, match=f"n_points is {n_points}; give .* from 1 to 100000"):
            kp.SWC(2, n_points=n_points).fit(X, y)
    with pytest.raises(ValueError, match=r"y has one class, 0$"):
        kp.SWC(2).fit(X, np.zeros(20, dtype=int))


def test_a_checkpoint_of_other_clouds_is_refused(tmp_path, monkeypatch):
    for often in ("_SECONDS", "_PAUSE"):
        monkeypatch.setattr(f"knnpress.learning.checkpoint.{often}", 0.0)
    X, y = rings(40)
    model = kp.SWC(2, n_points=3, max_iter=6, checkpoint=tmp_path / "state", **PLAIN)

    def stop(step, total, facts):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clone(model).set_params(callback=stop).fit(X, y)
    with pytest.raises(ValueError, match="X was"):
        clone(model).fit(X[::-1][:30], y[::-1][:30])


@pytest.mark.parametrize("kind", ["dask array", "array in a store", "ndarray", "list"])
def test_what_is_no_clouds_is_refused_with_the_cure(kind, tmp_path):
    X, y = rings(20)
    clf = kp.SWC(2, n_points=3, max_iter=2, **PLAIN)
    fitted = clone(clf).fit(X, y)
    packed = np.ones((20, 4, 3))
    if kind == "dask array":
        packed = pytest.importorskip("dask.array").from_array(packed, chunks=(5, 4, 3))
    elif kind == "array in a store":
        packed = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", shape=packed.shape)
    elif kind == "list":
        packed = packed.tolist()
    said = rf"X is an? {kind}.*; SWC takes clouds: give knnpress\.Clouds.*in a store or a dask array, .*StoredClouds"
    ways = [lambda: clf.fit(packed, y), lambda: clf.partial_fit(packed, y), lambda: fitted.partial_fit(packed, y)]
    queries = ("predict", "predict_proba", "transform", "kneighbors", "outlier_score")
    for way in [*ways, *(lambda name=name: getattr(fitted, name)(packed) for name in queries)]:
        with pytest.raises(TypeError, match=said):
            way()


@pytest.mark.filterwarnings("ignore:CloudSinkhorn")
def test_settings_of_clouds_are_searched_and_a_storage_of_others_is_refused(tmp_path):
    pytest.importorskip("optuna")
    X, y = rings(40)
    search = partial(tune, kp.SWC(2, n_points=3, max_iter=3, **PLAIN), n_trials=2, random_state=0)
    found = search(X, y, space={"reg": [1.0, 2.0]}, storage=tmp_path / "trials")
    assert found.best_score > 0.8
    other = kp.Clouds(X.points + 1e-6, X.offsets)
    with pytest.raises(ValueError, match="holds another search: X was"):
        search(other, y, space={"reg": [1.0, 2.0]}, storage=tmp_path / "trials")
    assert search(X, y).best_params.keys() == {"gamma", "prior", "smoothing"}


@pytest.mark.filterwarnings("ignore:CloudSinkhorn")
def test_gamma_is_tuned_without_the_absent_clouds():
    pytest.importorskip("optuna")
    X, y = rings(30)
    model = kp.SWC(2, n_points=2, max_iter=2, **{**PLAIN, "gamma": "tune"})
    weight = (np.arange(30) >= 4).astype(float)
    found, alone = model.fit(X, y, sample_weight=weight).gamma_, model.fit(X[4:], y[4:]).gamma_
    assert found == alone > 0


@pytest.mark.parametrize("compressor", [StochasticCompression(), ClassCentroids(), LearningVectorQuantization()])
def test_compressors_that_average_arrays_refuse_clouds_and_say_what_to_use(compressor):
    X, y = rings(20)
    model = kp.PrototypeClassifier(CloudSinkhorn(1.0, n_points=3), compressor, n_prototypes=2)
    with pytest.raises(TypeError, match=rf"{type(compressor).__name__} .*clouds.*; .*CloudCentroids\(n_points\)"):
        model.fit(X, y)
    started = StochasticCompression(init=CloudCentroids(3), max_iter=3)
    assert model.set_params(compressor=started).fit(X, y).score(X, y) > 0.8


def test_splitters_and_searches_of_scikit_learn_cut_clouds_with_their_groups():
    X, y = rings(48)
    model, groups = kp.SWC(2, n_points=3, max_iter=3, **PLAIN), np.arange(48) // 4
    for cv in (KFold(3, shuffle=True, random_state=0), StratifiedGroupKFold(3), ShuffleSplit(2, random_state=0)):
        own = groups if isinstance(cv, StratifiedGroupKFold) else None
        assert cross_val_score(model, X, y, cv=cv, groups=own).mean() > 0.8
    assert (cross_val_predict(model, X, y, cv=3) == y).mean() > 0.8
    steps = Pipeline([("swc", model)])
    found = GridSearchCV(steps, {"swc__reg": [0.5, 2.0], "swc__n_points": [1, 3]}, cv=2, n_jobs=2).fit(X, y)
    assert found.best_params_["swc__n_points"] == 3
    assert found.best_estimator_.score(*rings(seed=1)) > 0.8
    train, test = next(StratifiedShuffleSplit(1, test_size=0.25, random_state=0).split(X, y))
    parts = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)
    assert clone(model).fit(X[train], y[train]).score(X[test], y[test]) > 0.8
    assert clone(model).fit(parts[0], parts[2]).score(parts[1], parts[3]) > 0.8


@pytest.mark.filterwarnings("ignore:CloudSinkhorn. 1 of 40 pairs")
def test_progress_counts_passes_and_says_loss_and_error():
    X, y = rings(60)
    said = []
    compressor = StochasticCompression(batch_size=20)
    clf = kp.SWC(2, n_points=3, max_iter=5, compressor=compressor, callback=lambda *one: said.append(one), **PLAIN)
    clf.fit(X, y)
    assert [step for step, _, _ in said] == list(range(6))
    assert [facts["loss"] for _, _, facts in said] == pytest.approx(clf.loss_curve_)
    assert all(0 <= facts["error"] <= 1 for _, _, facts in said)


@pytest.mark.parametrize("batch_size", [None, 10])
def test_a_fit_broken_off_anywhere_goes_on_to_the_same_prototypes(tmp_path, batch_size, monkeypatch):
    for often in ("_SECONDS", "_PAUSE"):
        monkeypatch.setattr(f"knnpress.learning.checkpoint.{often}", 0.0)  # written at every iteration
    X, y = rings(40)
    plain = kp.SWC(2, n_points=3, max_iter=5, compressor=StochasticCompression(batch_size=batch_size), **PLAIN)
    whole = plain.fit(X, y).prototypes_

    for last in (1, 3):
        model = clone(plain).set_params(checkpoint=tmp_path / f"state-{last}")

        def stop(step, total, facts, last=last):
            if step == last:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            clone(model).set_params(callback=stop).fit(X, y)
        assert (tmp_path / f"state-{last}").exists()
        steps = []
        resumed = clone(model).set_params(callback=lambda step, *_, steps=steps: steps.append(step)).fit(X, y)
        np.testing.assert_array_equal(resumed.prototypes_, whole)
        assert min(steps, default=9) >= last - 1  # what was done is not done again
