"""Eigenvalues and functions of symmetric matrices, on every instruction set, against NumPy, SciPy and 50 digits."""

import itertools

import mpmath
import numpy as np
import pytest
from cases import for_each
from numpy.testing import assert_allclose, assert_array_equal
from reference import random_spd
from scipy.linalg import expm, logm, sqrtm

from knnpress import _core
from knnpress.geometries import spectral
from knnpress.geometries.spectral import (
    eigh,
    eigvalsh,
    matrix_exp,
    matrix_inverse_sqrt,
    matrix_log,
    matrix_sqrt,
    whitened_log,
)

pytestmark = pytest.mark.usefixtures("target")

EPS = np.finfo(float).eps
DIMS = [*range(1, 11), 19, 33, 40, 64, 65]
MAPS = {matrix_log: np.log, matrix_exp: np.exp, matrix_sqrt: np.sqrt, matrix_inverse_sqrt: lambda s: 1 / np.sqrt(s)}
every_map = pytest.mark.parametrize(("function", "scalar"), MAPS.items(), ids=lambda f: getattr(f, "__name__", ""))


def random_symmetric(rng, n, d):
    A = rng.normal(size=(n, d, d))
    return A + A.transpose(0, 2, 1)


def assert_decomposes(X, values, vectors):
    """To a few eps of each matrix's norm: X = U s U', U'U = I, s ascending and as NumPy has it."""
    norm = np.abs(X).max(axis=(1, 2), keepdims=True) + np.finfo(float).tiny
    close, transposed = 20 * EPS * X.shape[1], vectors.transpose(0, 2, 1)
    assert_allclose(vectors * (values / norm[:, 0])[:, None] @ transposed, X / norm, rtol=0, atol=close)
    assert_allclose(transposed @ vectors, np.broadcast_to(np.eye(X.shape[1]), X.shape), rtol=0, atol=close)
    assert (np.diff(values) >= 0).all()
    assert_allclose(values / norm[:, 0], np.linalg.eigvalsh(X / norm), rtol=0, atol=close)
    assert_array_equal(eigvalsh(X), values)


# ---- eigenvalues and eigenvectors -----------------------------------------------------------------------------


@for_each("d", DIMS)
def test_decompositions_of_every_size_are_right_to_rounding(rng, d):
    X = random_symmetric(rng, 19, d)
    assert_decomposes(X, *eigh(X))


@for_each("n", [0, 1, 2, 3, 7, 8, 9, 16, 17, 33])
def test_decompositions_in_every_number_are_right_to_rounding(rng, n):
    X = random_symmetric(rng, n, 5)
    assert_decomposes(X, *eigh(X))
    assert matrix_log(random_spd(rng, n, 5)).shape == X.shape


@for_each("scale", [1e-300, 1e-100, 1e-20, 1e20, 1e100, 1e300])
@pytest.mark.parametrize("d", [1, 2, 3, 19])
def test_scale_changes_nothing(rng, d, scale):
    X = random_symmetric(rng, 9, d)
    assert_decomposes(X * scale, *eigh(X * scale))


def test_lanes_of_very_different_scale_do_not_meet(rng):
    X = random_symmetric(rng, 16, 6) * 10.0 ** rng.uniform(-200, 200, (16, 1, 1))
    assert_decomposes(X, *eigh(X))


SPECIAL = {
    "zero": np.zeros((7, 7)),
    "identity": np.eye(7),
    "diagonal": np.diag([3.0, -1.0, 2.0, 2.0, 0.0, 5.0, 1e-9]),
    "ones": np.ones((7, 7)),
    "degenerate": np.eye(7) - 2 * np.full((7, 7), 1 / 7),
    "tridiagonal": np.diag(np.arange(7.0)) + np.diag(np.ones(6), 1) + np.diag(np.ones(6), -1),
    "split": np.kron(np.eye(4), [[1.0, 2.0], [2.0, 1.0]])[:7, :7],
    "arrow": np.diag(np.full(7, 2.0))
    + np.pad(np.ones((1, 6)), ((0, 6), (1, 0)))
    + np.pad(np.ones((6, 1)), ((1, 0), (0, 6))),
    "graded": 10.0 ** -np.add.outer(np.arange(7.0), np.arange(7.0)) + np.diag(10.0 ** (-2 * np.arange(7.0))),
    "reversed": (10.0 ** -np.add.outer(np.arange(7.0), np.arange(7.0)) + np.diag(10.0 ** (-2 * np.arange(7.0))))[
        ::-1, ::-1
    ],
    "tiny beside one": np.diag([1.0, 0, 0, 0, 0, 0, 0]) + 1e-170 * np.ones((7, 7)),
    "subnormal": np.full((7, 7), 5e-324),
    "Wilkinson": np.diag(np.abs(np.arange(7.0) - 3)) + np.diag(np.ones(6), 1) + np.diag(np.ones(6), -1),
}


