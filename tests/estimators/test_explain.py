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


def run(capsys, *words):
    from knnpress.cli import main

    code = main(list(map(str, words)))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_inspect_shows_a_bar_for_each_channel(rng, tmp_path, capsys):
    X, y = planted(rng)
    kp.SCC(4, metric="jbld").fit(X[:80], y[:80]).save(tmp_path / "m.knnp")
    names = np.array([f"C{k}" for k in range(8)])
    np.savez(tmp_path / "x.npz", X=X[80:], channels=names)
    for more, planted_name in (([], "5"), (["--points", tmp_path / "x.npz"], "C5")):
        _, out, _ = run(capsys, "inspect", tmp_path / "m.knnp", *more)
        lines = out[out.index("channel  share") :].splitlines()[1:9]
        bars = {line.split()[0]: len(line.split()[2]) if len(line.split()) > 2 else 0 for line in lines}
        assert len(bars) == 8
        assert max(bars, key=bars.get) == planted_name
        assert bars[planted_name] == 40
    relevance = kp.load(tmp_path / "m.knnp").feature_relevance(X[80:])
    assert f"{relevance[5]:.1%}" in out


def test_inspect_says_what_does_not_explain(rng, tmp_path, capsys):
    X, y = planted(rng)
    kp.PrototypeClassifier("jbld").fit(X[:8], y[:8]).save(tmp_path / "p.knnp")
    np.save(tmp_path / "x.npy", X)
    code, out, _ = run(capsys, "inspect", tmp_path / "p.knnp")
    assert not code
    assert "share" not in out
    code, _, err = run(capsys, "inspect", tmp_path / "p.knnp", "--points", tmp_path / "x.npy")
    assert code
    assert "which does not explain; use SCC" in err


@pytest.mark.parametrize("kind", [int, str])
def test_models_that_recentre_are_asked_about_groups_from_the_command_line(rng, tmp_path, capsys, kind):
    from sklearn.pipeline import Pipeline

    S = rng.normal(size=(90, 3, 60))
    y = np.tile(["rest", "move"], 45)
    S[y == "move", 1] *= 3
    groups = np.repeat(np.array([1, 2, 3]).astype(kind), 30)
    S *= np.array([1.0, 20.0, 0.1])[np.repeat([0, 1, 2], 30)][:, None, None]
    known = groups != kind(3)
    steps = [kp.descriptors.SignalCovariance("oas"), kp.descriptors.Recenter(), kp.SCC(2, metric="jbld")]
    C = steps[0].fit_transform(S)
    Z = steps[1].fit(C[known], groups=groups[known]).transform(C[known], groups[known])
    steps[2].fit(Z, y[known])
    kp.save(Pipeline([("c", steps[0]), ("r", steps[1]), ("s", steps[2])]), tmp_path / "m.knnp")
    np.savez(tmp_path / "x.npz", X=S, subject=groups)
    np.savez(tmp_path / "one.npz", X=S[~known])
    expected = steps[2].predict(steps[1].transform(C, groups))

    code, _, err = run(capsys, "predict", tmp_path / "m.knnp", tmp_path / "x.npz")
    assert code
    assert "re-centres groups by name, e.g. 1; say --groups" in err
    _, out, _ = run(
        capsys, "predict", tmp_path / "m.knnp", tmp_path / "x.npz", "--groups", "subject", "--reject", "0.05"
    )
    rows = [line.split(",") for line in out.splitlines()]
    assert rows[0] == ["item", "prediction", "probability", "rejected"]
    assert [row[1] for row in rows[1:]] == expected.tolist()
    score = steps[2].outlier_score(steps[1].transform(C, groups))
    assert [row[3] for row in rows[1:]] == ["yes" if far else "no" for far in score > 0.95]
    _, out, _ = run(capsys, "predict", tmp_path / "m.knnp", tmp_path / "one.npz", "--groups", "3")
    assert [line.split(",")[1] for line in out.splitlines()[1:]] == expected[~known].tolist()
    _, out, _ = run(capsys, "inspect", tmp_path / "m.knnp", "--points", tmp_path / "x.npz", "--groups", "subject")
    assert out[out.index("channel  share") :].splitlines()[2].split()[2] == 40 * "#"  # channel 1 of 3
    if kind is int:
        _, _, err = run(capsys, "predict", tmp_path / "m.knnp", tmp_path / "x.npz", "--groups", "anna")
        assert "--groups is 'anna', which is not a number, as the groups of the model are" in err
    steps[2].save(tmp_path / "plain.knnp")
    np.save(tmp_path / "z.npy", Z)
    _, _, err = run(capsys, "predict", tmp_path / "plain.knnp", tmp_path / "z.npy", "--groups", "3")
    assert "does not re-centre; leave out --groups" in err
