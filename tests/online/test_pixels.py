"""Learning from pixels, in a form too short to learn anything."""

from dataclasses import replace

import numpy as np
import pytest

from preferl.configs import from_json
from preferl.models import CNNReward, CNNRewardConfig
from preferl.online import OnlineConfig, PPOConfig, learn_from_preferences
from preferl.presets import load_preset
from preferl.training import load_reward, save_reward


@pytest.fixture(scope="module")
def short():
    return replace(
        from_json(OnlineConfig, load_preset("moving_dot")),
        environments=2,
        steps=600,
        initial_steps=200,
        iterations=1,
        comparisons=6,
        segment_length=4,
        initial_epochs=1,
        algorithm=PPOConfig(n_steps=100, batch_size=100, n_epochs=1),
        model=CNNRewardConfig(members=2, filters=4, hidden=8),
    )


def test_pictures_stay_bytes_from_the_environment_to_the_answers(short, tmp_path):
    report = learn_from_preferences(short)
    assert isinstance(report.reward.model, CNNReward)
    for steps in (report.experience, report.comparisons.segments):
        assert steps.observations.dtype == np.uint8
        assert steps.observations.shape[1:] == (28, 28, 1)
    save_reward(tmp_path / "reward", report.reward)
    again = load_reward(tmp_path / "reward")
    rewards = [r.member_rewards(report.experience[:2]) for r in (report.reward, again)]
    assert np.array_equal(*rewards)
