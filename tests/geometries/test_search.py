"""The pruned search finds what the plain one finds, and computes less."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import grid_cost, random_histograms, random_spd

from knnpress import PrototypeClassifier
from knnpress.compression import KeepAll
from knnpress.datasets import load_digits_covariances, load_digits_histograms
from knnpress.geometries import JBLD, Sinkhorn, search
from knnpress.neighbors import nearest


def spd(rng, n, d=4):
    scales = np.linalg.cholesky(random_spd(rng, 20, d))[rng.integers(0, 20, n)]
    return scales @ random_spd(rng, n, d, 4.0) @ scales.transpose(0, 2, 1)


def peaked(rng, n):
    X = random_histograms(rng, n, 16, zeros=0.3)
    X[np.arange(n), rng.integers(0, 16, n)] += 2.0
    return X / X.sum(axis=1, keepdims=True)


CASES = {
    "jbld": (JBLD(), lambda rng, n: spd(rng, n)),
    "divergence": (Sinkhorn(grid_cost(4), reg=0.3), peaked),
    "dual": (Sinkhorn(grid_cost(4), reg=0.3, value="dual"), peaked),
    "transport": (Sinkhorn(grid_cost(4), reg=0.3, value="transport"), peaked),
    "stabilised": (Sinkhorn(grid_cost(4), reg=0.012, tol=1e-2), peaked),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the stabilised one falls short
@pytest.mark.parametrize("k", [1, 5, 70])
@pytest.mark.parametrize("name", CASES)
def test_the_nearest_are_those_of_all_distances(rng, name, k):
    geometry, make = CASES[name]
    n, m = (20, 100) if name == "stabilised" else (100, 600)
    X, Z = geometry.check(make(rng, n)), geometry.check(make(rng, m))
    Z[m // 2 : m // 2 + 9] = Z[:9]  # ties are settled by index
    X[:5] = Z[:5]
    found = nearest(geometry.nearest_to(Z, k), X, m, k, 1)
    wanted = nearest(geometry.distances_to(Z), X, m, k, 1)
    assert_array_equal(found[1], wanted[1])
    assert_array_equal(found[0], wanted[0])


@pytest.mark.parametrize("condition", [1e2, 1e8, 1e10, 1e12, 1e13])
@pytest.mark.parametrize("d", [3, 11])
def test_near_copies_of_any_condition_get_the_answer_of_all_distances_alone_and_in_a_batch(rng, condition, d):
    """Rounding then moves the distances by as much as they differ: bounds must know by how much."""
    m, n = 700, 100
    centres = random_spd(rng, 20, d, condition)
    roots = np.linalg.cholesky(centres[rng.integers(0, 20, m + n)])
    points = roots @ (np.eye(d) + 1e-7 * random_spd(rng, m + n, d, 3.0)) @ roots.transpose(0, 2, 1)
    points = 0.5 * (points + points.transpose(0, 2, 1))
    try:
        points = JBLD().check(points)
    except ValueError:
        assert condition > 1e12
        return
    Z, X = points[:m], points[m:]
    for k in (1, 3):
        found = nearest(JBLD().nearest_to(Z, k), X, m, k, 1)
        wanted = nearest(JBLD().distances_to(Z), X, m, k, 1)
        assert_array_equal(found[1], wanted[1])
        assert_array_equal(found[0], wanted[0])
        model = PrototypeClassifier("jbld").fit(Z, np.arange(m) % 2)
        together = model.kneighbors(X, k)
        alone = [model.kneighbors(X[row : row + 1], k) for row in range(len(X))]
        assert_array_equal(together[1], np.concatenate([index for _, index in alone]))
        assert_array_equal(together[0], np.concatenate([distance for distance, _ in alone]))


@pytest.mark.parametrize(("name", "share"), [("jbld", 0.4), ("divergence", 0.9), ("dual", 0.9)])
def test_most_pairs_of_real_data_are_never_computed(name, share):
    data = load_digits_covariances() if name == "jbld" else load_digits_histograms()
    geometry = JBLD() if name == "jbld" else Sinkhorn(data.ground_cost, value=name)
    X = geometry.check(data.X)
    D = geometry.nearest_to(X[:900], 1)(X[900:964])
    assert np.isinf(D).mean() > share
    assert_array_equal(D.argmin(axis=1), geometry.distances_to(X[:900])(X[900:964]).argmin(axis=1))


def test_the_classifier_searches_so(rng, monkeypatch):
    X, y = spd(rng, 900), rng.integers(0, 3, 900)
    model = PrototypeClassifier("jbld", KeepAll(), n_neighbors=3).fit(X[:700], y[:700])
    search, asked = JBLD.nearest_to, []
    monkeypatch.setattr(JBLD, "nearest_to", lambda own, Z, k: asked.append(k) or search(own, Z, k))
    searched = model.kneighbors(X[700:])
    assert asked == [3]
    monkeypatch.setattr("knnpress.estimators.model.MIN_QUERIES", 1000)
    plain = model.kneighbors(X[700:])
    assert asked == [3]
    assert_array_equal(searched[1], plain[1])
    assert_allclose(searched[0], plain[0], rtol=0)


def test_points_that_are_all_the_same_are_found_as_well():
    Z = np.repeat(np.eye(3)[None], 600, axis=0)
    assert_array_equal(nearest(JBLD().nearest_to(Z, 2), Z[:3], 600, 2, 1)[1], [[0, 1]] * 3)
    H = np.full((80, 16), 1 / 16)
    geometry = Sinkhorn(grid_cost(4))
    assert_array_equal(nearest(geometry.nearest_to(H, 2), H[:3], 80, 2, 1)[1], [[0, 1]] * 3)


def test_alike_rows_lie_side_by_side(rng):
    features = rng.normal(size=(37, 3))
    order = search.tree_order(features, 4)
    assert_array_equal(np.sort(order), np.arange(37))
    low, high = search.boxes(features[order], features[order] + 0.1, 4)
    assert low.shape == (3, 10)
    gaps = search.outside((low, high), features)
    group = np.argsort(order) // 4
    assert (gaps[np.arange(37), group] <= 0).all()
    literal = np.max([low.T[None] - features[:, None], features[:, None] - high.T[None]], axis=(0, 3))
    assert_allclose(gaps, literal)


@pytest.mark.parametrize("name", ["jbld", "divergence"])
def test_prototypes_that_travelled_may_begin_at_any_address(rng, name):
    geometry, make = CASES[name]
    X, Z = geometry.check(make(rng, 70)), geometry.check(make(rng, 600))
    buffer = np.zeros(Z.nbytes + 1, dtype=np.uint8)
    odd = buffer[1:].view(np.float64).reshape(Z.shape)
    odd[:] = Z
    assert not odd.flags.aligned
    assert_array_equal(geometry.distances_to(odd)(X), geometry.distances_to(Z)(X))
    assert_array_equal(geometry.nearest_to(odd, 1)(X), geometry.nearest_to(Z, 1)(X))
    assert_array_equal(geometry.linearize_at(odd[:5])(X).D, geometry.linearize_at(Z[:5])(X).D)


@pytest.mark.parametrize("k", [1, 3, 40])
def test_one_point_among_many_copies_of_another_counts_once(rng, k):
    A, B = random_spd(rng, 2, 4)
    Z = np.concatenate([A[None], np.repeat(B[None], 599, axis=0)])
    found = nearest(JBLD().nearest_to(Z, k), np.stack([A, B]), 600, k, 1)
    wanted = nearest(JBLD().distances_to(Z), np.stack([A, B]), 600, k, 1)
    assert_array_equal(found[1], wanted[1])
    rows = search.pivots(Z, JBLD().distances_to, 64)[0].tolist()
    assert rows[:2] == [0, 1]
    assert len(set(rows)) == len(rows)
