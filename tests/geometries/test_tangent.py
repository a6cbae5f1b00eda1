"""Matrices as vectors of a tangent space: against LogEuclidean, pyRiemann, and what a linear classifier sees there."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pyriemann.tangentspace import TangentSpace
from reference import random_spd
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from knnpress.exceptions import InvalidPointError
from knnpress.geometries import AIRM, JBLD, Geometry, LogEuclidean, Tangent, as_geometry

MEANS = {"logdet": JBLD(), "riemann": AIRM()}
WEIGHTS = [1.0, 5.0, 0.5, 2.0, 0.1, 3.0]

every_mean = pytest.mark.parametrize("mean", MEANS)
every_size = pytest.mark.parametrize("d", [1, 2, 5, 19])


def congruent(A, X):
    Y = A @ X @ A.T
    return (Y + Y.transpose(0, 2, 1)) / 2


@every_size
def test_at_the_identity_it_is_log_euclidean(rng, d):
    X, Z = random_spd(rng, 9, d), random_spd(rng, 6, d)
    for tangent in (Tangent(), Tangent(np.eye(d))):
        assert_allclose(tangent.pairwise(X, Z), LogEuclidean().pairwise(X, Z), rtol=1e-12, atol=1e-12)
        assert_allclose(tangent.centroid(X), LogEuclidean().centroid(X), rtol=1e-11, atol=1e-12)


@every_mean
def test_the_reference_is_the_mean_of_the_data(rng, mean):
    X = random_spd(rng, 6, 4)
    before = X.copy()
    plain = Tangent(mean=mean)
    fitted = plain.fitted_to(X)
    assert_array_equal(fitted.reference, MEANS[mean].centroid(X))
    assert_array_equal(plain.fitted_to(X, WEIGHTS).reference, MEANS[mean].centroid(X, WEIGHTS))
    assert plain.reference is None
    assert fitted.mean == mean
    assert_array_equal(X, before)


@every_mean
@every_size
def test_distances_do_not_notice_a_congruence_of_all_data(rng, mean, d):
    X, A = random_spd(rng, 6, d), rng.normal(size=(d, d)) + 2 * np.eye(d)
    Y = congruent(A, X)
    plain = Tangent(mean=mean)
    found = plain.fitted_to(Y).pairwise(Y)
    assert_allclose(found, plain.fitted_to(X).pairwise(X), rtol=1e-7, atol=1e-8)
    assert d == 1 or np.abs(Tangent().pairwise(Y) - Tangent().pairwise(X)).max() > 1e-3  # nor would the identity do


@every_mean
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["uniform", "weighted"])
def test_vectors_are_those_of_pyriemann(rng, mean, weights):
    X, others = random_spd(rng, 6, 5), random_spd(rng, 4, 5)
    peer = TangentSpace(metric={"mean": mean, "map": "riemann"}).fit(X, sample_weight=weights)
    fitted = Tangent(mean=mean).fitted_to(X, weights)
    close = {"logdet": 1e-3, "riemann": 1e-6}[mean]  # their means stop early
    assert_allclose(fitted.transform(others), peer.transform(others), rtol=0, atol=close)
    same = Tangent(peer.reference_)
    assert_allclose(same.transform(others), peer.transform(others), rtol=0, atol=1e-11)
    assert_allclose(same.unembed(same.transform(others)), peer.inverse_transform(peer.transform(others)), atol=1e-11)


@every_size
def test_the_length_of_a_vector_is_the_affine_invariant_distance_from_the_reference(rng, d):
    X, M = random_spd(rng, 6, d), random_spd(rng, 1, d)
    lengths = np.linalg.norm(Tangent(M[0]).transform(X), axis=1)
    assert_allclose(lengths, AIRM().pairwise(X, M)[:, 0], rtol=1e-11)


@every_size
@pytest.mark.parametrize("fitted", [False, True])
def test_matrices_and_vectors_go_there_and_back(rng, d, fitted):
    X = random_spd(rng, 20, d)
    tangent = Tangent().fitted_to(X) if fitted else Tangent()
    V = tangent.embed(X)
    assert V.shape == (20, d * (d + 1) // 2)
    back = tangent.unembed(V)
    assert_allclose(back, X, rtol=0, atol=1e-12 * np.abs(X).max())
    assert_array_equal(back, back.transpose(0, 2, 1))
    V = rng.normal(size=V.shape) / d
    assert_allclose(tangent.embed(tangent.check(tangent.unembed(V))), V, rtol=0, atol=1e-11)


def test_the_centroid_is_the_mean_vector(rng):
    X = random_spd(rng, 6, 4)
    tangent = Tangent().fitted_to(X)
    weights = np.array(WEIGHTS) / sum(WEIGHTS)
    C = tangent.centroid(X, WEIGHTS)
    assert_allclose(tangent.transform(C[None])[0], weights @ tangent.transform(X), rtol=0, atol=1e-12)
    assert_allclose(tangent.centroid_step(X, weights[:, None], X[:1]), C[None], rtol=1e-12)


def test_one_prototype_per_class_and_an_intercept_are_multinomial_logistic_regression(rng):
    """The log-odds of two prototypes are linear in v: -|v - t w|^2 / 2t = w'v - t |w|^2 / 2 - |v|^2 / 2t."""
    y = np.arange(120) % 3
    X = congruent(np.eye(4), random_spd(rng, 120, 4, 30.0) + 0.5 * random_spd(rng, 3, 4, 30.0)[y])
    tangent = Tangent().fitted_to(X)
    V = tangent.transform(X)
    peer = LogisticRegression(C=3.0, max_iter=1000).fit(V, y)
    t = 0.25
    prototypes = tangent.unembed(t * peer.coef_)
    intercepts = peer.intercept_ + t / 2 * (peer.coef_**2).sum(axis=1)
    scores = intercepts - tangent.pairwise(X, prototypes) / (2 * t)
    assert_array_equal(scores.argmax(axis=1), peer.predict(V))
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    assert_allclose(odds / odds.sum(axis=1, keepdims=True), peer.predict_proba(V), rtol=0, atol=1e-9)
    assert len(set(peer.predict(V))) == 3


