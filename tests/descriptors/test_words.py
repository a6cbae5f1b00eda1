"""Bags of words: counts of the nearest of k-means' centres."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from knnpress.descriptors import BagOfWords
from knnpress.descriptors.features import FEATURES, pixel_rows
from knnpress.descriptors.images import as_picture


def textures(rng, n=6, shape=(40, 30)):
    """Stripes of different widths under noise, uint8."""
    x = np.arange(shape[1])
    waves = [0.5 + 0.3 * np.sin(2 * np.pi * x / (3 + k)) for k in range(n)]
    return [(255 * np.clip(wave + 0.1 * rng.random(shape), 0, 1)).astype(np.uint8) for wave in waves]


def bag(**parameters):
    return BagOfWords(**{"n_words": 7, "random_state": 0, "n_jobs": 1, **parameters})


@pytest.mark.parametrize("step", [1, 3])
def test_histograms_count_nearest_words(rng, step):
    images = textures(rng)
    fitted = bag(step=step).fit(images)
    for image, histogram in zip(images, fitted.transform(images), strict=True):
        rows = pixel_rows(FEATURES["gradient"], as_picture(image, "alpha")).T.reshape(40, 30, -1)[::step, ::step]
        nearest = cdist(rows.reshape(-1, 12) / fitted.scale_, fitted.words_).argmin(axis=1)
        assert_allclose(histogram, np.bincount(nearest, minlength=7) / len(nearest), atol=1e-12)


def test_the_ground_cost_is_the_distance_between_words(rng):
    fitted = bag().fit(textures(rng))
    assert_allclose(fitted.ground_cost_, cdist(fitted.words_, fitted.words_), atol=1e-7)
    assert np.array_equal(fitted.ground_cost_, fitted.ground_cost_.T)
    assert np.array_equal(np.diagonal(fitted.ground_cost_), np.zeros(7))


def test_features_are_scaled_by_their_spread(rng):
    images = textures(rng)
    fitted = bag(step=1).fit(images)
    rows = np.concatenate([pixel_rows(FEATURES["gradient"], as_picture(image, "alpha")) for image in images], axis=1)
    assert_allclose(fitted.scale_, rows.std(axis=1), rtol=1e-10)


def test_words_tell_textures_apart(rng):
    first, second = textures(rng), textures(rng)
    fitted = bag(step=2).fit(first)
    assert (cdist(fitted.transform(second), fitted.transform(first), "cityblock").argmin(axis=1) == np.arange(6)).all()


def test_the_seed_decides_and_any_kind_will_do(rng):
    images = textures(rng, n=3, shape=(20, 30))
    once, again = (bag(random_state=3).fit(images).words_ for _ in range(2))
    assert np.array_equal(once, again)
    assert not np.array_equal(once, bag(random_state=4).fit(images).words_)
    for state in (np.random.default_rng(0), np.random.RandomState(0), None):
        assert bag(random_state=state).fit(images).words_.shape == (7, 12)


def test_a_constant_feature_does_no_harm():
    images = [np.full((20, 20), 90, dtype=np.uint8), np.arange(400, dtype=np.uint8).reshape(20, 20)]
    fitted = bag(features=lambda image: np.dstack([image, np.ones_like(image)]), n_words=3).fit(images)
    assert fitted.scale_[1] == 1
    assert np.isfinite(fitted.transform(images)).all()


def test_bad_input_is_refused(rng):
    images = textures(rng)
    with pytest.raises(NotFittedError):
        bag().transform(images)
    with pytest.raises(ValueError, match="the 1 images have 4 pixels to describe, fewer than n_words=7"):
        bag(step=1).fit([images[0][:2, :2]])
    with pytest.raises(ValueError, match="step is 0"):
        bag(step=0).fit(images)
    with pytest.raises(ValueError, match="n_words is 0"):
        bag(n_words=0).fit(images)
    hidden = np.dstack([images[0], np.zeros_like(images[0])])
    hidden[1, 1, 1] = 255
    with pytest.raises(ValueError, match=r"images\[0\] has no pixel to describe inside its mask at step=4"):
        bag().fit(images).transform([hidden])


def test_it_can_be_cloned():
    assert repr(clone(bag())) == repr(bag())
