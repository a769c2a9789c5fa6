"""People in a browser: keys, reloads, lost connections, several at once."""

import time
from urllib.parse import urljoin

import pytest

from helpers.answering_page import (
    LOST,
    NO_FALLBACK,
    next_pair,
    pair,
    rows,
    shown_as,
    until_answers,
    wait_in,
    watched,
)
from preferl.store.status import Status

pytestmark = pytest.mark.browser

LOADED = """new Set(performance.getEntriesByType('resource').map((entry) => entry.name)
    .filter((name) => name.includes('/media/'))).size"""
NOTICES = """() => {
    window.notices = [];
    const place = document.getElementById('notice');
    new MutationObserver(() => window.notices.push(place.textContent))
        .observe(place, { childList: true });
}"""


def test_a_whole_round_by_keyboard_alone(study, person):
    study.ask(5)
    began = time.monotonic()
    page = person(read=False)
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Enter")  # on Start
    asked = []
    for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "1"):
        watched(page)
        asked.append(pair(page))
        page.keyboard.press(key)
        if len(asked) < 5:
            next_pair(page, asked[-1])
    page.wait_for_selector("#waiting:visible")
    longest = 1000 * (time.monotonic() - began)
    answers = rows(study)
    assert [a.kind for a in answers] == ["left", "right", "equal", "cannot_tell", "left"]
    assert [shown_as(study, a) for a in answers] == asked
    for answer in answers:
        better = {"left": 1.0, "right": 0.0, "equal": 0.5}.get(answer.kind)
        if better is not None and answer.swapped:
            better = 1 - better
        assert answer.preference == better
        assert 100 < answer.response_ms < longest
        assert answer.detail["shown"]["speed"] == 1
    assert page.locator("#mine").text_content() == "5"


@pytest.mark.slow
def test_undo_brings_the_same_pair_back(study, person):
    study.ask(3)
    page = person()
    watched(page)
    first = pair(page)
    page.keyboard.press("ArrowLeft")
    second = next_pair(page, first)
    page.keyboard.press("z")
    assert next_pair(page, second) == first
    watched(page)  # at once: it was seen before
    assert "is undone" in page.locator("#reason").text_content()
    assert [page.locator(f"#{name}").text_content() for name in ("mine", "visit-answers")] == [
        "0"
    ] * 2
    page.keyboard.press("ArrowRight")
    assert next_pair(page, first) == second
    assert [a.kind for a in rows(study)] == ["left", "retract", "right"]
    assert len(study.answers()) == 1
    assert "is undone" not in page.locator("#reason").text_content()
    page.reload()
    page.wait_for_selector("#pair:not([hidden])")
    assert next_pair(page, first) == second


@pytest.mark.slow
def test_a_double_click_is_one_answer(study, person):
    study.ask(3)
    held = []  # no reply before both clicks
    hold = {"**/api/answer": lambda route: held.append(route)}
    page = person(routes=hold)
    watched(page)
    first = pair(page)
    page.get_by_role("button", name="B is better").dblclick()
    wait_in(page, lambda: held, "no answer was sent")
    held[0].continue_()
    page.unroute("**/api/answer")
    second = next_pair(page, first)
    assert len(held) == len(rows(study)) == 1
    watched(page)
    page.evaluate(
        """() => { for (let i = 0; i < 5; i++) document.body.dispatchEvent(
            new KeyboardEvent('keydown', { key: 'ArrowUp', bubbles: true })) }"""
    )
    next_pair(page, second)
    assert len(rows(study)) == 2


@pytest.mark.slow
def test_two_tabs_of_one_person(study, person):
    study.ask(4)
    page = person(expected=("409",))
    watched(page)
    first = pair(page)
    other = page.context.new_page()
    other.goto(page.url)
    watched(other)
    assert pair(other) == first
    page.keyboard.press("ArrowLeft")
    next_pair(page, first)
    other.evaluate(NOTICES)  # they go after some seconds
    other.keyboard.press("ArrowRight")
    next_pair(other, first)
    assert any("no longer with you" in words for words in other.evaluate("window.notices"))
    assert [a.kind for a in rows(study)] == ["left"]
    watched(other)
    other.keyboard.press("ArrowUp")
    until_answers(study, other, 2)


