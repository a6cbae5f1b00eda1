"""Re-centring of groups: what it undoes, what it leaves, and what it says of bad input."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from pyriemann.geometry.mean import gmean
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import knnpress as kp
from knnpress.descriptors import Recenter, SignalCovariance
from knnpress.exceptions import InvalidPointError
from knnpress.geometries import JBLD

METRICS = ["airm", "logdet", "logeuclid"]
THEIRS = {"airm": "riemann", "logdet": "logdet", "logeuclid": "logeuclid"}


def matrices(rng, n, d=4):
    A = rng.normal(size=(n, d, 3 * d))
    return A @ A.transpose(0, 2, 1) / (3 * d)


def shifted_groups(rng, n=40, n_groups=3, d=4):
    """Matrices of two classes, each group seen through a symmetric mixing of its own."""
    y = np.tile([0, 1], n_groups * n // 2)
    groups = np.repeat(np.arange(n_groups), n)
    X = matrices(rng, len(y), d)
    X[y == 1] *= np.outer([2.0, *[1.0] * (d - 1)], [2.0, *[1.0] * (d - 1)])
    mixing = matrices(rng, n_groups, d) * np.array([1.0, 30.0, 0.05])[:n_groups, None, None]
    return mixing[groups] @ X @ mixing[groups], y, groups


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("metric", METRICS)
def test_means_are_pyriemanns(rng, metric):
    X, _, groups = shifted_groups(rng)
    found = Recenter(metric).fit(X, groups=groups)
    for k in range(3):
        assert_allclose(
            found.means_[k], gmean(X[groups == k], metric=THEIRS[metric], tol=1e-12, maxiter=500), rtol=1e-6
        )


@pytest.mark.parametrize("metric", ["airm", "logdet"])
def test_every_group_has_the_identity_as_its_mean(rng, metric):
    X, _, groups = shifted_groups(rng)
    Y = Recenter(metric).fit_transform(X, groups=groups)
    for k in range(3):
        assert_allclose(gmean(Y[groups == k], metric=THEIRS[metric], tol=1e-12, maxiter=500), np.eye(4), atol=1e-6)


def test_the_grand_mean_is_the_target_where_it_is_wanted(rng):
    X, _, groups = shifted_groups(rng)
    model = Recenter(target="mean").fit(X, groups=groups)
    Y = model.transform(X, groups)
    assert_allclose(gmean(Y[groups == 1], metric="riemann", tol=1e-12), model.mean_, rtol=1e-6)
    alike = JBLD().pairwise(Y[:5], Y[-5:])
    assert_allclose(
        alike,
        JBLD().pairwise(*(Recenter().fit_transform(X, groups=groups)[s] for s in (slice(5), slice(-5, None)))),
        rtol=1e-8,
    )


def test_the_root_is_symmetric(rng):
    """Groups scaled channel by channel, with uncorrelated channels, come back the same; a turning root would differ."""
    X = matrices(rng, 30)
    model = Recenter().fit(X)
    A = np.linalg.inv(np.linalg.cholesky(model.means_[0]))
    whitener = np.array([model.transform(X)[0], A @ X[0] @ A.T])
    assert not np.allclose(*whitener)
    values, vectors = np.linalg.eigh(model.means_[0])
    root = (vectors / np.sqrt(values)) @ vectors.T
    assert_allclose(model.transform(X), root @ X @ root, rtol=1e-9, atol=1e-12)


def test_distances_within_a_group_stay(rng):
    X, _, groups = shifted_groups(rng)
    Y = Recenter().fit_transform(X, groups=groups)
    own = groups == 2
    assert_allclose(JBLD().pairwise(Y[own]), JBLD().pairwise(X[own]), atol=1e-9)


def test_unseen_groups_are_moved_by_their_own_mean_and_not_remembered(rng):
    X, _, groups = shifted_groups(rng)
    seen, new = groups < 2, groups == 2
    model = Recenter().fit(X[seen], groups=groups[seen])
    everything = Recenter().fit_transform(X, groups=groups)
    assert np.array_equal(model.transform(X, groups), everything)
    assert np.array_equal(model.transform(X[new], 2), everything[new])
    assert model.groups_.tolist() == [0, 1]


def test_order_and_company_change_nothing(rng):
    X, _, groups = shifted_groups(rng)
    order = rng.permutation(len(X))
    model = Recenter().fit(X, groups=groups)
    assert np.array_equal(model.transform(X[order], groups[order]), model.transform(X, groups)[order])
    alone = Recenter().fit(X[groups == 1])
    assert np.array_equal(alone.transform(X[groups == 1]), model.transform(X, groups)[groups == 1])


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("metric", METRICS)
def test_threads_change_nothing(rng, metric):
    X, _, groups = shifted_groups(rng)
    one = Recenter(metric, shrinkage=3, n_jobs=1).fit_transform(X, groups=groups)
    assert np.array_equal(Recenter(metric, shrinkage=3, n_jobs=4).fit_transform(X, groups=groups), one)


@pytest.mark.parametrize("metric", METRICS)
def test_shrinkage_goes_from_the_own_mean_to_the_grand_mean(rng, metric):
    X, _, groups = shifted_groups(rng)
    own = Recenter(metric).fit_transform(X, groups=groups)
    assert_allclose(Recenter(metric, shrinkage=1e-9).fit_transform(X, groups=groups), own, rtol=1e-6)
    grand = Recenter(metric).fit(X, groups=groups).mean_
    values, vectors = np.linalg.eigh(grand)
    root = (vectors / np.sqrt(values)) @ vectors.T
    assert_allclose(Recenter(metric, shrinkage=1e12).fit_transform(X, groups=groups), root @ X @ root, rtol=1e-5)


def test_shrinkage_is_the_weighted_mean_of_both(rng):
    A, B = matrices(rng, 2)
    for metric in METRICS:
        between = Recenter(metric)._between(A[None], B, np.array([0.3]))[0]
        theirs = gmean(np.stack([A, B]), metric=THEIRS[metric], sample_weight=[0.7, 0.3], tol=1e-13, maxiter=500)
        assert_allclose(between, theirs, rtol=1e-6)


def test_balanced_means_do_not_depend_on_how_many_of_a_class_there_are(rng):
    X, y, groups = shifted_groups(rng)
    kept = (groups != 0) | (y == 0) | (rng.uniform(size=len(y)) < 0.3)
    repeated = np.concatenate(
        [np.flatnonzero((groups == 0) & (y == 0))] * 3 + [np.flatnonzero((groups == 0) & (y == 1))]
    )
    fair = Recenter(balanced=True).fit(X[groups == 0], y[groups == 0])
    skewed = Recenter(balanced=True).fit(X[repeated], y[repeated])
    assert_allclose(skewed.means_, fair.means_, rtol=1e-8)
    assert not np.allclose(Recenter().fit(X[repeated]).means_, Recenter().fit(X[groups == 0]).means_, rtol=1e-3)
    with pytest.raises(ValueError, match=r"group 0 has no matrix of class 1, as 1 of 3 groups lack.*balanced=False"):
        Recenter(balanced=True).fit(
            X[kept & ~((groups == 0) & (y == 1))],
            y[kept & ~((groups == 0) & (y == 1))],
            groups[kept & ~((groups == 0) & (y == 1))],
        )


@pytest.mark.parametrize("metric", METRICS)
def test_a_running_mean_comes_near_the_mean(rng, metric):
    X, _, groups = shifted_groups(rng)
    model = Recenter(metric).fit(X[groups == 0], groups=groups[groups == 0])
    for x in X[groups == 1]:
        model.partial_fit(x[None], groups=1)
    mean = Recenter(metric).fit(X[groups == 1]).means_[0]
    assert model.counts_.tolist() == [40, 40]
    assert (
        JBLD().pairwise(model.means_[1][None], mean[None])[0, 0]
        < 0.01 * JBLD().pairwise(X[groups == 1], mean[None]).mean()
    )
    if metric == "logeuclid":
        assert_allclose(model.means_[1], mean, rtol=1e-9)
    at_once = Recenter(metric).fit(X[groups == 0], groups=groups[groups == 0]).partial_fit(X[groups == 1], groups=1)
    assert np.array_equal(at_once.means_, model.means_)


def test_forgetting_follows_a_drift(rng):
    X = matrices(rng, 200)
    X[100:] *= 50.0
    followed, whole = (Recenter(forgetting=f).partial_fit(X).means_[0] for f in (0.1, 0.0))
    late = Recenter().fit(X[100:]).means_[0]
    to_late = JBLD().pairwise(np.stack([followed, whole]), late[None])[:, 0]
    assert to_late[0] < 0.1 * to_late[1]


def test_a_new_name_begins_a_group_online(rng):
    X = matrices(rng, 6)
    model = Recenter().fit(X[:4], groups=["a", "a", "b", "b"]).partial_fit(X[4:], groups=["a", "a longer name"])
    assert model.groups_.tolist() == ["a", "b", "a longer name"]
    assert_allclose(model.transform(X[5:], "a longer name")[0], np.eye(4), atol=1e-9)


def signals(rng, n=40, n_groups=3):
    y = np.tile(["left", "right"], n_groups * n // 2)
    groups = np.repeat([f"subject {k}" for k in range(n_groups)], n)
    S = rng.normal(size=(len(y), 4, 60))
    S[y == "left", 0] *= 3.0
    return (
        np.einsum(
            "iab,ibt->iat",
            (matrices(rng, n_groups) * [[[1.0]], [[4.0]], [[0.1]]])[np.repeat(np.arange(n_groups), n)],
            S,
        ),
        y,
        groups,
    )


def test_groups_pass_through_a_pipeline_and_help(rng, routing):
    X, y, groups = signals(rng)
    train = groups != "subject 2"
    model = make_pipeline(SignalCovariance("oas"), Recenter(), kp.SCC(2, random_state=0))
    model.fit(X[train], y[train], groups=groups[train])
    raw = make_pipeline(SignalCovariance("oas"), kp.SCC(2, random_state=0)).fit(X[train], y[train])
    right = np.mean(model.predict(X[~train], groups=groups[~train]) == y[~train])
    assert right > 0.9
    assert right > np.mean(raw.predict(X[~train]) == y[~train]) + 0.1


def test_a_saved_pipeline_predicts_the_same_in_a_new_process_and_goes_on_online(rng, routing, tmp_path):
    X, y, groups = signals(rng)
    train = groups != "subject 2"
    model = make_pipeline(SignalCovariance("oas"), Recenter(shrinkage=2, forgetting=0.01), kp.SCC(2, random_state=0))
    model.fit(X[train], y[train], groups=groups[train])
    covariances = model[0].transform(X[~train])
    model[1].partial_fit(covariances[:20], groups="subject 2")
    kp.save(model, tmp_path / "model.knnp")
    np.save(tmp_path / "x.npy", X[~train])
    code = f"""
