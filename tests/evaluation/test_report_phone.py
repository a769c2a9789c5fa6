"""A report on a phone: charts are read without zooming, and the page itself never scrolls aside."""

import shutil

import numpy as np
import pytest

from helpers.waiting import SECONDS
from preferl.evaluation.plots import Curve, accuracy_bars, learning_curves
from preferl.evaluation.report import Figure, Report, Section, write_report

pytestmark = pytest.mark.browser


def heights(opened):
    """Of a line of text in each chart, in pixels."""
    return opened.evaluate(
        "() => [...document.querySelectorAll('.drawing')].map((drawing) =>"
        " drawing.querySelector('text').getBoundingClientRect().height)"
    )


@pytest.fixture
def report(tmp_path):
    steps = np.arange(0, 100_000, 10_000)
    wide = learning_curves([Curve("learned", steps, -1000 + steps / 100)])
    half = accuracy_bars({"learned": (0.8, (0.7, 0.9)), "shuffled": (0.5, (0.4, 0.6))})
    figures = (Figure(wide, "returns rise"), Figure(half, "80 % right", half=True))
    path = tmp_path / "report.html"
    write_report(path, Report("A run", sections=(Section("Charts", figures=figures),)))
    return path


def test_charts_are_read_on_a_phone(report):
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for width, scrolls in ((390, True), (1280, False)):
            opened = browser.new_page(viewport={"width": width, "height": 800})
            opened.set_default_timeout(1000 * SECONDS)
            opened.goto(report.as_uri())
            assert all(height >= 13 for height in heights(opened)), width
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
            window = opened.locator(".window").first
            assert window.evaluate("box => box.scrollWidth > box.clientWidth") == scrolls
            assert opened.locator(".swipe").is_visible() == scrolls
        browser.close()
