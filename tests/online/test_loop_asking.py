"""Rounds of queries: thresholds that follow the policy, others for what a script declines."""

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
from gymnasium.spaces import Box

from helpers.resumable_runs import assert_same, everything
from helpers.tiny_runs import KilledError, tiny
from preferl.data import Episodes, join
from preferl.feedback import InstantFeedback, ScriptedTeacher, UniformPairs
from preferl.models import MLPReward
from preferl.online import OnlineConfig, learn_from_preferences
from preferl.training import RewardTrainer, RewardTrainerConfig

TINY = tiny(
    comparisons=13,
    iterations=3,
    initial_steps=300,
    teacher=ScriptedTeacher.skip(margin=0.6),
    sampler="k_center_disagreement",
    oversampling=4,
    max_comparisons=8,
)


@dataclass
class Noting:
    """A teacher that notes its queries and the policy, and ends the program at one of its calls."""

    teacher: ScriptedTeacher = field(default_factory=ScriptedTeacher.oracle)
    until: float = float("inf")
    asked: list[int] = field(default_factory=list)
    policies: list[tuple[float, float]] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)

    def __call__(self, shown, rng):
        if len(self.asked) == self.until:
            raise KilledError
        self.asked.append(len(shown))
        given = self.teacher(shown, rng)
        self.answers.extend(given[~np.isnan(given)].tolist())
        return given

    def adapted(self, typical, worst):
        self.policies.append((typical, worst))
        return replace(self, teacher=self.teacher.adapted(typical, worst))


def episodes(*rewards, length=1_000):
    """An episode for each reward, which every step of it has."""
    count = length * len(rewards)
    block = np.zeros((count, 1))
    ends = np.arange(1, len(rewards) + 1) * length - 1
    terminated = np.zeros(count, bool)
    terminated[ends] = True
    final = np.zeros((len(rewards), 1))
    lengths = np.full(len(rewards), length)
    return Episodes(block, block, np.repeat(rewards, length), terminated, final, lengths)


class Acting:
    """A learner that did this, one piece after the other."""

    steps = 0

    def __init__(self, *pieces):
        self.pieces = list(pieces)

    def learn(self, steps):
        return self.pieces.pop(0)

    explore = learn

    def set_reward(self, reward):
        """Nothing that is done depends on it."""


def rounds(*pieces, queries, **given):
    """Put so many queries after each piece of experience; return the run's report."""
    box = Box(-np.inf, np.inf, (1,))
    parts = {name: given.pop(name) for name in ("teacher", "feedback", "sampler") if name in given}
    config = OnlineConfig(
        eval_every=0,
        environments=1,
        steps=1_000,
        initial_steps=100,
        comparisons=queries * len(pieces),
        iterations=max(1, len(pieces) - 1),
        initial_fraction=1 / len(pieces),
        schedule="constant",
        final_queries=len(pieces) > 1,
        **given,
    )
    return learn_from_preferences(
        config,
        learner=Acting(*pieces, pieces[-1]),
        trainer=RewardTrainer(MLPReward(box, box, seed=0), RewardTrainerConfig(epochs=1), seed=0),
        **parts,
    )


def test_thresholds_are_those_of_the_last_ten_whole_episodes():
    # Of twelve whole episodes, the last ten return 700 and 900: 800 in 1,000 steps are 40 in 50.
    # An episode that is not whole does not count among them.
    cut = replace(episodes(9, length=900), terminated=np.zeros(900, bool))
    teacher = Noting()
    rounds(join([episodes(9, 9, *[0.7, 0.9] * 5), cut]), teacher=teacher, queries=2)
    assert teacher.policies == [(pytest.approx(40.0), 0.0)]


def test_thresholds_are_renewed_before_each_round_and_the_worst_is_remembered():
    teacher = Noting()
    rounds(*(episodes(reward) for reward in (-2.0, -1.0, -1.0)), teacher=teacher, queries=2)
    # Means of -2, -1.5 and -4/3 a step, 50 steps, and -100 in the very first segment.
    means = [-100.0, -75.0, -200 / 3]
    assert teacher.policies == [(pytest.approx(mean), pytest.approx(-100.0)) for mean in means]


def test_a_segment_is_no_more_than_an_episode():
    teacher = Noting()
    pieces = (episodes(1, 1, length=20), episodes(-1, -1, length=20))
    rounds(*pieces, teacher=teacher, queries=1, segment_length=50, short="pad")
    assert teacher.policies == [(20.0, 0.0), (0.0, -20.0)]


def test_others_are_asked_for_what_a_script_declines():
    declines = iter([3, 1, 0])

    def teacher(shown, rng):
        count = next(declines)
        return np.where(np.arange(len(shown)) < count, np.nan, 1.0)

    feedback = InstantFeedback(teacher, 0)
    rounds(episodes(1, 2), feedback=feedback, queries=5)
    # Five queries, three of which are declined; three others, one declined; one other.
    assert (feedback.asked, feedback.declined) == (9, 4)
    assert len(feedback.comparisons()) == 5


def test_attempts_choose_among_as_many_candidates_as_the_sampler_wants():
    seen = []

    def sampler(segments, count, rng):
        seen.append((len(segments), count))
        return UniformPairs()(segments, count, rng)

    answers = iter([np.array([np.nan, 1.0, 1.0]), np.array([0.0])])
    rounds(
        episodes(1, 2),
        teacher=lambda shown, rng: next(answers),
        sampler=sampler,
        queries=3,
        oversampling=4,
    )
    assert seen == [(24, 3), (8, 1)]


@cache
def undisturbed():
    noting = Noting(TINY.teacher)
    report = learn_from_preferences(TINY, teacher=noting)
    return report, noting, everything(report.learner.algorithm)


@pytest.mark.parametrize("until", [2, 4])
def test_a_run_that_was_killed_between_attempts_comes_to_the_same(tmp_path, until):
    expected, noting, numbers = undisturbed()
    assert len(noting.asked) > 5  # so some of the kills are within a round
    first = Noting(TINY.teacher, until)
    second = Noting(TINY.teacher)
    with pytest.raises(KilledError):
        learn_from_preferences(TINY, teacher=first, checkpoints=tmp_path)
    report = learn_from_preferences(TINY, teacher=second, checkpoints=tmp_path)
    assert first.asked + second.asked == noting.asked
    assert_same(everything(report.learner.algorithm), numbers)
    np.testing.assert_array_equal(report.comparisons.preference, expected.comparisons.preference)
    np.testing.assert_array_equal(
        report.comparisons.segments.observations, expected.comparisons.segments.observations
    )


def test_an_interrupted_run_reports_answers_that_it_had_not_come_to_again(tmp_path):
    config = replace(TINY, max_comparisons=None)
    noting = Noting(TINY.teacher, 3)
    with pytest.raises(KilledError):
        learn_from_preferences(config, teacher=noting, checkpoints=tmp_path)

    def interrupting(segments, count, rng):
        raise KeyboardInterrupt

    report = learn_from_preferences(config, sampler=interrupting, checkpoints=tmp_path)
    assert report.interrupted
    assert report.comparisons.preference.tolist() == noting.answers
