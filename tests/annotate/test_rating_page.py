"""Clips are rated on the answering page by keyboard and pointer, and saved before it says so."""

import pytest

from helpers.answering_page import wait_in, watched

pytestmark = pytest.mark.browser


@pytest.fixture
def page(study, person):
    study.update(ratings=True)
    study.ask(2, details=[{"task": "open the <door>"}] * 2)
    page = person()
    watched(page)
    return page


def said(study):
    return [(row.rating, row.outcome) for row in study.store.ratings.current(study.project.id)]


def wait_for(page, study, expected):
    wait_in(page, lambda: said(study) == expected, lambda: f"{said(study)}")


def announced(page, words):
    page.locator("#announcement").filter(has_text=words).wait_for()


def test_a_clip_is_rated_by_keyboard_undone_and_shown_again(study, page):
    assert page.locator("#task").text_content() == "Task: open the <door>"
    page.keyboard.press("a")
    page.keyboard.press("4")
    wait_for(page, study, [(4, None)])
    announced(page, "Saved: clip A is rated 4 of 5.")
    page.keyboard.press("y")
    wait_for(page, study, [(4, "success")])
    page.keyboard.press("b")
    page.keyboard.press("ArrowRight")  # moves among radio buttons, and answers nothing
    wait_for(page, study, [(4, "success"), (2, None)])
    page.keyboard.press("z")
    wait_for(page, study, [(4, "success")])
    announced(page, "Undone: clip B is not rated.")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement === document.body")
    page.reload()
    watched(page)
    assert page.locator("#rate-a input:checked").count() == 2
    assert page.locator("#rate-b input:checked").count() == 0


LATE_TIMERS = """() => {
  const timer = window.setTimeout;
  window.setTimeout = (call, wait) => (wait ? timer(call, wait) : 0);
}"""
"""Timers without a wait never fire, as on a busy machine they fire after the next key."""


def test_a_clip_is_rated_by_pointer_and_the_answer_follows(study, page):
    page.evaluate(LATE_TIMERS)
    page.locator("[name=rating-b][value='5']").click()
    page.locator("[value=failure][name=outcome-b]").click()
    before = page.evaluate("window.preferl.player.clips.map(clip => clip.url)")
    page.keyboard.press("ArrowLeft")  # answers: the pointer gave the keys back, and all is sent
    wait_for(page, study, [(5, "failure")])
    wait_in(page, lambda: len(study.answers()) == 1)
    page.wait_for_function(
        "url => window.preferl.player.clips[0]?.url && window.preferl.player.clips[0].url !== url",
        arg=before[0],
    )
    assert page.locator(".rate input:checked").count() == 0, "another pair"
    page.keyboard.press("z")
    page.wait_for_function("() => document.querySelectorAll('#rate-b input:checked').length === 2")
    watched(page)
    page.locator("[value=failure][name=outcome-b]").click()  # the same again takes it back
    wait_for(page, study, [(5, None)])


def test_nothing_is_rated_before_it_was_seen(study, person):
    study.update(ratings=True)
    study.ask(1)
    page = person(reduced_motion="reduce")  # nothing plays by itself
    page.wait_for_selector("#pair[aria-busy=false]")
    page.keyboard.press("a")
    announced(page, "Watch both clips to the end once, then rate.")
    assert page.locator("[name=rating-a]").first.is_disabled()
