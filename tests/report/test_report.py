"""The page without a browser, the files beside it, and the command."""

import csv
import io
import re
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
import synthetic
from PIL import Image

from knnpress import pictures
from knnpress.cli import main
from knnpress.report import formatting, write_report
from knnpress.report.read import DataSet
from knnpress.report.table import Cell, Column, Table, as_csv, as_html, as_markdown

#: Arrays of an exhibit that do not fit the others
SPOILED = {
    "one row": lambda array: array[:1],
    "one item": lambda array: array[0],
    "empty": lambda array: array[:0],
    "other numbers": lambda array: array * 1.5,
}
EVIL = "<script>alert('x')</script>"
VOID = {"meta", "link", "img", "br", "input"}


class Page(HTMLParser):
    """Checks that tags match, and keeps what tests ask about."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data):
        if "script" not in self.open and "style" not in self.open:
            self.texts.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A results folder with everything, the page of it, and what was written; not to be changed."""
    folder = synthetic.whole(tmp_path_factory.mktemp("whole") / "results")
    return write_report(folder, folder.parent / "report.html")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A results folder with one data set and little of everything, and what was written; not to be changed."""
    folder = synthetic.small(tmp_path_factory.mktemp("small") / "results")
    return write_report(folder, folder.parent / "report.html")


@pytest.fixture(scope="module")
def page(whole):
    return Page(whole.page.read_text())


def test_the_page_is_whole(page, whole):
    assert page.all("html") == [{"lang": "en"}]
    headings = " ".join(page.texts)
    for title in ("A made-up experiment", "ETH-80", "COIL-20", "MPEG-7", "Speed-up of testing", "Training time"):
        assert title in headings
    assert "machine was another" in page.text
    for said in ("corrected resampled t-test", "Nadeau and Bengio 2003", "Imaginary CPU", "numpy 2.4", whole.verdict):
        assert said in page.text
    assert len(page.all("figure")) == 2 + 3 + 3 + 3 + 3 + 2  # overall, charts, galleries, maps, confusions, montages
    assert "left out 1 broken line" in page.text
    assert "No module named 'torch'" in page.text


def test_every_number_of_the_records_is_aggregated_as_stated(page):
    """One cell of the errors' table, from the records themselves."""
    lines = synthetic.records("coil20", 2.4, "histogram", synthetic.FEW)
    errors = [100 * line["test_error"] for line in lines if line["method"] == "SHC" and line["ratio"] == 0.02]
    assert f"{np.mean(errors):.2f} ± {np.std(errors, ddof=1):.2f}" in page.text