@for_each("name", SPECIAL)
def test_special_matrices_are_decomposed_like_any(name, rng):
    X = random_symmetric(rng, 9, 7)
    X[4] = SPECIAL[name]
    assert_decomposes(X, *eigh(X))


def test_all_special_matrices_share_vectors():
    X = np.stack([*SPECIAL.values()])
    assert_decomposes(X, *eigh(X))


@pytest.mark.parametrize("d", [2, 19])
@pytest.mark.parametrize("many", [2, 5])
def test_eigenvalues_that_coincide_have_orthogonal_vectors(rng, d, many):
    frames = np.linalg.qr(rng.normal(size=(11, d, d)))[0]
    values = np.sort(rng.integers(0, many, (11, d)).astype(float))
    X = frames * values[:, None] @ frames.transpose(0, 2, 1)
    X = (X + X.transpose(0, 2, 1)) / 2
    assert_decomposes(X, *eigh(X))


@for_each("case", [*itertools.product([1, 2, 6], [np.nan, np.inf, -np.inf]), (130, np.nan)])
def test_what_is_not_finite_ends_and_leaves_the_other_lanes_alone(rng, case):
    d, bad = case
    X = random_spd(rng, 5, d)
    expected = [*eigh(X), *(function(X) for function in MAPS)]
    X[2, -1, 0] = X[2, 0, -1] = bad
    others = [0, 1, 3, 4]
    for found, sound in zip([*eigh(X), *(function(X) for function in MAPS)], expected, strict=True):
        assert_array_equal(found[others], sound[others])
    assert np.isnan(eigvalsh(X)[2]).all()
    assert all(np.isnan(function(X)[2]).any() for function in MAPS)


def test_only_lower_triangles_are_read(rng):
    X = random_spd(rng, 3, 5)
    for found, sound in zip(eigh(np.tril(X)), eigh(X), strict=True):
        assert_array_equal(found, sound)


def test_inputs_stay_as_they_are(rng):
    X = random_spd(rng, 20, 4)
    before = X.copy()
    eigh(X)
    matrix_log(X)
    assert_array_equal(X, before)


@pytest.mark.parametrize(("n", "d"), [(1000, 3), (5, 130)])
def test_threads_change_nothing(rng, many_blocks, n, d):
    X = random_spd(rng, n, d)
    for function in (eigh, matrix_log) if d > 3 else (eigh, eigvalsh, *MAPS):  # LAPACK's go one way, and are slow
        for one, two in zip(function(X, n_jobs=1), function(X, n_jobs=2), strict=True):
            assert_array_equal(one, two)


def test_lapack_beyond_the_widest_lanes_agrees_with_them(rng, monkeypatch):
    X = random_spd(rng, 5, 12)
    native = [*eigh(X), *(function(X) for function in MAPS)]
    monkeypatch.setattr(spectral, "_WIDEST", 11)
    monkeypatch.delattr(_core, "eigen")
    lapack = [*eigh(X), *(function(X) for function in MAPS)]
    assert_allclose(eigvalsh(X), native[0], rtol=1e-12)
    signs = np.sign(np.einsum("iab,iab->ib", native[1], lapack[1]))
    for found, expected in zip(native, [lapack[0], lapack[1] * signs[:, None], *lapack[2:]], strict=True):
        assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 4), (2, 0, 0), (1, 1, 2, 2)])
def test_shapes_other_than_a_stack_of_matrices_are_refused(shape):
    with pytest.raises(ValueError, match=r"X has shape .*; expected symmetric matrices \(n_matrices, d, d\)"):
        eigh(np.zeros(shape))


# ---- functions ------------------------------------------------------------------------------------------------


@every_map
@for_each("d", DIMS)
def test_functions_of_every_size_are_those_of_the_eigenvalues(rng, function, scalar, d):
    X = random_spd(rng, 11 if d < 50 else 3, d)
    values, vectors = np.linalg.eigh(X)
    expected = vectors * scalar(values)[:, None] @ vectors.transpose(0, 2, 1)
    found = function(X)
    assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert_array_equal(found, found.transpose(0, 2, 1))


@pytest.mark.parametrize(
    ("function", "other"),
    [
        (matrix_log, logm),
        (matrix_exp, expm),
        (matrix_sqrt, sqrtm),
        (matrix_inverse_sqrt, lambda x: np.linalg.inv(sqrtm(x))),
    ],
)
def test_functions_agree_with_scipy(rng, function, other):
    X = random_spd(rng, 5, 6)
    assert_allclose(function(X), [other(x) for x in X], rtol=0, atol=1e-12 * np.abs(function(X)).max())


