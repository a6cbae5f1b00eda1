"""The instruction set that the core uses: chosen by the processor, or by the environment; all agree to rounding."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from knnpress import _core

ANSWERS = Path(__file__).parent / "target_answers.py"


def python(code, target):
    environment = {**os.environ, "KNNPRESS_TARGET": target}
    return subprocess.run([sys.executable, *code], env=environment, capture_output=True, text=True, check=False)


@cache
def answers(target):
    """Of every kernel, in a process in which the environment asks for an instruction set."""
    done = python([str(ANSWERS)], target)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["target"] == target
    return found["answers"]


@pytest.mark.parametrize("target", [target for target in _core.targets() if target != "baseline"])
def test_instruction_sets_forced_by_the_environment_agree_to_rounding(target):
    plain = answers("baseline")
    for kernel, answer in answers(target).items():
        single = "single" in kernel
        bound = {"rtol": 1e-4, "atol": 1e-4} if single else {"rtol": 1e-9, "atol": 1e-10}
        np.testing.assert_allclose(answer, plain[kernel], **bound, err_msg=f"{kernel} on {target}")


def test_every_kernel_is_compared():
    kernels = {name for name in dir(_core) if callable(getattr(_core, name)) and name[0].islower()}
    kernels -= {"targets", "target", "set_target", "join_task", "leave_task", "expect_leaks"}
    assert kernels == {name.split(",")[0] for name in answers("baseline")} & kernels
    assert len(kernels) > 10


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
