"""Both clips and every button are visible without scrolling, on small screens, too."""

import pytest

from helpers.answering_page import wait_in
from preferl.store.status import Status

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OUTSIDE = """() => [...document.querySelectorAll(
      '.clip, .rate label, #answers button, .asides button, #play')]
    .filter(each => {
      const at = each.getBoundingClientRect();
      return at.height < 40 || at.top < 56 || at.left < 0
        || at.bottom > innerHeight || at.right > innerWidth;
    }).map(each => each.closest('.clip')?.id || each.id || each.textContent.trim())"""
CLIPPED = """() => [...document.querySelectorAll('.brand, .mark, .overall, .top nav')]
    .filter(each => each.scrollWidth > each.clientWidth + 1
      || each.getBoundingClientRect().width < 20
      || each.getBoundingClientRect().right > innerWidth)
    .map(each => each.className.baseVal ?? each.className)"""
FITS = "([width, height]) => innerWidth === width && innerHeight === height"
SIZES = [(780, 490), (1280, 720), (900, 600), (844, 390), (390, 844), (390, 664)]


def resize(page, width, height):
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function(FITS, arg=[width, height])


@pytest.mark.parametrize("ratings", [False, True])
def test_everything_that_is_needed_is_visible(study, person, ratings):
    study.update(strength=True, ratings=ratings)
    study.ask(2, details=[{"task": "open the door"}] * 2 if ratings else None)
    page = person()
    page.wait_for_selector("#pair.may")
    for width, height in SIZES:
        resize(page, width, height)

        low = ratings and height < 400

        def hidden(large=height > 700 or (width > 700 and not low)):
            # A small phone scrolls its clips beneath the buttons, which stay.
            return [each for each in page.evaluate(OUTSIDE) if large or "clip" not in each]

        wait_in(page, lambda: not hidden(), lambda: f"{hidden()} at {width} x {height}")  # noqa: B023
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width > 700:
            heights = page.evaluate(
                "[...document.querySelectorAll('.clip')].map(each => each.clientHeight)"
            )
            assert min(heights) >= 0.33 * height, f"{width} x {height}"


def test_the_header_has_room_for_its_text(study, person):
    study.ask(2)
    study.update(budget=25_000)
    status = Status("waiting", first_at=4_000)
    study.store.reports.beat(study.project.id, "reward", status, every=600.0)
    page = person()
    words = "0 of 25,000 answers, 4,000 more until the first reward"
    page.wait_for_function(
        "words => document.querySelector('.overall .number').textContent === words", arg=words
    )
    for width in (390, 720, 780, 870, 900, 1000, 1100, 1280):
        resize(page, width, 600)
        wait_in(page, lambda: page.evaluate(CLIPPED) == [], lambda: page.evaluate(CLIPPED))
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_names_stay_visible_while_the_table_scrolls(study, person):
    study.ask(1)
    page = person(study.owner, path="/admin", viewport={"width": 390, "height": 844})
    name = page.locator("tbody .who", has_text="ann")
    before = name.bounding_box()
    table = page.get_by_role("region", name="People, table")
    assert table.evaluate("box => box.scrollWidth > box.clientWidth")
    table.evaluate("box => box.scrollTo(300, 0)")
    page.wait_for_function("() => document.querySelector('.scroll').scrollLeft === 300")
    assert name.bounding_box() == before
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
