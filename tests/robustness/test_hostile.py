"""Nasty but valid points get finite answers, right to the stated bound, or the documented error.

The bound of JBLD and AIRM is 100 eps d condition, absolute, against 50 digits; of Sinkhorn the marginal error that was
asked for. Examples are the same in every run; KNNPRESS_HOSTILE=N takes N times as many.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.exceptions import ConvergenceWarning

import knnpress as kp
from knnpress.compression import (
    ClassCentroids,
    Condensed,
    FastCondensed,
    KeepAll,
    LearningVectorQuantization,
    Medoids,
    RandomMutation,
    Reduced,
    Subsample,
)
from knnpress.datasets import load_points
from knnpress.descriptors import RegionCovariance, SignalCovariance
from knnpress.exceptions import InvalidPointError
from knnpress.geometries import AIRM, EMD, JBLD, LogEuclidean, Sinkhorn, SquaredEuclidean

EPS = np.finfo(np.float64).eps
MORE = int(os.environ.get("KNNPRESS_HOSTILE", "1"))
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def examples(n):
    return settings(max_examples=n * MORE, deadline=None, derandomize=True, database=None)


# ---- strategies -----------------------------------------------------------------------------------------------

seeds = st.integers(0, 2**32 - 1)
scales = st.sampled_from([1e-150, 1e-75, 1e-8, 1.0, 1e8, 1e75, 1e150])
conditions = st.sampled_from([1.0, 1e3, 1e6, 1e9, 1e12, 1e14])


@st.composite
def spd_points(draw, most=6):
    """(n, d, d): any scale and condition, perhaps copies, perhaps of many scales at a time; the worst condition."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(1, most)), draw(st.integers(1, 5))
    condition = draw(conditions) if d > 1 else 1.0
    X = draw(scales) * reference.random_spd(rng, n, d, condition)
    kind = draw(st.sampled_from(["plain", "copies", "scales", "diagonal"]))
    if kind == "copies":
        X[:] = X[0]
    elif kind == "scales":
        X = X / np.abs(X).max(axis=(1, 2), keepdims=True) * 10.0 ** rng.uniform(-150, 150, (n, 1, 1))
    elif kind == "diagonal":
        X = X * np.eye(d)
    return X, condition


@st.composite
def vectors(draw, most=6):
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(1, most)), draw(st.integers(1, 5))
    X = draw(scales) * rng.uniform(-1, 1, (n, d))
    kind = draw(st.sampled_from(["plain", "copies", "far", "zero"]))
    if kind == "copies":
        X[:] = X[0]
    elif kind == "far":
        X = X + 1e6 * np.abs(X).max()
    elif kind == "zero":
        X[:] = 0.0
    return np.clip(X, -1e150, 1e150)


def histogram_rows(rng, kind, n, d):
    if kind == "one-hot":
        return np.eye(d)[rng.integers(d, size=n)]
    if kind == "zero bins":
        return reference.random_histograms(rng, n, d, 0.6)
    if kind == "vanishing":
        X = reference.random_histograms(rng, n, d)
        return np.where(rng.random((n, d)) < 0.5, X * 10.0 ** rng.uniform(-300, -20), X)
    if kind == "copies":
        return np.repeat(reference.random_histograms(rng, 1, d), n, axis=0)
    X = reference.random_histograms(rng, n, d)
    return X / X.max(axis=1, keepdims=True) * rng.choice([1e-300, 1.0, 1e300, 1.7e308], (n, 1))  # not of sum one