def test_a_lost_connection_loses_nothing(study, person):
    study.ask(3)
    page = person(expected=LOST)
    watched(page)
    first = pair(page)
    page.wait_for_function(f"() => {LOADED} === 4")  # the next clips are here, too
    page.context.set_offline(True)
    page.keyboard.press("ArrowLeft")
    page.get_by_text("Not saved yet – trying again").wait_for()
    page.keyboard.press("ArrowRight")  # too late: the first answer is on its way
    page.wait_for_timeout(600)
    assert not rows(study)
    assert pair(page) == first
    page.context.set_offline(False)
    next_pair(page, first)
    assert [a.kind for a in rows(study)] == ["left"]
    page.wait_for_selector("#notice", state="hidden")


def test_what_was_asked_while_an_answer_was_on_its_way_is_out_of_date(study, person):
    study.ask(3)
    answered = []
    asked = []
    hold = {"**/api/answer": lambda route: answered.append(route)}
    page = person(routes=hold)
    watched(page)
    first = pair(page)
    page.route("**/api/claim", lambda route: asked.append((route, route.fetch())))
    page.keyboard.press("ArrowLeft")
    wait_in(page, lambda: answered, "no answer was sent")
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    wait_in(page, lambda: asked, "it did not ask what there is")
    answered[0].continue_()
    second = next_pair(page, first)
    (late, reply), *_ = asked
    late.fulfill(response=reply)
    page.evaluate("fetch('/healthz').then(reply => reply.text())")
    page.wait_for_timeout(200)  # in which it would have shown the answered pair
    assert pair(page) == second


@pytest.mark.slow
def test_an_acknowledgement_that_is_lost_is_not_a_second_answer(study, person):
    study.ask(3)
    lost = []

    def lose(route):
        reply = route.fetch()
        lost.append(reply.status)
        if len(lost) < 3:
            route.abort()
        else:
            route.fulfill(response=reply)

    page = person(expected=LOST, routes={"**/api/answer": lose})
    watched(page)
    first = pair(page)
    page.keyboard.press("ArrowLeft")
    next_pair(page, first)
    tried = len(lost)
    assert tried >= 3
    assert set(lost) == {200}
    watched(page)
    assert len(lost) == tried, "it asks no more once it was told"
    assert len(rows(study)) == 1


@pytest.mark.slow
def test_an_answer_that_was_not_sent_survives_a_reload(study, person):
    study.ask(3)
    cut = {"**/api/answer": lambda route: route.abort()}
    page = person(expected=LOST, routes=cut)
    watched(page)
    first = pair(page)
    page.keyboard.press("ArrowUp")
    page.get_by_text("Not saved yet – trying again").wait_for()
    page.unroute("**/api/answer")
    page.reload()
    until_answers(study, page, 1)
    assert next_pair(page, []) != first
    assert [a.kind for a in rows(study)] == ["equal"]


@pytest.mark.slow
def test_waiting_goes_on_by_itself_when_clips_come(study, person):
    page = person(init=NO_FALLBACK)
    page.wait_for_selector("#waiting:visible")
    assert page.evaluate("window.stubbed"), "the page asks by itself at another interval"
    study.ask(1, video=False)
    page.get_by_text("1 pair being drawn").wait_for()
    study.film(12)
    page.wait_for_selector("#pair:visible")
    assert "The last wait took" in page.locator("#last-wait").text_content()
    watched(page)
    page.keyboard.press("s")
    until_answers(study, page, 1)
    assert [a.kind for a in rows(study)] == ["skip"]


@pytest.mark.slow
def test_done_paused_and_signed_out(study, person):
    study.ask(2)
    secret = study.ann
    page = person(secret, expected=("401",))
    watched(page)
    study.update(paused=True)
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#paused:visible")
    study.update(paused=False)
    page.wait_for_selector("#pair:visible")
    study.update(budget=2)
    watched(page)
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#done:visible")
    assert "2 pairs" in page.locator("#done").text_content()
    study.update(budget=None)
    study.ask(1)
    page.reload()
    watched(page)
    study.invite("ann")  # a new link ends old sessions
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#signed-out:visible")
    assert len(rows(study)) == 2
    page.goto(urljoin(page.url, f"/join/{study.people['ann'][1]}"))
    until_answers(study, page, 3)  # the answer that was on its way


@pytest.mark.slow
def test_an_open_page_follows_the_newest_sign_in_of_its_browser(study, person, address):
    other = study.store.projects.create("hall", title="Walking down a hall", question="Which?")
    # 401 in the moment between the end of one session and the cookie of the next.
    page = person(study.owner, expected=("401", "403"))
    page.wait_for_selector("#waiting:visible")
    page.context.new_page().goto(f"{address}/join/{study.store.people.owner(other.id).secret}")
    page.locator(".study").filter(has_text=other.title).wait_for()
    page.wait_for_selector("#waiting:visible", state="attached")