import numpy as np, sklearn, knnpress as kp
sklearn.set_config(enable_metadata_routing=True)
model, X = kp.load({str(tmp_path / "model.knnp")!r}), np.load({str(tmp_path / "x.npy")!r})
before = model.predict_proba(X, groups="subject 2")
model[1].partial_fit(model[0].transform(X[20:]), groups="subject 2")
np.savez({str(tmp_path / "out.npz")!r}, before=before, after=model.predict_proba(X, groups="subject 2"))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
    out = np.load(Path(tmp_path) / "out.npz")
    assert np.array_equal(out["before"], model.predict_proba(X[~train], groups="subject 2"))
    model[1].partial_fit(covariances[20:], groups="subject 2")
    assert np.array_equal(out["after"], model.predict_proba(X[~train], groups="subject 2"))
    assert not np.array_equal(out["before"], out["after"])


def test_a_descriptor_classifier_hands_groups_on(rng):
    X, y, groups = signals(rng)
    train = groups != "subject 2"
    model = kp.DescriptorClassifier([SignalCovariance("oas"), Recenter()], kp.SCC(2, random_state=0))
    model.fit(X[train], y[train], groups=groups[train])
    assert np.mean(model.predict(X[~train], groups=groups[~train]) == y[~train]) > 0.9
    assert model.predict_proba(X[~train], groups="subject 2").shape == (40, 2)


