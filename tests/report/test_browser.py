"""The page in a real browser: Debian's Chromium, driven by Playwright, with no network."""

import shutil
import subprocess
from pathlib import Path

import pytest
import synthetic

from knnpress.report.findings import findings_of
from knnpress.report.page import make_page
from knnpress.report.read import read_results

OPEN_ALL = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of a results folder with everything, on the file system."""
    folder = tmp_path_factory.mktemp("page")
    path = folder / "report with spaces.html"
    path.write_text(make_page(findings_of(read_results(synthetic.whole(folder / "results")))), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The page of one data set."""
    folder = tmp_path_factory.mktemp("few")
    path = folder / "report.html"
    path.write_text(make_page(findings_of(read_results(synthetic.small(folder / "results")))), encoding="utf-8")
    return path.as_uri()


def test_everything_is_shown(open_page):
    page = open_page()
    folded = page.locator("details table, details figure")
    assert folded.count() > 15
    assert not any(folded.nth(k).is_visible() for k in range(folded.count()))
    page.evaluate(OPEN_ALL)
    tables, figures = page.locator("table"), page.locator("figure")
    assert tables.count() > 15
    assert figures.count() == 16
    for kind in ("table", "figure"):
        boxes = page.evaluate(
            "kind => [...document.querySelectorAll(kind)].map(e => e.getBoundingClientRect().height)", kind
        )
        assert min(boxes) > 40, kind
    broken = page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).length")
    assert broken == 0
    drawn = page.locator("figure.chart > div svg[role=img], figure.chart .variant svg[role=img]")
    assert sum(drawn.nth(k).is_visible() for k in range(drawn.count())) == 1 + 3  # fronts, and a curve of each data set


def shown(charts, method):
    """How many drawings of a method can be seen."""
    drawings = charts.locator(f'.series[data-method="{method}"]')
    seen = "getComputedStyle(one).display !== 'none' && one.ownerSVGElement.checkVisibility()"
    return drawings.evaluate_all(f"all => all.filter(one => {seen}).length")


def test_a_click_hides_a_curve_and_another_shows_it(open_page):
    page = open_page()
    chart = page.locator("figure.curves").first
    key = chart.locator(".variant:visible").get_by_role("button", name="Subsample")
    assert key.get_attribute("aria-pressed") == "true"
    assert shown(chart, "Subsample") == 1
    key.click()
    assert key.get_attribute("aria-pressed") == "false"
    assert shown(chart, "Subsample") == 0
    assert shown(page.locator("figure.curves"), "Subsample") == 2  # only there
    key.focus()
    page.keyboard.press("Enter")
    assert key.get_attribute("aria-pressed") == "true"
    assert shown(chart, "Subsample") == 1


def test_other_full_sets_are_hidden_at_first(open_page):
    chart = open_page().locator("figure.curves").first
    key = chart.locator(".variant:visible").get_by_role("button", name="full 1-NN, AIRM")
    assert key.get_attribute("aria-pressed") == "false"
    assert shown(chart, "full AIRM") == 0
    key.click()
    assert shown(chart, "full AIRM") == 1


def test_a_marker_tells_its_value(open_page):
    lines = synthetic.records("eth80", 1.3, "covariance", synthetic.FEW)
    errors = [100 * line["test_error"] for line in lines if line["method"] == "SCC" and line["ratio"] == 0.02]
    titles = open_page().locator('figure.curves .series[data-method="SCC"]:visible').first.locator("title")
    assert titles.first.text_content().startswith(f"SCC (ours), 2 %: {sum(errors) / len(errors):.2f} ±")


def test_one_variant_is_shown_at_a_time(open_page):
    page = open_page()
    chart = page.locator("figure.curves").first
    assert chart.locator(".variant:visible").count() == 1
    before = chart.locator(".variant:visible svg[role=img]:visible").get_attribute("aria-label")
    chart.get_by_role("combobox", name="Variant").select_option(label="by object")
    assert chart.locator(".variant:visible").count() == 1
    assert chart.locator(".variant:visible svg[role=img]:visible").get_attribute("aria-label") != before
    page.emulate_media(media="print")
    assert chart.locator(".variant:visible").count() == 3


def test_curves_are_drawn_without_scripts(browser, address):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert shown(page.locator("figure.curves").first, "SCC") == 3  # all variants
    assert page.locator("figure.fronts svg[role=img]:visible").count() == 1
    context.close()


def test_a_class_can_be_picked_on_the_map(open_page):
    page = open_page()
    page.evaluate(OPEN_ALL)
    figure = page.locator("figure.map").first
    figure.get_by_role("combobox").select_option(label="2 car")
    dimmed = figure.locator("g.dim").evaluate_all("groups => [...new Set(groups.map(g => g.dataset.class))]")
    assert dimmed == ["0", "2", "3", "4", "5", "6", "7"]
    figure.get_by_role("combobox").select_option(label="all classes")
    assert figure.locator("g.dim").count() == 0


