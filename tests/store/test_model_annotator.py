import numpy as np
import pytest

from helpers.clips import at
from preferl.errors import ConfigError, DataError, FeedbackError
from preferl.store.exchange.exports import export_answers, import_answers
from preferl.store.feedback import StoredFeedback
from preferl.store.model_annotator import ModelAnswer, model_answers
from preferl.store.quality.agreement import agreement_with_people
from preferl.video import encode

LENGTH = 4  # steps of a clip
LEVELS = [20, 200, 180, 60, 90, 91, 40, 150]
FIRST_IS_HIGHER = [0, 1, 0, 0]
SQLITE = pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)


def ask_about(store, project, levels):
    """Ask about pairs of neighbouring clips, each of which holds one number."""
    segments = at(*np.repeat(np.asarray(levels, float), LENGTH), length=LENGTH)
    store.queries.ask(project.id, segments, np.arange(len(segments)).reshape(-1, 2))


def higher(shown):
    """Prefers the clip with the higher number."""
    return 0.5 * (1 + np.sign(np.subtract(*shown.observations[:, 0, 0])))


@pytest.fixture
def project(store):
    """A project with four pairs of clips, and no repeats."""
    settings = {"question": "Which is higher?", "instructions": "Look.", "repeat_share": 0.0}
    project = store.projects.create("levels", **settings)
    ask_about(store, project, LEVELS)
    return project


def run(store, project, model, **settings):
    """Let `lux` answer by numbers alone; returns the tally of the last answer."""
    return [*model_answers(store, project, "lux", model, **{"frames": 0} | settings)][-1]


def given(store, project):
    """The details of all answers of models, oldest first."""
    page = store.answers.page(project.id).answers
    return [each.answer.detail["model"] for each in page[::-1]]


@SQLITE
def test_a_model_sees_what_people_see_and_its_answers_are_answers(store, project):
    for clip in store.clips.without_video(project.id, 99):
        level = int(store.clips.segments(project.id, [clip]).observations[0, 0])
        frames = np.full((LENGTH, 16, 16, 3), level, np.uint8)
        frames[1] = 0
        store.clips.put_video(project.id, clip, encode(frames, 10, smallest=16))
    seen = []

    def model(shown):
        seen.append(shown)
        return ModelAnswer(higher(shown), cost=0.25, version="b-1")

    answers = model_answers(store, project, "lux", model, frames=2)
    tally = [*answers][-1]
    assert (tally.answers, tally.declined, tally.reused) == (4, 0, 0)
    assert (tally.cost, tally.total_cost, tally.version) == (1.0, 1.0, "b-1")
    votes = store.queries.votes(project.id)
    assert votes.preference.tolist() == FIRST_IS_HIGHER
    assert votes.names == ("lux",)
    assert votes.is_model.tolist() == [True]
    assert set(votes.swapped) == {True, False}, "either clip of a pair may be shown first"
    assert np.isnan(votes.response_ms).all(), "no model is too fast"
    for shown in seen:
        assert (shown.question, shown.instructions) == ("Which is higher?", "Look.")
        assert shown.mask.shape == (2, LENGTH)
        assert [frames.shape for frames in shown.frames] == [(2, 16, 16, 3)] * 2
        means = [frames.mean() for frames in shown.frames]  # of the first and the last step
        np.testing.assert_allclose(means, shown.observations[:, 0, 0], atol=6)
    assert {each["cost"] for each in given(store, project)} == {0.25}
    assert [*model_answers(store, project, "lux", model)] == [], "all is answered"
    assert len(seen) == 4
    lengths = []

    def declines(shown):
        lengths.append([len(frames) for frames in shown.frames])

    others = model_answers(store, project, "other", declines, frames=100, answered=True)
    assert next(others).declined == 1
    assert lengths == [[LENGTH, LENGTH]], "a clip has no more pictures than steps"
    (clip,) = store.queries.pairs(project.id, [2])[0][:1]
    store.clips.video_path(project.id, clip).unlink()
    with pytest.raises(DataError, match="expected a video as preferl draws it"):
        next(others)


@SQLITE
def test_a_model_that_goes_by_the_order_declines_in_both_orders(store, project):
    tally = run(store, project, lambda _: 1.0)
    assert (tally.declined, tally.contradictions) == (0, 0)
    assert (store.queries.votes(project.id).left == 1).all(), "which the report shows as one side"
    ask_about(store, project, [9, 19, 29, 39])
    tally = run(store, project, lambda _: ModelAnswer(0.75, cost=0.5), both_orders=True)
    assert (tally.answers, tally.declined, tally.contradictions, tally.cost) == (2, 2, 2, 2.0)
    assert given(store, project)[-1]["left"] == [0.75, 0.25]
    ask_about(store, project, [49, 59])
    assert run(store, project, higher, both_orders=True).declined == 0


