"""The page in a real browser: Debian's Chromium, driven by Playwright, with no network."""

import shutil
import subprocess
from pathlib import Path

import pytest
import synthetic

from knnpress.report.page import make_page
from knnpress.report.read import read_results

OPEN_ALL = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of a results folder with everything, on the file system."""
    folder = tmp_path_factory.mktemp("page")
    path = folder / "report with spaces.html"
    path.write_text(make_page(read_results(synthetic.whole(folder / "results"))), encoding="utf-8")
    return path.as_uri()


def test_everything_is_shown(open_page):
    page = open_page()
    folded = page.locator("details table, details figure")
    assert folded.count() > 15
    assert not any(folded.nth(k).is_visible() for k in range(folded.count()))
    page.evaluate(OPEN_ALL)
    tables, figures = page.locator("table"), page.locator("figure")
    assert tables.count() > 15
    assert figures.count() == 14
    for found in (tables, figures):
        for k in range(found.count()):
            assert found.nth(k).is_visible()
            assert found.nth(k).bounding_box()["height"] > 40
    broken = page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).length")
    assert broken == 0
    assert page.locator("figure.chart .plot > svg").count() == 3


def test_a_click_hides_a_curve_and_another_shows_it(open_page):
    page = open_page()
    chart = page.locator("figure.chart").first
    key, curve = chart.get_by_role("button", name="Subsample"), chart.locator('.series[data-method="Subsample"]')
    assert key.get_attribute("aria-pressed") == "true"
    assert curve.count() == 1
    top = chart.locator(".axis text").all_text_contents()
    key.click()
    assert key.get_attribute("aria-pressed") == "false"
    assert curve.count() == 0
    assert page.locator('figure.chart .series[data-method="Subsample"]').count() == 2  # only there
    key.focus()
    page.keyboard.press("Enter")
    assert key.get_attribute("aria-pressed") == "true"
    assert curve.count() == 1
    assert chart.locator(".axis text").all_text_contents() == top


def test_other_full_sets_are_hidden_at_first(open_page):
    chart = open_page().locator("figure.chart").first
    key = chart.get_by_role("button", name="full 1-NN, AIRM")
    assert key.get_attribute("aria-pressed") == "false"
    assert chart.locator('.series[data-method="full AIRM"]').count() == 0
    key.click()
    assert chart.locator('.series[data-method="full AIRM"]').count() == 1


def test_pointing_and_arrow_keys_tell_values(open_page):
    page = open_page()
    chart = page.locator("figure.chart").first
    plot, tip = chart.locator(".plot > svg"), chart.locator(".tip")
    plot.scroll_into_view_if_needed()
    assert not tip.is_visible()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + box["height"] / 2)
    assert tip.is_visible()
    said = tip.inner_text()
    assert said.startswith("2 % of the training set")
    lines = synthetic.records("eth80", 1.3, "covariance", synthetic.FEW)
    errors = [100 * line["test_error"] for line in lines if line["method"] == "SCC" and line["ratio"] == 0.02]
    assert f"{sum(errors) / len(errors):.2f} ±" in said
    assert "AIRM" not in said
    page.mouse.move(5, 5)
    assert not tip.is_visible()
    plot.focus()
    for expected in ("2 %", "4 %", "8 %"):
        page.keyboard.press("ArrowRight")
        assert tip.inner_text().startswith(expected)
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_axis_and_variant_can_be_chosen(open_page):
    chart = open_page().locator("figure.chart").first
    key, ticks = chart.get_by_role("button", name="logarithmic axis"), chart.locator(".axis text")
    before = ticks.all_text_contents()
    assert key.get_attribute("aria-pressed") == "true"
    key.click()
    assert key.get_attribute("aria-pressed") == "false"
    assert ticks.all_text_contents() != before
    assert "0" in ticks.all_text_contents()
    alt = chart.locator(".plot > svg").get_attribute("aria-label")
    chart.get_by_role("button", name="Subsample").click()
    chart.get_by_role("combobox").select_option(label="by object")
    assert chart.locator(".plot > svg").get_attribute("aria-label") != alt
    assert chart.locator('.series[data-method="Subsample"]').count() == 0  # stays hidden


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


def test_a_chart_follows_the_window(open_page):
    page = open_page()
    page.set_viewport_size(PHONE)
    page.wait_for_function("document.querySelector('.plot > svg').clientWidth < 390")
    text = page.locator(".axis text").first
    assert text.evaluate("e => getComputedStyle(e).fontSize") == "12px"  # not shrunk with the picture


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
    assert links.all_inner_texts() == ["ETH-80", "COIL-20", "MPEG-7", "All data sets", "How to read this"]
    for name in ("MPEG-7", "How to read this", "ETH-80"):
        contents.get_by_role("link", name=name).click()
        heading = page.locator("main > section > h2", has_text=name).element_handle()
        page.wait_for_function("() => document.querySelector('nav').getBoundingClientRect().y === 0")
        page.wait_for_function(  # once the page has scrolled there, the bar hides no heading
            "h => document.querySelector('nav').getBoundingClientRect().bottom < h.getBoundingClientRect().y && "
            "h.getBoundingClientRect().y < innerHeight",
            arg=heading,
        )


def test_the_first_screen_has_the_messages(open_page):
    page = open_page()
    lines = page.locator(".messages li")
    assert lines.count() == 3
    assert lines.nth(0).inner_text().split("\n")[1].startswith("20 learned covariances instead of 1,000: ")
    assert lines.nth(2).bounding_box()["y"] < 900
    first = page.locator("main > section").first
    assert first.locator("figure.chart").bounding_box()["y"] < first.locator("figure.gallery").bounding_box()["y"]


def test_print_unfolds_everything(open_page):
    page = open_page()
    assert page.locator("details:not([open])").count() > 10
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
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