EXACT = {
    matrix_log: mpmath.log,
    matrix_exp: mpmath.exp,
    matrix_sqrt: mpmath.sqrt,
    matrix_inverse_sqrt: lambda s: 1 / mpmath.sqrt(s),
}


def fifty_digits(x, scalar):
    with mpmath.workdps(50):
        values, vectors = mpmath.eigsy(mpmath.matrix(x.tolist()))
        product = vectors * mpmath.diag([scalar(v) for v in values]) * vectors.T
        return np.array(product.tolist(), dtype=float)


@pytest.mark.parametrize("function", EXACT)
@for_each("condition", [1.0, 1e4, 1e8])
def test_functions_lose_no_more_than_the_condition_takes(rng, function, condition):
    """A change of X by eps of its norm changes the result by that times the slope of the function."""
    X = random_spd(rng, 3, 5, condition)
    X /= np.abs(X).max(axis=(1, 2), keepdims=True)
    values = np.linalg.eigvalsh(X)
    slope = {
        matrix_log: 1 / values[:, 0],
        matrix_exp: np.exp(values[:, -1]),
        matrix_sqrt: 0.5 / np.sqrt(values[:, 0]),
        matrix_inverse_sqrt: 0.5 / values[:, 0] ** 1.5,
    }[function]
    for x, found, steep in zip(X, function(X), slope, strict=True):
        exact = fifty_digits(x, EXACT[function])
        assert np.abs(found - exact).max() <= 50 * EPS * steep + 20 * EPS * np.abs(exact).max()


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e8])
@for_each("d", [1, 2, 19, 64])
def test_functions_undo_each_other(rng, d, condition):
    X = random_spd(rng, 9, d, condition)
    norm = np.abs(X).max()
    root, inverse = matrix_sqrt(X), matrix_inverse_sqrt(X)
    assert_allclose(root @ root, X, rtol=0, atol=1e-12 * norm)
    assert_allclose(matrix_exp(matrix_log(X)), X, rtol=0, atol=1e-12 * norm)
    assert_allclose(root @ inverse, np.broadcast_to(np.eye(d), X.shape), rtol=0, atol=20 * EPS * d * condition)


@for_each("exponent", [-330, -100, 100, 300])
def test_scales_pass_through_functions(rng, exponent):
    X, scale = random_spd(rng, 9, 6, 10.0), 2.0 ** (2 * exponent)
    assert_allclose(
        matrix_log(X * scale), matrix_log(X) + 2 * exponent * np.log(2.0) * np.eye(6), rtol=1e-13, atol=1e-12
    )
    assert_allclose(matrix_sqrt(X * scale), matrix_sqrt(X) * 2.0**exponent, rtol=0, atol=1e-13 * 10 * 2.0**exponent)
    inverse = matrix_inverse_sqrt(X) * 2.0**-exponent
    assert_allclose(matrix_inverse_sqrt(X * scale), inverse, rtol=0, atol=1e-12 * np.abs(inverse).max())


def test_exponentials_reach_the_whole_range_of_numbers():
    values = np.array([-800.0, -740.0, -708.0, -690.0, 0.0, 690.0, 709.0, 800.0])
    with np.errstate(over="ignore"):
        assert_allclose(matrix_exp(values[:, None, None])[:, 0, 0], np.exp(values), rtol=1e-13)


def test_eigenvalues_that_rounding_made_negative_count_as_least(rng):
    X = np.diag([1.0, -1e-17])[None]
    assert_allclose(matrix_sqrt(X)[0], np.diag([1.0, 0.0]))
    tiny = np.finfo(float).tiny
    assert_allclose(matrix_log(X)[0], np.diag([0.0, np.log(tiny)]), rtol=1e-14)
    assert_allclose(matrix_inverse_sqrt(X)[0], np.diag([1.0, tiny**-0.5]), rtol=1e-14)


@for_each("d", [*DIMS, 130])
def test_whitened_logarithms_are_those_of_the_congruent_matrices(rng, d):
    X, A = random_spd(rng, 9, d), rng.normal(size=(d, d)) / np.sqrt(d)
    congruent = A @ X @ A.T
    expected = matrix_log((congruent + congruent.transpose(0, 2, 1)) / 2)
    worst = np.linalg.cond(congruent).max()
    found = whitened_log(X, A)
    assert_allclose(found, expected, rtol=0, atol=20 * EPS * d * worst)
    assert_array_equal(found, found.transpose(0, 2, 1))


def test_whitened_logarithms_of_the_mean_itself_are_zero(rng):
    X = random_spd(rng, 3, 19)
    assert_allclose(whitened_log(X, matrix_inverse_sqrt(X[1:2])[0])[1], np.zeros((19, 19)), rtol=0, atol=1e-12)
