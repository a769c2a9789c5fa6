"""Answers page by page, and changes to them that lose nothing."""

from itertools import pairwise

import numpy as np
import pytest
from sqlalchemy import select

from helpers.queue_steps import answer_next, claim_one, invite, on_sqlite, show
from preferl.errors import ConfigError, FeedbackError
from preferl.store.feedback import StoredFeedback
from preferl.store.schema import Answer, Query
from preferl.testing.feedback_contracts import example_segments

SEGMENTS = example_segments(0)
KEY = "change-of-an-answer"


class Study:
    """A project with three pairs that two people answer."""

    def __init__(self, store, quorum=2):
        self.store = store
        settings = {"repeat_share": 0.0, "known_share": 0.0, "quorum": quorum}
        self.project = store.projects.create("dots", **settings).id
        pairs = np.array([(0, 1), (2, 3), (4, 5)])
        self.asked = store.queries.ask(self.project, SEGMENTS, pairs)
        show(store, self.project)
        self.owner = store.people.owner(self.project).annotator.id
        self.ann, self.ben = (invite(store, self.project, name) for name in ("Ann", "Ben"))

    def answer(self, person, *firsts):
        """Answer the next pairs: whether the first clip is better; the numbers of the answers."""
        before = len(self.rows())
        for first in firsts:
            swapped = claim_one(self.store, self.project, person).swapped
            answer_next(self.store, self.project, person, "left" if first != swapped else "right")
        return [row.id for row in self.rows()[before:]]

    def withdraw(self, answer, key=KEY):
        return self.store.answers.withdraw(self.project, answer, by=self.owner, key=key)

    def correct(self, answer, kind, key=KEY, by=None):
        by = by or self.owner
        return self.store.answers.correct(self.project, answer, by=by, key=key, kind=kind)

    def publish(self, version, predicted=None):
        self.store.reports.announce_reward(self.project, version, answers=4, predicted=predicted)

    def needed(self):
        """How many answers the first query still needs."""
        return self.store.database.first(select(Query.needed).where(Query.id == self.asked[0]))

    def page(self, **more):
        return self.store.answers.page(self.project, **more)

    def ids(self, **more):
        return [row.answer.id for row in self.page(**more).answers]

    def votes(self):
        votes = self.store.queries.votes(self.project)
        names = [votes.names[row] for row in votes.annotator]
        return sorted(zip(votes.query.tolist(), names, votes.preference.tolist(), strict=True))

    def rows(self):
        return self.store.database.all(select(Answer).order_by(Answer.id))


@pytest.fixture
def study(store):
    return Study(store)


def test_pages_go_back_in_time(study):
    made = study.answer(study.ann, True, True, False) + study.answer(study.ben, True, False)
    assert study.ids() == made[::-1]
    assert study.page().total == 5
    assert study.ids(size=2, after=made[3]) == made[::-1][2:4]
    assert study.ids(size=2, after=made[0]) == []
    assert study.ids(annotator_id=study.ben) == made[:2:-1]
    first = study.page().answers[-1]
    assert (first.name, first.query.id, first.counts) == ("Ann", study.asked[0], True)
    ((one, two),) = study.store.queries.pairs(study.project, study.asked[:1])
    assert first.sides == ((two, one) if first.answer.swapped else (one, two))


@pytest.mark.parametrize("show", ["all", "differing", "surprising"])
def test_pages_lead_to_each_other_in_both_directions(study, show):
    study.answer(study.ann, True, True, True), study.answer(study.ben, False, False, False)
    study.publish(1, dict(zip(study.asked, (0.9, 0.4, 0.4), strict=True)))
    listed = study.ids(show=show)
    pages = [listed[start : start + 2] for start in range(0, len(listed), 2)]
    assert len(pages) >= 2
    lasts = [None, *(numbers[-1] for numbers in pages[:-1])]
    for numbers, last in zip(pages, lasts, strict=True):
        found = study.page(show=show, size=2, after=last)
        assert [row.answer.id for row in found.answers] == numbers
        assert (found.has_previous, found.has_next) == (last is not None, numbers is not pages[-1])
    for numbers, later in pairwise(pages):
        found = study.page(show=show, size=2, before=later[0])
        assert [row.answer.id for row in found.answers] == numbers
        assert (found.has_previous, found.has_next) == (numbers is not pages[0], True)


def test_a_place_that_is_in_no_list_stands_for_the_first_page(study):
    (made,) = study.answer(study.ann, True)
    other = study.store.projects.create("other")
    assert study.ids(after=999) == study.ids(before=999) == [made]
    assert study.store.answers.page(other.id, after=made).answers == ()
    study.publish(1, {study.asked[0]: 0.0})
    gone = study.withdraw(made)
    study.answer(study.ben, True)
    assert study.ids(show="surprising", after=gone) == study.ids(show="surprising")


def test_skips_and_other_projects_are_not_there(study):
    other = study.store.projects.create("other")
    answer_next(study.store, study.project, study.ann, "skip", key="skipped-it")
    (made,) = study.answer(study.ann, True)
    assert study.ids() == [made]
    assert study.store.answers.page(other.id).total == 0
    assert study.store.answers.get(other.id, made) is None


def test_answers_differ_where_people_do(study):
    ann = study.answer(study.ann, True, True, True)
    ben = study.answer(study.ben, True, False)
    assert study.ids(show="differing") == [ben[1], ann[1]]
    assert study.ids(show="differing", annotator_id=study.ann) == [ann[1]]
    question = claim_one(study.store, study.project, study.ben)
    last = study.store.queue.answer(study.ben, question.token, "cannot-tell-it", "cannot_tell")
    expected = [last.answer_id, ann[2], ben[1], ann[1]]
    assert study.ids(show="differing") == expected, "who cannot tell differs as well"


