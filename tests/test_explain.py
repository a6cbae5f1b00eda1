"""Which channels matter: what was planted is found."""

import numpy as np
import pytest

import knnpress as kp
from knnpress.geometries import JBLD


def planted(rng, n=120, d=8, kind="channel"):
    """Signals of d channels mixed alike in both classes, but for channel 5, or the correlation of 2 and 6."""
    y = np.tile(["rest", "move"], n // 2)
    S = rng.normal(size=(n, d, 150)) * rng.uniform(0.8, 1.25, size=(n, 1, 1))
    if kind == "channel":
        S[y == "move", 5] *= 2.0
    else:
        S[y == "move", 2] = 0.6 * S[y == "move", 2] + 0.8 * S[y == "move", 6]
    scale = 10.0 ** rng.uniform(-2, 2, size=d)  # units are arbitrary
    return kp.descriptors.SignalCovariance("empirical").fit_transform(S * scale[:, None]), y


@pytest.mark.parametrize("metric", ["jbld", "tangent", "logeuclid"])
def test_a_planted_channel_is_found(rng, metric):
    X, y = planted(rng)
    model = kp.SCC(4, metric=metric).fit(X[:80], y[:80])
    relevance = model.feature_relevance(X[80:])
    assert relevance.shape == (8,)
    assert relevance.argmax() == 5
    assert relevance[5] > 3 * np.delete(np.abs(relevance), 5).max()
    assert abs(np.abs(relevance).sum() - 1) < 1e-12


def test_a_planted_correlation_is_found(rng):
    X, y = planted(rng, kind="pair")
    model = kp.SCC(2, metric="jbld").fit(X[:80], y[:80])
    pairs = np.mean([np.abs(model.explain(x).pairs) for x in X[80:]], axis=0)
    assert set(np.unravel_index(pairs.argmax(), pairs.shape)) == {2, 6}
    assert set(np.argsort(model.feature_relevance(X[80:]))[-2:]) == {2, 6}


def test_an_explanation_agrees_with_the_decision(rng):
    X, y = planted(rng)
    model = kp.SCC(4, metric="jbld", vote="nearest").fit(X, y)
    labels, D = model.predict(X[:20]), model.transform(X[:20])
    for x, label, distance in zip(X[:20], labels, D, strict=True):
        why = model.explain(x)
        assert why.label == label
        assert why.other != label
        assert why.margin >= 0
        assert np.isclose(why.margin, distance[why.prototypes[1]] - distance[why.prototypes[0]])
        assert why.prototypes[0] == distance.argmin()
        assert why.channels.shape == (8,)
    # a channel's share is what the margin loses without it
    kept = np.delete(np.arange(8), 5)
    near, far = (model.prototypes_[k][None] for k in why.prototypes)
    parts = [A[:, kept[:, None], kept] for A in (X[19][None], far, near)]
    rest = JBLD().pairwise(parts[0], parts[1]) - JBLD().pairwise(parts[0], parts[2])
    assert np.isclose(why.channels[5], why.margin - rest[0, 0])


def test_units_and_order_of_channels_change_nothing(rng):
    X, y = planted(rng)
    order, scale = rng.permutation(8), np.exp(rng.normal(size=8))
    Y = (X * np.outer(scale, scale))[:, order[:, None], order]
    one, other = (kp.SCC(4, metric="jbld").fit(A, y).feature_relevance(A) for A in (X, Y))
    np.testing.assert_allclose(other, one[order], rtol=1e-3, atol=1e-4)


def test_several_matrices_are_refused(rng):
    X, y = planted(rng)
    with pytest.raises(ValueError, match=r"x has shape \(120, 8, 8\); give one matrix"):
        kp.SCC(2).fit(X, y).explain(X)
