"""Answers as the fits of a run get them: places in the bootstrap, votes, and draws."""

import logging
from dataclasses import dataclass, replace

import numpy as np
import pytest

from helpers.tiny_runs import tiny
from preferl.data import concatenate
from preferl.errors import DataError
from preferl.feedback import AnswerFilter, PseudoLabels, ScriptedTeacher
from preferl.models import MLPReward, MLPRewardConfig
from preferl.online import OnlineConfig, learn_from_preferences
from preferl.online.run_answers import prepare_answers
from preferl.testing import make_comparisons, make_episodes
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import RewardFunction, RewardTrainer, RewardTrainerConfig
from preferl.training.places import AnswerPlaces

MODEL = MLPRewardConfig(hidden=(8,), members=3)
PLAIN = RewardTrainerConfig()


@pytest.fixture
def answers(rng):
    return make_comparisons(rng, pairs=20)


@dataclass(frozen=True)
class Notes:
    """Adds one pseudo-label, and remembers the votes that it was given."""

    seen: list

    def __call__(self, comparisons, context):
        self.seen.append(context.votes.copy())
        extra = replace(comparisons[:1], preference=np.ones(1))
        return concatenate([comparisons, extra])


class Prepared:
    """The preparations of one run, fit after fit."""

    def __init__(self, *preparations, trainer=PLAIN):
        model = MLPReward(POINT_SPACE, PUSH_SPACE, MODEL, seed=0)
        self.trainer = RewardTrainer(model, trainer, seed=0)
        self.config = OnlineConfig(model=MODEL, trainer=trainer, prepare=preparations)
        self.places = AnswerPlaces()
        self.rng = np.random.default_rng(0)

    def __call__(self, answers, queries, reward=None):
        return prepare_answers(
            answers,
            queries,
            self.places,
            config=self.config,
            trainer=self.trainer,
            reward=reward,
            experience=None,
            rng=self.rng,
        )


def test_pseudo_labels_have_no_place_and_declined_answers_go(answers):
    answers.preference[3] = np.nan
    found, places = Prepared(Notes([]))(answers, np.arange(20))
    assert len(found) == 20
    assert places.tolist() == [*range(19), -1]


def test_members_vote_on_answers_that_they_have_not_seen(answers):
    notes = Notes([])
    run = Prepared(notes)
    bootstrap = run.trainer.bootstrap(20)
    run(answers[:12], np.arange(12))
    run(answers, np.arange(20))
    first, second = notes.seen
    assert first.all()
    assert second[:, 12:].all()
    unseen = bootstrap[:, :12] == 0
    some = unseen.any(0)
    assert 0 < some.sum() < 12
    np.testing.assert_array_equal(second[:, :12][:, some], unseen[:, some])
    assert second[:, :12][:, ~some].all()


def test_answers_of_somebody_else_to_a_known_query_have_its_place(answers):
    run = Prepared()
    run(answers[:4], np.array([3, 5, 6, 9]))
    _, places = run(answers[:7], np.array([3, 3, 5, 6, 8, 9, 9]))
    assert places.tolist() == [0, 0, 1, 2, 4, 3, 3]


def by_people(rng, pairs, opposite, people):
    """Answers of people in turn, of whom some answer the opposite."""
    found = make_comparisons(rng, pairs=pairs, episodes=make_episodes(rng, [40] * 20))
    by = np.arange(pairs) % people
    flipped = np.isin(by, opposite)
    preference = np.where(flipped, 1 - found.preference, found.preference)
    return replace(found, preference=preference, annotator=by)


@pytest.mark.parametrize("trust", [False, True])
def test_who_means_the_opposite_is_trusted_where_trust_is_fitted(rng, trust):
    settings = RewardTrainerConfig(epochs=30, trust=trust)
    run = Prepared(AnswerFilter(), trainer=settings)
    trainer = run.trainer
    first = by_people(rng, 150, (2,), 3)
    new = by_people(rng, 100, (2, 3), 4)
    both = concatenate([first, new])
    reward = None
    for answers in (first, both, both):
        found, places = run(answers, np.arange(len(answers)), reward)
        report = trainer.fit(found, places=places)
        reward = RewardFunction(trainer.model, likelihood=report.likelihood)
    opposite = np.isin(both.annotator, (2, 3))
    kept = (found.weight > 0) & (found.preference == both.preference)
    assert kept[~opposite].mean() > 0.7
    assert (kept[opposite].mean() > 0.7) == trust
    if trust:
        assert (trainer.trust.value[2:] < 0).all(), "also of who came after the first fit"
        assert (trainer.trust.value[:2] > 0).all()


def test_a_preparation_that_drops_answers_is_refused(answers):
    def drop(comparisons, context):
        return comparisons[1:]

    with pytest.raises(DataError, match="the 20 answers first, whatever their weight"):
        Prepared(drop)(answers, np.arange(20))


def test_a_run_uses_what_its_settings_name(caplog):
    config = tiny(
        steps=500,
        comparisons=30,
        schedule="constant",
        final_queries=True,
        initial_steps=200,
        trainer=RewardTrainerConfig(epochs=40, noise=0.0),
        teacher=ScriptedTeacher(error_rate=0.3),
        prepare=(AnswerFilter(beta=0.0), PseudoLabels(confidence=0.6)),
        exploration_bonus=0.5,
        bonus_decay=1e-3,
    )
    with caplog.at_level(logging.INFO, "preferl.online.run_answers"):
        report = learn_from_preferences(config)
    first, *later = [one.args for one in caplog.records if "Before the fit" in one.message]
    assert first[0] == first[2] == first[3] == 0
    assert later[-1][0] > 0
    assert all(one[3] > 0 for one in later)
    assert report.iterations[-1].fit.pairs == 30
    steps = report.iterations[-1].env_steps
    assert report.reward.how.keywords["deviations"] == -0.5 * (1 - 1e-3) ** steps
