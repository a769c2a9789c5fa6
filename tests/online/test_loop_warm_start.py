"""Runs that begin with answers that exist already, and that ask after the last learning."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box

from helpers.resumable_runs import assert_same, everything
from helpers.tiny_runs import KilledError, die_in, tiny
from preferl.data import load_comparisons, sample_segments, save_comparisons
from preferl.errors import CheckpointError, ConfigError, SpaceError
from preferl.evaluation import RandomPolicy
from preferl.feedback import InstantFeedback, ScriptedTeacher, UniformPairs
from preferl.models import MLPRewardConfig
from preferl.online import learn_from_preferences, record, run_online
from preferl.online.configs import EvaluationConfig, WarmStartConfig
from preferl.online.loop import ATTEMPTS
from preferl.testing import make_comparisons
from preferl.training import AdaptivePenalty, RewardTrainerConfig, load_reward

TINY = tiny(model=MLPRewardConfig(hidden=(16,), members=2), teacher=ScriptedTeacher.oracle())
EVALUATION = EvaluationConfig(episodes=2, oracle=False, queries=20, clip_steps=0)


@pytest.fixture(scope="module")
def pendulum():
    """Episodes of a random policy on the pendulum, and 150 right answers about them."""
    rng = np.random.default_rng(5)
    policy = RandomPolicy(Box(-2, 2, (1,), np.float32), 0)
    episodes = record(policy, "Pendulum-v1", 2_000, seed=7)
    feedback = InstantFeedback(ScriptedTeacher.oracle(), 0)
    segments = sample_segments(episodes, 300, 10, rng)
    feedback.ask(segments, UniformPairs()(segments, 150, rng))
    return episodes, feedback.comparisons()


def test_a_reward_learns_from_what_is_there_before_the_first_query(pendulum):
    _, known = pendulum
    seen = []

    def sampler(segments, count, rng):
        seen.append(loop_rewards[-1] if loop_rewards else None)
        return UniformPairs()(segments, count, rng)

    loop_rewards = []

    def teacher(shown, rng):
        return np.full(len(shown), np.nan)  # nobody answers

    config = replace(TINY, initial_epochs=60)
    report = learn_from_preferences(config, teacher=teacher, sampler=sampler, comparisons=known)
    assert len(seen) == 2 * (1 + ATTEMPTS), "and queries are put as planned, and others instead"
    assert len(report.comparisons) == len(known)
    first, *_ = report.iterations
    assert first.comparisons == len(known)
    assert first.query_entropy < np.log(2), "a reward is there when the first queries are"
    assert first.fit.train_accuracy[-1] > 0.85


def test_no_query_need_be_put_where_there_are_answers(pendulum):
    _, known = pendulum
    config = replace(TINY, comparisons=0)
    with pytest.raises(ConfigError, match=r"comparisons: expected at least 1, got 0.*give compar"):
        learn_from_preferences(config)

    def teacher(shown, rng):
        raise AssertionError("nobody is asked")

    report = learn_from_preferences(config, comparisons=known, teacher=teacher)
    assert [one.fit is not None for one in report.iterations] == [True, False, False]
    assert report.reward is not None


def test_data_of_another_environment_are_refused_at_once(rng):
    with pytest.raises(SpaceError, match="observations of the given comparisons"):
        learn_from_preferences(TINY, comparisons=make_comparisons(rng))


def test_a_folder_of_an_earlier_run_is_a_warm_start_even_under_the_same_name(tmp_path, pendulum):
    _, known = pendulum
    out = tmp_path / "run"
    first = run_online(TINY, out, evaluation=EVALUATION, comparisons=known, keep_experience=True)
    assert first["comparisons"] == 162
    start = WarmStartConfig(comparisons=(out,), episodes=out / "experience")
    config = replace(TINY, warm_start=start, seed=1)

    def stop(report):
        raise KeyboardInterrupt

    run_online(config, out, evaluation=EVALUATION, on_iteration=stop)
    again = run_online(config, out, evaluation=EVALUATION, resume=True)
    assert again["comparisons"] == 162 + 12
    kept = load_comparisons(out / "comparisons")
    np.testing.assert_array_equal(kept.preference[:150], known.preference)
    assert load_reward(out / "reward").members == 2


CHANGES = {
    "held out": {
        "validation": 0.3,
        "trainer": RewardTrainerConfig(
            epochs=2,
            loss="squared_error",
            penalty=AdaptivePenalty(1e-3, norm=3, band=(1.1, 1.5)),
        ),
    },
    "final queries": {"final_queries": True, "sampler": "informative", "oversampling": 2},
}


@pytest.mark.parametrize(("name", "killed_in"), [("held out", 0), ("final queries", 1)])
def test_a_warm_start_that_was_killed_comes_to_the_same(tmp_path, pendulum, name, killed_in):
    episodes, known = pendulum
    config = replace(TINY, **CHANGES[name])
    save_comparisons(tmp_path / "known", known)
    start = WarmStartConfig(comparisons=(tmp_path / "known",))
    config = replace(config, warm_start=start, comparisons=9)
    expected = learn_from_preferences(config, episodes=episodes)
    numbers = everything(expected.learner.algorithm)
    given = []

    def kept(comparisons):
        given.append(comparisons)
        if len(given) == 2 + killed_in:  # the first are those that are known
            raise KilledError

    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        learn_from_preferences(config, episodes=episodes, on_answers=kept, checkpoints=folder)
    save_comparisons(tmp_path / "known", known[:3])  # what was there then is what counts
    report = learn_from_preferences(config, checkpoints=folder)
    assert_same(everything(report.learner.algorithm), numbers)
    np.testing.assert_array_equal(
        report.reward.member_rewards(episodes), expected.reward.member_rewards(episodes)
    )
    for one, other in zip(report.iterations, expected.iterations, strict=True):
        assert one.metrics().keys() == other.metrics().keys()
        wall = {name for name in one.metrics() if name.startswith("time/")} | {"reward/seconds"}
        same = {name: value for name, value in one.metrics().items() if name not in wall}
        theirs = {name: other.metrics()[name] for name in same}
        assert same == pytest.approx(theirs, abs=0, nan_ok=True)


def test_data_cannot_be_added_to_a_run_that_began_without(tmp_path, pendulum):
    _, known = pendulum
    with pytest.raises(KilledError):
        learn_from_preferences(TINY, checkpoints=tmp_path, on_iteration=die_in(1))
    with pytest.raises(
        CheckpointError, match=r"data of the run.*expected no data, as when the run began"
    ):
        learn_from_preferences(TINY, checkpoints=tmp_path, comparisons=known)


def test_final_queries_are_about_the_last_behaviour_and_learned_from():
    asked = []

    def sampler(segments, count, rng):
        asked.append(count)
        return UniformPairs()(segments, count, rng)

    config = replace(TINY, final_queries=True, schedule="constant", initial_fraction=1 / 3)
    report = learn_from_preferences(config, sampler=sampler)
    assert asked == [4, 4, 4]
    assert [one.fit.pairs for one in report.iterations] == [4, 8, 12]
    assert report.reward.likelihood == report.iterations[-1].fit.likelihood
    usual = learn_from_preferences(replace(config, final_queries=False))
    assert [one.fit and one.fit.pairs for one in usual.iterations] == [4, 12, None]
