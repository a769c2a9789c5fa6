"""Who answers sees how far the next reward is, without loading the page again."""

import pytest

pytestmark = pytest.mark.browser


def test_the_page_counts_down_to_the_next_reward(study, person):
    study.ask(3)
    page = person(study.people["ann"][1])
    learning = page.locator("#learning")
    assert learning.get_attribute("aria-live") == "polite"
    page.wait_for_selector("#pair.may")
    assert learning.text_content() == "", "no reward service works"

    def tell(state="waiting", **detail):
        study.store.live.beat(study.project.id, "reward", state, detail={"first_at": 2, **detail})

    def wait_for(words):
        page.wait_for_function(
            "words => document.getElementById('learning').textContent === words", arg=words
        )

    tell()
    wait_for("0 of 2 answers until the first reward.")
    page.keyboard.press("ArrowLeft")
    wait_for("1 of 2 answers until the first reward.")
    study.store.live.publish_reward(study.project.id, 1, answers=2)
    tell(version=1, next_at=4)
    wait_for("Reward version 1 is from 2 answers; 3 more and it learns again.")
    tell("fitting", version=1, next_at=4)
    wait_for("Reward version 1 is from 2 answers; the next one is learning now.")
    tell("stopped")
    wait_for("")


def test_who_waits_for_clips_sees_it_too(study, person):
    study.store.live.beat(study.project.id, "reward", "waiting", detail={"first_at": 40})
    page = person(study.people["ann"][1])
    page.wait_for_selector("#waiting:visible")
    said = page.locator("#waiting [data-learning]")
    said.filter(has_text="0 of 40 answers until the first reward.").wait_for()