def bad(what, rng):
    X, y, groups = shifted_groups(rng)
    if what == "nan":
        X[3, 0, 0] = np.nan
    elif what == "flat":
        X[3, 1] = X[3, :, 1] = 0.0
    elif what == "complex":
        X = X + 1j
    return X, y, groups


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("nan", InvalidPointError, r"X\[3\] contains NaN"),
        ("flat", InvalidPointError, r"X\[3\] is not positive definite.*drop features that are constant"),
        ("complex", ValueError, r"X has dtype complex128.*X\.real.*np\.block\(\[\[X\.real, -X\.imag\]"),
    ],
)
def test_bad_matrices_are_refused(rng, what, error, message):
    X, _, groups = bad(what, rng)
    with pytest.raises(error, match=message):
        Recenter().fit(X, groups=groups)


def test_bad_groups_are_refused(rng):
    X, _, groups = shifted_groups(rng)
    model = Recenter().fit(X, groups=groups)
    for call in (model.transform, model.partial_fit):
        with pytest.raises(ValueError, match=r"groups is None, but Recenter knows 3 groups by name; give groups="):
            call(X)
    with pytest.raises(ValueError, match=r"group 9 is new and has one matrix.*partial_fit.*Recenter\(shrinkage=5\)"):
        model.transform(X[:1], 9)
    assert Recenter(shrinkage=5).fit(X, groups=groups).transform(X[:1], 9).shape == (1, 4, 4)
    with pytest.raises(ValueError, match=r"groups has shape \(3,\), and X has 120 matrices"):
        model.transform(X, [1, 2, 3])
    with pytest.raises(ValueError, match=r"text in one and numbers in the other"):
        model.transform(X, groups.astype(str))
    with pytest.raises(ValueError, match=r"groups has names of several kinds \(int, str\); use one, e\.g\. text"):
        Recenter().fit(X[:3], groups=np.array([1, "a", 1], dtype=object))
    with pytest.raises(ValueError, match=r"groups\[2\] is NaN"):
        Recenter().fit(X, groups=np.where(np.arange(120) == 2, np.nan, 1.0))
    with pytest.raises(ValueError, match=r"matrices of size 3; Recenter was fitted on 4"):
        model.transform(matrices(rng, 3, 3), 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "wasserstein"}, "metric is 'wasserstein'; choose one of 'airm', 'logdet', 'logeuclid'"),
        ({"target": "zero"}, "target is 'zero'"),
        ({"shrinkage": -1}, "shrinkage is -1"),
        ({"forgetting": 1.0}, "forgetting is 1.0"),
    ],
)
def test_bad_settings_are_refused(rng, settings, message):
    with pytest.raises(ValueError, match=message):
        clone(Recenter(**settings)).fit(matrices(rng, 3))


