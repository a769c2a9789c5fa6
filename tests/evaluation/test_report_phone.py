"""A report on a phone: charts are read without zooming, and the page itself never scrolls aside."""

import numpy as np
import pytest

from helpers import written_runs
from helpers.waiting import SECONDS
from preferl.evaluation import PolicyReport
from preferl.evaluation.plots import Curve, accuracy_bars, learning_curves
from preferl.evaluation.report import Figure, Report, Section, write_report
from preferl.evaluation.reward_report import Calibration, RewardReport
from preferl.evaluation.run_comparison import comparison_report, short_names
from preferl.evaluation.summary import run_report
from preferl.runs import read_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]


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


def opened(chromium, path, width):
    page = chromium.new_page(viewport={"width": width, "height": 800})
    page.set_default_timeout(1000 * SECONDS)
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    return page


@pytest.mark.parametrize(("width", "scrolls"), [(390, True), (1280, False)])
def test_charts_are_read_on_a_phone(chromium, report, width, scrolls):
    page = opened(chromium, report, width)
    assert all(height >= 13 for height in heights(page))
    window = page.locator(".window").first
    assert window.evaluate("box => box.scrollWidth > box.clientWidth") == scrolls
    assert page.locator(".swipe").is_visible() == scrolls
    rows = page.locator(".window").last
    assert rows.evaluate("box => box.scrollWidth <= box.clientWidth"), "all rows are seen"


def test_a_comparison_does_not_scroll_aside_on_a_phone(chromium, tmp_path):
    paths = [
        written_runs.online(tmp_path / name, comparisons=100 + n) for n, name in enumerate("ab")
    ]
    runs = short_names([read_run(path) for path in paths])
    write_report(tmp_path / "comparison.html", comparison_report(runs))
    page = opened(chromium, tmp_path / "comparison.html", 390)
    assert page.locator("svg").count() == 4
