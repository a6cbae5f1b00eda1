"""The native core at the edges: sizes that overflow, arrays of length zero, misaligned arrays."""

import os

import numpy as np
import pytest
from cases import for_each
from numpy.testing import assert_array_equal
from reference import grid_cost, random_histograms, random_spd

from knnpress import _core
from knnpress.geometries import EMD, JBLD, Sinkhorn, SquaredEuclidean

pytestmark = pytest.mark.usefixtures("target")

M = grid_cost(2)


def misaligned(X):
    """The same numbers, a byte off."""
    buffer = np.zeros(X.nbytes + 1, dtype=np.uint8)
    view = buffer[1:].view(X.dtype).reshape(X.shape)
    view[...] = X
    assert not view.flags.aligned
    return view


# ---- length zero


def test_no_matrices_give_empty_results(rng):
    none, some = np.empty((0, 3, 3)), random_spd(rng, 5, 3)
    x, z = _core.SpdLanes(none), _core.SpdSequence(none)
    assert x.logdet.shape == x.margin.shape == z.logdet.shape == (0,)
    assert x.inverse().shape == (0, 3, 3)
    X, Z = _core.SpdLanes(some), _core.SpdSequence(some)
    assert _core.jbld_pairwise(x, Z).shape == (0, 5)
    assert _core.jbld_pairwise(X, z).shape == (5, 0)
    assert _core.jbld_pairwise(x, z).shape == (0, 0)
    assert_array_equal(_core.jbld_pullback(x, Z, np.empty((0, 5)), 0.0), np.zeros((5, 3, 3)))
    assert _core.jbld_pullback(X, z, np.empty((5, 0)), 0.0).shape == (0, 3, 3)


@pytest.mark.parametrize("reg", [0.5, 1e-3], ids=["shared", "stabilised"])
@pytest.mark.parametrize("transport", [True, False])
def test_no_histograms_give_empty_results(rng, reg, transport):
    cost, none, some = _core.SinkhornCost(M, reg), np.empty((0, 4)), random_histograms(rng, 5, 4)
    for x, z in ((none, some), (some, none), (none, none)):
        shape = len(x), len(z)
        for kept in ((None, None), (np.zeros((*shape, 4)), np.zeros(shape))):
            value, iterations, error = _core.sinkhorn(cost, x, z, *kept, 1e-5, 10, transport)
            assert value.shape == iterations.shape == error.shape == shape
        pulled = _core.sinkhorn_pullback(cost, x, np.zeros((*shape, 4)), np.zeros(shape), 0.0)
        assert_array_equal(pulled, np.zeros((len(z), 4)))
    assert [part.shape for part in _core.sinkhorn_self(cost, none, 1e-5, 10)] == [(0,), (0, 4), (0,), (0,)]


@for_each("max_iter", [0, -1, -(2**31)])
@pytest.mark.parametrize("reg", [0.5, 1e-3], ids=["shared", "stabilised"])
def test_no_iterations_count_as_one(rng, reg, max_iter):
    cost, X = _core.SinkhornCost(M, reg), random_histograms(rng, 5, 4)
    value, iterations, _ = _core.sinkhorn(cost, X, X, None, None, 1e-5, max_iter, False)
    assert (iterations == 1).all()
    assert np.isfinite(value).all()
    assert (_core.sinkhorn_self(cost, X, 1e-5, max_iter)[2] == 1).all()


# ---- sizes that overflow


@pytest.mark.parametrize("d", [20_001, 2**29, 2**30 - 1])
def test_matrices_too_wide_to_be_counted_are_refused(d):
    with pytest.raises(ValueError, match="1 to 20000 wide"):
        _core.SpdLanes(np.empty((0, d, d), dtype=np.float64))


@pytest.mark.parametrize("bins", [2**32 + 4, 2**31, 5, 0])
def test_a_number_of_bins_is_not_cut_to_32_bits(bins):
    cost, none, some = _core.SinkhornCost(M, 0.5), np.empty((0, bins)), np.full((1, 4), 0.25)
    weight, potential = np.empty((0, 3)), np.empty((0, 3, bins))
    for call in (
        lambda: _core.sinkhorn_self(cost, none, 1e-5, 10),
        lambda: _core.sinkhorn(cost, none, some, None, None, 1e-5, 10, False),
        lambda: _core.sinkhorn(cost, some, none, None, None, 1e-5, 10, False),
        lambda: _core.sinkhorn_pullback(cost, none, potential, weight, 0.0),
    ):
        with pytest.raises(ValueError, match="differ in size"):
            call()


