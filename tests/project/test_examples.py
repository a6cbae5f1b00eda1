"""Every script of the gallery runs, and what it asserts holds."""

from __future__ import annotations

import ast
import importlib.util
import runpy
import warnings
from pathlib import Path

import pytest
import sklearn
from threadpoolctl import threadpool_limits

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
def test_example_runs(path, tmp_path, monkeypatch, capsys):
    for package in sorted(set(roots(path))):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{path.name} needs {package}")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(), threadpool_limits(1), sklearn.config_context():
        warnings.simplefilter("default")
        warnings.simplefilter("error", UserWarning)
        runpy.run_path(str(path), run_name="__main__")  # a process of its own would import everything again
    assert capsys.readouterr().out.strip()
    assert not list(tmp_path.iterdir()), "an example should leave no files behind"
