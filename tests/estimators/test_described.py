"""Images and signals through a descriptor to a class."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline

import knnpress as kp
from knnpress.descriptors import GridHistogram, Recenter, RegionCovariance, SignalCovariance
from knnpress.estimators.described import as_described
from knnpress.geometries import Sinkhorn


def stripes(rng, n=60):
    """Images of horizontal or vertical stripes, with noise and of varying size."""
    images, labels = [], []
    for k in range(n):
        h, w = rng.integers(24, 40, 2)
        wave = np.sin(np.arange(w)[None, :] if k % 2 else np.arange(h)[:, None]) * np.ones((h, w))
        images.append(np.clip(128 + 60 * wave + 25 * rng.normal(size=(h, w)), 0, 255).astype(np.uint8))
        labels.append("vertical" if k % 2 else "horizontal")
    return images, np.array(labels)


@pytest.mark.parametrize("classifier", [kp.SCC(4, random_state=0), kp.PrototypeClassifier("jbld")])
def test_images_in_classes_out_and_one_file_holds_it_all(rng, tmp_path, classifier):
    images, labels = stripes(rng)
    clf = kp.DescriptorClassifier(RegionCovariance("gradient"), classifier).fit(images[:40], labels[:40])
    assert clf.score(images[40:], labels[40:]) > 0.9
    clf.save(tmp_path / "model.knnp")
    again = kp.load(tmp_path / "model.knnp")
    assert_array_equal(again.predict_proba(images), clf.predict_proba(images))
    assert_array_equal(again.classes_, ["horizontal", "vertical"])


@pytest.mark.parametrize("classifier", [kp.SHC(n_prototypes=4), kp.PrototypeClassifier(Sinkhorn())])
def test_a_classifier_without_a_ground_cost_gets_that_of_the_descriptor(rng, classifier):
    images = [np.roll(np.pad(255 * np.ones((4, 4)), ((0, 12), (0, 12))), k % 2 * 8, axis=1) for k in range(60)]
    images = [image + 20 * rng.random((16, 16)) for image in images]
    clf = kp.DescriptorClassifier(GridHistogram(4), clone(classifier)).fit(images, np.arange(60) % 2)
    assert clf.score(images, np.arange(60) % 2) == 1.0
    costs = [v for k, v in clf.classifier_.get_params().items() if k.split("__")[-1] == "ground_cost"]
    assert_array_equal(costs[0], clf.descriptors_[-1].ground_cost_)
    own = kp.DescriptorClassifier(GridHistogram(4), kp.SHC(np.ones((16, 16)) - np.eye(16), n_prototypes=4))
    assert own.fit(images, np.arange(60) % 2).classifier_.ground_cost[0, 1] == 1.0  # one's own stays


def test_signals_go_through_a_list_of_descriptors_and_cross_validation(rng):
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 3, 80)) * np.where(y, 2.0, 1.0)[:, None, None]
    clf = kp.DescriptorClassifier([SignalCovariance()], kp.SCC(2, max_iter=5, random_state=0))
    assert cross_val_score(clf, X, y, cv=3).mean() > 0.9
    assert clf.fit(X, y).transform(X).shape == (60, 2)
    assert clf.kneighbors(X, 1)[1].shape == (60, 1)


def test_a_failed_fit_leaves_it_unfitted(rng):
    images, labels = stripes(rng, 10)
    clf = kp.DescriptorClassifier(RegionCovariance("gradient"), kp.SCC(1))
    with pytest.raises(ValueError, match="n_prototypes is 1, but there are 2 classes"):
        clf.fit(images, labels)
    with pytest.raises(Exception, match="not fitted"):
        clf.predict(images)


def test_a_fit_that_fails_or_is_interrupted_leaves_a_fitted_model_as_it_was(rng, monkeypatch):
    images, labels = stripes(rng, 10)
    clf = kp.DescriptorClassifier(RegionCovariance("gradient"), kp.SCC(2)).fit(images, labels)
    before, answers = (clf.descriptors_, clf.classifier_), clf.predict_proba(images)
    clf.set_params(descriptor__features="sift", classifier__n_prototypes=1)
    with pytest.raises(ValueError, match="n_prototypes is 1, but there are 2 classes"):
        clf.fit(images, labels)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(kp.SCC, "_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clf.set_params(classifier__n_prototypes=2).fit(images, labels)
    assert clf.descriptors_ is before[0]
    assert clf.classifier_ is before[1]
    assert_array_equal(clf.predict_proba(images), answers)


def test_it_tells_what_it_takes_and_which_groups_it_knows(rng):
    images, labels = stripes(rng, 20)
    of_images = kp.DescriptorClassifier(RegionCovariance("gradient"), kp.PrototypeClassifier("jbld"))
    of_images.fit(images, labels)
    assert of_images.takes_images
    assert not of_images.takes_groups
    assert of_images.known_groups is None
    signals, who = rng.normal(size=(20, 3, 80)), np.repeat(["ann", "bob"], 10)
    chain = [SignalCovariance(), Recenter()]
    of_signals = kp.DescriptorClassifier(chain, kp.PrototypeClassifier("jbld")).fit(signals, labels, groups=who)
    assert not of_signals.takes_images
    assert of_signals.takes_groups
    assert_array_equal(of_signals.known_groups, ["ann", "bob"])
    covariances = of_signals.descriptors_[0].transform(signals)
    assert_array_equal(of_signals.describe(covariances, groups=who, after=1), of_signals.describe(signals, groups=who))


def test_any_fitted_model_can_be_taken_as_one_of_descriptors_and_a_classifier(rng):
    y = np.arange(20) % 2
    X = rng.normal(size=(20, 3)) + y[:, None]
    signals = rng.normal(size=(20, 3, 80)) * np.where(y, 2.0, 1.0)[:, None, None]
    plain = kp.PrototypeClassifier("sqeuclidean").fit(X, y)
    pipeline = make_pipeline(SignalCovariance(), kp.PrototypeClassifier("jbld")).fit(signals, y)
    assert as_described(plain).descriptors_ == []
    assert_array_equal(as_described(plain).predict_proba(X), plain.predict_proba(X))
    assert [type(step) for step in as_described(pipeline).descriptors_] == [SignalCovariance]
    assert_array_equal(as_described(pipeline).predict_proba(signals), pipeline.predict_proba(signals))
    whole = as_described(pipeline)
    assert as_described(whole) is whole


def test_groups_reach_every_step_in_a_cross_validation(rng):
    A = np.eye(3) + 0.3 * rng.normal(size=(4, 3, 3))
    A = 10.0 ** np.arange(-2, 2)[:, None, None] * (A @ A.transpose(0, 2, 1))  # each subject's own mixing
    subject, y = np.repeat(np.arange(4), 30), np.tile([0, 1], 60)
    signals = A[subject] @ (rng.normal(size=(120, 3, 60)) * np.where(y[:, None] == 1, [3, 1, 1], [1, 3, 1])[:, :, None])
    quick = kp.SCC(2, metric="jbld", gamma="scale", prior=1.0, smoothing=0.02, vote="nearest", max_iter=5)
    model = kp.DescriptorClassifier([SignalCovariance(), Recenter()], quick)
    with sklearn.config_context(enable_metadata_routing=True):
        scores = cross_val_score(model, signals, y, cv=GroupKFold(4), params={"groups": subject}, error_score="raise")
    assert scores.mean() > 0.9
    model.fit(signals[subject > 0], y[subject > 0], groups=subject[subject > 0])
    new = subject == 0
    assert model.score(signals[new], y[new], groups=subject[new]) == scores[0]
    half = model.score(signals[new], y[new], sample_weight=(y[new] == 0).astype(float), groups=subject[new])
    assert half == (model.predict(signals[new], groups=subject[new])[y[new] == 0] == 0).mean()
