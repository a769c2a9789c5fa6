"""A person who was asked something is not asked again, wherever their run ended."""

import os
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import inf

import numpy as np
import pytest

from helpers import terminal_run
from helpers.answered_store import Answering
from helpers.programs import start
from helpers.resumable_runs import assert_same, everything
from helpers.terminal_run import CONFIG, EVALUATION, answer_to, name_of
from helpers.tiny_runs import KilledError
from helpers.waiting import SECONDS, wait_until
from preferl.data import load_comparisons
from preferl.feedback import PromptTeacher
from preferl.feedback.prompt import KEYS
from preferl.online import learn_from_preferences, run_online
from preferl.online.checkpoints.answer_journal import AnswerJournal
from preferl.store import Store, StoredFeedback, feedback as stored

KILLS = 20
SMALL = replace(CONFIG, comparisons=16, iterations=3, steps=600)


class Person:
    """Answers by the clips alone, and ends the program after so many answers."""

    def __init__(self, seen, until, end=KilledError):
        self.seen = seen
        self.until = until
        self.end = end
        self.teacher = PromptTeacher(show=self.show, ask=self.ask)

    def show(self, clips, _):
        self.seen.append(name_of(clips))

    def ask(self, _):
        if self.until == 0:
            self.seen.pop()  # what is not answered is to come again
            raise self.end
        self.until -= 1
        return answer_to(self.seen[-1])


@cache
def undisturbed():
    seen = []
    report = learn_from_preferences(SMALL, teacher=Person(seen, -1).teacher)
    assert len(seen) == len(set(seen)) == SMALL.comparisons
    return report, seen, everything(report.learner.algorithm)


@pytest.mark.parametrize("end", [KilledError, KeyboardInterrupt])
def test_a_person_is_not_asked_again_and_the_agent_is_the_same(tmp_path, end):
    expected, queries, numbers = undisturbed()
    seen = []
    for answers in (2, 4, 0, 6):  # within turns, and within one twice
        person = Person(seen, answers, end)
        try:
            report = learn_from_preferences(SMALL, teacher=person.teacher, checkpoints=tmp_path)
        except KilledError:
            continue
        assert report.interrupted
    report = learn_from_preferences(SMALL, teacher=Person(seen, -1).teacher, checkpoints=tmp_path)
    assert seen == queries
    assert_same(everything(report.learner.algorithm), numbers)
    np.testing.assert_array_equal(report.comparisons.preference, expected.comparisons.preference)


def test_a_run_that_was_stopped_asks_exactly_its_budget(tmp_path):
    stop = 27
    seen = []
    out = tmp_path / "run"
    first = run_online(
        *(CONFIG, out), evaluation=EVALUATION, teacher=Person(seen, stop, KeyboardInterrupt).teacher
    )
    declined = sum(answer_to(name) == "n" for name in seen)
    assert first["interrupted"]
    assert (first["comparisons"], len(seen)) == (stop - declined, stop)
    assert len(load_comparisons(out / "comparisons")) == stop - declined
    result = run_online(
        *(CONFIG, out), evaluation=EVALUATION, teacher=Person(seen, -1).teacher, resume=True
    )
    assert len(seen) == len(set(seen)) == CONFIG.comparisons
    given = load_comparisons(out / "comparisons").preference
    decided = [KEYS[answer_to(name)] for name in seen if answer_to(name) != "n"]
    assert sorted(given) == sorted(decided)
    assert result["comparisons"] == len(decided)


def test_an_answer_is_on_the_disk_before_the_next_query_is_shown(tmp_path):
    kept = []

    def show(clips, _):
        place = AnswerJournal(tmp_path / "answers", 0, run={}).place
        kept.append(len(list(place.iterdir())) if place.is_dir() else 0)
        if len(kept) == 5:
            raise KilledError

    teacher = PromptTeacher(show=show, ask=lambda _: "n" if len(kept) == 2 else "l")
    with pytest.raises(KilledError):
        learn_from_preferences(CONFIG, teacher=teacher, checkpoints=tmp_path)
    assert kept == [0, 1, 2, 3, 4]


