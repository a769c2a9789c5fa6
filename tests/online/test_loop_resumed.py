"""The loop goes on where it was interrupted, and comes to the same."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.resumable_runs import assert_same, everything
from helpers.tiny_runs import KilledError, die_in, tiny
from preferl.errors import CheckpointError, ConfigError
from preferl.feedback import AnswerFilter, InstantFeedback, PseudoLabels, ScriptedTeacher
from preferl.models import LSTMRewardConfig
from preferl.online import SACConfig, learn_from_preferences
from preferl.training import RewardTrainerConfig

TINY = tiny(
    comparisons=13, iterations=3, initial_steps=300, teacher=ScriptedTeacher(error_rate=0.3)
)
SAC = SACConfig(buffer_size=300, learning_starts=50, batch_size=16, hidden=(8,))
CONFIGS = {
    "ppo": TINY,
    "sac": replace(
        TINY,
        steps=500,
        algorithm=SAC,
        sampler="informative",
        oversampling=2,
        pessimism=0.5,
    ),
    "entropy": replace(
        TINY,
        steps=500,
        before="entropy",
        normalise_observations=True,
        algorithm=SAC,
    ),
    "rime-surf": replace(
        TINY,
        prepare=(AnswerFilter(beta=0.0), PseudoLabels(confidence=0.6, ratio=2.0)),
        comparisons=40,
        trainer=RewardTrainerConfig(epochs=40, crop=2),
        exploration_bonus=0.5,
        bonus_decay=1e-3,
    ),
    "gsde": replace(TINY, algorithm=replace(TINY.algorithm, use_sde=True)),
    "b-pref": replace(
        TINY,
        sampler="k_center_disagreement",
        oversampling=4,
        schedule="increase",
        teacher=ScriptedTeacher(temperature=0, skip_margin=0.4, equal_margin=0.1),
    ),
    "lstm": replace(TINY, env="CartPole-v1", model=LSTMRewardConfig(width=32), short="pad"),
}


@cache
def undisturbed(name):
    report = learn_from_preferences(CONFIGS[name])
    assert np.ptp(report.reward.member_rewards(report.experience)) > 1e-3
    return report, everything(report.learner.algorithm)


def killed(config, folder, turn, **more):
    """A run that ends in a turn, after its answers were given."""
    with pytest.raises(KilledError):
        learn_from_preferences(config, on_iteration=die_in(turn), checkpoints=folder, **more)


@pytest.mark.filterwarnings("ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning")
@pytest.mark.parametrize("turn", [1, 3])
@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_run_that_was_killed_comes_to_the_same(tmp_path, name, turn):
    expected, numbers = undisturbed(name)
    killed(CONFIGS[name], tmp_path, turn)
    report = learn_from_preferences(CONFIGS[name], checkpoints=tmp_path)
    assert_same(everything(report.learner.algorithm), numbers)
    assert report.env_steps == expected.env_steps
    courses = [[(i.iteration, i.mean_return) for i in r.iterations] for r in (report, expected)]
    np.testing.assert_array_equal(*courses)
    np.testing.assert_array_equal(report.comparisons.preference, expected.comparisons.preference)
    np.testing.assert_array_equal(
        report.comparisons.segments.observations, expected.comparisons.segments.observations
    )
    np.testing.assert_array_equal(
        report.reward.member_rewards(report.experience),
        expected.reward.member_rewards(expected.experience),
    )
    assert report.reward.likelihood == expected.reward.likelihood


def test_a_finished_run_has_nothing_left_to_do(tmp_path):
    first = learn_from_preferences(TINY, checkpoints=tmp_path)
    seen = []
    again = learn_from_preferences(TINY, checkpoints=tmp_path, on_iteration=seen.append)
    assert seen == []
    assert (again.env_steps, len(again.iterations)) == (first.env_steps, len(first.iterations))
    assert again.seconds >= sum(first.part_seconds.values()) > 0  # of the first program


def test_answers_after_the_last_checkpoint_are_kept_and_not_asked_for_again(tmp_path):
    expected, numbers = undisturbed("ppo")
    given = []

    def asked(comparisons):
        given.append(comparisons)
        if len(given) == 2:
            raise KilledError

    with pytest.raises(KilledError):
        learn_from_preferences(TINY, on_answers=asked, checkpoints=tmp_path)
    report = learn_from_preferences(TINY, checkpoints=tmp_path)
    assert len(given[1]) > len(given[0])
    assert len(report.comparisons) == TINY.comparisons
    assert_same(everything(report.learner.algorithm), numbers)
    np.testing.assert_array_equal(report.comparisons.preference, expected.comparisons.preference)


def test_other_settings_are_refused_by_name(tmp_path):
    killed(TINY, tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"segment_length of the run .*expected 10, .*got 8"):
        learn_from_preferences(replace(TINY, segment_length=8), checkpoints=tmp_path)


def test_a_learner_that_cannot_be_saved_is_refused(tmp_path):
    class Learner:
        pass

    with pytest.raises(ConfigError, match=r"`snapshot` and `restore`.*got Learner"):
        learn_from_preferences(TINY, learner=Learner(), trainer=object(), checkpoints=tmp_path)


def test_feedback_of_ones_own_keeps_its_answers_itself(tmp_path):
    inner = InstantFeedback(ScriptedTeacher.oracle(), 0)
    own = SimpleNamespace(ask=inner.ask, comparisons=inner.comparisons)
    killed(TINY, tmp_path, 1, feedback=own)
    report = learn_from_preferences(TINY, feedback=own, checkpoints=tmp_path)
    assert len(report.iterations) == 4
    assert report.comparisons is own.comparisons()
