"""The overview on a phone."""

import pytest

pytestmark = pytest.mark.browser


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
