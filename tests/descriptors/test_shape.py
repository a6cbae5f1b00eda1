"""Log-polar histograms of edges: what they should and should not notice."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from knnpress.descriptors import ShapeContext
from knnpress.descriptors.images import Picture
from knnpress.descriptors.shape import edge_points


def silhouette(scale=1.0, turn=0.0, size=120, shift=(0, 0)):
    """An irregular star, white on black."""
    y, x = np.mgrid[0:size, 0:size] - size / 2.0
    x, y = x - shift[0], y - shift[1]
    angle = np.arctan2(y, x) - turn
    return np.hypot(x, y) < scale * (20 + 6 * np.cos(angle) + 4 * np.sin(2 * angle) + 2 * np.cos(5 * angle))


def describe(images, **parameters):
    return ShapeContext(n_jobs=1, **parameters).fit_transform(images)


def difference(a, b):
    """Total variation."""
    return 0.5 * np.abs(a - b).sum()


def test_the_ground_cost_is_l1_and_angles_wrap():
    cost = ShapeContext(n_radial=2, n_angular=5).fit([]).ground_cost_
    ring, sector = np.divmod(np.arange(10), 5)
    for i in range(10):
        for j in range(10):
            around = min((sector[i] - sector[j]) % 5, (sector[j] - sector[i]) % 5)
            assert cost[i, j] == abs(ring[i] - ring[j]) + around
    assert (cost[:, :, None] + cost[None] >= cost[:, None]).all()  # the triangle inequality


@pytest.mark.parametrize("center", ["centroid", "pairs"])
def test_histograms_sum_to_one(rng, center):
    H = describe(rng.random((4, 30, 40, 3)), center=center)
    assert H.shape == (4, 60)
    assert (H >= 0).all()
    assert_allclose(H.sum(axis=1), 1)


def test_neither_place_nor_size_nor_polarity_matters():
    plain, moved, large = describe([silhouette(), silhouette(shift=(9, -5)), silhouette(2.5, size=300)])
    assert difference(plain, moved) < 0.03
    assert difference(plain, large) < 0.06
    inverted, gray = describe([~silhouette(), 0.2 + 0.3 * silhouette()])
    assert difference(plain, inverted) < 1e-6
    assert difference(plain, gray) < 1e-6


def test_a_turn_moves_the_sectors():
    turned = describe([silhouette(turn=np.pi / 2)])[0].reshape(5, 12)
    assert difference(np.roll(describe([silhouette()])[0].reshape(5, 12), 3, axis=1), turned) < 0.05
    assert difference(describe([silhouette()])[0].reshape(5, 12), turned) > 0.2


def test_a_circle_fills_all_sectors_of_one_ring_alike():
    disc = np.hypot(*np.mgrid[-40:41, -40:41]) < 30
    H = describe([disc], n_angular=4)[0].reshape(5, 4)
    assert_allclose(H.sum(axis=0), 0.25, atol=0.01)
    assert np.count_nonzero(H.sum(axis=1) > 0.1) <= 2


def test_a_shape_at_the_border_is_closed_there():
    whole = silhouette()
    rows, columns = np.flatnonzero(whole.any(axis=1)), np.flatnonzero(whole.any(axis=0))
    tight = whole[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    assert difference(*describe([whole, tight])) < 0.01


def test_pairs_are_symmetric_under_a_half_turn_and_the_centroid_is_not():
    for center, symmetric in (("pairs", True), ("centroid", False)):
        H = describe([silhouette()], center=center, n_points=100)[0].reshape(5, 12)
        assert np.allclose(H, np.roll(H, 6, axis=1), atol=0.01) == symmetric


def test_pairs_count_every_difference_of_the_points():
    context = ShapeContext(center="pairs").fit([])
    points = np.array([[0.0, 0.0], [3.0, 1.0], [-2.0, 5.0]])
    offsets = np.array([b - a for i, a in enumerate(points) for j, b in enumerate(points) if i != j])
    mean = cdist(points, points)[~np.eye(3, dtype=bool)].mean()
    expected = np.zeros(60)
    for x, y in offsets:
        ring = np.searchsorted([0.125, 0.25, 0.5, 1.0], np.hypot(x, y) / mean)
        expected[12 * ring + int(np.arctan2(y, x) % (2 * np.pi) / (2 * np.pi) * 12)] += 1 / 6
    assert_allclose(context._count(offsets, np.full(6, 1 / 6)), expected, atol=1e-12)


def test_drawn_points_come_near_all_points_and_depend_on_the_seed_alone():
    image = silhouette()
    every = describe([image])[0]
    few, many = (
        np.mean([difference(describe([image], n_points=n, random_state=s)[0], every) for s in range(5)])
        for n in (30, 3000)
    )
    assert many < 0.1 < few
    again = describe([image, image], n_points=30, random_state=3)
    assert np.array_equal(again[0], again[1])


def test_edges_are_where_the_brightness_changes():
    points, weights = edge_points(Picture(np.pad(np.ones((10, 10), dtype=np.float32), 20) * np.float32(0.5) + 0))
    assert np.abs(points - points.mean(axis=0)).max() < 12
    strongest = points[weights > 0.9 * weights.max()] - 4  # a silhouette gets a margin of 4
    assert set(np.unique(strongest)) <= set(range(19, 31))


def test_a_constant_image_has_no_shape(rng):
    with pytest.raises(ValueError, match=r"images\[1\] has no edges \(it is constant, 9 x 9\)"):
        describe([rng.random((9, 9)), np.full((9, 9), 0.3)])


def test_an_outline_is_enough():
    mask = silhouette()
    flat = np.dstack([np.full(mask.shape, 0.4), mask.astype(float)])
    assert difference(*describe([mask, flat])) < 0.02


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_radial": 0}, "n_radial is 0"),
        ({"n_angular": 0}, "n_angular is 0"),
        ({"n_points": 1}, "n_points is 1"),
        ({"center": "middle"}, "center is 'middle'; choose 'centroid' or 'pairs'"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        ShapeContext(**parameters).fit([])
