"""Shares of channels, against divergences of the matrices without them."""

import numpy as np
from numpy.testing import assert_allclose

from knnpress.geometries import JBLD
from knnpress.geometries.relevance import channel_shares, pair_shares


def matrices(rng, n, d):
    A = rng.normal(size=(n, d, 2 * d))
    return A @ A.transpose(0, 2, 1)


def without(X, channels):
    kept = np.setdiff1d(np.arange(X.shape[1]), channels)
    return np.ascontiguousarray(X[:, kept[:, None], kept])


def divergence(X, Z):
    return np.diag(JBLD().pairwise(X, Z))


def test_shares_are_what_is_lost_without_a_channel(rng):
    X, Z = matrices(rng, 6, 5), matrices(rng, 6, 5)
    whole, shares = divergence(X, Z), channel_shares(X, Z)
    for k in range(5):
        assert_allclose(shares[:, k], whole - divergence(without(X, [k]), without(Z, [k])), atol=1e-12)
    assert (shares > 0).all()  # parts are never farther apart than the whole


def test_pairs_are_what_is_lost_beyond_both(rng):
    X, Z = matrices(rng, 4, 5), matrices(rng, 4, 5)
    whole, alone, pairs = divergence(X, Z), channel_shares(X, Z), pair_shares(X, Z)
    for k in range(5):
        assert (pairs[:, k, k] == 0).all()
        for j in range(k):
            both = whole - divergence(without(X, [j, k]), without(Z, [j, k]))
            assert_allclose(pairs[:, j, k], both - alone[:, j] - alone[:, k], atol=1e-12)
    assert_allclose(pairs, pairs.transpose(0, 2, 1))


def test_equal_matrices_have_no_shares(rng):
    X = matrices(rng, 3, 4)
    assert_allclose(channel_shares(X, X), 0, atol=1e-12)
    assert_allclose(pair_shares(X, X), 0, atol=1e-12)
