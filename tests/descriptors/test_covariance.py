"""Region covariances: NumPy's, shrunk so that every image gives a valid matrix."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import ndimage
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from knnpress.descriptors import RegionCovariance
from knnpress.descriptors.covariance import shrink
from knnpress.descriptors.features import FEATURES, pixel_rows
from knnpress.descriptors.images import as_picture
from knnpress.exceptions import InvalidPointError
from knnpress.geometries import JBLD

EVERY = ["color-texture", "color-derivatives", "gradient", "gabor", "color-gabor", "sift"]


def images(rng, n=3, shape=(30, 26, 3)):
    blurred = ndimage.gaussian_filter(rng.random((n, *shape)), (0, 1, 1, 0))
    return (255 * blurred).astype(np.uint8)


def described(image, name="color-texture"):
    return pixel_rows(FEATURES[name], as_picture(image, FEATURES[name].layout))


@pytest.mark.parametrize("name", EVERY)
def test_without_shrinkage_it_is_the_unbiased_covariance(rng, name):
    data = images(rng)
    X = RegionCovariance(name, shrinkage=0).fit_transform(data)
    assert_allclose(X, [np.cov(described(image, name)) for image in data], rtol=1e-9, atol=1e-14)


def test_a_mask_leaves_pixels_out_however_it_is_given(rng):
    data = images(rng)
    masks = rng.random(data.shape[:3]) < 0.6
    X = RegionCovariance(shrinkage=0).fit_transform(data, masks=masks)
    expected = [np.cov(described(image)[:, mask.ravel()]) for image, mask in zip(data, masks, strict=True)]
    assert_allclose(X, expected, rtol=1e-9)
    with_opacity = np.concatenate([data, np.where(masks, 255, 0).astype(np.uint8)[..., None]], axis=-1)
    assert_allclose(RegionCovariance(shrinkage=0).transform(with_opacity), X, rtol=1e-12)
    half = np.arange(30)[:, None] < np.full(26, 15)
    both = RegionCovariance(shrinkage=0).transform(with_opacity, masks=[half] * 3)
    assert_allclose(both, RegionCovariance(shrinkage=0).transform(data, masks=masks & half), rtol=1e-12)
    with pytest.raises(ValueError, match=r"images\[1\] is 30 x 26 and its mask has shape \(26, 30\)"):
        RegionCovariance().transform(data, masks=[masks[0], masks[1].T, masks[2]])
    with pytest.raises(ValueError, match="there are 3 images and 2 masks"):
        RegionCovariance().transform(data, masks=masks[:2])


def test_shrinkage_moves_each_feature_towards_its_own_variance(rng):
    C = np.cov(rng.normal(size=(4, 50)))[None]
    X = shrink(C, 0.25)
    assert_allclose(np.diagonal(X[0]), np.diagonal(C[0]), rtol=1e-12)
    assert_allclose((X - np.diag(np.diagonal(X[0])))[0], 0.75 * (C[0] - np.diag(np.diagonal(C[0]))), rtol=1e-12)


def test_shrinkage_does_not_care_for_units(rng):
    C = np.cov(rng.normal(size=(4, 50)))[None]
    units = np.diag([1.0, 2.0, 0.5, 3.0])
    assert_allclose(shrink(units @ C @ units, 0.1), units @ shrink(C, 0.1) @ units, rtol=1e-12)


def test_the_condition_number_is_bounded_as_stated(rng):
    for scale in (1, 1e-3, 0):
        features = rng.normal(size=(6, 3)) @ rng.normal(size=(3, 40)) * np.array([1, 1, 1, scale, scale, 0])[:, None]
        X = shrink(np.cov(features)[None], 1e-3)
        assert np.linalg.cond(X[0]) <= 100 * 6 / 1e-3
    assert_allclose(shrink(np.zeros((1, 3, 3)), 1e-3), 1e-3 * np.eye(3)[None])


@pytest.mark.parametrize("value", [0, 128, 255])
@pytest.mark.parametrize("name", EVERY)
def test_a_constant_image_is_made_valid_and_reported(rng, name, value):
    data = [*images(rng), np.full((30, 26, 3), value, dtype=np.uint8)]
    with pytest.warns(UserWarning, match=r"1 of 4 images is singular \(images\[3\]\).*shrinkage=0.0001 made it"):
        X = RegionCovariance(name).fit_transform(data)
    JBLD().check(X)
    assert np.linalg.cond(X).max() < 1e8
    with pytest.raises(InvalidPointError, match=r"images\[3\].*RegionCovariance\(shrinkage=1e-4\)"):
        RegionCovariance(name, shrinkage=0).fit_transform(data)


def test_ordinary_images_are_not_reported(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RegionCovariance().fit_transform(images(rng))


def test_a_file_is_reported_by_its_name(tmp_path):
    from PIL import Image

    for k in range(2):
        Image.new("RGB", (20, 20), (k, 0, 0)).save(tmp_path / f"flat{k}.png")
    with pytest.warns(UserWarning, match=r"singular \([^ ]*flat0.png, [^ ]*flat1.png\)"):
        RegionCovariance().fit_transform([tmp_path / "flat0.png", tmp_path / "flat1.png"])


def test_one_pixel_is_not_enough(rng):
    data = [*images(rng), np.zeros((1, 1, 3), dtype=np.uint8)]
    with pytest.raises(ValueError, match=r"images\[3\] has 1 pixel\(s\) to describe \(it is 1 x 1\)"):
        RegionCovariance().fit_transform(data)


def test_a_function_of_varying_size_is_refused(rng):
    sizes = iter((2, 3, 3))
    with pytest.raises(ValueError, match=r"images\[1\] has 3 features and images\[0\] 2"):
        RegionCovariance(lambda image: image[..., : next(sizes)], n_jobs=1).fit_transform(images(rng))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shrinkage": 2}, "shrinkage is 2; give a number from 0 to 1"),
        ({"shrinkage": "auto"}, "shrinkage is 'auto'"),
        ({"max_side": 0}, "max_side is 0"),
        ({"features": 3}, "features is 3; choose one of"),
    ],
)
def test_bad_parameters_are_refused_at_fit_and_transform(rng, parameters, message):
    for method in ("fit", "transform"):
        with pytest.raises(ValueError, match=message):
            getattr(RegionCovariance(**parameters), method)(images(rng))


def test_it_is_a_scikit_learn_transformer(rng):
    data = images(rng)
    descriptor = RegionCovariance("gradient", shrinkage=1e-3)
    assert repr(clone(descriptor)) == repr(descriptor)
    assert_allclose(make_pipeline(descriptor).fit_transform(data), descriptor.fit(data).transform(data))