class Programs:
    """Runs of one folder, one after the other."""

    def __init__(self, folder):
        self.folder = folder
        self.starts = 0

    def start(self, until=None):
        self.starts += 1
        return start(terminal_run.main, self.folder, until)

    def killed(self, number, after, delay):
        """The events of a program that gets a signal some time after so many of them."""
        before = len(self.events())
        program = self.start(after)

        def is_there():
            assert program.is_alive(), f"it ended by itself, with {program.exitcode}"
            return len(self.events()) >= before + after

        wait_until(is_there, "so many events")
        time.sleep(delay)  # the moment of the kill
        os.kill(program.pid, number)
        program.join(SECONDS)
        ended = program.exitcode == (0 if number == signal.SIGINT else -number)
        assert ended, (self.folder / "stacks").read_text("utf-8")
        return self.events()[before:]

    def finished(self):
        """The events of the program that nobody kills."""
        before = len(self.events())
        program = self.start()
        program.join(SECONDS)
        assert program.exitcode == 0
        return self.events()[before:]

    def events(self):
        file = self.folder / "events"
        return file.read_text().splitlines() if file.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_person_is_asked_nothing_twice_by_a_program_that_is_killed_20_times(tmp_path, number):
    rng = np.random.default_rng(int(number))
    programs = Programs(tmp_path)
    acknowledged = set()
    shown = []
    # Up to three answers a run, so that all of them are fewer than the run asks for; the signal
    # comes while the next query is on the screen, or right after the key was pressed.
    answers = rng.permutation(np.repeat([0, 1, 2, 3], KILLS // 4))
    runs = [
        programs.killed(number, max(2 * given + rng.integers(0, 2), 1), delay)
        for given, delay in zip(
            answers, rng.choice([0.003, 0.3], KILLS) * rng.random(KILLS), strict=True
        )
    ]
    for events in [*runs, programs.finished()]:
        for event, following in pairwise([*events, ""]):
            kind, name = event.split()
            assert name not in acknowledged, f"{name} was answered before"
            if kind == "shown":
                shown.append(name)
            elif following:  # the next query was shown: the answer is on the disk
                acknowledged.add(name)
    again = [name for name, times in Counter(shown).items() if times > 1]
    report = (
        f"{programs.starts - 1} kills by signal {int(number)}, {len(acknowledged)} answers "
        f"acknowledged, {len(set(shown))} queries, {len(again)} of them shown again unanswered"
    )
    assert len(set(shown)) == CONFIG.comparisons, report
    decided = [KEYS[answer_to(name)] for name in set(shown) if answer_to(name) != "n"]
    given = load_comparisons(tmp_path / "run/comparisons").preference
    assert sorted(given) == sorted(decided), report
    sys.stdout.write(report + "\n")


def test_people_in_a_browser_are_not_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "POLL_SECONDS", 0.0)
    with Store.open(tmp_path / "store") as store:
        people = Answering(store)
        given = 0

        def answers(_):
            nonlocal given
            people.show()
            if given == 3 and not resumed:
                raise KilledError
            given += answered(people)

        feedback = StoredFeedback(store, patience=inf, on_wait=answers)
        resumed = False
        with pytest.raises(KilledError):
            learn_from_preferences(SMALL, checkpoints=tmp_path / "run", feedback=feedback)
        resumed = True
        report = learn_from_preferences(SMALL, checkpoints=tmp_path / "run", feedback=feedback)
        asked = store.queries.query_clips(people.project.id)
        assert Counter((one, two) for _, one, two in asked).most_common(1)[0][1] == 1
        assert len(asked) == given == len(report.comparisons) == SMALL.comparisons


def answered(people):
    """One query, answered by a coin."""
    claim = people.store.queue.claim(people.project.id, people.person, 1)
    question = claim.queries[0]
    kind = "left" if question.left > question.right else "right"
    people.store.queue.answer(people.person, question.token, f"key-{question.token}", kind)
    return 1