def test_the_most_surprising_comes_first(study):
    ann = study.answer(study.ann, True, True, False)
    ben = study.answer(study.ben, False)
    assert study.ids(show="surprising") == []
    first, second, third = study.asked
    predicted = {first: 0.9, second: 0.4, third: 0.8}
    study.publish(1, predicted)
    assert study.ids(show="surprising") == [ben[0], ann[2], ann[1]]
    row = study.page(show="surprising").answers[0]
    assert row.predicted == pytest.approx(0.1 if row.answer.swapped else 0.9)
    assert study.ids(show="surprising", annotator_id=study.ann) == [ann[2], ann[1]]
    study.publish(2, {second: 0.9})
    assert study.ids(show="surprising") == [], "a newer reward takes the place of the older"
    study.publish(3)
    assert study.page().answers[-1].predicted is None, "what an older one predicted is not shown"


def test_a_withdrawn_answer_is_asked_again_and_stays(study):
    made = study.answer(study.ann, True, False)
    study.answer(study.ben, True, False)
    before = study.rows()
    revision = study.store.reports.revision(study.project)
    assert study.store.progress(study.project).open == 1
    new = study.withdraw(made[0])
    again = study.withdraw(made[0])
    assert new == again, "the same change twice is one"
    assert study.store.progress(study.project).open == 2
    assert [row[:2] for row in study.votes()] == [
        (study.asked[0], "Ben"), (study.asked[1], "Ann"), (study.asked[1], "Ben"),
    ]  # fmt: skip
    rows = study.rows()
    assert [row.kind for row in rows[:-1]] == [row.kind for row in before]
    assert (rows[-1].kind, rows[-1].annotator_id) == ("retract", study.ann)
    assert rows[-1].detail == {"withdraws": before[0].key, "by": study.owner}
    assert study.store.reports.revision(study.project) > revision, "rewards are fitted again"
    assert study.ids(show="withdrawn") == [new]


def test_a_corrected_answer_is_that_of_who_corrects(study):
    (made,) = study.answer(study.ann, True)
    shown = study.store.answers.get(study.project, made).answer
    wrong = "right" if shown.kind == "left" else "left"
    new = study.correct(made, wrong)
    assert study.correct(made, wrong) == new
    assert study.votes() == [(study.asked[0], "owner", 0.0)]
    assert [row.kind for row in study.rows()] == [shown.kind, "retract", wrong]
    assert study.rows()[-1].detail == {"corrects": shown.key}
    assert study.needed() == 1
    comparisons = StoredFeedback(study.store).comparisons()
    assert comparisons.preference.tolist() == [0.0], "a fit sees the correction"
    third = study.correct(new, "equal", key=f"{KEY}-2")
    assert study.votes() == [(study.asked[0], "owner", 0.5)]
    kinds = [row.kind for row in study.rows()]
    assert kinds == [shown.kind, "retract", wrong, "retract", "equal"]
    assert study.store.answers.get(study.project, third).name == "owner"
    assert study.rows()[-1].detail == {"corrects": study.rows()[2].key}


def test_who_corrects_two_answers_to_a_query_has_one_answer_to_it(study):
    (ann,) = study.answer(study.ann, True)
    (ben,) = study.answer(study.ben, False)
    for made, kind in ((ann, "equal"), (ben, "cannot_tell")):
        study.correct(made, kind, f"{KEY}-{made}")
    ((_, name, preference),) = study.votes()
    assert name == "owner"
    assert np.isnan(preference)
    assert study.needed() == 1, "somebody else is asked"


def test_an_undo_does_not_take_back_a_correction(study):
    (own,) = study.answer(study.owner, True)
    (_, made) = study.answer(study.ann, True, True)
    study.correct(made, "equal")
    undone = study.store.queue.undo(study.owner, "undo-of-the-owner")
    assert undone.query_id == study.store.answers.get(study.project, own).query.id
    assert study.store.queue.undo(study.owner, "undo-of-the-owner-2") is None
    assert (study.asked[1], "owner", 0.5) in study.votes()


def test_what_is_withdrawn_may_still_be_corrected(study):
    (made,) = study.answer(study.ann, True)
    gone = study.withdraw(made)
    study.correct(gone, "equal", key=f"{KEY}-2")
    assert study.votes() == [(study.asked[0], "owner", 0.5)]


@on_sqlite
def test_nothing_changes_that_has_changed_or_is_not_there(study):
    (made,) = study.answer(study.ann, True)
    study.store.queue.undo(study.ann, "undo-it-again")
    before = len(study.rows())
    for number, words in ((made, "one that has changed"), (999, "number 999")):
        with pytest.raises(FeedbackError, match=words):
            study.withdraw(number)
    other = study.store.projects.create("other")
    with pytest.raises(FeedbackError, match="answer in this project"):
        study.store.answers.correct(other.id, made, kind="left", by=study.owner, key=KEY)
    with pytest.raises(FeedbackError, match="'skip'"):
        study.correct(made, "skip")
    with pytest.raises(FeedbackError, match="was withdrawn"):
        study.withdraw(study.ids()[0])
    with pytest.raises(FeedbackError, match="8 to 90 letters"):
        study.withdraw(made, key="short")
    with pytest.raises(ConfigError, match="show"):
        study.page(show="everything")
    assert len(study.rows()) == before