def test_pictures_have_alternatives_and_tables_have_headers(page):
    assert all(attrs.get("alt") for attrs in page.all("img"))
    assert len(page.all("img")) > 50
    drawings = [a for a in page.all("svg") if a.get("role") == "img"]
    assert drawings
    assert all(a.get("aria-label") for a in drawings)
    assert all(attrs.get("scope") in ("col", "row", "rowgroup") for attrs in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table")) > 15
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [attrs["href"] for attrs in page.all("a")]
    assert targets
    assert all(target[1:] in ids for target in targets)


def test_nothing_comes_from_elsewhere(page):
    for tag, attrs in page.tags:
        for name in ("src", "href", "srcset", "data", "action"):
            assert attrs.get(name, "#").startswith(("#", "data:")), (tag, attrs[name][:50])
    (policy,) = [attrs["content"] for attrs in page.all("meta") if "http-equiv" in attrs]
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_the_same_results_make_the_same_files(small, tmp_path):
    again = write_report(small.page.parent / "results", tmp_path / "report.html")
    assert again.page.read_bytes() == small.page.read_bytes()
    names = sorted(path.name for path in small.files.iterdir())
    assert names == sorted(path.name for path in again.files.iterdir())
    for name in names:
        assert (again.files / name).read_bytes() == (small.files / name).read_bytes(), name


def test_files_beside_the_page(whole):
    names = {path.name for path in whole.files.iterdir()}
    figures = ["headline", "ranks", "overview", "eth80-curves-1", "eth80-curves-2"]
    for data in ("eth80", "coil20", "mpeg7"):
        figures += [f"{data}-curves"]
        for table in ("errors", "minus-full", "same-size", "models", "distances", "confusion", "suspects"):
            assert {f"{data}-{table}.csv", f"{data}-{table}.md"} <= names
    assert {name for name in names if not name.endswith((".csv", ".md"))} == {f"{name}.svg" for name in figures}
    assert {"all.csv", "speed-up.csv", "training-time.md", "settings.md", "failures.csv", "summary.md"} <= names
    for name in figures:
        drawing = ElementTree.parse(whole.files / f"{name}.svg").getroot()
        assert min(float(drawing.get(side)) for side in ("width", "height")) > 100
        assert drawing.get("aria-label")
        assert "var(" not in (whole.files / f"{name}.svg").read_text()  # colours need no page
    summary = (whole.files / "summary.md").read_text()
    assert whole.verdict in summary
    for said in ("](headline.svg)", "](ranks.svg)", "### Speed-up of testing", "### Test error in %"):
        assert said in summary
    assert summary.index("headline.svg") < summary.index("ranks.svg") < summary.index("eth80-curves.svg")
    for link in re.findall(r"\]\(([^)]*)\)", summary):
        assert link in names


def rows_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_csv_has_numbers(whole):
    rows = rows_of(whole.files / "eth80-minus-full.csv")
    (first,) = [row for row in rows if row["variant"] == "as planned" and row["prototypes"] == "2 %"]
    assert float(first["difference"]) == pytest.approx(
        float(first["ours mean %"]) - float(first["full mean %"]), abs=1e-4
    )
    assert float(first["low"]) < float(first["difference"]) < float(first["high"])
    assert first["splits"] == "5"
    speed = rows_of(whole.files / "speed-up.csv")[0]
    assert float(speed["end to end mean"]) == pytest.approx(1.04e-4 / 6e-6, rel=1e-4)
    assert float(speed["paper mean"]) == 47.6
    training = {(row["data set"], row["prototypes"]): row for row in rows_of(whole.files / "training-time.csv")}
    assert float(training["ETH-80", "2 %"]["paper / ours"]) == pytest.approx(69 / 1.1, rel=1e-4)


def test_tables_of_the_paper_are_beside_ours_and_kth_has_no_ratio(tmp_path):
    plan = {"title": "T", "fingerprint": synthetic.PLAN, "data": {}}
    lines = synthetic.records("kth", 40.0, "covariance", synthetic.FEW, splits=4)
    written = write_report(synthetic.write(tmp_path / "r", plan, lines), tmp_path / "r.html")
    rows = rows_of(written.files / "training-time.csv")
    assert [row["paper s"] for row in rows] == ["211", "348", "542", "978"]
    assert {row["paper / ours"] for row in rows} == {""}
    assert "no ratio" in Page(written.page.read_text()).text


def test_data_that_are_not_the_papers_are_not_compared_with_it(small):
    for name, part in (("training-time", "paper s"), ("speed-up", "paper mean")):
        (first, *_) = rows_of(small.files / f"{name}.csv")
        assert first["data set"] == "Things"
        assert part not in first
    assert "machine was another" not in Page(small.page.read_text()).text


@pytest.mark.parametrize("text", ["=1+1", "+1", "-cmd", "@SUM(A1)", "\t=1", " =1", "＝1"])
def test_no_cell_of_a_csv_is_a_formula(text):
    table = Table(
        "t", "t", [Column("a"), Column("b", ("x", "y"))], [(text, [[Cell(text), Cell("", (text, -1.5))]])], text
    )
    for row in csv.reader(io.StringIO(as_csv(table))):
        for cell in row:
            assert not re.match(r"[=+@\t\r＝＋＠]", cell)
            assert not cell.startswith("-") or float(cell) == -1.5


def test_markdown_of_anything_is_a_table():
    table = Table("t", "*t*", [Column("a|b"), Column("c")], [("", [[Cell("x|y\nz"), Cell("<b>_[l](u)_`")]])])
    lines = as_markdown(table).splitlines()
    assert lines[0] == r"### \*t\*"
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines[2:]] == [3, 3, 3]
    assert "<b>" not in lines[4].replace(r"\<b\>", "")


def test_html_of_anything_is_text():
    table = Table("t", EVIL, [Column(EVIL)], [(EVIL, [[Cell(EVIL)]])], note=EVIL)
    page = Page(as_html(table))
    assert page.all("script") == []
    assert page.text.count(EVIL) == 6  # the title thrice, once as a caption


