"""The site in light and dark, at a desk and on a phone; its search needs no server."""

import pytest

from helpers.accessibility import faults_anywhere
from helpers.waiting import SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.nightly]

PAGES = [
    "index",
    "quickstart",
    "tutorials/by-yourself",
    "notebooks/pendulum",
    "choosing-settings",
    "is-it-working",
    "troubleshooting",
    "algorithms/drlhp",
    "api/online",
]


@pytest.fixture
def page(chromium):
    context = chromium.new_context()
    context.set_default_timeout(1000 * SECONDS)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_anybody_can_read_it(page, site, name):
    page.goto((site / f"{name}.html").as_uri())
    assert faults_anywhere(page) == []
    width = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert width <= 0, "a phone has to scroll sideways"


def test_search_finds_pages_and_names(page, site):
    page.goto((site / "search.html").as_uri() + "?q=RewardTrainerConfig")
    page.wait_for_selector("#search-results li a")
    found = page.locator("#search-results li a").evaluate_all("all => all.map(a => a.href)")
    assert any("api/training.html" in address for address in found)
