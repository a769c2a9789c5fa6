import shutil
import threading

import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecTransposeImage

from helpers.curious_reward import Curious
from helpers.waiting import SECONDS, wait_until
from preferl.errors import DataError, SpaceError
from preferl.models import MLPReward
from preferl.online import FeedbackVecEnv
from preferl.testing import MovingDot, PointWorld
from preferl.training.publish import publish
from preferl.training.reward_function import RewardFunction

# What is looked at here are episodes of every length; the warning has tests of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning"
)


def test_the_reward_sees_images_as_the_environment_gives_them():
    inner = FeedbackVecEnv(DummyVecEnv([lambda: MovingDot(36)]))
    reward = Curious.of(inner, 2)
    inner.set_reward(reward)
    env = VecTransposeImage(inner)
    assert np.shape(env.reset()) == (1, 1, 36, 36)
    env.step(np.array([1]))
    assert reward.saw.shape == (1, 2, 36, 36, 1)
    assert reward.saw.dtype == np.uint8


def test_a_reward_for_other_spaces_is_refused():
    env = FeedbackVecEnv(make_vec_env("Pendulum-v1", 1))
    other = Curious.of(make_vec_env("CartPole-v1", 1))
    with pytest.raises(SpaceError, match=r"observations of the environment: expected .*\(4,\)"):
        env.set_reward(other)
    with pytest.raises(SpaceError, match="actions of the environment: expected Discrete"):
        env.set_reward(Curious(env.observation_space, other.action_space))


@pytest.mark.parametrize("rewards", [[np.nan, 1.0], [1.0]])
def test_rewards_other_than_finite_numbers_are_refused(rewards):
    class Wrong(Curious):
        def __call__(self, *_):
            return np.array(rewards)

    env = FeedbackVecEnv(make_vec_env("Pendulum-v1", 2))
    env.set_reward(Wrong.of(env))
    env.reset()
    with pytest.raises(DataError, match="expected 2 finite numbers"):
        env.step(np.zeros((2, 1), np.float32))


def test_slow_storage_holds_no_step_up(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFERL_CACHE", str(tmp_path))
    url = f"{bucket}/rewards"
    asked = threading.Event()
    may_go = threading.Event()
    venv = DummyVecEnv([PointWorld] * 2)
    env = FeedbackVecEnv(venv, rewards=url)
    reward = RewardFunction(MLPReward(venv.observation_space, venv.action_space, seed=0))
    fetch = env.core.computer.published.synced._storage.get_file

    def slow(*about):
        asked.set()
        may_go.wait(SECONDS)
        fetch(*about)

    monkeypatch.setattr(env.core.computer.published.synced._storage, "get_file", slow)
    publish(url, reward)
    shutil.rmtree(env.core.computer.published.folder)  # this machine's copy
    env.reset()
    actions = np.zeros((2, *env.action_space.shape), np.float32)
    assert asked.wait(SECONDS)
    for _ in range(20):
        env.step(actions)
        assert not env.refresh(), "the reward is on its way, and steps go on"
    may_go.set()
    wait_until(env.refresh)
    assert env.reward_version == 1
    env.close()
