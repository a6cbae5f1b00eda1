"""Bad input gets an error that says which, what and the cure; good input of any layout works; nothing is modified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from cases import one_at_a_time
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from points import GEOMETRIES, GROUND_COST, HISTOGRAMS, SINKHORN, SPD, labelled, sample
from sklearn.exceptions import DataConversionWarning, NotFittedError

import knnpress as kp
from knnpress.compression import StochasticCompression, Subsample
from knnpress.estimators import PrototypeClassifier
from knnpress.estimators.checks import check_gamma
from knnpress.exceptions import InvalidPointError
from knnpress.geometries import EMD, JBLD, CloudSinkhorn, Sinkhorn, SquaredEuclidean

N = 4
VECTORS = [*HISTOGRAMS, "sqeuclidean"]
every_geometry = pytest.mark.parametrize("name", GEOMETRIES)


def fit(geometry, X):
    return PrototypeClassifier(geometry).fit(X, np.zeros(N))


#: The ways into the library: how to hand over bad points, and what the message calls them.
DOORS = {
    "check": (lambda g, bad, good: g.check(bad), "X"),
    "pairwise X": (lambda g, bad, good: g.pairwise(bad, good), "X"),
    "pairwise Z": (lambda g, bad, good: g.pairwise(good, bad), "Z"),
    "centroid": (lambda g, bad, good: g.centroid(bad), "X"),
    "fit": (lambda g, bad, good: fit(g, bad), "X"),
    "predict": (lambda g, bad, good: fit(g, good).predict(bad), "X"),
}


@dataclass
class Bad:
    """A way to spoil good points, and what must be said: @ stands for the name of the argument."""

    spoil: Callable[[np.ndarray], Any]
    message: str
    error: type[Exception] | tuple[type[Exception], ...] = ValueError
    names: tuple[str, ...] = tuple(GEOMETRIES)


def put(row, value, *more):
    """Put values into copies of the points: pairs of a row and what to write at its first entry."""

    def spoil(X):
        X = X.copy()
        for r, v in ((row, value), *more):
            X[r].flat[0] = v
        return X

    return spoil


def asymmetric(X, relative):
    """Spoil X[1] by that share of its largest entry."""
    X = X.copy()
    X[1, 0, 3] += relative * np.abs(X[1]).max()
    return X


def with_matrix(matrix, *rows):
    def spoil(X):
        X = X.copy()
        X[list(rows)] = matrix
        return X

    return spoil


def with_row(values, *rows):
    def spoil(X):
        X = X.copy()
        X[list(rows), : len(values)] = values
        return X

    return spoil


RANK_ONE = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0])
INDEFINITE = np.diag([1.0, 2.0, -0.5, 1.0])
HOLLOW = np.ones((4, 4)) - np.eye(4)
NOT_FINITE = (
    r"@\[{row}\] contains NaN or infinity \({value} at \[0.*\]\), "
    r"(as do {count}|the only one) of 4 points; remove .* or fill"
)
NOT_DEFINITE = (
    r"@\[{row}\] is not positive definite \(smallest eigenvalue {value}\), "
    r"(as are {count}|the only one) of 4 .*; shrink them"
)
FEW_DIMENSIONS = r"@ has shape \(\d+,( \d+)?\); expected \(n_\w+, .*\)\. Reshape .*@\[None\]"

BAD = {
    "nan": Bad(put(2, np.nan), NOT_FINITE.format(row=2, value="nan", count=1), InvalidPointError),
    "inf": Bad(put(0, np.inf), NOT_FINITE.format(row=0, value="inf", count=1), InvalidPointError),
    "minus inf": Bad(put(1, -np.inf, (3, np.nan)), NOT_FINITE.format(row=1, value="-inf", count=2), InvalidPointError),
    "inf and minus inf": Bad(
        put(1, np.inf, (3, -np.inf)), NOT_FINITE.format(row=1, value="inf", count=2), InvalidPointError
    ),
    "a missing value in objects": Bad(
        lambda X: put(2, None)(X.astype(object)), NOT_FINITE.format(row=2, value="nan", count=1), InvalidPointError
    ),
    "strings": Bad(lambda X: np.full(X.shape, "blue"), r"@ cannot be read as numbers.*blue"),
    "objects": Bad(
        lambda X: put(2, {})(X.astype(object)), r"@ cannot be read as numbers.*dict", (TypeError, ValueError)
    ),
    "complex": Bad(lambda X: X + 1j, r"Complex data not supported: @ has dtype complex128; split it"),
    "points of different sizes": Bad(
        lambda X: [*X[:3].tolist(), X[3][:-1].tolist()], r"@ .*(ragged|inhomogeneous|same (size|shape|length)|differ)"
    ),
    "no points": Bad(lambda X: X[:0], r"@ has 0 sample\(s\) \(shape=\(0, .*\)\) while a minimum of 1 is required"),
    "an empty list": Bad(lambda X: [], r"@ has shape \(0,\); expected \(n_\w+, .*\)"),
    "no dimensions": Bad(
        lambda X: X[:, :0, :0] if X.ndim == 3 else X[:, :0],
        r"(0 feature\(s\) .*while a minimum of 1|@ has 0 (features|bins))",
    ),
    "a single point": Bad(lambda X: X[0], FEW_DIMENSIONS),
    "too many dimensions": Bad(lambda X: X[None], r"@ has shape \(1, 4, .*\); expected \(n_\w+, .*\)"),
    "a number": Bad(lambda X: 3.0, r"@ has shape \(\); expected \(n_\w+, .*\)"),
    "sparse": Bad(
        scipy.sparse.csr_array, r"Sparse data was passed as @.*; use @\.toarray\(\)", TypeError, tuple(VECTORS)
    ),
    "asymmetric": Bad(
        lambda X: asymmetric(X, 2e-8),
        r"@\[1\] is not symmetric \(asymmetry 2.0e-08 of its .*\), the only one of 4 .*@\.transpose\(0, 2, 1\)",
        InvalidPointError,
        tuple(SPD),
    ),
    "indefinite": Bad(
        with_matrix(INDEFINITE, 1, 3),
        NOT_DEFINITE.format(row=1, value=r"-5\.0e-01", count=2),
        InvalidPointError,
        tuple(SPD),
    ),
    "hollow": Bad(
        with_matrix(HOLLOW, 3), NOT_DEFINITE.format(row=3, value=r"-1\.0e\+00", count=1), InvalidPointError, tuple(SPD)
    ),
    "singular": Bad(
        with_matrix(RANK_ONE, 0, 1, 2, 3),
        NOT_DEFINITE.format(row=0, value=r"-?\d\.\de-1\d", count=4),
        InvalidPointError,
        tuple(SPD),
    ),
    "a zero matrix": Bad(
        with_matrix(np.zeros((4, 4)), 2), NOT_DEFINITE.format(row=2, value=".*", count=1), InvalidPointError, tuple(SPD)
    ),
    "not square": Bad(
        lambda X: X[:, :, :3], r"@ has shape \(4, 4, 3\); expected square .*\(n_\w+, d, d\)", names=tuple(SPD)
    ),
    "a negative bin": Bad(
        with_row([0.5, 0.5, 0.25, -0.25], 1, 2),
        r"@\[1\] has a negative bin \(-0\.25 at 3\), as do 2 of 4 histograms; .*np\.maximum\(@, 0\)",
        InvalidPointError,
        tuple(HISTOGRAMS),
    ),
    "an empty histogram": Bad(
        with_row(np.zeros(9), 2, 3),
        r"@\[2\] is all zero, as are 2 of 4 histograms; remove them",
        InvalidPointError,
        tuple(HISTOGRAMS),
    ),
}


#: Every kind at one door, and one kind at every door, of every geometry.
BAD_CASES = [
    *((name, kind, "check") for kind, bad in BAD.items() for name in bad.names),
    *((name, "nan", door) for door in DOORS if door != "check" for name in GEOMETRIES),
]


@pytest.mark.parametrize(("name", "kind", "door"), BAD_CASES)
def test_bad_points_are_refused_with_which_what_and_the_cure(name, kind, door):
    enter, called = DOORS[door]
    bad = BAD[kind]
    X = bad.spoil(sample(name, N))
    before = content(X)
    with pytest.raises(bad.error, match=bad.message.replace("@", called)):
        enter(GEOMETRIES[name], X, sample(name, N))
    assert content(X) == before


def content(X):
    """What X holds, in a form that compares NaN with NaN."""
    return repr(X.toarray() if scipy.sparse.issparse(X) else X)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "kneighbors", "transform", "score"])
def test_every_method_of_a_classifier_checks_its_points(method):
    clf = fit(JBLD(), sample("jbld", N))
    y = [np.zeros(N)] if method == "score" else []
    with pytest.raises(InvalidPointError, match=r"X\[2\] contains NaN"):
        getattr(clf, method)(put(2, np.nan)(sample("jbld", N)), *y)


@settings(deadline=None)
@given(d=st.integers(1, 6), shift=st.floats(-3, 4), seed=st.integers(0, 2**32 - 1))
def test_a_symmetric_matrix_is_accepted_exactly_if_its_eigenvalues_are_positive(d, shift, seed):
    A = np.random.default_rng(seed).normal(size=(d, d))
    A = A + A.T + shift * np.eye(d)
    smallest = np.linalg.eigvalsh(A)[0]
    assume(abs(smallest) > 1e-9)
    if smallest > 0:
        JBLD().check([A])
    else:
        with pytest.raises(InvalidPointError, match=r"X\[0\] is not positive definite"):
            JBLD().check([A])


@every_geometry
def test_points_of_another_size_are_refused(name):
    geometry, X = GEOMETRIES[name], sample(name, N)
    small = X[:, :3, :3] if X.ndim == 3 else X[:, :3]
    bins = r" has 3 bins and the ground cost 9; they must agree"
    has_cost = name in HISTOGRAMS and name != "hellinger"
    said = "X" + bins if has_cost else r"X has 3 features, but .* is expecting \d features"
    with pytest.raises(ValueError, match=said):
        fit(geometry, X).predict(small)
    said = "Z" + bins if has_cost else r"X holds \w+ of size \d and Z of size 3; they must agree"
    with pytest.raises(ValueError, match=said):
        geometry.pairwise(X, small)


@pytest.mark.parametrize("door", ["check", "fit", "pairwise X"])
@pytest.mark.parametrize("name", [name for name in HISTOGRAMS if name != "hellinger"])
def test_histograms_that_do_not_fit_the_ground_cost_are_refused(name, door):
    X = sample(name, N)[:, :8]
    with pytest.raises(ValueError, match=r"X has 8 bins and the ground cost 9; they must agree"):
        DOORS[door][0](GEOMETRIES[name], X, X)


# --- ground costs and settings


def cost_with(value):
    M = GROUND_COST.copy()
    M[2, 5] = M[5, 2] = value
    return M


BAD_COSTS = {
    "none": (None, r"ground_cost is None; give the \(d, d\) matrix"),
    "not square": (GROUND_COST[:8], r"ground_cost has shape \(8, 9\); expected a square matrix"),
    "a vector": (GROUND_COST[0], r"ground_cost has shape \(9,\); expected a square matrix"),
    "empty": (np.empty((0, 0)), r"ground_cost has shape \(0, 0\); expected a square matrix"),
    "negative": (cost_with(-1.0), r"ground_cost\[2, 5\] is -1\.0, as are 2 of \d+ entries; .* non-negative"),
    "nan": (cost_with(np.nan), r"ground_cost\[2, 5\] is nan, as are 2 of \d+ entries; costs must be finite"),
    "inf": (cost_with(np.inf), r"ground_cost\[2, 5\] is inf, as are 2 of \d+ entries; costs must be finite"),
    "too large": (
        cost_with(1e301),
        r"ground_cost has an entry of 1\.0e\+301, .* overflow; scale it, e.g. by 1 / 1e\+301",
    ),
    "strings": (np.full((9, 9), "far"), r"ground_cost .*far"),
    "rows of different lengths": ([[0.0, 1.0], [1.0]], r"ground_cost"),
    "complex": (GROUND_COST + 0j, r"ground_cost .*complex"),
    "sparse": (scipy.sparse.csr_array(GROUND_COST), r"ground_cost.*toarray"),
}


@pytest.mark.parametrize(("kind", "door"), one_at_a_time(BAD_COSTS, ["check", "pairwise X", "centroid", "fit"]))
@pytest.mark.parametrize("make", [Sinkhorn, EMD])
def test_bad_ground_costs_are_refused_with_what_and_the_cure(make, door, kind):
    cost, message = BAD_COSTS[kind]
    X = sample("emd", N)
    with pytest.raises((TypeError, ValueError), match=message):
        DOORS[door][0](make(cost), X, X)


ASYMMETRIC_COST = np.triu(GROUND_COST)
BAD_SETTINGS = {
    "reg zero": ({"reg": 0}, r"reg is 0; give a positive number, or 'auto'"),
    "reg negative": ({"reg": -0.5}, r"reg is -0\.5; give a positive number"),
    "reg nan": ({"reg": np.nan}, r"reg is nan; give a positive number"),
    "reg inf": ({"reg": np.inf}, r"reg is inf; give a positive number"),
    "reg a word": ({"reg": "some"}, r"reg is 'some'; give a positive number, or 'auto'"),
    "reg none": ({"reg": None}, r"reg is None; give a positive number, or 'auto'"),
    "reg too small": ({"reg": 1e-320}, r"reg is 1\.0e-320, too small for costs up to 2\.8e\+00; use at least"),
    "unknown value": (
        {"value": "emd"},
        r"value is 'emd'; choose 'divergence', 'dual' or 'transport'",
    ),
    "asymmetric cost": (
        {"ground_cost": ASYMMETRIC_COST},
        r"the Sinkhorn divergence needs a symmetric ground cost; use value='dual' or 'transport', or \(ground_cost \+",
    ),
}


@pytest.mark.parametrize(("kind", "door"), one_at_a_time(BAD_SETTINGS, ["pairwise X", "fit", "predict"]))
def test_bad_settings_of_sinkhorn_are_refused_with_what_and_the_cure(door, kind):
    chosen, message = BAD_SETTINGS[kind]
    X = sample("emd", N)
    with pytest.raises(ValueError, match=message):
        DOORS[door][0](Sinkhorn(**{"ground_cost": GROUND_COST} | chosen), X, X)


@pytest.mark.parametrize(
    "geometry",
    [Sinkhorn(ASYMMETRIC_COST, value="dual"), Sinkhorn(ASYMMETRIC_COST, value="transport"), EMD(ASYMMETRIC_COST)],
)
def test_an_asymmetric_ground_cost_is_fine_without_debiasing(geometry):
    X = sample("emd", N)
    D = geometry.pairwise(X)
    assert np.isfinite(D).all()
    assert np.abs(D - D.T).max() > 1e-3


# --- labels, neighbours and the estimator's own settings


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, r"requires y to be passed, but the target y is None"),
        ([0, 1, 0], r"(?=.*\by\b)(?=.*\b3\b)(?=.*\b4\b)"),
        ([0, 1, 0, 1, 0], r"(?=.*\by\b)(?=.*\b5\b)(?=.*\b4\b)"),
        ([], r"(?=.*\by\b)(?=.*\b0\b)(?=.*\b4\b)"),
        (3, r"y should be a 1d array, got an array of shape \(\)"),
        ([[0, 1]] * 4, r"y should be a 1d array, got an array of shape \(4, 2\)"),
        ([0.0, 1.0, np.nan, 1.0], r"y contains NaN"),
        ([0.0, 1.0, np.inf, 1.0], r"y contains infinity"),
        ([0.1, 1.7, 0.3, 1.2], r"Unknown label type: continuous"),
        (np.array(["a", "b", None, "a"], dtype=object), r"\by\b"),
        (np.array([0, 1, None, 1], dtype=object), r"\by\b"),
    ],
    ids=[
        "none",
        "short",
        "long",
        "empty",
        "number",
        "2-D",
        "nan",
        "inf",
        "continuous",
        "missing name",
        "missing number",
    ],
)
def test_bad_labels_are_refused_with_what_was_found(y, message):
    with pytest.raises(ValueError, match=message):
        PrototypeClassifier(JBLD()).fit(sample("jbld", N), y)


def test_a_column_of_labels_is_taken_with_a_warning():
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        clf = PrototypeClassifier(JBLD()).fit(sample("jbld", N), [[0], [1], [0], [1]])
    assert clf.prototype_labels_.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(("name", "k"), one_at_a_time(GEOMETRIES, [5, 0, -1, 10**9]))
def test_a_number_of_neighbours_out_of_range_is_refused(name, k):
    said = rf"n_neighbors is {k}, but there are 4 prototypes; choose 1 to 4"
    X = sample(name, N)
    with pytest.raises(ValueError, match=said):
        PrototypeClassifier(GEOMETRIES[name], n_neighbors=k).fit(X, [0, 1, 0, 1])
    clf = fit(GEOMETRIES[name], X)
    with pytest.raises(ValueError, match=said):
        clf.kneighbors(X, n_neighbors=k)
    with pytest.raises(ValueError, match=said):
        clf.set_params(n_neighbors=k).predict(X)


@pytest.mark.parametrize("k", [1.5, "3", None])
def test_a_number_of_neighbours_that_is_not_an_integer_is_refused_at_fit(k):
    with pytest.raises((TypeError, ValueError), match=rf"n_neighbors is {k!r}"):
        PrototypeClassifier(JBLD(), n_neighbors=k).fit(sample("jbld", N), [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("geometry", "error", "message"),
    [
        ("jblb", ValueError, r"geometry is 'jblb'; choose one of 'jbld', 'airm', "),
        (None, TypeError, r"geometry is a NoneType; give a geometry such as JBLD\(\), or a name"),
        (3, TypeError, r"geometry is a int; give a geometry such as JBLD\(\), or a name"),
        (JBLD, TypeError, r"geometry is .*give a geometry such as JBLD\(\)"),
        ("sinkhorn", ValueError, r"ground_cost is None; give the \(d, d\) matrix"),
        ("emd", ValueError, r"ground_cost is None; give the \(d, d\) matrix"),
    ],
)
def test_what_is_not_a_geometry_is_refused(geometry, error, message):
    X = sample("emd" if geometry in ("sinkhorn", "emd") else "jbld", N)
    with pytest.raises(error, match=message):
        fit(geometry, X)


BAD_WEIGHTS = [[1, 1, -1, 1], [1.0, 1.0, 1.0], np.ones((4, 1)), [0, 0, 0, 0], [1, 1, np.nan, 1]]


@pytest.mark.parametrize(("name", "weights"), one_at_a_time(GEOMETRIES, BAD_WEIGHTS))
def test_bad_weights_of_a_centroid_are_refused(name, weights):
    with pytest.raises(ValueError, match=r"weights (has shape .*; give one weight|must be finite and non-negative)"):
        GEOMETRIES[name].centroid(sample(name, N), weights)


# --- what is accepted


def whole_numbers(name, n=6):
    """Valid points whose entries are whole numbers: exact in every number type."""
    X = np.round(20 * sample(name, n))
    if name in SPD:
        return X + 10 * np.eye(X.shape[1])
    X[:, 0] += 1  # no empty histogram
    return X


def read_only(X):
    X = X.copy()
    X.setflags(write=False)
    return X


def strided(X):
    wide = np.zeros((2 * len(X), *(2 * s for s in X.shape[1:])))
    view = wide[tuple(slice(1, None, 2) for _ in X.shape)]
    view[...] = X
    return view


LAYOUTS = {
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "longdouble": lambda X: X.astype(np.longdouble),
    "big-endian": lambda X: X.astype(">f8"),
    "int16": lambda X: X.astype(np.int16),
    "int64": lambda X: X.astype(np.int64),
    "objects": lambda X: X.astype(object),
    "nested lists": lambda X: X.tolist(),
    "list of arrays": list,
    "Fortran order": np.asfortranarray,
    "strided": strided,
    "reversed": lambda X: X[::-1].copy()[::-1],
    "read-only": read_only,
    "an array subclass": lambda X: np.ma.masked_array(X),
}


#: Every layout of a geometry of each kind of points, and one layout of every geometry.
LAYOUT_CASES = {
    *((name, layout) for name in ("jbld", "sinkhorn-divergence", "sqeuclidean") for layout in LAYOUTS),
    *((name, "strided") for name in GEOMETRIES),
}


@pytest.mark.parametrize(("name", "layout"), sorted(LAYOUT_CASES))
def test_every_layout_gives_the_same_and_is_left_as_it_was(name, layout):
    geometry, X = GEOMETRIES[name], whole_numbers(name)
    same = LAYOUTS[layout](X)
    before = content(same)
    np.testing.assert_array_equal(geometry.pairwise(same), geometry.pairwise(X))
    np.testing.assert_array_equal(geometry.pairwise(same, X), geometry.pairwise(X, same))
    clf = PrototypeClassifier(geometry).fit(same, np.arange(6) % 2)
    np.testing.assert_array_equal(clf.transform(same), clf.transform(X))
    assert clf.predict(same).tolist() == clf.predict(X).tolist()
    geometry.centroid(same)
    assert content(same) == before


@every_geometry
def test_checked_points_are_float64_c_arrays_and_pass_untouched(name):
    checked = GEOMETRIES[name].check(whole_numbers(name).astype(np.float32))
    assert (checked.dtype, checked.flags.c_contiguous) == (np.float64, True)
    assert GEOMETRIES[name].check(checked) is checked


@pytest.mark.parametrize("name", SPD)
def test_asymmetry_of_rounding_is_averaged_away_silently(name):
    X = asymmetric(sample(name, N), 5e-9)
    before = X.copy()
    mean = 0.5 * (X + X.transpose(0, 2, 1))
    np.testing.assert_array_equal(GEOMETRIES[name].check(X), mean)
    np.testing.assert_array_equal(GEOMETRIES[name].pairwise(X), GEOMETRIES[name].pairwise(mean))
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histograms_are_normalised(name):
    X = sample(name, N)
    counts = X * [[1.0], [3.0], [1e-300], [1e300]]
    before = counts.copy()
    np.testing.assert_allclose(GEOMETRIES[name].check(counts), X, rtol=1e-13)
    np.testing.assert_allclose(GEOMETRIES[name].pairwise(counts), GEOMETRIES[name].pairwise(X), atol=1e-9)
    np.testing.assert_array_equal(counts, before)


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histograms_whose_sum_overflows_are_normalised(name):
    np.testing.assert_allclose(GEOMETRIES[name].check(np.full((2, 9), 1e308)), 1 / 9)


@pytest.mark.parametrize("name", SPD)
def test_finite_points_whose_sum_overflows_are_not_called_infinite(name):
    X = 1e307 * np.stack([np.eye(20)] * 2)
    np.testing.assert_array_equal(GEOMETRIES[name].check(X), X)


@pytest.mark.parametrize("door", DOORS)
def test_vectors_whose_squares_overflow_are_refused_as_such(door):
    X = sample("sqeuclidean", N)
    X[[1, 3], 2] = 1e307, -1e151
    enter, called = DOORS[door]
    said = rf"{called}\[1\] has an entry of size 1\.0e\+307, as do 2 of 4 points, .* overflow; scale all points"
    with pytest.raises(InvalidPointError, match=said):
        enter(SquaredEuclidean(), X, sample("sqeuclidean", N))


@pytest.mark.parametrize("name", SINKHORN)
def test_a_ground_cost_of_any_layout_works_and_is_left_as_it_was(name):
    X, value = sample(name, N), GEOMETRIES[name].value
    expected = Sinkhorn(GROUND_COST, reg=0.5, value=value).pairwise(X)
    for M in (GROUND_COST.tolist(), np.asfortranarray(GROUND_COST), strided(GROUND_COST), read_only(GROUND_COST)):
        before = content(M)
        np.testing.assert_array_equal(Sinkhorn(M, reg=0.5, value=value).pairwise(X), expected)
        assert content(M) == before


@pytest.mark.parametrize("gamma", [1e160, 1e-160, 2**70 * 10**200, np.float64(1e300), 0.0, -1.0, np.inf, np.nan])
def test_a_sharpness_beyond_numbers_is_refused(gamma):
    X, y = labelled("sqeuclidean", 30)
    y = y % 2
    with pytest.raises(ValueError, match=r"^gamma is .*give a positive number"):
        kp.SNC(n_prototypes=2, gamma=gamma, max_iter=1).fit(X, y)
    with pytest.raises(ValueError, match=r"^gamma is .*give a positive number"):
        kp.SNC(n_prototypes=2, gamma=gamma, max_iter=1).partial_fit(X, y)
    compressor = StochasticCompression(gamma=gamma, max_iter=1)
    with pytest.raises(ValueError, match=r"^gamma is .*give a positive number"):
        kp.PrototypeClassifier("sqeuclidean", compressor, n_prototypes=2).fit(X, y)


@pytest.mark.parametrize("count", [2**70, -(2**70), 10**400, np.inf, np.nan])
def test_a_number_of_prototypes_beyond_counting_is_refused(count):
    X, y = labelled("sqeuclidean", 30)
    for model in (
        kp.SNC(n_prototypes=count, gamma=1.0, max_iter=1),
        kp.PrototypeClassifier("sqeuclidean", Subsample(), n_prototypes=count),
    ):
        with pytest.raises(ValueError, match=r"^n_prototypes is"):
            model.fit(X, y)
    with pytest.raises(ValueError, match=r"^n_prototypes is"):
        kp.SNC(n_prototypes=count, gamma=1.0, max_iter=1).partial_fit(X, y)
    with pytest.raises(ValueError, match=r"^n_prototypes is"):
        kp.PrototypeSampler("sqeuclidean", Subsample(), n_prototypes=count).fit_resample(X, y)


SECONDS = np.arange(8).reshape(4, 2).astype("m8[s]")
MASKED = np.ma.array(np.ones((4, 2)), mask=np.zeros((4, 2), dtype=bool))
MASKED[2, 1] = np.ma.masked


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.array([["1", "2"], ["3", "4"]]), "X cannot be read as numbers: it holds text"),
        ([["1", "2"], ["3", "4"]], "X cannot be read as numbers: it holds text"),
        (np.array([[b"1", b"2"]]), "X cannot be read as numbers: it holds text"),
        (np.array([[1.0, "2"]], dtype=object), "X cannot be read as numbers: it holds text"),
        (SECONDS, "X cannot be read as numbers: it holds times"),
        (SECONDS + np.datetime64("2020-01-01"), "X cannot be read as numbers: it holds times"),
        (SECONDS.astype(object), "X cannot be read as numbers: it holds times"),
        (MASKED, r"X\[2\] is masked at \[1\], the only one of 4 points"),
    ],
)
def test_text_times_and_masked_entries_are_refused_as_numbers(X, message):
    with pytest.raises(ValueError, match=message):
        SquaredEuclidean().check(X)
    with pytest.raises(ValueError, match=message):
        PrototypeClassifier("sqeuclidean").fit(X, np.arange(len(X)))


def test_a_mask_that_hides_nothing_and_objects_that_are_numbers_are_taken():
    X = np.array([[1.0, 2.0], [3.0, 4.0]])
    for same in (np.ma.array(X), np.ma.array(X, mask=[[0, 0], [0, 0]]), X.astype(object), X.astype(np.float16)):
        np.testing.assert_array_equal(SquaredEuclidean().check(same), X)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["2020-01-01", "NaT", "2021-01-01", "2020-01-01"], dtype="M8[D]"),
        np.array([1, "NaT", 2, 1], dtype="m8[s]"),
        np.ma.array([0, 1, 0, 1], mask=[0, 0, 1, 0]),
    ],
)
def test_masked_labels_and_nat_count_as_missing(y):
    with pytest.raises(ValueError, match="y contains missing labels"):
        PrototypeClassifier("sqeuclidean").fit(np.eye(4), y)


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "string", "category", object])
def test_labels_that_pandas_has_not_are_missing(dtype):
    pd = pytest.importorskip("pandas")
    words = [pd.NA, "a", "b", "a"]
    y = pd.Series([pd.NA, 1, 0, 1] if dtype in ("Int64", "boolean") else words, dtype=dtype)
    with pytest.raises(ValueError, match="y contains missing labels"):
        PrototypeClassifier("sqeuclidean").fit(np.eye(4), y)


@pytest.mark.parametrize("dtype", ["Int64", "UInt64"])
@pytest.mark.parametrize("kind", ["Series", "array"])
def test_large_whole_numbers_of_pandas_stay_apart(dtype, kind):
    """As floats, which these become where one may be missing, neighbours above 2**53 are the same."""
    pd = pytest.importorskip("pandas")
    y = getattr(pd, kind)([2**60 + k for k in range(4)], dtype=dtype)
    clf = PrototypeClassifier("sqeuclidean").fit(np.eye(4), y)
    assert clf.classes_.tolist() == clf.predict(np.eye(4)).tolist() == y.tolist()


def test_truth_values_of_pandas_stay_truth_values():
    pd = pytest.importorskip("pandas")
    clf = PrototypeClassifier("sqeuclidean").fit(np.eye(4), pd.Series([True, False, True, False], dtype="boolean"))
    assert clf.classes_.dtype == bool


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_a_sharpness_of_low_precision_is_one_like_any_other(kind):
    check_gamma(kind(2.0))
    with pytest.raises(ValueError, match="gamma is"):
        check_gamma(kind(0.0))


def test_times_are_labels():
    y = np.array(["2020-01-01", "2021-01-01"] * 2, dtype="M8[D]")
    assert (PrototypeClassifier("sqeuclidean").fit(np.eye(4), y).predict(np.eye(4)) == y).all()


@pytest.mark.parametrize("largest", [1e308, 1e101, 1e-101, 1e-320])
def test_weights_far_from_one_are_refused(largest):
    X, y = labelled("sinkhorn-divergence", 30)
    weight = np.linspace(0.5, 1.0, 30) * largest
    with pytest.raises(ValueError, match=r"sample_weight .*scale them, e\.g\. divide by their mean"):
        kp.SHC(GROUND_COST, n_prototypes=3, gamma=1.0, max_iter=1).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize(
    "weights", [["1"] * 4, np.ones(4).astype("m8[s]"), np.ma.array(np.ones(4), mask=[0, 0, 1, 0]), np.ones(4) * 1j]
)
def test_weights_that_are_not_numbers_are_refused(weights):
    with pytest.raises(ValueError, match="weight"):
        SquaredEuclidean().centroid(np.eye(4), weights)
    with pytest.raises(ValueError, match="sample_weight"):
        kp.SNC(n_prototypes=2).fit(np.eye(4), [0, 1, 0, 1], sample_weight=weights)


@pytest.mark.parametrize("scale", [1e308, 1e-300])
def test_weights_of_a_centroid_count_by_their_share(scale):
    X = np.array([[0.0], [4.0]])
    np.testing.assert_allclose(SquaredEuclidean().centroid(X, np.array([0.5, 1.5]) * scale), [3.0])


@pytest.mark.parametrize(("name", "size"), one_at_a_time(SPD, [1e-291, 1e-308, 1e-320, 5e307, 1e308]))
def test_matrices_with_entries_at_the_end_of_the_range_are_refused(name, size):
    """Half way there, sums of two of them, or pivots that are far smaller, leave the range of doubles."""
    X = np.stack([np.diag([1.0, 2.0]), np.diag([1.0, size])])
    with pytest.raises(InvalidPointError, match=r"X\[1\] has a variance of .*, the only one of 2 matrices; scale"):
        GEOMETRIES[name].check(X)


@pytest.mark.parametrize("scale", [1e-289, 1e-150, 1e150, 1e307])
def test_jbld_does_not_depend_on_the_scale(scale):
    X = sample("jbld", 5)
    X = X / np.abs(X).max()
    np.testing.assert_allclose(JBLD().pairwise(scale * X), JBLD().pairwise(X), atol=1e-11)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("tol", value) for value in (np.nan, -1.0, "small", 1.0, True)),
        *(("max_iter", value) for value in (0, -1, 2.5, 2**40, None)),
    ],
)
def test_iterations_of_transport_that_could_not_end_are_refused(name, value):
    wrong = {name: value}
    for geometry, X in (
        (Sinkhorn(1.0 - np.eye(3), **wrong), np.ones((2, 3))),
        (CloudSinkhorn(1.0, **wrong), kp.Clouds(np.ones((2, 2)), [0, 1, 2])),
    ):
        with pytest.raises(ValueError, match=rf"^{name} is {value!r}; give "):
            geometry.pairwise(X)


@pytest.mark.parametrize(
    ("shape", "advice"),
    [
        ((5, 9), r"Where each row is a flattened 3 x 3 matrix, give X\.reshape\(-1, 3, 3\)"),
        ((5, 13), "Vectors are for SNC, and histograms for SHC"),
        ((5, 5), r"Reshape your data, e\.g\. X\[None\] for a single point"),
    ],
)
def test_points_that_are_no_matrices_get_advice(rng, shape, advice):
    with pytest.raises(ValueError, match=rf"X has shape \({shape[0]}, {shape[1]}\); expected .* {advice}$"):
        kp.SCC().fit(rng.random(shape), np.arange(5) % 2)


@pytest.mark.parametrize(("rows", "said"), [([3], "the only one of 5 points"), ([1, 3], "as do 2 of 5 points")])
def test_a_single_bad_point_is_called_the_only_one(rng, rows, said):
    X = rng.random((5, 2))
    X[rows] = np.nan
    with pytest.raises(InvalidPointError, match=rf"^X\[{rows[0]}\] contains NaN .*, {said}; remove"):
        kp.SNC().fit(X, np.arange(5) % 2)


CLASS = np.repeat([0, 1], 10)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.where(CLASS, np.nan, 1.0), r"groups\[10\] is NaN; give every point a group"),
        ([None] * 20, r"groups has missing entries \(None or NaN\)"),
        (np.ma.masked_array(CLASS, mask=CLASS == 1), r"groups has missing entries \(it is masked\)"),
        ([1, "a"] * 10, r"groups has names of several kinds \(int, str\)|groups"),
        (np.array([1, "a"] * 10, object), r"groups has names of several kinds \(int, str\); use one"),
        (CLASS * 1j, r"groups is of type complex128"),
        (np.c_[CLASS, CLASS], r"groups has shape \(20, 2\), and X has 20 points"),
        (5, r"groups has shape \(\), and X has 20 points"),
        (CLASS[:3], r"groups has 3 entries, and X has 20 points"),
    ],
)
def test_what_names_no_group_is_refused_by_its_name(groups, message, rng):
    X = rng.normal(size=(20, 2)) + 3 * CLASS[:, None]
    if isinstance(groups, list) and isinstance(groups[0], int):  # NumPy makes text of them, which are names
        assert kp.SNC(n_prototypes=2, max_iter=2).fit(X, CLASS, groups=groups)
        return
    for door in (
        lambda: kp.SNC(n_prototypes=2).fit(X, CLASS, groups=groups),
        lambda: kp.compare(X, CLASS, groups=groups),
    ):
        with pytest.raises(ValueError, match=message):
            door()


@pytest.mark.parametrize("value", [-1, np.nan, np.inf, "a", None, True])
def test_weights_of_classes_that_are_none_are_refused(value, rng):
    """Before, a negative one could pass, or end in ZeroDivisionError."""
    model = kp.SNC(n_prototypes=2, class_weight={0: value, 1: 2.0})
    with pytest.raises(ValueError, match=r"class_weight\[0\] is .*; give a number, 0 to leave the class out"):
        model.fit(rng.normal(size=(20, 2)), CLASS)
    with pytest.raises(ValueError, match=r"class_weight is 'x'; give a dict from class to weight, 'balanced' or None"):
        model.set_params(class_weight="x").fit(rng.normal(size=(20, 2)), CLASS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array(["a", 1] * 10, object), r"y holds labels of several kinds \(int, str\); use one, e\.g\. text"),
        (np.array([2**70, 2**71] * 10, object), r"Unknown label type: y holds int; give text or whole numbers"),
        (np.zeros(20, [("a", int)]), r"y holds records"),
    ],
)
def test_labels_of_strange_types_are_called_what_they_are(labels, message, rng):
    with pytest.raises(ValueError, match=message):
        PrototypeClassifier("sqeuclidean").fit(rng.normal(size=(20, 2)), labels)


def test_strings_of_any_length_are_labels(rng, tmp_path):
    X = rng.normal(size=(20, 2))
    model = PrototypeClassifier("sqeuclidean").fit(X, np.where(CLASS, "a", "b").astype(np.dtypes.StringDType()))
    model.save(tmp_path / "m.knnp")
    assert kp.load(tmp_path / "m.knnp").predict(X).tolist() == ["b"] * 10 + ["a"] * 10


@pytest.mark.parametrize("compressor", [StochasticCompression(), kp.compression.LearningVectorQuantization()])
def test_compressors_that_move_points_refuse_clouds_with_the_cure(compressor, rng):
    clouds = kp.Clouds.from_list([rng.normal(size=(k, 2)) for k in range(1, 21)])
    with pytest.raises(TypeError, match="learn with SWC"):
        PrototypeClassifier("clouds", compressor, n_prototypes=4).fit(clouds, CLASS)


def test_text_in_the_place_of_numbers_is_shown_as_text():
    with pytest.raises(ValueError, match=r"it holds text \('1\.5'\)"):
        SquaredEuclidean().check(np.array([["1.5", "2"]]))


def test_a_picture_of_a_model_that_is_not_fitted_says_so():
    pytest.importorskip("matplotlib")
    with pytest.raises(NotFittedError):
        kp.plot.prototypes(kp.SCC())


def test_a_search_needs_a_class_of_two():
    pytest.importorskip("optuna")
    with pytest.raises(ValueError, match="every class has one point only; give at least two of some"):
        kp.compression.tune(kp.SNC(n_prototypes=2), np.eye(2), [0, 1], n_trials=1)
