"""Every page in light and dark, at a desk and on a phone, against the rules that axe knows."""

import pytest

from helpers.accessibility import faults_anywhere
from helpers.answering_page import next_pair, pair, watched

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_answering_page(study, person):
    study.update(ratings=True)
    study.ask(2, details=[{"task": "open the door"}] * 2)
    study.ask(1, purpose="example", known=[1.0], details=[{"note": "Up is good."}])
    page = person(read=False)
    page.wait_for_selector("#instructions[open]")
    assert faults_anywhere(page) == []
    page.keyboard.press("Enter")
    page.wait_for_selector("#pair.may")
    for key in "a4n":
        page.keyboard.press(key)
    page.wait_for_selector("[name=outcome-a]:checked", state="attached")
    page.keyboard.press("Escape")
    assert faults_anywhere(page) == []
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")
    assert faults_anywhere(page) == []
    page.keyboard.press("Escape")
    watched(page)
    first = pair(page)
    page.keyboard.press("ArrowLeft")
    next_pair(page, first)
    watched(page)
    page.keyboard.press("ArrowUp")
    page.wait_for_selector("#waiting:visible")
    assert faults_anywhere(page) == []


def test_the_answers(study, person, address):
    numbers = study.ask(3)
    for count in range(3):
        (held,) = study.store.queue.claim(study.project.id, study.people["ann"][0].id, 1).queries
        ann = study.people["ann"][0].id
        study.store.queue.answer(ann, held.token, f"answer-{count}", "left", strength="clear")
    predicted = dict.fromkeys(numbers, 0.9) | dict.fromkeys(numbers[:1], 0.1)
    study.store.reports.announce_reward(study.project.id, 1, answers=3, predicted=predicted)
    page = person(study.owner, read=False, path="/admin/answers")
    page.locator(".sides video").first.wait_for()
    assert faults_anywhere(page) == []
    first = page.url
    page.keyboard.press("j")
    page.wait_for_url(lambda address: "at=" in address)
    page.keyboard.press("k")
    page.wait_for_selector("tbody tr:first-child.here")
    films = "[...document.querySelectorAll('.sides video')]"
    playing = f"{films}.filter((film) => !film.paused).length"
    page.wait_for_function(f"{playing} === 2")
    page.keyboard.press("p")
    assert page.evaluate(playing) == 0
    page.get_by_role("button", name="Withdraw").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Withdrawn by owner").wait_for()
    assert page.url != first
    assert faults_anywhere(page) == []
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    for show in ("differing", "surprising", "withdrawn"):
        page.goto(f"{address}/admin/answers?show={show}")
        assert faults_anywhere(page) == [], show


def test_the_other_pages(study, person, address):
    study.store.reports.announce_reward(
        study.project.id, 1, answers=9, accuracy=0.7, interval=(0.4, 0.9)
    )
    page = person(study.owner, read=False, expected=("404", "401"))
    for path in ("/episode", "/admin", "/nothing"):
        page.goto(f"{address}{path}")
        assert faults_anywhere(page) == [], path
    page.goto(f"{address}/admin")
    page.get_by_label("Name", exact=True).fill("Cleo")
    page.get_by_role("button", name="Make a link").click()
    page.get_by_label("Personal link of Cleo").wait_for()
    assert faults_anywhere(page) == []
    page.get_by_label("owner: menu").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("Open your personal link").wait_for()
    assert faults_anywhere(page) == []
    once = study.store.people.invite(study.project.id, "Dee", uses=1).secret
    page.goto(f"{address}/join/{once}")
    page.get_by_role("button", name="Continue as Dee").wait_for()
    assert faults_anywhere(page) == []
