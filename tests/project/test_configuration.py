"""What builds the wheels: every path, group and Python that the settings name is there."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "wheels.yml"
PYTHONS = ["cp311", "cp312", "cp313", "cp314", "cp314t"]
needs_source = pytest.mark.skipif(not WORKFLOW.is_file(), reason="this is not the tree of the source")


def settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def workflow():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.safe_load(WORKFLOW.read_text())


def test_all_pythons_are_built():
    assert settings()["tool"]["cibuildwheel"]["build"] == [f"{python}-*" for python in PYTHONS]


def test_python_versions_agree():
    found = settings()
    oldest = re.search(r">=3\.(\d+)", found["project"]["requires-python"])[1]
    named = [int(text.rsplit(".", 1)[1]) for text in found["project"]["classifiers"] if re.search(r":: 3\.\d+$", text)]
    built = sorted({int(re.search(r"cp3(\d+)", python)[1]) for python in PYTHONS})
    assert sorted(named) == built
    assert int(oldest) == built[0]
    assert found["tool"]["scikit-build"]["wheel"]["py-api"] == "cp312"


@needs_source
@pytest.mark.parametrize("part", ["cibuildwheel", "free-threaded"])
def test_the_commands_that_test_wheels_name_files_that_exist(part):
    options = settings()["tool"]["cibuildwheel"]
    if part == "free-threaded":
        (options,) = [override for override in options["overrides"] if override["select"] == "cp314t-*"]
    named = [word for word in shlex.split(options["test-command"]) if word.startswith("{project}")]
    assert len(named) >= 3
    for word in named:
        assert (ROOT / word.removeprefix("{project}/")).exists(), word


def test_the_groups_that_wheels_are_tested_with_exist():
    found = settings()
    assert set(found["tool"]["cibuildwheel"]["test-groups"]) <= set(found["dependency-groups"])


@needs_source
def test_the_workflow_builds_on_every_platform():
    jobs = workflow()["jobs"]
    names = {row["name"] for row in jobs["wheels"]["strategy"]["matrix"]["include"]}
    assert names == {"linux-x86_64", "linux-aarch64", "macos-arm64", "macos-x86_64", "windows-amd64"}
    for job in jobs.values():
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert "@" in step.get("uses", "@"), "an action without a version changes by itself"


@needs_source
def test_windows_is_built_by_clang():
    environment = settings()["tool"]["cibuildwheel"]["windows"]["environment"]
    assert environment["CXX"] == "clang-cl"
    assert 'FRONTEND_VARIANT STREQUAL "MSVC"' in (ROOT / "CMakeLists.txt").read_text()
