"""A report on a phone: charts are read without zooming, and the page itself never scrolls aside."""

import shutil

import numpy as np
import pytest

from helpers.waiting import SECONDS
from preferl.evaluation import PolicyReport
from preferl.evaluation.plots import Curve, accuracy_bars, learning_curves
from preferl.evaluation.report import Figure, Report, Section, write_report
from preferl.evaluation.reward_report import Calibration, RewardReport
from preferl.evaluation.summary import run_report

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
    sections = (Section("Charts", figures=figures), Section("Rows", figures=(row_figure(),)))
    path = tmp_path / "report.html"
    write_report(path, Report("A run", sections=sections))
    return path


def row_figure():
    """That of a report on policies, one of which returns much more than the others."""
    returns = {"random": -1200.0, "taught": -1100.0, "true reward": -150.0}
    policies = {
        name: PolicyReport(mean + np.arange(4.0), np.full(4, 200)) for name, mean in returns.items()
    }
    reward = RewardReport(None, 0, 0, 0, (0.0, 1.0), None, Calibration((), (), (), None))
    page = run_report("A run", policies=policies, taught="taught", reward=reward)
    (figure,) = page.sections[0].figures
    return figure


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
            rows = opened.locator(".window").last
            assert rows.evaluate("box => box.scrollWidth <= box.clientWidth"), "all rows are seen"
        browser.close()