@pytest.mark.parametrize(
    "viewport",
    [{"width": 1280, "height": 900}, PHONE, {"width": 320, "height": 640}],
    ids=["wide", "phone", "small phone"],
)
def test_the_page_is_never_wider_than_the_window(open_page, viewport):
    page = open_page(viewport)
    page.evaluate(OPEN_ALL)
    assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    outside = page.evaluate(
        """() => [...document.querySelectorAll("main *, header *")]
            .filter(e => !e.closest(".scroll table, .hidden") && e.getBoundingClientRect().right > innerWidth + 1)
            .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []


@pytest.mark.parametrize("viewport", [{"width": 1280, "height": 900}, PHONE], ids=["wide", "phone"])
def test_text_of_charts_is_not_shrunk(open_page, viewport):
    page = open_page(viewport)
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("figure.chart svg[role=img], figure.ranks svg[role=img]")]
            .filter(e => e.getBoundingClientRect().width > 0)
            .map(e => e.getBoundingClientRect().width / e.viewBox.baseVal.width)"""
    )
    assert len(sizes) == 1 + 1 + 3
    assert min(sizes) > 0.85


def luminance(colour):
    channels = [int(c) / 255 for c in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(open_page, scheme):
    page = open_page(color_scheme=scheme)
    paper = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (paper > 0.5) == (scheme == "light")
    for kind in ("body", ".note", "td.good", "td.bad", "th.ours", "thead th", "button.key"):
        ink = luminance(page.locator(kind).first.evaluate("e => getComputedStyle(e).color"))
        contrast = (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05)
        assert contrast > 4.5, kind


@pytest.mark.parametrize("viewport", [{"width": 1280, "height": 900}, PHONE], ids=["wide", "phone"])
def test_the_contents_stay_in_view_and_lead_to_each_section(open_page, viewport):
    page = open_page(viewport)
    contents = page.get_by_role("navigation", name="Contents")
    links = contents.get_by_role("link")
    assert links.all_inner_texts() == ["All data sets", "ETH-80", "COIL-20", "MPEG-7", "How to read this"]
    for name in ("MPEG-7", "How to read this", "ETH-80"):
        contents.get_by_role("link", name=name).click()
        heading = page.locator("main > section > h2", has_text=name).element_handle()
        page.wait_for_function("() => document.querySelector('nav').getBoundingClientRect().y === 0")
        page.wait_for_function(  # once the page has scrolled there, the bar hides no heading
            "h => document.querySelector('nav').getBoundingClientRect().bottom < h.getBoundingClientRect().y && "
            "h.getBoundingClientRect().y < innerHeight",
            arg=heading,
        )


def test_many_data_sets_begin_with_all_of_them(open_page):
    page = open_page()
    first = page.locator("main > section").first
    assert first.get_attribute("id") == "summary"
    fronts = first.locator("figure.fronts svg[role=img]:visible")
    assert fronts.bounding_box()["y"] < 400
    order = [fronts, first.locator(".message").first, first.locator("figure.ranks"), first.locator("#table-overview")]
    heights = [one.bounding_box()["y"] for one in order]
    assert heights == sorted(heights)
    lines = first.locator(".messages li")
    assert lines.count() == 3
    assert lines.nth(0).inner_text().split("\n")[1].startswith("20 learned covariances instead of 1,000: ")


def test_of_few_data_sets_the_first_screen_has_the_messages(open_page, few):
    page = open_page(address=few)
    lines = page.locator("header .messages li")
    assert lines.count() == 1
    assert lines.nth(0).bounding_box()["y"] < 500
    first = page.locator("main > section").first
    assert first.locator("figure.chart").bounding_box()["y"] < first.locator("figure.gallery").bounding_box()["y"]
    assert page.locator("figure.fronts").count() == 0


def test_print_unfolds_everything(open_page):
    page = open_page()
    assert page.locator("details:not([open])").count() > 10
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_to_complain_of(open_page, scheme):
    """axe-core, where npm has installed it for all: npm install --global axe-core."""
    root = shutil.which("npm") and subprocess.run(["npm", "root", "-g"], capture_output=True, text=True).stdout.strip()
    program = Path(root or ".", "axe-core", "axe.min.js")
    if not program.is_file():
        pytest.skip("no axe-core: npm install --global axe-core")
    page = open_page(color_scheme=scheme, bypass_csp=True)
    page.evaluate(OPEN_ALL)
    page.add_script_tag(content=program.read_text())
    found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 120))]))")
    assert found == []
