"""A real browser: Debian's Chromium, driven by Playwright, with no network."""

import shutil

import pytest

WIDE = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    driver = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with driver.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser, address):
    """Opens the page; nothing may be asked of the network, and nothing complained of."""
    contexts, trouble = [], []

    def opened(viewport=WIDE, address=address, **options):
        context = browser.new_context(viewport=viewport, offline=True, **options)
        contexts.append(context)
        context.set_default_timeout(120_000)  # a busy machine is no failure
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or trouble.append(request.url))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []
