"""Every script of the gallery runs, and what it asserts holds."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


def roots(path):
    """The packages that a script imports."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).split(".")[0]


def test_there_are_examples():
    assert len(SCRIPTS) >= 5


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_example_asserts_its_claims(path):
    tree = ast.parse(path.read_text())
    assert sum(isinstance(node, ast.Assert) for node in ast.walk(tree)) >= 2
    assert ast.get_docstring(tree)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    for package in sorted(set(roots(path))):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{path.name} needs {package}")
    settings = {"OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "error::UserWarning"}
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not list(tmp_path.iterdir()), "an example should leave no files behind"