@pytest.mark.skipif("KNNPRESS_CORE" in os.environ, reason="AddressSanitizer ends the process where memory ends")
def test_a_result_beyond_all_memory_is_refused_and_the_core_works_on(rng):
    """Weights (0, m) ask for a gradient of m histograms."""
    cost = _core.SinkhornCost(M, 0.5)
    for m in (2**55, 2**57):
        with pytest.raises(MemoryError):
            _core.sinkhorn_pullback(cost, np.empty((0, 4)), np.empty((0, m, 4)), np.empty((0, m)), 0.0)
    assert np.isfinite(_core.sinkhorn_self(cost, random_histograms(rng, 3, 4), 1e-5, 10)[0]).all()


# ---- misaligned arrays


def test_the_core_refuses_misaligned_arrays(rng):
    X, H, W = random_spd(rng, 5, 3), random_histograms(rng, 5, 4), np.ones((5, 5))
    cost, kept = _core.SinkhornCost(M, 0.5), (np.zeros((5, 5, 4)), np.zeros((5, 5)))
    x, z = _core.SpdLanes(X), _core.SpdSequence(X)
    for call in (
        lambda: _core.SpdLanes(misaligned(X)),
        lambda: _core.SpdSequence(misaligned(X)),
        lambda: _core.jbld_pullback(x, z, misaligned(W), 0.0),
        lambda: _core.SinkhornCost(misaligned(M), 0.5),
        lambda: _core.sinkhorn_self(cost, misaligned(H), 1e-5, 10),
        lambda: _core.sinkhorn(cost, misaligned(H), H, None, None, 1e-5, 10, False),
        lambda: _core.sinkhorn(cost, H, misaligned(H), None, None, 1e-5, 10, False),
        lambda: _core.sinkhorn(cost, H, H, misaligned(kept[0]), kept[1], 1e-5, 10, False),
        lambda: _core.sinkhorn(cost, H, H, kept[0], misaligned(kept[1]), 1e-5, 10, False),
        lambda: _core.sinkhorn(cost, H, H, None, None, 1e-5, 10, False, misaligned(W)),
        lambda: _core.sinkhorn(cost, H, H, None, None, 1e-5, 10, False, None, misaligned(W)),
        lambda: _core.sinkhorn_pullback(cost, misaligned(H), kept[0], W, 0.0),
        lambda: _core.sinkhorn_pullback(cost, H, misaligned(kept[0]), W, 0.0),
        lambda: _core.sinkhorn_pullback(cost, H, kept[0], misaligned(W), 0.0),
    ):
        with pytest.raises(ValueError, match="must be aligned"):
            call()


def test_the_geometries_take_misaligned_arrays(rng):
    X, H = random_spd(rng, 5, 3), random_histograms(rng, 5, 4)
    geometries = [(JBLD(), X), (SquaredEuclidean(), H), (Sinkhorn(misaligned(M), reg=0.5), H), (EMD(misaligned(M)), H)]
    for geometry, points in geometries:
        assert_array_equal(geometry.pairwise(misaligned(points)), geometry.pairwise(points))
        assert_array_equal(geometry.centroid(misaligned(points)), geometry.centroid(points))


@for_each("offset", range(1, 8))
def test_arrays_need_no_more_alignment_than_a_double(rng, offset):
    """Vectors are wider than doubles: an array that begins between two vectors is as good as any."""
    X, H = random_spd(rng, 9, 3), random_histograms(rng, 9, 4)
    shifted = [np.empty(A.size + offset)[offset:].reshape(A.shape) for A in (X, H)]
    for view, A in zip(shifted, (X, H), strict=True):
        view[...] = A
    assert_array_equal(_core.SpdLanes(shifted[0]).logdet, _core.SpdLanes(X).logdet)
    cost = _core.SinkhornCost(M, 0.5)
    assert_array_equal(_core.sinkhorn_self(cost, shifted[1], 1e-6, 100)[0], _core.sinkhorn_self(cost, H, 1e-6, 100)[0])
