"""Imports follow the data, optional packages stay optional, and public names are documented."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import knnpress

SOURCE = Path(knnpress.__file__).parent
MODULES = ["knnpress", *(m.name for m in pkgutil.walk_packages(knnpress.__path__, "knnpress."))]
PYTHON_MODULES = [name for name in MODULES if name != "knnpress._core"]
OPTIONAL = {
    *("ot", "dask", "distributed", "zarr", "optuna", "cv2", "plotly", "torch", "matplotlib", "pyriemann", "skimage")
}

#: Each part may import itself and those before it; `__init__` may import all.
ORDER = [
    *(
        "_core",
        "typing",
        "names",
        "exceptions",
        "arrays",
        "parameters",
        "files",
        "html",
        "pictures",
        "progress",
        "clouds",
        "execution",
        "geometries",
    ),
    "neighbors",
    *(
        "learning",
        "compression",
        "model_file",
        "estimators",
        "descriptors",
        "export",
        "datasets",
        "plot",
        "comparison",
        "experiments",
        "report",
        "cli",
    ),
    "__main__",
]
#: What the order would allow but the flow of the data does not.
NEVER = {
    "execution.threads": set(ORDER) - {"execution", "_core"},  # the core is told when a task is cancelled
    "descriptors": {"neighbors", "learning", "compression", "estimators"},
    "datasets": {"neighbors", "learning", "compression", "estimators", "model_file"},
    "report": {"execution", "_core", "geometries", "neighbors", "learning", "compression", "estimators", "descriptors"},
}
THREADS = {"ThreadPoolExecutor", "threading", "Thread", "joblib", "threadpoolctl", "multiprocessing", "concurrent"}


def part(module):
    """`knnpress.geometries.spd` belongs to the part `geometries`."""
    return module.split(".")[1] if "." in module else "__init__"


def module_of(path):
    return ".".join(["knnpress", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")


#: The text of every module by its name.
SOURCES = {module_of(path): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def imported(tree):
    """Full names of all that a syntax tree imports, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def words(tree):
    """Every identifier of a syntax tree, comments and docstrings apart."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
    for name in imported(tree):
        yield from name.split(".")


def forbidden_imports(module, source):
    """Parts of the package that the source of a module imports against the order."""
    own = part(module)
    used = {part(name) for name in imported(ast.parse(source)) if name.split(".")[0] == "knnpress"}
    never = NEVER.get(own, set()) | NEVER.get(module.removeprefix("knnpress."), set())
    allowed = {*ORDER[: ORDER.index(own) + 1]} - never
    return used - allowed


def test_imports_follow_the_data():
    for module, source in SOURCES.items():
        if part(module) != "__init__":
            assert part(module) in ORDER, f"give {module} a place in ORDER"
            assert forbidden_imports(module, source) == set(), module


@pytest.mark.parametrize(
    ("module", "source", "caught"),
    [
        ("knnpress.geometries.spd", "def f():\n    from knnpress.compression import KeepAll", {"compression"}),
        ("knnpress.geometries.spd", "from knnpress import datasets, execution", {"datasets"}),
        ("knnpress.compression.x", "import knnpress.estimators", {"estimators"}),
        ("knnpress.execution.rows", "from knnpress.geometries import JBLD", {"geometries"}),
        ("knnpress.execution.threads", "from knnpress.clouds import Clouds", {"clouds"}),
        ("knnpress.estimators", "from knnpress.geometries import JBLD\nimport numpy", set()),
    ],
)
def test_an_import_against_the_order_would_be_caught(module, source, caught):
    assert forbidden_imports(module, source) == caught


def test_only_one_module_knows_of_threads_and_nothing_knows_of_pickle():
    used = {module: set(words(ast.parse(source))) for module, source in SOURCES.items()}
    assert [module for module in used if used[module] & {"pickle", "cPickle", "dill", "cloudpickle"}] == []
    assert [module for module in used if used[module] & THREADS] == ["knnpress.execution.threads"]


def test_only_one_module_imports_dask():
    used = {module: {name.split(".")[0] for name in imported(ast.parse(text))} for module, text in SOURCES.items()}
    assert [module for module in used if used[module] & {"dask", "distributed"}] == ["knnpress.execution.dask"]


def fresh(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_import_takes_less_than_a_second():
    code = "import time; t = time.perf_counter(); import knnpress; print(time.perf_counter() - t)"
    assert min(float(fresh(code)) for _ in range(3)) < 1.0


def test_import_loads_no_optional_package():
    code = f"from knnpress import *\nimport {', '.join(PYTHON_MODULES)}"
    loaded = fresh(f"import sys\n{code}\nprint(*{{name.split('.')[0] for name in sys.modules}})").split()
    assert "knnpress" in loaded
    assert not OPTIONAL & set(loaded)


def test_a_missing_optional_package_names_the_extra():
    code = """
import sys
sys.modules["ot"] = None
from knnpress.geometries import EMD
try:
    EMD([[0, 1], [1, 0]]).pairwise([[1, 0]])
except ImportError as error:
    print(error)
"""
    assert "pip install knnpress[ot]" in fresh(code)


def test_public_names_exist_and_are_documented():
    for name in PYTHON_MODULES:
        module = importlib.import_module(name)
        assert module.__doc__, name
        public = getattr(module, "__all__", [])
        assert len(public) == len(set(public)), name
        for public_name in public:
            thing = getattr(module, public_name)
            if inspect.ismodule(thing) or inspect.isclass(thing) or inspect.isfunction(thing):
                assert thing.__doc__, f"{name}.{public_name} has no docstring"


def test_the_package_lists_its_public_names():
    assert set(dir(knnpress)) >= set(knnpress.__all__)
    assert knnpress.__version__[0].isdigit()
    with pytest.raises(AttributeError, match=r"module 'knnpress' has no attribute 'nonsense'"):
        knnpress.nonsense  # noqa: B018


def test_examples_in_docstrings_are_right():
    results = {name: doctest.testmod(importlib.import_module(name)) for name in PYTHON_MODULES}
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) > 10
