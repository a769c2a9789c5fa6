import shutil
import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecTransposeImage

from helpers.curious_reward import Curious
from helpers.waiting import SECONDS, wait_until
from preferl.errors import DataError, SpaceError
from preferl.models import MLPReward
from preferl.online import FeedbackVecEnv
from preferl.testing import PointWorld
from preferl.training.publish import publish
from preferl.training.reward_function import RewardFunction

# What is looked at here are episodes of every length; the warning has tests of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning"
)


class Constant:
    context = 1

    def __init__(self, env: VecEnv, value: Any = 1.0) -> None:
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.value = value

    def __call__(self, observations: Any, actions: Any, mask: Any) -> Any:
        return np.full(len(mask), self.value)


def test_rewards_may_be_changed_by_whoever_gets_them() -> None:
    env = FeedbackVecEnv(make_vec_env("Pendulum-v1", 1, seed=0))
    env.set_reward(Constant(env))
    env.reset()
    for _ in range(199):
        env.step(np.zeros((1, 1), np.float32))[1][:] = 1e6
    assert env.step(np.zeros((1, 1), np.float32))[3][0]["learned_return"] == 200.0


class Picture(gym.Env[Any, Any]):
    observation_space = spaces.Box(0, 255, (36, 40, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.full((36, 40, 3), 9, np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.full((36, 40, 3), 9, np.uint8), 0.0, False, False, {}


def test_the_reward_sees_images_as_the_environment_gives_them() -> None:
    inner = FeedbackVecEnv(DummyVecEnv([Picture]))
    reward = Curious.of(inner, 2)
    inner.set_reward(reward)
    env = VecTransposeImage(inner)
    assert np.shape(env.reset()) == (1, 3, 36, 40)
    env.step(np.array([1]))
    assert reward.saw.shape == (1, 2, 36, 40, 3)
    assert reward.saw.dtype == np.uint8


def test_a_reward_for_other_spaces_is_refused() -> None:
    env = FeedbackVecEnv(make_vec_env("Pendulum-v1", 1))
    other = Constant(make_vec_env("CartPole-v1", 1))
    with pytest.raises(SpaceError, match=r"observations of the environment: expected .*\(4,\)"):
        env.set_reward(other)
    other.observation_space = env.observation_space
    with pytest.raises(SpaceError, match="actions of the environment: expected Discrete"):
        env.set_reward(other)


@pytest.mark.parametrize("value", [np.nan, [1.0]])
def test_rewards_other_than_finite_numbers_are_refused(value: Any) -> None:
    env = FeedbackVecEnv(make_vec_env("Pendulum-v1", 2))
    reward = Constant(env, value)
    if isinstance(value, list):
        reward.__class__ = type("Short", (Constant,), {"__call__": lambda s, o, a, m: s.value})
    env.set_reward(reward)
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
    fetch = env.core.computer.reader.synced._storage.get_file

    def slow(*about):
        asked.set()
        may_go.wait(SECONDS)
        fetch(*about)

    monkeypatch.setattr(env.core.computer.reader.synced._storage, "get_file", slow)
    publish(url, reward)
    shutil.rmtree(env.core.computer.reader.folder)  # this machine's copy
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
