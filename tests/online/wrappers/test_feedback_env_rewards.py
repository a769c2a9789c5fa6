import shutil
import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecTransposeImage

from helpers.waiting import SECONDS, wait_until
from preferl.data.windows import window_indices
from preferl.errors import DataError, SpaceError
from preferl.models import MLPReward
from preferl.online import FeedbackVecEnv
from preferl.online.wrappers.feedback_env import episode_recorder
from preferl.shapes import leaves, take
from preferl.testing import PointWorld
from preferl.training.publish import publish
from preferl.training.reward_function import RewardFunction

# What is looked at here are episodes of every length; the warning has tests of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning"
)


class Curious:
    """Not linear, and sensitive to the order of what it sees."""

    def __init__(self, env: VecEnv, context: int) -> None:
        self.context = context
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.calls = 0
        self.saw: Any = None

    def __call__(self, observations: Any, actions: Any, mask: Any) -> Any:
        self.calls += 1
        self.saw = observations
        parts = [*leaves(observations), actions]
        seen = sum(np.sin(a.reshape(*mask.shape, -1).astype(np.float64)).sum(-1) for a in parts)
        weighted = np.where(mask, seen, 0.0) @ np.arange(1.0, 1.0 + self.context)
        return np.tanh(weighted + mask.sum(1)).astype(np.float32)


class Constant:
    context = 1

    def __init__(self, env: VecEnv, value: Any = 1.0) -> None:
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.value = value

    def __call__(self, observations: Any, actions: Any, mask: Any) -> Any:
        return np.full(len(mask), self.value)


class Stroll(gym.Env[Any, Any]):
    """Episodes of random lengths, some terminated and some truncated, with dictionaries."""

    observation_space = spaces.Dict(
        {"at": spaces.Box(-9, 9, (2,), np.float32), "room": spaces.Discrete(5)}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 9))
        return self._look(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        over = self.left == 0
        terminated = over and bool(self.np_random.integers(2))
        return self._look(), float(self.np_random.normal()), terminated, over, {}

    def _look(self) -> Any:
        at = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"at": at, "room": int(self.np_random.integers(5))}


def strolls(environments: int) -> VecEnv:
    env = DummyVecEnv([Stroll] * environments)
    env.seed(3)
    return env


@pytest.mark.parametrize("context", [1, 4])
@pytest.mark.parametrize("make", [lambda: strolls(3), lambda: make_vec_env("Pendulum-v1", 2)])
def test_online_reward_is_offline_relabel_through_resets(make: Any, context: int) -> None:
    inside = episode_recorder(make())
    env = FeedbackVecEnv(inside)
    reward = Curious(env, context)
    env.set_reward(reward)
    outside = episode_recorder(env)
    env.action_space.seed(0)
    outside.reset()
    for step in range(60):
        if step in (7, 20, 21):
            outside.reset()
        outside.step(np.stack([env.action_space.sample() for _ in range(env.num_envs)]))
    assert reward.calls == 60
    episodes = inside.take(unfinished="cut")
    shown = outside.take(unfinished="cut")
    assert episodes is not None
    assert shown is not None
    rows, mask = window_indices(episodes.start_of_step, context)
    offline = reward(take(episodes.observations, rows), episodes.actions[rows], mask)
    np.testing.assert_array_equal(shown.rewards, offline)
    assert (shown.rewards != episodes.rewards).all()


def test_true_rewards_are_recorded_and_reported_while_others_are_given() -> None:
    true_env = make_vec_env("Pendulum-v1", 2, seed=5)
    recorder = episode_recorder(make_vec_env("Pendulum-v1", 2, seed=5))
    env = FeedbackVecEnv(recorder)
    env.set_reward(Constant(env, 7.0))
    true_env.reset()
    env.reset()
    for _ in range(200):
        actions = np.array([[0.5], [-1.0]], np.float32)
        _, true_rewards, _, _ = true_env.step(actions)
        _, rewards, dones, infos = env.step(actions)
        assert rewards.tolist() == [7.0, 7.0]
        assert [info["true_reward"] for info in infos] == true_rewards.tolist()
    assert dones.all()
    assert [info["learned_return"] for info in infos] == [1400.0, 1400.0]
    episodes = recorder.take()
    assert episodes is not None
    np.testing.assert_allclose(
        episodes.returns, [info["episode"]["r"] for info in infos], rtol=1e-5
    )


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
    reward = Curious(inner, 2)
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
