"""A digit drawn with the mouse is answered by the model itself, in the page."""

import json

import numpy as np
import pytest
import synthetic

import knnpress as kp
from knnpress.report.findings import findings_of
from knnpress.report.page import make_page
from knnpress.report.read import read_results

#: A digit as people write it: strokes of (x, y), both from 0 to 1, y downwards
DIGITS = {
    "0": [[(0.5, 0.05), (0.3, 0.15), (0.22, 0.5), (0.3, 0.85), (0.5, 0.95), (0.7, 0.85), (0.78, 0.5), (0.7, 0.15),
           (0.5, 0.05)]],
    "1": [[(0.38, 0.25), (0.52, 0.05), (0.52, 0.95)]],
    "2": [[(0.28, 0.25), (0.35, 0.1), (0.5, 0.05), (0.65, 0.1), (0.7, 0.28), (0.6, 0.5), (0.28, 0.93), (0.75, 0.93)]],
    "3": [[(0.28, 0.12), (0.5, 0.05), (0.68, 0.15), (0.66, 0.35), (0.48, 0.47), (0.68, 0.6), (0.72, 0.78), (0.55, 0.94),
           (0.28, 0.88)]],
    "4": [[(0.55, 0.05), (0.22, 0.6), (0.8, 0.6)], [(0.6, 0.4), (0.58, 0.95)]],
    "6": [[(0.6, 0.05), (0.38, 0.3), (0.28, 0.65), (0.4, 0.92), (0.62, 0.92), (0.72, 0.72), (0.6, 0.55), (0.4, 0.58),
           (0.3, 0.7)]],
    "7": [[(0.25, 0.08), (0.75, 0.08), (0.45, 0.95)]],
    "9": [[(0.7, 0.3), (0.55, 0.42), (0.35, 0.38), (0.3, 0.2), (0.45, 0.06), (0.65, 0.1), (0.7, 0.3), (0.66, 0.6),
           (0.55, 0.95)]],
}  # fmt: skip


def results_with(folder, model):
    """A results folder of one data set, with a model to draw for."""
    plan = {"title": "Digits", "fingerprint": synthetic.PLAN, "data": {}}
    folder = synthetic.write(folder, plan, synthetic.records("digits", 3.0, "histogram", (0.02,)))
    if isinstance(model, bytes):
        (folder / "exhibits" / "digits.knnp").write_bytes(model)
    else:
        kp.save(model, folder / "exhibits" / "digits.knnp")
    return folder


@pytest.fixture(scope="module", params=["hellinger", "sinkhorn"])
def model(request):
    data = kp.datasets.load_digits_histograms()
    return kp.SHC(data.ground_cost, metric=request.param, n_prototypes=10).fit(data.X[:300], data.y[:300].astype(str))


@pytest.fixture(scope="module")
def address(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("drawing")
    path = folder / "report.html"
    path.write_text(make_page(findings_of(read_results(results_with(folder / "results", model)))), encoding="utf-8")
    return path.as_uri()


def draw(page, strokes, size=1.0, shift=(0.0, 0.0)):
    """Draw with the mouse, in a part of the box."""
    pad = page.locator(".pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    for stroke in strokes:
        places = [(box["x"] + (size * x + shift[0]) * box["width"], box["y"] + (size * y + shift[1]) * box["height"])
                  for x, y in stroke]  # fmt: skip
        page.mouse.move(*places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*place, steps=3)
        page.mouse.up()


def ink(page):
    return np.array(page.locator("figure.drawing").get_attribute("data-ink").split(), dtype=float)


def test_drawn_digits_are_answered_as_the_model_answers_them(open_page, model):
    page = open_page()
    answers = {}
    for name, strokes in DIGITS.items():
        page.get_by_role("button", name="Clear").click()
        draw(page, strokes)
        answers[name] = page.locator("figure.drawing").get_attribute("data-answer")
        seen = ink(page)[None]
        assert 12 < seen.max() <= 16  # of 4 x 4 fine pixels
        expected = model.predict_proba(seen / seen.sum())[0]
        assert answers[name] == model.classes_[expected.argmax()]
        said = page.locator(".answer").inner_text()
        assert said == f"Looks like {answers[name]}, {round(100 * expected.max())} % sure."
        widths = page.locator(".chances i").evaluate_all("bars => bars.map(bar => parseFloat(bar.style.width) / 100)")
        np.testing.assert_allclose(widths, expected, atol=2e-3)
    right = sum(name == answer for name, answer in answers.items())
    assert right >= len(DIGITS) - 1, answers


def test_size_and_place_do_not_matter(open_page):
    page = open_page()
    draw(page, DIGITS["4"])
    large = ink(page)
    page.get_by_role("button", name="Clear").click()
    assert not ink(page).any()
    assert page.locator(".answer").inner_text() == "Draw one large digit."
    draw(page, DIGITS["4"], 0.5, (0.45, 0.1))
    assert np.abs(large - ink(page)).max() <= 5  # the mouse has whole pixels
    assert page.locator("figure.drawing").get_attribute("data-answer") == "4"


def test_the_keyboard_draws_too(open_page):
    page = open_page()
    page.locator(".pad").focus()
    for key in [*["ArrowUp"] * 3, " ", *["ArrowDown"] * 6, " "]:
        page.keyboard.press(key)
    picture = ink(page).reshape(8, 8)
    assert (picture.sum(axis=1) > 0).all()  # from top to bottom
    assert (picture[:, [0, 1, 2, 5, 6, 7]] == 0).all()
    assert page.locator("figure.drawing").get_attribute("data-answer") == "1"
    page.keyboard.press("ArrowRight")  # the pen is up
    assert (ink(page).reshape(8, 8) == picture).all()


@pytest.mark.parametrize("what", ["broken", "another size", "another kind"])
def test_a_model_that_cannot_answer_makes_no_box(tmp_path, rng, what):
    if what == "broken":
        model = b"no model"
    elif what == "another size":
        model = kp.PrototypeClassifier("sqeuclidean").fit(rng.random((20, 5)), np.arange(20) % 2)
    else:
        X = kp.datasets.load_digits_covariances().X[:20]
        model = kp.PrototypeClassifier("airm").fit(X, np.arange(20) % 2)
    results = read_results(results_with(tmp_path / "results", model))
    page = make_page(findings_of(results))
    assert 'class="drawing"' not in page
    assert 'type="module"' not in page
    assert len(results.notices) == (what != "another size")


def test_names_of_classes_cannot_end_the_script(tmp_path):
    data = kp.datasets.load_digits_histograms()
    names = np.where(data.y[:100] < 5, "</script><script>alert(1)</script>", "b")
    model = kp.PrototypeClassifier("hellinger").fit(data.X[:100], names)
    page = make_page(findings_of(read_results(results_with(tmp_path / "r", model))))
    assert page.count("</script>") == 2  # the page's program, the model
    assert json.dumps("alert(1)")[1:-1] in page
