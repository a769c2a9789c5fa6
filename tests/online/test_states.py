from dataclasses import replace
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest

from preferl.errors import ConfigError
from preferl.online import OnlineConfig, PPOConfig, RecordsStates, learn_from_preferences
from preferl.testing import MovingDot


def test_states_are_those_of_the_simulation():
    env = RecordsStates(gymnasium.make("CartPole-v1"))
    observation, info = env.reset(seed=0)
    assert np.allclose(info["state"], observation)
    before = info["state"].copy()
    observation, _, _, _, after = env.step(1)
    assert np.allclose(after["state"], observation)
    assert np.array_equal(info["state"], before)  # a copy, not a view of what moves


def test_an_environment_without_a_state_says_what_else_there_is():
    env = RecordsStates(MovingDot())
    with pytest.raises(ConfigError, match="Record pixels, or draw with a function"):
        env.reset(seed=0)


@pytest.mark.skipif(find_spec("mujoco") is None, reason="mujoco is not installed")
def test_states_of_mujoco_put_the_simulator_back():
    env = RecordsStates(gymnasium.make("InvertedPendulum-v5"))
    env.reset(seed=0)
    *_, info = env.step(env.action_space.sample())
    stage = env.unwrapped
    assert np.array_equal(info["state"], np.concatenate([stage.data.qpos, stage.data.qvel]))


def test_online_runs_keep_states_that_people_can_be_shown():
    config = OnlineConfig(
        steps=200,
        comparisons=4,
        turns=1,
        segment_length=10,
        initial_steps=100,
        initial_epochs=1,
        environments=1,
        algorithm=PPOConfig(n_steps=50, batch_size=50, n_epochs=1),
        states=True,
    )
    report = learn_from_preferences(config)
    segments = report.comparisons.segments
    assert segments.states.shape == (segments.steps, 2)
    cosine = np.cos(segments.states[:, 0])
    assert np.allclose(cosine, segments.observations[:, 0], atol=1e-5)
    assert report.experience.states is not None
    assert learn_from_preferences(replace(config, states=False)).experience.states is None
