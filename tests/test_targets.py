"""The instruction set that the core uses: chosen by the processor, or by the environment; all agree to rounding."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from knnpress import _core

#: One answer of every kernel, as JSON
KERNELS = """
import json
import numpy as np
from knnpress import _core
from knnpress.geometries import AIRM, JBLD, LogEuclidean, Sinkhorn
rng = np.random.default_rng(0)
A = rng.normal(size=(40, 11, 30))
X = A @ A.transpose(0, 2, 1) / 30
H = rng.random((20, 16))
M = np.abs(np.subtract.outer(np.arange(16.0), np.arange(16.0)))
D = {type(g).__name__: g.pairwise(X[:30], X[30:]).tolist() for g in (JBLD(), AIRM(), LogEuclidean())}
D |= {value: Sinkhorn(M, 2.0, value, tol=1e-10).pairwise(H[:12], H[12:]).tolist() for value in ("divergence", "dual")}
D["gradient"] = JBLD().linearize(X[:30], X[30:]).pullback(np.ones((30, 10))).tolist()
print(json.dumps({"target": _core.target(), "D": D}))
"""


def python(code, target):
    environment = {**os.environ, "KNNPRESS_TARGET": target}
    return subprocess.run([sys.executable, *code], env=environment, capture_output=True, text=True, check=False)


def test_instruction_sets_forced_by_the_environment_agree_to_rounding():
    answers = {}
    for target in _core.targets():
        done = python(["-c", KERNELS], target)
        assert done.returncode == 0, done.stderr
        answers[target] = json.loads(done.stdout)
        assert answers[target]["target"] == target
    plain = answers["baseline"]["D"]
    for target, answer in answers.items():
        for kernel, D in answer["D"].items():
            np.testing.assert_allclose(D, plain[kernel], rtol=1e-10, atol=1e-11, err_msg=f"{kernel} on {target}")


def test_an_unknown_instruction_set_is_refused_with_those_there_are():
    done = python(["-c", "import knnpress._core"], "abacus")
    assert done.returncode != 0
    assert "no instruction set named 'abacus' on this machine; it has baseline" in done.stderr


def test_an_empty_variable_forces_nothing():
    done = python(["-c", "from knnpress import _core; print(_core.target())"], "")
    assert done.stdout.strip() == _core.targets()[-1], done.stderr


@pytest.mark.parametrize("target", _core.targets())
def test_the_version_names_the_instruction_set(target):
    done = python(["-m", "knnpress", "--version"], target)
    assert done.returncode == 0
    assert done.stdout.startswith("knnpress ")
    assert f"instruction set {target}, of baseline" in done.stdout.replace("\n", " ")
