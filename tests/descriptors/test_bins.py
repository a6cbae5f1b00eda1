"""Histograms of colours and of places."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

from knnpress.datasets import load_digits_histograms
from knnpress.descriptors import ColorHistogram, GridHistogram


def test_colors_are_counted_as_numpy_counts_them(rng):
    images = rng.random((3, 9, 11, 3))
    H = ColorHistogram(n_bins=3, space="rgb").fit_transform(images)
    for image, histogram in zip(images, H, strict=True):
        counts = np.histogramdd(image.reshape(-1, 3).astype(np.float32), bins=3, range=[(0, 1)] * 3)[0]
        assert_allclose(histogram, counts.ravel() / counts.sum())


def test_the_cost_between_colors_is_euclidean():
    descriptor = ColorHistogram(n_bins=2, space="rgb").fit([])
    assert_allclose(descriptor.ground_cost_[0], np.sqrt([0, 1, 1, 2, 1, 2, 2, 3]) / 2)
    lab = ColorHistogram(n_bins=2).fit([]).ground_cost_
    assert_allclose(lab, lab.T)
    assert lab[2, 3] != pytest.approx(lab[4, 5])  # as seen, equal steps in RGB differ


def test_a_gray_image_has_gray_colors(rng):
    H = ColorHistogram(n_bins=3, space="rgb").fit_transform(rng.random((2, 8, 8))).reshape(2, 3, 3, 3)
    assert_allclose(np.einsum("nkkk->n", H), 1)


def test_the_grid_of_digits_is_the_embedded_set():
    images = load_digits().images[:20]
    expected = load_digits_histograms()
    descriptor = GridHistogram(size=8).fit(images)
    assert_allclose(descriptor.transform(images), expected.X[:20], atol=1e-7)
    assert_allclose(descriptor.ground_cost_, expected.ground_cost)


@pytest.mark.parametrize("shape", [(16, 24), (5, 7), (3, 2)])
def test_light_is_shared_out_by_area(rng, shape):
    image = rng.random(shape)
    H = GridHistogram(size=4).fit_transform([image])[0]
    fine = np.repeat(np.repeat(image, 4, axis=0), 4, axis=1)  # every cell is now whole pixels
    blocks = fine.reshape(4, shape[0], 4, shape[1]).sum(axis=(1, 3))
    assert_allclose(H, blocks.ravel() / blocks.sum(), rtol=1e-6)


def test_inverted_counts_darkness(rng):
    image = rng.random((6, 6))
    a, b = GridHistogram(3, invert=True).fit_transform([image]), GridHistogram(3).fit_transform([image.max() - image])
    assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize(
    ("descriptor", "image", "message"),
    [
        (GridHistogram(), np.zeros((4, 4)), r"images\[0\] is all black.*invert=True"),
        (GridHistogram(invert=True), np.full((4, 4), 0.5), r"images\[0\] is all light.*invert=False"),
        (GridHistogram(), np.full((4, 4), -0.5), r"images\[0\] has negative brightness"),
        (GridHistogram(size=0), np.ones((4, 4)), "size is 0"),
        (ColorHistogram(n_bins=0), np.ones((4, 4)), "n_bins is 0"),
        (ColorHistogram(space="hsv"), np.ones((4, 4)), "space is 'hsv'; choose 'lab' or 'rgb'"),
    ],
)
def test_bad_input_is_refused(descriptor, image, message):
    with pytest.raises(ValueError, match=message):
        descriptor.fit_transform([image])
