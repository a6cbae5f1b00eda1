"""A process that flushes denormal numbers to zero, as some libraries make it, gets the same answers."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from knnpress import _core

#: Sets the bits of the control register that flush denormal results and read denormal operands as zero
FLUSH = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes([0x0F, 0xAE, 0x17, 0xC3]))  # ldmxcsr [rdi]; ret
load = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
load(ctypes.addressof(ctypes.c_uint32(0x1F80 | 0x8040)))
assert 5e-324 * 1.0 == 0.0
"""

ANSWERS = """
import sys, warnings
import numpy as np
import knnpress as kp
from knnpress.geometries import AIRM, JBLD, CloudSinkhorn, LogEuclidean, Sinkhorn, SquaredEuclidean
warnings.simplefilter("ignore")
data, hist = kp.datasets.load_digits_covariances(), kp.datasets.load_digits_histograms()
X, y, H, M = data.X, data.y, hist.X, hist.ground_cost
found = {}
for scale in (1.0, 1e-140):  # products of small entries are denormal
    for geometry in (JBLD(), AIRM(), LogEuclidean()):
        found[f"{type(geometry).__name__} {scale}"] = geometry.pairwise(scale * X[:20], scale * X[20:30])
found["euclid"] = SquaredEuclidean().pairwise(H[:40], H[40:60])
for reg in (1.0, 0.05, 0.005):  # kernels of small reg are full of denormals
    for value in ("divergence", "transport"):
        found[f"{value} {reg}"] = Sinkhorn(M, reg, value).pairwise(H[:20], H[20:30])
faint = H[:20] * np.where(np.arange(64) % 2, 1e-300, 1.0)  # nearly empty bins
found["faint"] = Sinkhorn(M, 0.5, "transport").pairwise(faint)
clouds = kp.Clouds(np.abs(X[:30].reshape(-1, 11)), 11 * np.arange(31))
found["clouds"] = CloudSinkhorn(0.05).pairwise(clouds, clouds[:5])
settings = {"gamma": "scale", "prior": 1.0, "smoothing": 0.02, "vote": "soft", "max_iter": 5}
for name, model, points in (("scc", kp.SCC(10, metric="jbld", **settings), X),
                            ("shc", kp.SHC(M, n_prototypes=10, metric="sinkhorn", **settings), H)):
    model.fit(points[:100], y[:100])
    found[name], found[f"{name} p"] = model.predict(points[100:200]), model.predict_proba(points[100:200])
np.savez(sys.argv[1], **found)
"""


@pytest.mark.skipif(platform.machine() != "x86_64" or os.name != "posix", reason="sets a register of x86-64")
@pytest.mark.parametrize(
    "target",
    [_core.targets()[-1], *(pytest.param(target, marks=pytest.mark.slow) for target in _core.targets()[:-1])],
)
def test_denormals_that_are_flushed_to_zero_change_no_answer(target, tmp_path):
    environment = {**os.environ, "KNNPRESS_TARGET": target}
    for name, code in (("plain", ANSWERS), ("flushed", FLUSH + ANSWERS)):
        subprocess.run([sys.executable, "-c", code, tmp_path / f"{name}.npz"], env=environment, check=True)
    with np.load(tmp_path / "plain.npz") as plain, np.load(tmp_path / "flushed.npz") as flushed:
        assert plain["scc"].tolist() == flushed["scc"].tolist()
        assert plain["shc"].tolist() == flushed["shc"].tolist()
        for name in plain.files:
            np.testing.assert_allclose(flushed[name], plain[name], rtol=1e-9, atol=1e-12, err_msg=name)