@SQLITE
def test_the_same_clips_are_asked_about_once_but_for_repeats(store):
    project = store.projects.create("levels", repeat_share=0.9, known_share=0.0)
    ask_about(store, project, range(0, 240, 10))
    calls = []

    def model(shown):
        calls.append(shown)
        return ModelAnswer(higher(shown), cost=1.0)

    tally = run(store, project, model)
    repeats = store.queries.votes(project.id).is_repeat.sum()
    assert repeats > 0
    assert len(calls) == tally.answers == 12 + repeats
    store.projects.update(project.id, repeat_share=0.0)
    ask_about(store, project, [10, 0, 20, 30])  # known pairs, one of them in the other order
    tally = run(store, project, model)
    assert (tally.answers, tally.reused, tally.cost) == (2, 2, 0)
    assert tally.total_cost == len(calls) == 12 + repeats
    assert store.queries.votes(project.id).preference[-2:].tolist() == [1, 0]


@SQLITE
def test_it_stops_before_its_budget_over_all_runs(store, project):
    def model(_):
        return ModelAnswer(0.5, cost=0.3)

    for budget, answers in ((0.7, 2), (0.7, 0), (1.0, 1)):
        tallies = [*model_answers(store, project, "lux", model, frames=0, budget=budget)]
        assert len(tallies) == answers
    assert tallies[-1].total_cost == pytest.approx(0.9)


@SQLITE
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("gone")])
def test_what_was_answered_before_an_interruption_stays(store, project, error):
    asked = []

    def model(shown):
        asked.append(shown)
        if len(asked) == 3:
            raise error
        return higher(shown)

    with pytest.raises((KeyboardInterrupt, FeedbackError)):
        run(store, project, model)
    assert len(store.queries.votes(project.id)) == 2
    assert run(store, project, model).answers == 2
    assert store.queries.votes(project.id).preference.tolist() == FIRST_IS_HIGHER


@SQLITE
def test_other_answers_are_refused(store, project):
    for answer in (1.5, "left", ModelAnswer):
        with pytest.raises(FeedbackError, match="model lux: expected an answer"):
            run(store, project, lambda _, answer=answer: answer)
    with pytest.raises(ConfigError, match="cost"):
        ModelAnswer(1.0, cost=-1)


def test_models_are_compared_with_people_and_left_out_of_fits(store, project):
    ann = store.people.invite(project.id, "Ann").annotator.id
    while queries := store.queue.claim(project.id, ann, 8, undrawn=True).queries:
        for query in queries:
            answer = "right" if query.swapped else "left"  # always the first
            store.queue.answer(ann, query.token, f"answer-{query.query_id}", answer)
    assert [*model_answers(store, project, "lux", higher, frames=0)] == [], "no pair is open"
    assert run(store, project, higher, answered=True).answers == 4
    (lux,) = agreement_with_people(store.queries.votes(project.id))
    assert (lux.name, lux.queries, lux.agreement) == ("lux", 4, 0.25)
    for kind, weight in (("all", 2), ("people", 1), ("models", 1)):
        comparisons = StoredFeedback(store, project.id, annotators=kind).comparisons()
        assert comparisons.weight.tolist() == [weight] * 4
    assert comparisons.preference.tolist() == FIRST_IS_HIGHER
    with pytest.raises(ConfigError, match="annotators"):
        StoredFeedback(store, project.id, annotators="robots")


@SQLITE
def test_a_name_is_that_of_a_person_or_of_a_model(store, project):
    store.people.invite(project.id, "Ann")
    with pytest.raises(ConfigError, match="no person has"):
        next(model_answers(store, project, "Ann", higher))
    run(store, project, higher)
    with pytest.raises(ConfigError, match="no model has"):
        store.people.invite(project.id, " lux ")
    with pytest.raises(ConfigError):
        store.people.model(project.id, "owner")


@SQLITE
def test_exports_and_imports_keep_models_apart(store, project, tmp_path):
    run(store, project, higher)
    file = tmp_path / "a.jsonl"
    export_answers(store, project.id, file)
    file.write_text(file.read_text().replace('"key": "', '"key": "copy-'))  # another store's
    other = store.projects.create("copies")
    ask_about(store, other, LEVELS)
    import_answers(store, other.id, file)
    votes = store.queries.votes(other.id)
    assert votes.is_model.tolist() == [True]
    assert votes.preference.tolist() == FIRST_IS_HIGHER
