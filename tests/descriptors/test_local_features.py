"""Images as clouds of local features, and of the points of contours."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import knnpress as kp
from knnpress.descriptors import ContourPoints, LocalFeatures
from knnpress.descriptors.features import FEATURES, coordinates, pixel_rows
from knnpress.descriptors.images import as_picture
from knnpress.geometries import CloudSinkhorn

PLAIN = {"prior": 1.0, "smoothing": 0.02, "gamma": "scale", "vote": "nearest", "max_iter": 5}


def noise(rng, n=4, shape=(24, 32)):
    return [ndimage.gaussian_filter(rng.random(shape), 1.5) for _ in range(n)]


def shape(kind, size=61, radius=18.0, at=(0.0, 0.0)):
    """A silhouette: a disc or a square."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    y, x = y - at[0], x - at[1]
    return np.hypot(x, y) < radius if kind == "disc" else np.maximum(abs(x), abs(y)) < 0.9 * radius


@pytest.mark.parametrize("position", [True, False, 0.5])
def test_a_cloud_holds_features_and_places_in_units_of_their_spread(rng, position):
    images = noise(rng)
    local = LocalFeatures("gradient", step=4, n_points=None, position=position, n_jobs=1)
    clouds = local.fit_transform(images)
    rows = [pixel_rows(FEATURES["gradient"], as_picture(image, "alpha"), 4).T for image in images]
    every = np.concatenate(rows)
    x, y = coordinates((24, 32))
    place = np.column_stack([x[::4, ::4].ravel(), y[::4, ::4].ravel()])
    for cloud, own in zip(clouds, rows, strict=True):
        assert_allclose(cloud.points[:, :12], own / every.std(axis=0) / np.sqrt(12), rtol=1e-10)
        if position:
            expected = float(position) * place / place.std(axis=0) / np.sqrt(2)
            assert_allclose(cloud.points[:, 12:], expected, rtol=1e-5)
    assert clouds.shape == (4, 14 if position else 12)
    assert_allclose(clouds.weights, 1 / 48)


def test_a_draw_takes_points_of_the_whole_and_the_same_each_time(rng):
    images = noise(rng)
    whole, some = (LocalFeatures("gradient", step=2, n_points=n).fit(images) for n in (None, 20))
    some.scale_ = whole.scale_
    drawn, every = some.transform(images)[0].points, whole.transform(images)[0].points
    assert drawn.shape == (20, 14)
    assert all((every == point).all(axis=1).any() for point in drawn)
    assert_array_equal(drawn, some.transform(images[:1])[0].points)
    other = clone(some).set_params(random_state=1).fit(images).transform(images)[0].points
    assert not np.array_equal(other, drawn)


def test_pixels_outside_the_mask_are_left_out(rng):
    image = np.dstack([noise(rng, 1)[0], np.zeros((24, 32))])
    image[8:16, 8:16, 1] = 1.0
    cloud = LocalFeatures("gradient", step=4).fit([image]).transform([image])[0]
    assert len(cloud.points) == 4


def test_positions_tell_what_is_where():
    left, right = np.zeros((32, 32)), np.zeros((32, 32))
    left[10:20, 4:10] = right[10:20, 22:28] = 1.0
    placed, free = (LocalFeatures("gradient", step=2, n_points=None, position=p) for p in (True, False))
    far, near = (CloudSinkhorn(0.1).pairwise(local.fit_transform([left, right]))[0, 1] for local in (placed, free))
    assert far > 10 * max(near, 1e-3)


def test_threads_do_not_matter_for_local_features(rng):
    images = noise(rng, 9)
    one, three = (LocalFeatures(step=6, n_jobs=n).fit_transform(images) for n in (1, 3))
    assert one == three
    assert one.shape == (9, 130)


def test_a_contour_is_where_the_silhouette_ends_whatever_its_place_and_size():
    contour = ContourPoints(32)
    small, large, moved = contour.fit_transform(
        [shape("disc"), shape("disc", 121, 36.0), shape("disc", at=(6.0, -5.0))]
    )
    for cloud in (small, large, moved):
        assert_allclose(np.hypot(*cloud.points.T), 1.0, atol=0.08)
        assert_allclose(cloud.weights @ cloud.points, 0.0, atol=1e-10)
        angle = np.sort(np.arctan2(*cloud.points.T))
        assert np.diff(angle).max() < 4 * np.pi / 32 * 1.5  # points lie all round
    clouds = contour.transform([shape("disc"), shape("disc", at=(6.0, -5.0)), shape("square")])
    D = CloudSinkhorn(0.01).pairwise(clouds)
    assert D[0, 1] < 1e-3 < D[0, 2] / 3


def test_light_on_dark_is_as_dark_on_light_and_opacity_is_a_silhouette():
    disc = shape("disc")
    D = CloudSinkhorn(0.01).pairwise(ContourPoints(24).fit_transform([disc, ~disc, shape("square")]))
    assert D[0, 1] < 0.1 * D[0, 2]
    with_opacity = np.dstack([np.full(disc.shape, 0.5), disc.astype(float)])
    (masked,) = ContourPoints(24).fit_transform([with_opacity])
    assert_allclose(np.hypot(*masked.points.T), 1.0, atol=0.08)


def test_models_of_contours_learn_and_survive_their_file(tmp_path):
    rng = np.random.default_rng(0)
    kinds = ["disc", "square"] * 8
    images = [shape(kind, radius=rng.uniform(12, 20), at=rng.uniform(-6, 6, 2)) for kind in kinds]
    for descriptor in (ContourPoints(16), LocalFeatures("gradient", step=8)):
        model = kp.DescriptorClassifier(descriptor, kp.SWC(2, n_points=12, **PLAIN)).fit(images, kinds)
        model.save(tmp_path / "model.kp")
        again = kp.load(tmp_path / "model.kp")
        assert_array_equal(again.predict_proba(images), model.predict_proba(images))
        if isinstance(descriptor, ContourPoints):
            assert model.predict(images).tolist() == kinds


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        (LocalFeatures(step=0), "step is 0; give a count"),
        (LocalFeatures(n_points=0), "n_points is 0; give a count"),
        (LocalFeatures(position=-1.0), "position is -1.0; give True"),
        (LocalFeatures("texture"), "features is 'texture'; choose"),
        (ContourPoints(1), "n_points is 1; give a count of at least 2"),
    ],
)
def test_bad_settings_are_refused(descriptor, message, rng):
    with pytest.raises(ValueError, match=message):
        descriptor.fit(noise(rng))


def test_bad_images_are_named(rng):
    with pytest.raises(ValueError, match=r"images\[1\] has no edges \(it is constant, 9 x 8\)"):
        ContourPoints().fit_transform([shape("disc"), np.zeros((9, 8))])
    with pytest.raises(NotFittedError):
        ContourPoints().transform([shape("disc")])
    with pytest.raises(NotFittedError):
        LocalFeatures().transform(noise(rng))
    with pytest.raises(ValueError, match=r"images\[0\] contains NaN"):
        LocalFeatures().fit([np.full((9, 8), np.nan)])