@st.composite
def transport(draw, most=5):
    """Histograms and a ground cost: zeros off the diagonal, a huge entry, all zero, any scale, one bin."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(1, most)), draw(st.integers(1, 6))
    kind = draw(st.sampled_from(["one-hot", "zero bins", "vanishing", "copies", "unscaled"]))
    X = histogram_rows(rng, kind, n, d)
    M = rng.uniform(0.1, 1.0, (d, d))
    M = (M + M.T) * (1 - np.eye(d))
    shape = draw(st.sampled_from(["plain", "free pair", "huge pair", "zero", "constant"]))
    if shape == "free pair" and d > 1:
        M[0, 1] = M[1, 0] = 0.0
    elif shape == "huge pair" and d > 1:
        M[0, 1] = M[1, 0] = 10.0 ** rng.uniform(2, 12)
    elif shape == "zero":
        M[:] = 0.0
    elif shape == "constant":
        M[:] = 1.0
    return X, M * draw(scales)


# ---- matrices -------------------------------------------------------------------------------------------------


def sound(*arrays):
    return all(np.isfinite(array).all() for array in arrays)


def is_spd(C):
    return np.array_equal(C, C.T) and sound(C) and bool((np.diagonal(C) > 0).all())


@examples(60)
@given(spd_points())
def test_distances_of_matrices_are_finite_symmetric_and_zero_to_themselves(case):
    X, condition = case
    bound = 100 * EPS * X.shape[1] * condition
    for geometry in (JBLD(), AIRM(), LogEuclidean()):
        try:
            D = geometry.pairwise(X, n_jobs=1)
        except InvalidPointError as error:
            assert condition > 1e12  # rounding alone may cost such a matrix its definiteness
            assert re.search(r"X\[\d+\] is not positive definite .* shrink them", str(error))  # noqa: PT017
            continue
        assert sound(D)
        assert (D >= 0).all()
        size = 1 + np.abs(np.log(np.abs(X).max(axis=(1, 2)))).max()
        slack = bound if not isinstance(geometry, LogEuclidean) else 1e-12 * (size * X.shape[1]) ** 2 + bound
        np.testing.assert_allclose(D, D.T, rtol=1e-9, atol=slack + 1e-12)
        assert np.diagonal(D).max() <= slack


@examples(15)
@given(spd_points(most=3))
def test_jbld_and_airm_are_right_to_the_stated_bound(case):
    X, condition = case
    bound = 100 * EPS * X.shape[1] * condition
    for geometry, exact in ((JBLD(), reference.jbld_50_digits), (AIRM(), reference.airm_50_digits)):
        try:
            D = geometry.pairwise(X[:1], X[-1:], n_jobs=1)
        except InvalidPointError:
            assert condition > 1e12
            continue
        unit = np.abs(X[-1]).max()  # both are unchanged by a common scale, which the reference's pivots are not
        assert abs(D[0, 0] - exact(X[0] / unit, X[-1] / unit)) <= bound + 1e-13 * D[0, 0]


@pytest.mark.parametrize("d", [2, 11, 19])
def test_at_condition_1e14_distances_are_those_of_50_digits(d):
    """To eps times the condition, which is what rounding of the matrices alone does; the stated bound is far wider."""
    X = reference.random_spd(np.random.default_rng(d), 4, d, 1e14)
    for geometry, exact in ((JBLD(), reference.jbld_50_digits), (AIRM(), reference.airm_50_digits)):
        D = geometry.pairwise(X, n_jobs=1)
        errors = [abs(D[i, j] - exact(X[i], X[j])) for i in range(4) for j in range(i)]
        assert max(errors) < EPS * 1e14


@examples(12)
@given(spd_points(most=4))
def test_centroids_of_matrices_are_matrices(case):
    X, condition = case
    for geometry in (JBLD(), AIRM(), LogEuclidean()):
        try:
            C = geometry.centroid(X)
        except InvalidPointError:
            assert condition > 1e12
            continue
        assert is_spd(C), geometry
        if len(X) == 1 or np.ptp(X, axis=0).max() == 0:
            gap = float(JBLD().pairwise(X[:1], C[None])[0, 0]) if condition < 1e9 else 0.0
            assert gap <= 100 * EPS * X.shape[1] * condition + 1e-9


# ---- vectors --------------------------------------------------------------------------------------------------


@examples(60)
@given(vectors())
def test_distances_of_vectors_are_finite_and_right(X):
    D = SquaredEuclidean().pairwise(X, n_jobs=1)
    spread = X - X.mean(axis=0)
    exact = ((spread[:, None] - spread) ** 2).sum(axis=2)
    assert sound(D, SquaredEuclidean().centroid(X))
    assert (D >= 0).all()
    np.testing.assert_allclose(D, exact, rtol=1e-9, atol=1e-12 * (spread**2).sum(axis=1).max() + 1e-300)


@examples(10)
@given(seeds, st.sampled_from([1.1e150, 1e200, 1.7e308]))
def test_vectors_beyond_the_range_are_refused(seed, size):
    X = np.random.default_rng(seed).normal(size=(4, 3))
    X[2, 1] = -size
    with pytest.raises(InvalidPointError, match=r"X\[2\] has an entry of size .* scale all points"):
        SquaredEuclidean().pairwise(X)


# ---- histograms -----------------------------------------------------------------------------------------------


@examples(60)
@given(transport(), st.sampled_from(["divergence", "dual", "transport"]), st.sampled_from(["auto", 1.0, 0.02]))
def test_sinkhorn_is_finite_and_between_its_bounds(case, value, reg):
    """Transport costs at least what the exact one does and at most the largest cost, up to the marginal error."""
    X, M = case
    reg = reg if reg == "auto" else reg * (float(M.max()) or 1.0)
    geometry = Sinkhorn(M, reg=reg, value=value, max_iter=300)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ConvergenceWarning)
        D = geometry.pairwise(X, n_jobs=1)
    short = [float(found[1]) for w in told if (found := re.search(r"error ([\d.e+-]+)\)", str(w.message)))]
    error = max([geometry.tol, *short])
    assert sound(D)
    slack = (3 * error + 1e-9) * (M.max() + geometry.effective_reg)
    if value == "transport":
        assert D.min() >= -slack
        assert D.max() <= M.max() + slack
    if value == "divergence":
        assert np.abs(np.diagonal(D)).max() <= slack
        if np.linalg.eigvalsh(np.exp(-M / geometry.effective_reg))[0] > -1e-12:  # else nothing keeps it from below
            assert D.min() >= -slack


@examples(12)
@given(transport(most=3), st.sampled_from(["dual", "transport"]))
def test_sinkhorn_agrees_with_the_log_domain_where_that_converges(case, value):
    X, M = case
    geometry = Sinkhorn(M, reg=0.5 * (float(M.max()) or 1.0), value=value, tol=1e-9, max_iter=20_000)
    X = geometry.check(X)
    D = geometry.pairwise(X, n_jobs=1)
    scale = float(M.max()) or 1.0  # the reference adds squares of costs nowhere, but it does divide by them
    expected = scale * reference.sinkhorn_pairwise(X, X, M / scale, geometry.effective_reg / scale, value)
    np.testing.assert_allclose(D, expected, rtol=1e-6, atol=1e-7 * scale)


@examples(30)
@given(transport(most=4))
def test_emd_is_finite_and_zero_to_itself_for_a_free_diagonal(case):
    X, M = case
    D = EMD(M).pairwise(X, n_jobs=1)
    assert sound(D)
    assert (D >= 0).all()
    assert D.max() <= M.max() * (1 + 1e-9)
    if not np.diagonal(M).any():
        assert np.diagonal(D).max() <= 1e-9 * M.max()


@examples(15)
@given(transport(most=4), st.sampled_from(["divergence", "transport"]))
def test_barycenters_are_histograms(case, value):
    X, M = case
    b = Sinkhorn(M, reg=0.3 * (float(M.max()) or 1.0), value=value).centroid(X)
    assert sound(b)
    assert (b >= 0).all()
    np.testing.assert_allclose(b.sum(), 1.0)


# ---- classifiers and compressors ------------------------------------------------------------------------------


def assert_serves(clf, X, y):
    """Fit, and everything that a fitted classifier can be asked."""
    clf.fit(X, y)
    share = clf.predict_proba(X)
    assert sound(clf.prototypes_, share, clf.transform(X), clf.kneighbors(X, 1)[0])
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    assert np.isin(clf.predict(X), y).all()
    assert 0 <= clf.score(X, y) <= 1


def two_classes(n):
    return np.arange(n) % 2


SIZED = [Subsample(), ClassCentroids(max_iter=3), Medoids(), RandomMutation(), LearningVectorQuantization()]
CONDENSING = [KeepAll(), Condensed(), Reduced(), FastCondensed()]


def draw_points(data, kind):
    if kind == "spd":
        X, condition = data.draw(spd_points(8))
        return X, [JBLD(), LogEuclidean()], condition
    if kind == "vectors":
        return data.draw(vectors(8)), [SquaredEuclidean()], 1.0
    X, M = data.draw(transport(8))
    return X, [Sinkhorn(M, reg=0.3 * (float(M.max()) or 1.0), max_iter=100)], 1.0


@pytest.mark.parametrize("kind", ["spd", "vectors", "histograms"])
@examples(8)
@given(st.data())
def test_every_compressor_serves_a_classifier(kind, data):
    X, geometries, condition = draw_points(data, kind)
    y = two_classes(len(X))
    for geometry in geometries:
        for compressor in (*SIZED, *CONDENSING):
            size = len(np.unique(y)) if type(compressor) in map(type, SIZED) else None
            clf = kp.PrototypeClassifier(geometry, compressor, n_prototypes=size, random_state=0, n_jobs=1)
            try:
                assert_serves(clf, X, y)
            except InvalidPointError:
                assert condition > 1e9  # of the points or of a centroid of theirs


LEARNED = {"n_prototypes": 2, "gamma": "scale", "max_iter": 10, "random_state": 0, "n_jobs": 1}


def enough(X):
    return np.concatenate([X, X, X])[:8] if len(X) < 4 else X


@pytest.mark.parametrize("metric", ["auto", "jbld", "tangent", "logeuclid"])
@examples(5)
@given(spd_points(8))
def test_learned_matrices_serve(metric, case):
    X, condition = case
    X = enough(X)
    try:
        assert_serves(kp.SCC(metric=metric, **LEARNED), X, two_classes(len(X)))
    except InvalidPointError:
        assert condition > 1e9


@examples(5)
@given(vectors(8))
def test_learned_vectors_serve(X):
    X = enough(X)
    assert_serves(kp.SNC(**LEARNED), X, two_classes(len(X)))


@examples(5)
@given(transport(8))
def test_learned_histograms_serve(case):
    X = enough(case[0])
    d = X.shape[1]
    assert_serves(kp.SHC(ground_cost=np.ones((d, d)) - np.eye(d), reg=0.3, **LEARNED), X, two_classes(len(X)))


@pytest.mark.filterwarnings("ignore:channel 2 of X:UserWarning")  # of the flat one, whose variance is made up
@examples(20)
@given(seeds, scales, st.sampled_from(["plain", "constant", "copies", "short"]), st.sampled_from(["oas", "empirical"]))
def test_covariances_of_signals_are_sound_or_refused(seed, scale, kind, estimator):
    X = scale**0.5 * np.random.default_rng(seed).normal(size=(3, 4, 2 if kind == "short" else 50))
    if kind == "constant":
        X[1, 2] = 1.0 * scale**0.5
    elif kind == "copies":
        X[1, 2] = X[1, 1]
    try:
        C = SignalCovariance(estimator, n_jobs=1).fit_transform(X)
    except InvalidPointError as error:
        assert re.search(r"covariance of X\[\d\] is singular.*drop such channels", str(error))  # noqa: PT017
        assert kind != "plain"
        return
    JBLD().check(C)


# ---- the table of docs/reference/bad-input.md -----------------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "bad-input.md"
SPD4, HIST = reference.random_spd(np.random.default_rng(0), 6, 4), np.full((6, 3), 1 / 3)
COST = np.ones((3, 3)) - np.eye(3)
Y = two_classes(6)


def changed(X, at, value):
    X = X.copy()
    X[at] = value
    return X


def fit(X, y=Y, geometry="jbld", **params):
    return lambda _: kp.PrototypeClassifier(geometry, **params).fit(X, y)


def points_file(**arrays):
    def load(folder):
        np.savez(folder / "a.npz", **arrays)
        load_points(folder / "a.npz")

    return load


def damaged_model(path):
    kp.PrototypeClassifier("jbld").fit(SPD4, Y).save(path)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    kp.load(path)


#: For each row of the table, by its first cell: how to get there
TABLE = {
    "NaN or infinity": fit(changed(SPD4, (2, 0, 0), np.nan)),
    "a matrix that is not symmetric": fit(changed(SPD4, (2, 0, 1), 9.0)),
    "a matrix that is not positive definite": fit(changed(SPD4, 2, np.diag([1.0, 1.0, 1.0, -1.0]))),
    "complex numbers": fit(SPD4 + 0j),
    "text, objects, rows of unequal length": fit([[1.0, 2.0], [3.0]]),
    "times or spans of time for numbers": fit(np.ones((6, 3)).astype("m8[s]"), geometry="sqeuclidean"),
    "masked points": fit(np.ma.array(HIST, mask=np.eye(6, 3)), geometry="sqeuclidean"),
    "a sparse matrix": fit(__import__("scipy.sparse").sparse.csr_array(HIST), geometry="sqeuclidean"),
    "another number of dimensions": fit(SPD4[0]),
    "no points": fit(SPD4[:0], Y[:0]),
    "vectors with entries beyond 1e150": fit(changed(HIST, (2, 0), 1e200), geometry="sqeuclidean"),
    "matrices with variances beyond 4e307 or below 1e-290": fit(changed(SPD4, 2, 1e-300 * SPD4[2])),
    "a negative bin": fit(changed(HIST, (2, 0), -1.0), geometry=Sinkhorn(COST)),
    "a histogram of zeros": fit(changed(HIST, 2, 0.0), geometry=Sinkhorn(COST)),
    "a ground cost of another size": fit(HIST[:, :2], geometry=Sinkhorn(COST)),
    "a ground cost with NaN, infinity or a negative": fit(HIST, geometry=Sinkhorn(changed(COST, (0, 1), -1.0))),
    "a ground cost with an entry beyond 1e300": fit(HIST, geometry=Sinkhorn(changed(COST, (0, 1), 1e301))),
    "an asymmetric ground cost, for the divergence": fit(HIST, geometry=Sinkhorn(changed(COST, (0, 1), 5.0))),
    "`reg` that is zero, negative or not finite": fit(HIST, geometry=Sinkhorn(COST, reg=0.0)),
    "points of another size than the prototypes": lambda _: fit(SPD4)(_).predict(SPD4[:, :2, :2]),
    "labels of another number than points": fit(SPD4, Y[:3]),
    "labels with NaN": fit(SPD4, [0, 1, 0, np.nan, 1, 0]),
    "labels that are None, NA, NaT or masked": fit(SPD4, np.ma.array(Y, mask=[0, 0, 1, 0, 0, 0])),
    "labels of several types": fit(SPD4, np.array([0, "a"] * 3, dtype=object)),
    "a file of points with a label that is NaN, NaT or empty": points_file(X=SPD4, y=[0, 1, 0, np.nan, 1, 0]),
    "groups with NaN, None or masked entries": lambda _: kp.SCC(2).fit(SPD4, Y, groups=[0, 1, 0, np.nan, 1, 0]),
    "a weight of a class that is negative or no number": lambda _: kp.SCC(2, class_weight={0: -1}).fit(SPD4, Y),
    "sample weights beyond 1e100, or all below 1e-100": lambda _: kp.SCC(2).fit(SPD4, Y, np.full(6, 1e308)),
    "a single class, for SCC, SHC and SNC": lambda _: kp.SCC(n_prototypes=1).fit(SPD4, np.zeros(6)),
    "fewer prototypes than classes": lambda _: kp.SCC(n_prototypes=1).fit(SPD4, Y),
    "`n_prototypes` beyond 2**31": lambda _: kp.SCC(n_prototypes=2**70).fit(SPD4, Y),
    "`gamma` beyond 1e12 or below 1e-12": lambda _: kp.SCC(2, gamma=1.1e12).fit(SPD4, Y),
    "more neighbours than prototypes": fit(SPD4, n_neighbors=7),
    "a point file that is damaged": lambda folder: (
        (folder / "a.npz").write_bytes(b"PK nonsense"),
        load_points(folder / "a.npz"),
    ),
    "a point file with a pickle in it": points_file(X=np.array([{}], dtype=object), y=[0]),
    "a model file with a number changed": lambda folder: damaged_model(folder / "a.knnp"),
    "an image of more than 2**26 pixels": lambda folder: (
        Image.new("1", (8200, 8200)).save(folder / "a.png"),
        RegionCovariance().transform([folder / "a.png"]),
    ),
    "a floating-point image with pixels that are not from 0 to 1": lambda _: RegionCovariance().transform(
        [255.0 * COST]
    ),
    "a masked image": lambda _: RegionCovariance().transform([np.ma.array(COST, mask=np.eye(3))]),
    "a model file that is damaged": lambda folder: (
        (folder / "a.knnp").write_bytes(b"nonsense"),
        kp.load(folder / "a.knnp"),
    ),
}


def table_rows():
    """First cell to (exception, words) of the first table of the page."""
    lines = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    named = (row for row in rows if len(row) == 3 and re.fullmatch(r"`\w+Error`", row[1]))
    return {row[0].strip("| "): (row[1].strip("`"), row[2]) for row in named}


@pytest.mark.parametrize("what", TABLE)
def test_the_table_of_bad_input_is_true(what, tmp_path):
    error, words = table_rows()[what]
    with pytest.raises((TypeError, ValueError), match=re.escape(words)) as raised:
        TABLE[what](tmp_path)
    assert type(raised.value).__name__ == error


def test_the_table_has_no_rows_that_are_not_tested():
    assert set(table_rows()) == set(TABLE)


@pytest.mark.slow
@pytest.mark.skipif(MORE > 1, reason="this is that run")
def test_ten_times_as_many_examples():
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", __file__]
    done = subprocess.run(command, env=os.environ | {"KNNPRESS_HOSTILE": "10"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
