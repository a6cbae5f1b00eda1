"""What is measured at a pixel, against other libraries and on images whose answer is known."""

import cv2
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import ndimage

from knnpress.descriptors.features import FEATURES, as_features, derivative, gabor_magnitudes, pixel_rows, sift
from knnpress.descriptors.images import Picture, as_picture

SIZES = {
    "color-texture": 19,
    "color-derivatives": 18,
    "gradient": 12,
    "gabor": 40,
    "color-gabor": 23,
    "sift": 128,
    "depth": 18,
}


def smooth(rng, shape=(40, 33)):
    image = ndimage.gaussian_filter(rng.random(shape), 1.5)
    return ((image - image.min()) / np.ptp(image)).astype(np.float32)


def picture_for(name, rng, shape=(40, 33)):
    channels = [smooth(rng, shape) for _ in range(4)]
    return as_picture(np.dstack([*channels[:3], 1 + channels[3]]), FEATURES[name].layout)


def test_every_set_is_listed():
    assert set(SIZES) == set(FEATURES)


@pytest.mark.parametrize("shape", [(40, 33), (7, 50), (2, 3), (1, 2)])
@pytest.mark.parametrize("name", SIZES)
def test_sets_have_their_size_on_images_of_any_shape(rng, name, shape):
    planes = FEATURES[name].compute(picture_for(name, rng, shape))
    assert len(FEATURES[name].names) == (0 if name == "sift" else len(planes))
    assert planes.shape == (SIZES[name], *shape)
    assert np.isfinite(planes).all()


@pytest.mark.parametrize("sigma", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("order", [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 1)])
def test_derivatives_are_those_of_scipy_in_units_of_their_scale(rng, sigma, order):
    image = smooth(rng)
    expected = ndimage.gaussian_filter(image.astype(float), sigma, order=order[::-1]) * sigma ** sum(order)
    assert_allclose(derivative(image, sigma, *order), expected, atol=3e-3 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["color-texture", "color-derivatives", "gradient"])
def test_features_of_a_mirrored_image_are_mirrored(rng, name):
    picture = picture_for(name, rng)
    mirrored = FEATURES[name].compute(Picture(picture.pixels[:, ::-1].copy()))[..., ::-1]
    assert_allclose(np.abs(mirrored), np.abs(FEATURES[name].compute(picture)), atol=1e-5)


@pytest.mark.parametrize("directions", [4, 8])
def test_gabor_responses_to_a_mirrored_image_change_places(rng, directions):
    image = smooth(rng)
    plain = gabor_magnitudes(image, directions).reshape(5, directions, *image.shape)
    mirrored = gabor_magnitudes(image[:, ::-1], directions)[..., ::-1].reshape(plain.shape)
    assert_allclose(mirrored, plain[:, -np.arange(directions) % directions], atol=1e-4)  # theta and pi - theta


@pytest.mark.parametrize("wavelength", [0, 2, 4])
@pytest.mark.parametrize("direction", [0, 3, 6])
def test_a_wave_excites_its_own_gabor_filter_most(wavelength, direction):
    length, angle = 4.0 * 2 ** (wavelength / 2), direction * np.pi / 8
    y, x = np.mgrid[0:80, 0:80]
    wave = (0.5 + 0.4 * np.cos(2 * np.pi / length * (x * np.cos(angle) + y * np.sin(angle)))).astype(np.float32)
    response = gabor_magnitudes(wave, 8)[:, 25:-25, 25:-25].mean(axis=(1, 2))
    assert response.argmax() == 8 * wavelength + direction
    assert_allclose(response.max(), 0.2, rtol=0.02)  # half the amplitude: one of the wave's two frequencies


def test_a_constant_image_excites_no_gabor_filter():
    assert gabor_magnitudes(np.full((37, 41), 0.7, dtype=np.float32), 4).max() == 0


def test_dense_sift_agrees_with_opencv(rng):
    image = (smooth(rng, (90, 80)) * 255).astype(np.uint8)
    places = [(x, y) for y in range(20, 70, 7) for x in range(20, 60, 7)]
    keypoints, theirs = cv2.SIFT_create().compute(image, [cv2.KeyPoint(x, y, 8 / 3, 0, 1, 0) for x, y in places])
    # OpenCV first smooths to a scale of 1.6 from an assumed 0.5, and counts directions the other way round
    ours = sift(Picture(cv2.GaussianBlur(image.astype(np.float32) / 255, (0, 0), np.sqrt(1.6**2 - 0.5**2))))
    at = np.array([ours[:, int(k.pt[1]), int(k.pt[0])] for k in keypoints]).reshape(-1, 16, 8)[..., -np.arange(8) % 8]
    cosine = np.sum(at.reshape(theirs.shape) * theirs, axis=1)
    cosine /= np.linalg.norm(at, axis=(1, 2)) * np.linalg.norm(theirs, axis=1)
    assert len(cosine) == len(places)
    assert cosine.min() > 0.995


def test_sift_does_not_change_with_brightness_and_contrast(rng):
    image = smooth(rng)
    assert_allclose(sift(Picture(0.3 * image + 0.2)), sift(Picture(image)), atol=0.02)
    assert np.abs(sift(Picture(np.full((20, 20), 0.4, dtype=np.float32)))).max() < 1e-6


def test_normals_are_those_of_a_tilted_plane():
    x = np.mgrid[0:30, 0:40][1].astype(np.float32)
    depth = 1000 + 0.5 * x  # a pixel spans 1000 / 525 of depth's unit
    picture = as_picture(np.dstack([np.zeros_like(depth), depth]), "depth")
    nx, ny = FEATURES["depth"].compute(picture)[-2:, 8:-8, 8:-8]
    slope = 0.5 * 525 / depth[8:-8, 8:-8]
    assert_allclose(nx, -slope / np.sqrt(1 + slope**2), rtol=2e-3)
    assert_allclose(ny, 0, atol=1e-3)


def test_where_no_depth_was_measured_no_pixel_counts(rng):
    image = np.dstack([smooth(rng), 1 + smooth(rng)])
    image[5:9, 5:9, 1] = 0
    picture = as_picture(image, "depth")
    rows = pixel_rows(FEATURES["depth"], picture)
    assert rows.shape == (18, image[..., 0].size - 16)
    assert np.isfinite(rows).all()


def test_a_function_gets_the_image_as_given_and_nan_leaves_pixels_out(rng):
    image = rng.integers(0, 1000, size=(6, 5, 7))

    def features(given):
        assert given is image
        planes = given[..., :2].astype(float)
        planes[0, 0, 1] = np.nan
        return planes

    chosen = as_features(features)
    rows = pixel_rows(chosen, as_picture(image, chosen.layout))
    assert_allclose(rows, image[..., :2].reshape(-1, 2)[1:].T)
    with pytest.raises(ValueError, match=r"made \(6, 5\) of it; it must return \(height, width, features\)"):
        pixel_rows(as_features(lambda given: given[..., 0]), as_picture(image, "raw"))


def test_an_unknown_set_lists_the_known():
    with pytest.raises(ValueError, match="features is 'colour'; choose one of 'color-texture'"):
        as_features("colour")


@pytest.mark.parametrize("channels", [1, 3])
def test_depth_features_need_depth(rng, channels):
    with pytest.raises(ValueError, match=r"2 \(gray, depth\) or 4 \(RGB, depth\)"):
        as_picture(rng.random((8, 8, channels)), "depth")
