from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env

from preferl.errors import ConfigError
from preferl.online import (
    FeedbackVecEnv,
    OnlineConfig,
    PPOConfig,
    learn_from_preferences,
)
from preferl.online.wrappers.feedback_env import RecordsStates
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
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
    with pytest.raises(ConfigError, match=r"render_mode=.rgb_array"):
        env.reset(seed=0)


@pytest.mark.skipif(find_spec("mujoco") is None, reason="mujoco is not installed")
def test_states_of_mujoco_put_the_simulator_back():
    env = RecordsStates(gymnasium.make("InvertedPendulum-v5"))
    env.reset(seed=0)
    *_, info = env.step(env.action_space.sample())
    stage = env.unwrapped
    assert np.array_equal(info["state"], np.concatenate([stage.data.qpos, stage.data.qvel]))


def test_states_that_are_recorded_and_not_kept_are_logged_once(tmp_path, caplog):
    def resets(feedback, **settings):
        caplog.clear()
        venv = make_vec_env(lambda: RecordsStates(gymnasium.make("CartPole-v1")), 1)
        env = FeedbackVecEnv(venv, feedback, **settings)
        env.reset()
        env.reset()
        env.close()
        return caplog.text.count("Pass `states=True` to FeedbackVecEnv")

    with Store.open(tmp_path) as store:
        store.projects.create("cart-pole")
        assert resets(StoredFeedback(store)) == 1
        assert resets(StoredFeedback(store), states=True) == 0
        assert resets(None) == 0, "nobody is shown a clip"


def test_online_runs_keep_states_that_people_can_be_shown():
    config = OnlineConfig(
        steps=200,
        comparisons=4,
        iterations=1,
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
