"""What the pages show of the programs that learn, against what these programs reported."""

import re

import pytest

from preferl.annotate.progress import Tally, program_words
from preferl.store.status import Status

AGO = r"(just now|\d+ \w+ ago)"

WAITING = {"first_at": 3, "next_at": 0, "version": 0, "behind": 0}


@pytest.fixture
def report(study):
    """Report a program's heartbeat, and return the words that the overview shows for it."""

    def beat(name="reward", state="waiting", every=600.0, **detail):
        study.store.reports.beat(study.project.id, name, Status(state, **detail), every=every)
        words = program_words(services(study))
        return next(each["words"] for each in words if name in each["name"].lower())

    return beat


def services(study):
    return study.store.reports.services(study.project.id)


def statement(study):
    """The progress that the pages show, as one sentence."""
    report = Tally(study.store).of(study.project.id)["statement"]
    return ", ".join(filter(None, (report["words"], report["until"])))


def answer(study, kind="left"):
    person = study.people["ann"][0].id
    (question,) = study.store.queue.claim(study.project.id, person, 1).queries
    study.store.queue.answer(person, question.token, f"key-{question.token}", kind)


def test_before_the_first_reward_answers_with_a_preference_are_counted(study, report):
    study.ask(6)
    report(**WAITING)
    assert statement(study) == "0 answers, 3 more until the first reward"
    for kind in ("left", "cannot_tell", "equal"):
        answer(study, kind)
    assert statement(study) == "3 answers, 1 more until the first reward"
    answer(study)
    assert statement(study) == "4 answers"
    report(state="fitting", **WAITING)
    assert statement(study) == "4 answers, the first reward is learning now"


def test_after_it_how_many_more_until_the_next(study, report):
    study.ask(6)
    for _ in range(4):
        answer(study)
    study.store.reports.announce_reward(study.project.id, 1, answers=4, detail={"revision": 4})
    report(**WAITING | {"next_at": 9, "version": 1})
    assert statement(study) == "4 answers, 5 more until the next reward"
    answer(study)
    assert statement(study) == "5 answers, 4 more until the next reward"
    report(**WAITING | {"next_at": 5, "version": 1})
    assert statement(study) == "5 answers"
    report(state="fitting")
    assert statement(study) == "5 answers, the next reward is learning now"


def test_nothing_is_promised_where_nobody_learns(study, report):
    report(state="stopped", **WAITING)
    assert statement(study) == "0 answers"
    report(every=0.0, **WAITING)
    assert statement(study) == "0 answers", "no sign of life for long"
    report(state="failed", problem="No space left")
    assert "tries again" in statement(study)
    report(state="starting")
    assert statement(study) == "0 answers"


def test_there_is_a_goal_only_where_it_stays_where_it_is(study, report):
    study.ask(4)
    answer(study)
    assert statement(study) == "1 of 4 answers", "nothing asks as it goes"
    report("agent", "healthy")
    assert statement(study) == "1 answer"
    study.ask(2)
    assert statement(study) == "1 answer"
    report("agent", "healthy", every=0.0)
    assert statement(study) == "1 answer", "it may come back"
    report("agent", "stopped")
    assert statement(study) == "1 of 6 answers"
    study.update(budget=200)
    report("agent", "healthy")
    report(**WAITING)
    assert statement(study) == "1 of 200 answers, 2 more until the first reward"


def test_a_run_has_ended_once_all_of_its_agents_have_stopped(study, report):
    def ended():
        return Tally(study.store).of(study.project.id)["statement"]["ended"]

    assert not ended(), "no agent has asked here"
    report("agent left", "stopped")
    assert ended()
    report("agent right", "healthy", every=0.0)
    assert not ended(), "it was killed, and may come back"
    report("agent right", "stopped")
    assert ended()


def test_one_request_counts_while_others_take_what_is_known(study, monkeypatch):
    tally = Tally(study.store)
    times = [0.0]
    beside = []
    monkeypatch.setattr("preferl.annotate.progress.time.monotonic", lambda: times[0])
    before = tally.of(study.project.id, within=1.0)
    count = study.store.progress

    def counting(project):
        beside.append(tally.of(project, within=1.0))
        return count(project)

    monkeypatch.setattr(study.store, "progress", counting)
    times[0] = 5.0
    assert tally.of(study.project.id, within=1.0) is not before
    assert beside == [before]


def test_the_statement_is_renewed_by_an_answer_or_by_time(study, report):
    tally = Tally(study.store)
    study.ask(4)
    report(**WAITING)
    before = tally.of(study.project.id, within=1000.0)["statement"]
    report(state="fitting", **WAITING)
    assert tally.of(study.project.id, within=1000.0)["statement"] is before
    assert tally.of(study.project.id)["statement"]["until"] == "the first reward is learning now"
    answer(study)
    assert tally.of(study.project.id)["statement"]["answered"] == 1


def test_the_overview_reports_what_was_published_and_when(study, visitor):
    store = study.store
    project = study.project.id
    page = visitor(study.owner).get("/admin").text
    assert "Learned reward" not in page
    assert "No events besides answers so far." in page
    report = {"trained_on": 45, "decided": 10, "revision": 57}
    store.reports.announce_reward(project, 2, answers=40)
    store.reports.announce_reward(
        project, 3, answers=57, accuracy=0.8, interval=(0.49, 0.94), detail=report
    )
    store.reports.beat(
        project, "reward", Status("waiting", **WAITING | {"version": 3}), every=600.0
    )
    store.reports.beat(
        project, "agent", Status("healthy", steps=800, reward_version=2), every=600.0
    )
    page = visitor(study.owner).get("/admin").text
    good = "learned from 45 answers; right on 80 % of 10 it has not seen (95 % interval 49 to 94 %)"
    assert "Reward version 3, published <time" in page
    assert re.search(f"{AGO}</time>: {re.escape(good)}", page)
    assert f"reward version 3 was published: {good}" in page
    assert "reward version 2 was published: learned from 40 answers; too few" in page
    assert page.index("reward version 3 was") < page.index("reward version 2 was")
    assert "800 steps recorded, exploration included; reward version 2 in use" in page
    assert "No events besides answers so far." not in page
