"""The kernels on processors that are not here: cross-compiled, run by an emulator, compared with NumPy's answers.

``make arm-test`` runs this file. It needs Debian's g++-aarch64-linux-gnu, g++-riscv64-linux-gnu and qemu-user.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import reference

from knnpress import _core

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FILES = ("jbld", "spectral", "airm", "sinkhorn", "sinkhorn_scaling", "sinkhorn_logs", "sinkhorn_newton", "clouds")
FILES += ("loss", "moments", "boxes")
#: As CMakeLists.txt has them
OPTIONS = ["-std=c++17", "-fno-tree-vectorize", "-fno-math-errno", "-ffp-contract=fast", "-fvisibility=hidden"]
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-DKNNPRESS_TARGET=baseline")
SIZES = (1, 2, 3, 5, 8, 11, 19, 32, 43)
MAPS = {"log": np.log, "exp": np.exp, "sqrt": np.sqrt, "inverse_sqrt": lambda s: 1 / np.sqrt(s)}
KERNELS = ("logdet", "inverse", "jbld", "jbld_pullback", "boxes", "eigen", "map", "airm", "sinkhorn", "sinkhorn_self")
KERNELS += ("loss", "cloud_self", "clouds")


def compiler(name):
    program = f"{name}-linux-gnu-g++"
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}: apt-get install g++-{name}-linux-gnu")
    if not (ROOT / "cpp" / "jbld.cpp").exists():
        pytest.skip("the source of the core is not here")
    return program


def compiled(program, folder, level):
    """Objects of all kernels."""
    objects = [folder / f"{name}.o" for name in FILES]
    for name, target in zip(FILES, objects, strict=True):
        source = ROOT / "cpp" / f"{name}.cpp"
        subprocess.run([program, *OPTIONS, *STRICT, level, "-c", source, "-o", target], check=True, timeout=1200)
    return objects


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """A command that runs tests/core/cross/kernels.cpp on an emulated 64-bit ARM."""
    program, emulator = compiler("aarch64"), shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("there is no qemu-aarch64: apt-get install qemu-user")
    folder = tmp_path_factory.mktemp("arm")
    driver = ROOT / "tests" / "core" / "cross" / "kernels.cpp"
    objects = compiled(program, folder, "-O3")
    target = folder / "kernels"
    subprocess.run([program, *OPTIONS, *STRICT, "-O1", "-static", driver, *objects, "-o", target], check=True)
    return [emulator, str(target)]


def asked(command, kernel, *arrays, n=0, m=0, d=0, option=0, settings=()):
    """What a kernel gives for a case."""
    head = np.array([KERNELS.index(kernel), n, m, d, option], dtype=np.int64)
    parts = [head.tobytes(), np.array([*settings, *[0.0] * (4 - len(settings))]).tobytes(), _int(len(arrays))]
    for array in arrays:
        parts += [_int(array.size), np.ascontiguousarray(array, dtype=np.float64).tobytes()]
    done = subprocess.run(command, input=b"".join(parts), capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert int.from_bytes(done.stdout[:8], "little") == len(done.stdout) // 8 - 1
    return np.frombuffer(done.stdout[8:])


def _int(number):
    return np.int64(number).tobytes()


@pytest.mark.parametrize("d", SIZES)
def test_matrices(arm, d, rng):
    X, Z, W = reference.random_spd(rng, 7, d), reference.random_spd(rng, 5, d), rng.normal(size=(7, 5))
    sizes = {"n": 7, "m": 5, "d": d}
    np.testing.assert_allclose(asked(arm, "logdet", X, **sizes), reference.logdet(X), rtol=1e-11, atol=1e-11)
    inverse = asked(arm, "inverse", X, **sizes).reshape(X.shape)
    np.testing.assert_allclose(inverse, np.linalg.inv(X), rtol=1e-9, atol=1e-9 * np.abs(inverse).max())
    np.testing.assert_allclose(asked(arm, "jbld", X, Z, **sizes), reference.jbld(X, Z).ravel(), rtol=1e-10, atol=1e-11)
    sums = reference.inverse_sums(X, Z, W).ravel()
    for single, error in ((0, 1e-10), (1, 1e-3)):
        found = asked(arm, "jbld_pullback", X, Z, W, **sizes, option=single)
        np.testing.assert_allclose(found, sums, atol=error * np.abs(sums).max())


@pytest.mark.parametrize("d", SIZES)
def test_spectra(arm, d, rng):
    X, Z = reference.random_spd(rng, 6, d), reference.random_spd(rng, 4, d)
    sizes = {"n": 6, "m": 4, "d": d}
    found = asked(arm, "eigen", X, **sizes)
    values, vectors = found[: 6 * d].reshape(6, d), found[6 * d :].reshape(6, d, d)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(X), rtol=1e-10)
    np.testing.assert_allclose(vectors * values[:, None] @ vectors.transpose(0, 2, 1), X, atol=1e-11 * np.abs(X).max())
    s, U = np.linalg.eigh(X)
    for option, function in enumerate(MAPS.values()):
        expected = U * function(s)[:, None] @ U.transpose(0, 2, 1)
        found = asked(arm, "map", X, **sizes, option=option).reshape(X.shape)
        np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())
    factors, whiteners = np.linalg.cholesky(X), np.linalg.inv(np.linalg.cholesky(Z))
    np.testing.assert_allclose(asked(arm, "airm", factors, whiteners, **sizes), reference.airm(X, Z).ravel(), rtol=1e-9)


@pytest.mark.parametrize("d", SIZES[1:])
@pytest.mark.parametrize("share", [0.2, 0.001])  # of the largest cost: by scalings, and in the logarithm
def test_transport(arm, d, share, rng):
    X, Z = reference.random_histograms(rng, 5, d, 0.2), reference.random_histograms(rng, 3, d)
    M = reference.random_cost(rng, d)
    reg = share * M.max()
    both_ways = 0.5 * (M + M.T)
    cost = _core.SinkhornCost(M, reg)
    sizes = {"n": 5, "m": 3, "d": d, "settings": (reg, 1e-10)}
    if share > 0.1:
        dual = reference.sinkhorn_pairwise(X, Z, M, reg, "dual")
        own = np.array([reference.sinkhorn(x, x, both_ways, reg).dual for x in X])
    else:  # where plain alternation takes for ever: what the core gives here
        dual = _core.sinkhorn(cost, X, Z, None, None, 1e-10, 10000, False, None, None, False)[0]
        own = _core.sinkhorn_self(_core.SinkhornCost(both_ways, reg), X, 1e-10, 10000)[0]
    close = {"rtol": 1e-7, "atol": 1e-9 * M.max()}
    np.testing.assert_allclose(asked(arm, "sinkhorn", X, Z, M, **sizes), dual.ravel(), **close)
    np.testing.assert_allclose(asked(arm, "sinkhorn_self", X, both_ways, **sizes), own, **close)
    transport = _core.sinkhorn(cost, X, Z, None, None, 1e-10, 10000, True, None, None, False)[0]
    np.testing.assert_allclose(asked(arm, "sinkhorn", X, Z, M, **sizes, option=1), transport.ravel(), **close)


@pytest.mark.parametrize("m", [1, 2, 5, 16, 33])
def test_clouds(arm, m, rng):
    n = m + 3
    a, b = reference.random_histograms(rng, 1, n)[0], reference.random_histograms(rng, 1, m)[0]
    x, z = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    cost, own = (((x[:, None] - other) ** 2).sum(axis=2) for other in (z, x))
    found = asked(arm, "clouds", cost, a, b, n=n, m=m, settings=(1e-11,))
    np.testing.assert_allclose(found, _dual(a, b, cost), rtol=1e-8)
    found = asked(arm, "cloud_self", own, a, n=n, settings=(1e-11,))
    np.testing.assert_allclose(found, reference.sinkhorn(a, a, own, 1.0).dual, rtol=1e-8)


def _dual(a, b, cost):
    """The dual value of two clouds that share no bins, at reg one."""
    f = np.zeros(len(a))
    for _ in range(20000):
        g = reference.soft_minimum(cost.T, f, a, 1.0)
        f = reference.soft_minimum(cost, g, b, 1.0)
    return a @ f + b @ g


@pytest.mark.parametrize("m", [1, 3, 8, 21])
def test_loss_and_boxes(arm, m, rng):
    D = rng.random((9, m)) * 5
    same = rng.random((9, m)) < 0.4
    same[:, 0] = True
    loss, gradient = _core.soft_neighbor_loss(D, same, 3.0, 0.01, 0.02)
    found = asked(arm, "loss", D, same, n=9, m=m, settings=(3.0, 0.01, 0.02))
    np.testing.assert_allclose(found, np.concatenate([[loss], gradient.ravel()]), rtol=1e-10, atol=1e-12)
    low, X = rng.normal(size=(6, m)), rng.normal(size=(9, 6))
    high = low + rng.random((6, m))
    expected = np.maximum(low - X[:, :, None], X[:, :, None] - high).max(axis=1)
    np.testing.assert_allclose(asked(arm, "boxes", low, high, X, n=9, m=m, d=6), expected.ravel(), rtol=1e-15)


def test_the_kernels_compile_for_riscv(tmp_path):
    compiled(compiler("riscv64"), tmp_path, "-O1")