def test_what_comes_from_files_is_never_markup(tmp_path):
    about = synthetic.about(EVIL, "covariance", (0.02,), [EVIL, '"><img src=x>'])
    about |= {"protocol": EVIL, "features": EVIL, "citation": EVIL}
    plan = {"title": EVIL, "name": EVIL, "fingerprint": synthetic.PLAN, "data": {"things": about}}
    lines = synthetic.records("things", 3.0, "covariance", (0.02,))
    more = {"params": {EVIL: EVIL}, "versions": {EVIL: EVIL}, "machine": {"cpu": EVIL, EVIL: EVIL}}
    lines += [synthetic.record("things", EVIL, 0, 0.1, 0.02, variant=EVIL, **more)]
    lines += [synthetic.record("things", f"{EVIL}2", 0, 0.1) | {"failure": EVIL, "finished": EVIL}]
    facts = {"method": EVIL, "ratio": 0.02, "map": EVIL}
    folder = synthetic.write(tmp_path / "r", plan, lines, {"things": (synthetic.exhibit("covariance", 2), facts)})
    written = write_report(folder, tmp_path / "r.html")
    page = Page(written.page.read_text())
    assert len(page.all("script")) == 1
    for path in written.files.glob("*.svg"):
        assert "<script" not in path.read_text()
    assert not any(attrs.get("src") == "x" for attrs in page.all("img"))
    assert page.text.count("alert('x')") > 15


def test_names_of_files_are_tame(tmp_path):
    names = ["../../up", "a b", "a-b", "ß", "..", "CON/x"]
    plan = {"title": "T", "fingerprint": synthetic.PLAN, "data": {}}
    lines = [synthetic.record(name, "full", 0, 0.1) for name in names]
    written = write_report(synthetic.write(tmp_path / "deep/r", plan, lines), tmp_path / "deep/r.html")
    stems = {path.name for path in written.files.iterdir() if path.name.endswith("-errors.csv")}
    assert stems == {f"{stem}-errors.csv" for stem in ("up", "a-b", "a-b-2", "data", "data-2", "con-x")}
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        [
            "deep",
            "r",
            "r.html",
            "r_files",
            "plan.json",
            "records.jsonl",
            "exhibits",
            *(p.name for p in written.files.iterdir()),
        ]
    )


def test_without_images_there_are_none_of_the_data(small, tmp_path):
    (tmp_path / "files").mkdir()
    for name in ("things-montage.png", "things-montage.svg", "things-suspects.png", "mine.png"):
        (tmp_path / "files" / name).write_bytes(b"")
    bare = write_report(small.page.parent / "results", tmp_path / "r.html", tmp_path / "files", images=False)
    alts = {attrs["alt"].split()[0] for attrs in Page(bare.page.read_text()).all("img")}
    assert alts == {"Prototype", "from"}
    left = {path.name for path in bare.files.glob("*.[ps][nv]g")}  # an earlier report's images are gone
    assert left == {"mine.png", "overview.svg", "things-curves.svg"}


@pytest.mark.parametrize("wrong", ["absent", "text", *(pytest.param(n, marks=pytest.mark.slow) for n in SPOILED)])
def test_any_part_may_be_missing_or_wrong(wrong, tmp_path):
    """Each array in turn."""
    whole, facts = synthetic.exhibit("covariance", 2), {}
    lines = synthetic.records("things", 3.0, "covariance", (0.02,), splits=2)
    plan = {"fingerprint": synthetic.PLAN, "data": {}}
    folder = synthetic.write(tmp_path / "r", plan, lines)
    from knnpress.report.findings import findings_of
    from knnpress.report.page import make_page
    from knnpress.report.read import read_results

    for name in whole:
        arrays = {key: array for key, array in whole.items() if key != name}
        if wrong != "absent":
            arrays[name] = np.array("text") if wrong == "text" else SPOILED[wrong](whole[name])
        synthetic.write(folder, plan, lines, {"things": (arrays, facts)})
        Page(make_page(findings_of(read_results(folder))))


@pytest.mark.parametrize("methods", [["full"], ["SCC"], ["MDM"], ["Subsample"], ["full", "SCC"], ["something new"]])
def test_partial_results_render(tmp_path, methods):
    sized = {"SCC", "Subsample", "something new"}
    lines = [synthetic.record("things", m, 0, 0.1, 0.02 if m in sized else None) for m in methods]
    plan = {"title": "T", "fingerprint": synthetic.PLAN, "data": {}}
    written = write_report(synthetic.write(tmp_path / "r", plan, lines), tmp_path / "r.html")
    page = Page(written.page.read_text())
    assert "10.0" in page.text
    assert "things-errors.csv" in {path.name for path in written.files.iterdir()}


def test_classes_are_marked_by_short_names_or_by_numbers():
    digits = DataSet("d", class_names=("0", "1"))
    assert [digits.class_sign(1), digits.class_entry(1), digits.class_name(7)] == ["1", "1", "7"]
    things = DataSet("t", class_names=("apple", "x"))
    assert [things.class_sign(1), things.class_entry(0)] == ["2", "1 apple"]


