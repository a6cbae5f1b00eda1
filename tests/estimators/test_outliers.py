"""Points that no class has had the like of: scores, rejection, and what is kept of them in files."""

import csv

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.pipeline import make_pipeline

import knnpress as kp
from knnpress.descriptors import Recenter
from knnpress.estimators.outliers import LEVELS, average_levels, class_levels, rejecting


def clouds(rng, n=300, d=3):
    y = np.tile(["left", "right"], n // 2)
    return rng.normal(size=(n, d)) + 6.0 * (y == "right")[:, None], y


@pytest.fixture
def fitted(rng):
    X, y = clouds(rng)
    return kp.SNC(6, n_jobs=1).fit(X, y), X, y


def test_about_the_share_given_is_rejected_of_alike_points_and_all_of_strange_ones(fitted, rng):
    model, X, _ = fitted
    new, truth = clouds(rng, 2000)
    for share in (0.01, 0.05, 0.2):
        rejected = model.predict(X, reject=share, reject_label="?") == "?"
        assert rejected.mean() <= share  # the nearest class may be nearer than the own one
        assert rejected.mean() > share / 3
        assert abs(np.mean(model.predict(new, reject=share, reject_label="?") == "?") - share) < 0.5 * share + 0.02
    far = rng.normal(size=(50, 3)) - 30.0
    assert (model.predict(far, reject=0.0, reject_label="?") == "?").all()
    kept = model.predict(new, reject=0.05, reject_label="?")
    assert np.mean(kept[kept != "?"] == truth[kept != "?"]) > 0.99


def test_scores_are_shares_and_then_multiples(fitted):
    model, X, y = fitted
    scores = model.outlier_score(X)
    assert scores.min() >= 0.0
    assert scores.max() < 1.0  # no point is farther than itself
    distance = model.transform(X)
    own = np.where(model.prototype_labels_ == y[:, None], distance, np.inf).min(axis=1)
    assert (model.distance_levels_[:, -1] >= [own[y == c].max() for c in model.classes_]).all()
    step = np.array([[-1.0, -1.0, -1.0]]) * np.array([[5.0], [10.0], [20.0]])
    beyond = model.outlier_score(step)
    assert (np.diff(beyond) > 0).all()
    assert beyond[0] > 1
    near_left = model.transform(step)[:, model.prototype_labels_ == "left"].min(axis=1)
    assert_allclose(beyond, near_left / model.distance_levels_[0, -1])


@pytest.mark.parametrize("seed", [0, 1, 2, 3])  # which class is the first inside of the learning
def test_levels_are_those_of_points_that_were_not_learned_from(rng, seed):
    """Of few points in many dimensions: prototypes go where those are that they are learned from."""
    labels = ["left", "right"]
    y = np.tile(labels, 60)
    X, new = (rng.normal(size=(n, 40)) * np.where(np.tile(labels, n // 2) == "left", 1, 5)[:, None] for n in (120, 600))
    X[y == "right"] += 9.0
    new[np.tile(labels, 300) == "right"] += 9.0
    model = kp.SNC(40, prior=0.01, smoothing=0.0, random_state=seed).fit(X, y)
    truth = np.tile(labels, 300)
    near = model.transform(new)
    own = np.where(model.prototype_labels_ == truth[:, None], near, np.inf).min(axis=1)
    for c, name in enumerate(model.classes_):  # each class has levels of its own, by its name
        middle = model.distance_levels_[c, LEVELS == 0.5][0]
        assert 0.1 < np.mean(own[truth == name] < middle) < 0.9
    assert np.mean(model.predict(new, reject=0.0, reject_label="?") == "?") < 0.05
    fixed = kp.SNC(40, prior=0.01, smoothing=0.0, gamma="scale", vote="nearest").fit(X, y)  # nothing was held out
    assert np.mean(fixed.predict(new, reject=0.0, reject_label="?") == "?") > 0.1


def test_density_falls_with_distance_and_is_that_of_all_prototypes(fitted):
    model, X, _ = fitted
    assert model.score_samples(X).mean() > model.score_samples(X - 20.0).max()
    direct = np.log(np.exp(-(model.gamma_**2) * model.transform(X)).mean(axis=1))
    assert_allclose(model.score_samples(X), direct, rtol=1e-9)


def test_labels_that_cannot_mix_come_as_objects(fitted):
    model, X, _ = fitted
    assert model.predict(X).dtype.kind == "U"
    assert model.predict(X - 99.0, reject=0.05).tolist() == [None] * len(X)
    assert model.predict(X - 99.0, reject=0.05, reject_label="no class at all")[0] == "no class at all"
    numbers = rejecting(np.array([1, 2]), np.array([True, False]), -1)
    assert numbers.dtype.kind == "i"
    assert numbers.tolist() == [-1, 2]
    assert rejecting(np.array([1, 2]), np.array([True, False]), "?").tolist() == ["?", 2]
    with pytest.raises(ValueError, match=r"reject_label is .*; give one label"):
        model.predict(X, reject=0.05, reject_label=["a", "b"])


@pytest.mark.parametrize("reject", [-0.1, 1.0, "5%", True, float("nan")])
def test_what_is_not_a_share_is_refused(fitted, reject):
    model, X, _ = fitted
    with pytest.raises(ValueError, match=r"reject is .*; give the share of the training points"):
        model.predict(X, reject=reject)


def test_levels_count_points_by_their_weight():
    near = np.array([3.0, 1.0, 2.0, 9.0])
    twice = class_levels(near[[0, 0, 1, 2]], np.zeros(4, dtype=int), 1, None)
    assert np.array_equal(class_levels(near, np.zeros(4, dtype=int), 1, np.array([2.0, 1.0, 1.0, 0.0])), twice)
    assert twice[0, 0] == 1.0
    assert twice[0, -1] == 3.0
    assert twice[0, LEVELS == 0.5] == 2.0
    absent = class_levels(near, np.zeros(4, dtype=int), 2, None)
    assert np.isnan(absent[1]).all()
    mixed = average_levels(absent, np.array([4.0, 0.0]), absent[::-1], np.array([0.0, 4.0]))
    assert np.array_equal(mixed, absent[[0, 0]])


def test_points_of_weight_zero_do_not_move_the_levels(rng):
    X, y = clouds(rng)
    X, y, weight = np.vstack([X, X[:20] + 100.0]), np.append(y, ["odd"] * 20), np.append(np.ones(300), np.zeros(20))
    with_them, without = kp.SNC(6).fit(X, y, weight), kp.SNC(6).fit(X[:300], y[:300])
    assert np.array_equal(with_them.distance_levels_, without.distance_levels_)


def test_batches_keep_levels_too(rng):
    X, y = clouds(rng)
    model = kp.SNC(4)
    for rows in np.array_split(np.arange(300), 3):
        model.partial_fit(X[rows], y[rows])
    whole = np.median(model.transform(X)[:, model.prototype_labels_ == "left"].min(axis=1)[y == "left"])
    assert_allclose(model.distance_levels_[0, LEVELS == 0.5], whole, rtol=0.4)
    assert model.outlier_score(X - 50.0).min() > 1
    assert model.calibration_["method"] == "none"


def test_calibration_says_how_and_lowers_the_loss_of_new_points(rng):
    y = np.tile([0, 1], 300)
    X = rng.normal(size=(600, 4)) + 0.7 * y[:, None]
    model = kp.SNC(20).fit(X[:300], y[:300])
    assert model.calibration_["method"] == "temperature"
    assert model.calibration_["temperature"] == model.temperature_
    assert model.calibration_["n_settings"] == len(model.selection_)

    def loss():
        p = model.predict_proba(X[300:])[np.arange(300), y[300:]]
        return -np.log(np.maximum(p, 1e-12)).mean()

    calibrated, model.temperature_ = loss(), 1.0
    assert calibrated < loss()
    assert calibrated < np.log(2)


def test_a_file_keeps_all_of_it(fitted, tmp_path):
    model, X, _ = fitted
    model.save(tmp_path / "m.knnp")
    again = kp.load(tmp_path / "m.knnp")
    assert again.calibration_ == model.calibration_
    assert np.array_equal(again.outlier_score(X), model.outlier_score(X))
    assert np.array_equal(again.score_samples(X), model.score_samples(X))
    old = kp.load(tmp_path / "m.knnp")
    del old.distance_levels_
    with pytest.raises(ValueError, match="did not keep distance_levels_; fit it again"):
        old.predict(X, reject=0.05)


def test_a_descriptor_classifier_rejects_too(rng):
    signals = rng.normal(size=(60, 3, 80)) * np.where(np.arange(60) % 2, 1.0, [[1.0], [3.0], [1.0]]).T[:, :, None]
    model = kp.DescriptorClassifier(kp.descriptors.SignalCovariance(), kp.SCC(2)).fit(signals, np.arange(60) % 2)
    assert model.outlier_score(50.0 * signals).min() > 1
    assert model.score_samples(signals).shape == (60,)
    assert (model.predict(50.0 * signals, reject=0.05, reject_label=-1) == -1).all()


def test_the_command_line_marks_what_it_rejects(fitted, rng, tmp_path, capsys):
    from knnpress.cli import main

    model, X, _ = fitted
    model.save(tmp_path / "m.knnp")
    np.save(tmp_path / "x.npy", np.vstack([X[:5], X[:5] - 90.0]))
    for more, column in (([], None), (["--reject", "0.001"], ["no"] * 5 + ["yes"] * 5)):
        main(["predict", str(tmp_path / "m.knnp"), str(tmp_path / "x.npy"), "-o", str(tmp_path / "o.csv"), *more])
        rows = list(csv.DictReader((tmp_path / "o.csv").read_text().splitlines()))
        assert [*rows[0]][:3] == ["item", "prediction", "probability"]
        assert column is None or [row["rejected"] for row in rows] == column
    plain = kp.PrototypeClassifier("sqeuclidean").fit(X, model.predict(X))
    plain.save(tmp_path / "p.knnp")
    assert main(["predict", str(tmp_path / "p.knnp"), str(tmp_path / "x.npy"), "--reject", "0.05"]) != 0
    assert "which rejects nothing" in capsys.readouterr().err


def test_a_pipeline_passes_reject_on_where_metadata_are_routed(rng):
    A, who = rng.normal(size=(40, 3, 9)), np.arange(40) % 2
    X = A @ A.transpose(0, 2, 1)
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(Recenter(), kp.SCC(n_prototypes=4, max_iter=3, gamma="scale", prior=1.0))
        model.fit(X, np.arange(40) // 20, groups=who)
        labels = model.predict(X, groups=who, reject=0.9, reject_label=-1)
    assert (labels == -1).any()