@pytest.mark.usefixtures("many_blocks")
def test_threads_change_nothing(rng):
    X = random_spd(rng, 100, 4)
    tangent = Tangent().fitted_to(X)
    assert_array_equal(tangent.embed(X, 1), tangent.embed(X, 2))
    assert_array_equal(tangent.pairwise(X, n_jobs=1), tangent.pairwise(X, n_jobs=2))


def test_it_is_a_geometry_known_by_name(rng):
    assert isinstance(as_geometry("tangent"), Tangent)
    assert isinstance(Tangent(), Geometry)
    copy = clone(Tangent(2 * np.eye(3), mean="riemann"))
    assert_array_equal(copy.reference, 2 * np.eye(3))
    assert copy.mean == "riemann"


def test_bad_settings_and_points_are_refused_with_the_cure(rng):
    X = random_spd(rng, 3, 3)
    with pytest.raises(ValueError, match="mean is 'middle'; choose 'logdet' or 'riemann'"):
        Tangent(mean="middle").fitted_to(X)
    with pytest.raises(ValueError, match=r"X stands for matrices of size 3, but reference has shape \(2, 2\)"):
        Tangent(np.eye(2)).transform(X)
    with pytest.raises(InvalidPointError, match=r"reference\[0\] is not positive definite"):
        Tangent(-np.eye(3)).pairwise(X)
    with pytest.raises(InvalidPointError, match=r"X\[0\] is not positive definite"):
        Tangent().transform(-X)
    with pytest.raises(ValueError, match=r"V has 5 columns; vectors of matrices of size d have d \(d \+ 1\) / 2"):
        Tangent().unembed(np.zeros((1, 5)))
    with pytest.raises(ValueError, match=r"V stands for matrices of size 2, but reference has shape \(3, 3\)"):
        Tangent(np.eye(3)).unembed(np.zeros((1, 3)))
    with pytest.raises(
        InvalidPointError, match=r"V\[1\], of length 8.0e\+02, stands for a matrix whose entries overflow"
    ):
        Tangent().unembed([[0.0, 0.0, 0.0], [800.0, 0.0, 0.0]])
    with pytest.raises(InvalidPointError, match=r"V\[0\] contains NaN"):
        Tangent().unembed([[np.nan, 0.0, 0.0]])
