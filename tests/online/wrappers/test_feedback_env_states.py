import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env

from preferl.errors import ConfigError
from preferl.online import FeedbackVecEnv
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
