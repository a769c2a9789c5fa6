"""Who answers sees how far the next reward is, without loading the page again."""

import pytest

from helpers.answering_page import next_pair, pair
from preferl.store.status import Status

pytestmark = pytest.mark.browser

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
    study.store.reports.publish_reward(study.project.id, 1, answers=2)
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