@pytest.mark.slow
def test_single_letter_keys_can_be_switched_off(study, person):
    study.ask(2)
    page = person()
    watched(page)
    page.keyboard.press("?")
    page.get_by_label("Keys that are a single letter").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    page.keyboard.press("s")
    page.wait_for_timeout(200)
    assert not rows(study)
    page.keyboard.press("ArrowLeft")
    until_answers(study, page, 1)
    page.reload()
    page.wait_for_selector("#pair:visible")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 0


@pytest.mark.slow
def test_keys_do_not_answer_while_a_dialog_is_open(study, person):
    study.ask(2)
    page = person()
    watched(page)
    first = pair(page)
    page.keyboard.press("i")
    page.wait_for_selector("#instructions[open]")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("1")
    page.keyboard.press("i")
    page.wait_for_selector("dialog[open]", state="detached")
    page.keyboard.press("ArrowRight")
    next_pair(page, first)
    assert [a.kind for a in rows(study)] == ["right"]


@pytest.mark.slow
def test_shift_marks_a_slight_preference(study, person):
    study.update(strength=True)
    study.ask(3)
    page = person()
    for number, key in enumerate(("ArrowLeft", "Shift+ArrowRight"), start=1):
        watched(page)
        before = pair(page)
        page.keyboard.press(key)
        next_pair(page, before)
        until_answers(study, page, number)
    watched(page)
    page.get_by_role("button", name="B is clearly better").click()
    until_answers(study, page, 3)
    recorded = [(a.kind, a.strength) for a in rows(study)]
    assert recorded == [("left", "slight"), ("right", "clear"), ("right", "clear")]


NO_NEWS = "window.EventSource = class extends EventTarget { close() {} };"

ANSWERS = """words => [...document.querySelectorAll('[data-statement]')]
    .every(each => each.textContent === `${words}.`)
    && document.querySelector('.overall .number').textContent === words"""


def test_the_page_counts_down_to_the_next_reward_in_the_same_words_everywhere(study, person):
    study.ask(3)
    page = person()
    learning = page.locator("#learning")
    assert learning.get_attribute("aria-live") == "polite"
    page.wait_for_selector("#pair.may")

    def tell(state="waiting", **detail):
        status = Status(state, first_at=2, **detail)
        study.store.reports.beat(study.project.id, "reward", status, every=600.0)

    def wait_for(words):
        page.wait_for_function(ANSWERS, arg=words)

    wait_for("0 of 3 answers")
    tell()
    wait_for("0 answers, 2 more until the first reward")
    assert page.locator("#bar").is_visible()
    first = pair(page)
    page.keyboard.press("ArrowLeft")
    wait_for("1 answer, 1 more until the first reward")
    next_pair(page, first)
    assert page.evaluate("document.getElementById('bar').value") == 0.5
    study.store.reports.announce_reward(study.project.id, 1, answers=2)
    tell(version=1, next_at=4)
    wait_for("1 answer, 3 more until the next reward")
    assert not page.locator("#bar").is_visible()
    assert learning.text_content() == "Reward version 1 is from 2 answers."
    study.ask(7)  # as an agent does while it goes
    tell("fitting", version=1, next_at=4)
    wait_for("1 answer, the next reward is learning now")
    tell("stopped")
    wait_for("1 of 10 answers")
    assert learning.text_content() == ""


def test_numbers_that_were_overtaken_are_left_out(study, person):
    study.ask(3)
    page = person(init=NO_NEWS)
    page.wait_for_function(ANSWERS, arg="0 of 3 answers")
    older = page.evaluate("fetch('/api/progress').then(reply => reply.json())")["progress"]
    assert older["revision"] == 0
    page.evaluate(
        """async older => {
            const { Panel } = await import(document.querySelector('link[href$="panel.js"]').href);
            const panel = new Panel();
            const statement = (answers) => ({ ...older.statement, words: `${answers} answers` });
            panel.progress({ ...older, revision: 7, statement: statement(7) });
            panel.progress({ ...older, mine: 5, revision: 6, statement: statement(6) });
        }""",
        older,
    )
    assert page.locator("#bar-text").text_content() == "7 answers"
    assert page.locator("#mine").text_content() == "5", "their own is newer"