def test_the_matrix_of_a_group_is_what_moves_its_matrices(rng):
    X, _, groups = shifted_groups(rng)
    for step in (Recenter(), Recenter("logeuclid", target="mean", shrinkage=5.0)):
        moved = step.fit(X, groups=groups).transform(X, groups=groups)
        A = step.matrix_of(1)
        assert_allclose(A @ X[groups == 1] @ A.T, moved[groups == 1], rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match=r"group is 9, and Recenter knows 3 groups by name: 0, 1, 2; give one of them"):
        step.matrix_of(9)
    with pytest.raises(ValueError, match="group is 'a', and Recenter was fitted without groups; leave it out"):
        Recenter().fit(X).matrix_of("a")


def test_the_real_form_of_complex_matrices_is_accepted_as_the_error_says(rng):
    A = rng.normal(size=(6, 3, 9)) + 1j * rng.normal(size=(6, 3, 9))
    X = A @ A.conj().transpose(0, 2, 1)
    real = np.block([[X.real, -X.imag], [X.imag, X.real]])
    assert_allclose(gmean(Recenter().fit_transform(real), metric="riemann", tol=1e-12), np.eye(6), atol=1e-6)
    for model in (kp.SCC(2), kp.PrototypeClassifier("jbld")):
        with pytest.raises(ValueError, match=r"Complex data not supported.*np\.block"):
            model.fit(X, [0, 1] * 3)