def test_png_is_read_by_others(rng):
    for shape in [(5, 7), (5, 7, 3), (1, 1), (64, 3, 3)]:
        pixels = rng.integers(0, 256, shape, dtype=np.uint8)
        with Image.open(io.BytesIO(pictures.png(pixels))) as opened:
            np.testing.assert_array_equal(np.asarray(opened), pixels)


def test_pictures(rng):
    A = rng.normal(size=(4, 9))
    covariance = np.cov(A)
    np.testing.assert_allclose(pictures.correlation(covariance), np.corrcoef(A), atol=1e-12)
    colours = pictures.heat(np.array([[-1.0, 0.0, 1.0]]))[0].astype(int)
    assert colours[1].min() > 230  # nothing is nearly white
    assert colours[0][2] > colours[0][0] + 50  # bluish below
    assert colours[2][0] > colours[2][2] + 50  # reddish above
    assert pictures.shades(np.array([[0.0, 1.0, 4.0]])).tolist() == [[0, 128, 255]]
    large = np.arange(400 * 300, dtype=np.uint32).astype(np.uint8).reshape(400, 300)
    assert pictures.image(large).shape == (80, 60)
    assert pictures.image(large)[0, 0] == round(large[:5, :5].mean())
    assert pictures.image(large.astype(float)) is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (formatting.percent(0.01234), "1.23"),
        (formatting.percent(0.3), "30.0"),
        (formatting.points(-0.0045), "−0.45"),
        (formatting.points(0.0045), "+0.45"),
        (formatting.points(-0.00001), "0.00"),
        (formatting.p_value(0.0004), "< 0.001"),
        (formatting.duration(59.7), "1 min 0 s"),
        (formatting.microseconds(0.00123456), "1,235"),
        (formatting.microseconds(0.00000123456), "1.23"),
    ],
)
def test_words(said, expected):
    assert said == expected


def test_the_command(small, tmp_path, capsys):
    results = small.page.parent / "results"
    assert (
        main(["report", str(results), "-o", str(tmp_path / "x.html"), "--files", str(tmp_path / "f"), "--no-images"])
        == 0
    )
    out = capsys.readouterr()
    assert small.verdict in out.out
    assert str(tmp_path / "x.html") in out.out
    assert "left out 1 broken line" in out.err
    assert (tmp_path / "f" / "overview.md").exists()
    assert "Training image" not in (tmp_path / "x.html").read_text()


def test_the_command_refuses_what_is_not_a_results_folder(tmp_path, capsys):
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "x.html")]) == 2
    assert "has no plan.json" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def test_nothing_that_is_optional_is_needed(small, tmp_path):
    code = """
import sys
for name in ("matplotlib", "PIL"):
    sys.modules[name] = None
from knnpress.cli import main
sys.exit(main(["report", sys.argv[1], "-o", sys.argv[2]]))
"""
    args = [sys.executable, "-c", code, str(small.page.parent / "results"), str(tmp_path / "r.html")]
    done = subprocess.run(args, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").read_bytes() == small.page.read_bytes()
    assert {path.name for path in (tmp_path / "r_files").iterdir()} == {path.name for path in small.files.iterdir()}


def test_the_page_is_not_too_large(whole):
    content = whole.page.read_bytes()
    assert len(content) < 2_000_000


@pytest.mark.parametrize(("predicted", "rows"), [([1, 1, 0], ["7", "33"]), ([0, 1, 2], None)])
def test_only_labels_that_are_doubted_are_shown(tmp_path, predicted, rows):
    arrays = synthetic.exhibit("covariance", 3) | {"suspects_predicted": np.array(predicted)}
    lines = synthetic.records("things", 3.0, "covariance", (0.02,))
    plan = {"title": "T", "fingerprint": synthetic.PLAN, "data": {}}
    folder = synthetic.write(tmp_path / "r", plan, lines, {"things": (arrays, {})})
    written = write_report(folder, tmp_path / "r.html")
    assert ("Labels to look at" in Page(written.page.read_text()).text) == (rows is not None)
    table = written.files / "things-suspects.csv"
    assert ([row["training row"] for row in rows_of(table)] if table.exists() else None) == rows


def test_the_page_explains_its_short_names(page):
    for said in ("SCC, stochastic covariance compression", "SHC, stochastic histogram compression"):
        assert f"Learned by {said}." in page.text
        assert page.text.index(said) < page.text.index("As good means that SCC or SHC")
    assert "δ" not in page.text
    assert page.text.index("a cell is one data set at one size") < page.text.index(
        "As good as the full training set in"
    )
