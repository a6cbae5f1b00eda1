"""The pages of the documentation: their code runs as written, and nothing is missing or fetched from elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn

import knnpress
from knnpress.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUNNABLE = [ROOT / "README.md", ROOT / "docs" / "index.md"]
RUNNABLE += sorted(p for part in ("tutorials", "how-to", "explanation") for p in (DOCS / part).glob("*.md"))
RUNNABLE = [path for path in RUNNABLE if path.name != "examples.md"]  # tests/project/test_examples.py runs those
BLOCK = re.compile(r"(<!-- not run:[^\n]*-->\s*)?^```(python|bash|sh|toml|c|js)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ASIDE = {"pip", "make", "git"}  # commands that install; the tests run in what they made
IMPORT = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
PUBLIC = ["knnpress", *(f"knnpress.{name}" for name in ("compression", "datasets", "descriptors", "geometries"))]

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is not here, only the package")


def blocks(path):
    """Language, first line and text of the blocks that are to be run."""
    text = path.read_text()
    for found in BLOCK.finditer(text):
        if found[1] is None:
            yield found[2], text.count("\n", 0, found.start(3)) + 1, found[3]


def commands(text):
    """The commands of a block for a terminal, word by word; without those that install."""
    lines = (shlex.split(line, comments=True) for line in text.splitlines())
    return [words for words in lines if words and words[0] not in ASIDE]


def lay_out(folder):
    """What a reader has: folders of images, named as on the pages, and a file of points."""
    image = pytest.importorskip("PIL.Image")
    rng, waves = np.random.default_rng(0), np.arange(32) / 32
    for name, count in {"photos": 10, "held-out": 4, "new-photos": 2}.items():
        for kind, often in {"canvas": 3, "denim": 9}.items():
            (folder / name / kind).mkdir(parents=True)
            for k in range(count):
                light = np.sin(2 * np.pi * (often * waves[:, None] + 2 * waves + rng.random()))
                picture = 120 + 60 * light[..., None] * [1.0, 0.8, 0.6] + rng.normal(size=(32, 32, 3)) * 10
                image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / name / kind / f"{k}.png")
    data = knnpress.datasets.make_wishart_classes(80, 5, n_classes=2)
    np.savez(folder / "radar.npz", X=data.X, y=data.y)


@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: path.stem)
def test_page_runs_as_written(path, tmp_path, monkeypatch):
    code = list(blocks(path))
    for package in sorted(
        {name for language, _, text in code if language == "python" for name in IMPORT.findall(text)}
    ):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{path.name} needs {package}")
    if any(language == "c" for language, _, _ in code) and shutil.which("gcc") is None:
        pytest.skip(f"{path.name} needs gcc")
    if path.name == "signals.md":
        pytest.importorskip("seglearn", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    if path.parent.name != "tutorials":  # tutorials make what they need
        lay_out(tmp_path)
    namespace = {"__name__": "__main__"}
    with sklearn.config_context():  # what a page sets for all of scikit-learn ends with it
        for language, line, text in code:
            if language == "python":
                text = text.replace("minutes=0.1", "minutes=0.01")  # what it finds first is enough here
                padded = "\n" * (line - 1) + text  # so that a traceback names the line of the page
                exec(compile(padded, str(path), "exec"), namespace)
            elif language == "toml":
                (tmp_path / "plan.toml").write_text(text)
            elif language == "c":
                (tmp_path / "main.c").write_text(text)
                subprocess.run(["gcc", "-std=c99", "-Wall", "-Werror", "-O2", "main.c", "-lm"], check=True)
                subprocess.run([tmp_path / "a.out"], check=True, stdout=subprocess.DEVNULL)
            else:
                for program, *arguments in commands(text):
                    if "--minutes" in arguments:
                        arguments[arguments.index("--minutes") + 1] = "0.01"
                    assert program == "knnpress", f"{path.name}:{line}: {program} is not tried out"
                    assert main(arguments) == 0, f"{path.name}:{line}: knnpress {shlex.join(arguments)}"
    assert not sklearn.get_config()["enable_metadata_routing"]


def test_every_block_of_code_is_run_or_says_why_not():
    """A page outside RUNNABLE has no code; what is not run is marked, and the site says so to its readers."""
    pages = [ROOT / "README.md", *(p for p in DOCS.rglob("*.md") if not {"notes", "results"} & set(p.parts))]
    elsewhere = [p for p in pages if p not in RUNNABLE and p.name != "examples.md" and list(blocks(p))]
    assert elsewhere == []
    assert sum(len(list(blocks(p))) for p in RUNNABLE) > 60


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    tables = {page for page in pages if page.startswith("results/report_files/")}  # the summary shows them all
    notes = {page for page in pages if page.startswith("notes/")}  # the diary, which no reader needs
    wanted = [page for page in pages if page not in tables | notes or page.endswith("/summary.md")]
    assert [page for page in wanted if f": {page}\n" not in navigation] == []


def test_figures_are_those_of_the_records(monkeypatch):
    """``python benchmarks/figures.py`` writes them; it would change nothing."""
    if not (ROOT / "benchmarks" / "RESULTS.md").exists():  # source archives have none
        pytest.skip("no benchmarks/RESULTS.md")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    figures = importlib.import_module("figures")
    shown = []
    for page in figures.pages():
        text = page.read_text(encoding="utf-8")
        assert figures.written(text) == text, f"{page.name}: python benchmarks/figures.py"
        shown += [found[2] for found in figures.BLOCK.finditer(text)]
    assert set(shown) == set(figures.BLOCKS)
    assert all(make().count("\n") > 1 for make in figures.BLOCKS.values())


#: What was measured, as people write it: 4.3 %, ± 0.2, 12 µs, 3.5 times as fast, 0.75 s
MEASURED = re.compile(r"\d\.\d+ ?%|± ?\d|\d ?(?:µs|us|ns|ms)\b|\d times (?:as|faster)|\d\.\d+ s\b|errs? on \d")


def test_no_measured_number_is_typed():
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        if {"notes", "results"} & set(page.relative_to(ROOT).parts):
            continue
        text = re.sub(r"<!-- --8<-- \[start:([\w-]+)\] -->.*?\[end:\1\]", "", page.read_text(), flags=re.DOTALL)
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        assert MEASURED.findall(prose) == [], f"{page.name}: let benchmarks/figures.py write it"
    assert MEASURED.search("it errs on 3 of 10, 2.0 ± 0.5")


def test_every_example_is_in_the_gallery():
    gallery = (DOCS / "tutorials" / "examples.md").read_text()
    assert [path.name for path in (ROOT / "examples").glob("*.py") if f'"examples/{path.name}"' not in gallery] == []


def test_every_picture_is_drawn_and_shown(tmp_path):
    """Not those of the gallery, which run the examples: they have a test of their own."""
    pictures = {path.stem for path in (DOCS / "pictures").glob("*.svg")}
    shown = set(re.findall(r"pictures/([\w-]+)\.svg", "".join(p.read_text() for p in DOCS.rglob("*.md"))))
    script = runpy.run_path(str(DOCS / "site" / "pictures.py"))
    assert pictures == shown == set(script["PICTURES"])
    for name in pictures - {f"example-{path.stem}" for path in (ROOT / "examples").glob("*.py")}:
        drawing = script["PICTURES"][name]()
        drawing.savefig(tmp_path / "a.svg")
        script["plt"].close(drawing)


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(p.read_text() for p in DOCS.rglob("reference/*.md"))
    shown = set(re.findall(r"^::: knnpress\.(?:\w+\.)*(\w+)$", pages, re.M))
    aside = {
        "__version__",
        "compression",
        "datasets",
        "descriptors",
        "exceptions",
        "geometries",
        "plot",
        "as_geometry",
        "geometry_name",
    }
    names = {name for module in PUBLIC for name in importlib.import_module(module).__all__}
    names |= set(importlib.import_module("knnpress.exceptions").__all__)
    assert sorted(names - aside - shown) == []
    assert knnpress.__version__


@pytest.mark.slow
def test_site_builds_and_needs_no_network(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the site needs {package}: pip install --group docs")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        text = page.read_text()
        fetched = re.findall(r"<(?:script|img|iframe)[^>]*src=[\"']?(https?:[^\"' >]+)", text)
        fetched += re.findall(r"<link[^>]*href=[\"']?(https?:[^\"' >]+)", text)
        assert fetched == [], f"{page.name} fetches {fetched}"
        for trace in (r"arithmatex\">\\", r":math:`", r"\.\. math::", "&lt;parameters&gt;", "&lt;attributes&gt;"):
            assert not re.search(trace, text), f"{page.name} shows {trace}"
    gallery = (site / "tutorials" / "examples.html").read_text()
    assert gallery.count("<pre") == gallery.count("<img") == len(list((ROOT / "examples").glob("*.py")))
    assert "--8" not in gallery
    shutil.rmtree(site)


@pytest.mark.parametrize(
    "path", [ROOT / "SECURITY.md", DOCS / "reference" / "bad-input.md"], ids=lambda path: path.name
)
def test_every_test_that_a_promise_names_is_there(path):
    if not path.exists():  # the package's tests elsewhere come without the page
        pytest.skip(f"{path.name} is not here")
    named = set(re.findall(r"`(test_\w+)`", path.read_text(encoding="utf-8")))
    there = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M)
    }
    assert len(named) > 10
    assert named <= there