def test_labels_of_one_class_in_a_group_are_warned_of(rng):
    X, y, groups = shifted_groups(rng)
    kept = (groups != 1) | (y == 0)
    with pytest.warns(UserWarning, match=r"group 1 has matrices of class 0 only, as 1 of 3 groups.*e\.g\. at rest"):
        Recenter().fit(X[kept], y[kept], groups[kept])
    Recenter().fit(X[y == 0], y[y == 0], groups[y == 0])  # one class in all: nothing is taken away


def test_balanced_means_need_labels_of_every_matrix(rng):
    X, y, groups = shifted_groups(rng)
    with pytest.raises(ValueError, match=r"balanced=True needs labels; call fit\(X, y, groups=\.\.\.\)"):
        Recenter(balanced=True).fit(X, groups=groups)
    with pytest.raises(ValueError, match=r"y has shape \(3,\); give one label for each of the 120"):
        Recenter(balanced=True).fit(X, y[:3], groups)


def test_a_balanced_mean_is_that_of_the_class_weighted_matrices(rng):
    X, y, _ = shifted_groups(rng, n_groups=1)
    rows = np.concatenate([np.flatnonzero(y == 0)[:5], np.flatnonzero(y == 1)])
    weights = np.where(y[rows] == 0, 1 / 5, 1 / 20)
    theirs = gmean(X[rows], metric="riemann", sample_weight=weights, tol=1e-12, maxiter=500)
    assert_allclose(Recenter(balanced=True).fit(X[rows], y[rows]).means_[0], theirs, rtol=1e-6)


def test_inputs_stay_as_they_are_and_a_failed_call_leaves_no_trace(rng):
    X, y, groups = shifted_groups(rng)
    before = X.copy(), y.copy(), groups.copy()
    model = Recenter(shrinkage=2).fit(X, y, groups)
    model.partial_fit(X[:3], groups="7" if groups.dtype.kind == "U" else 7).transform(X, groups)
    assert all(np.array_equal(a, b) for a, b in zip(before, (X, y, groups), strict=True))
    kept = {name: np.copy(value) for name, value in vars(model).items() if name.endswith("_")}
    X[5, 0, 0] = np.nan
    with pytest.raises(InvalidPointError):
        model.partial_fit(X[:10], groups=8)
    for name, value in kept.items():
        assert np.array_equal(getattr(model, name), value)


def test_an_online_mean_has_the_stated_weights(rng):
    """In log-Euclidean coordinates the running mean is a plain one: 1 / n each, or exponentially fading."""
    from scipy.linalg import expm, logm

    X = matrices(rng, 6)
    logs = np.stack([logm(x) for x in X])
    plain = Recenter("logeuclid").partial_fit(X).means_[0]
    assert_allclose(plain, expm(logs.mean(axis=0)), rtol=1e-9)
    faded = logs[0]
    for n, log in enumerate(logs[1:], 2):
        share = max(1 / n, 0.4)
        faded = (1 - share) * faded + share * log
    assert_allclose(Recenter("logeuclid", forgetting=0.4).partial_fit(X).means_[0], expm(faded), rtol=1e-9)


def test_groups_reach_recentre_and_learner_in_cross_validation(rng, routing):
    from sklearn.model_selection import GroupKFold, cross_val_score

    X, y, groups = signals(rng)
    model = make_pipeline(SignalCovariance("oas"), Recenter(), kp.SCC(2, metric="jbld", random_state=0))
    scores = cross_val_score(model, X, y, cv=GroupKFold(3), params={"groups": groups}, error_score="raise")
    assert scores.min() > 0.85


@pytest.mark.parametrize("groups", [np.array(["NaT"] * 6, dtype="M8[s]"), np.array([0.0, 1, np.nan, 0, 1, 1])])
def test_a_group_that_is_missing_is_named(groups, rng):
    with pytest.raises(ValueError, match=r"groups\[\d\] is (NaT|NaN); give every matrix a group"):
        Recenter().fit(np.eye(2) * rng.uniform(1, 2, (6, 1, 1)), groups=groups)


@pytest.mark.parametrize("name", ["shrinkage", "forgetting"])
def test_settings_that_are_not_numbers_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is 'much'; give"):
        Recenter(**{name: "much"}).fit(np.eye(2)[None])
