"""Algorithms of stable-baselines3: a third one is an entry of a table; any is named by class."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, TD3
from stable_baselines3.common.vec_env import DummyVecEnv

from preferl import OnlineConfig, PPOConfig, SACConfig, SB3Config, load_policy, save_policy
from preferl.errors import CheckpointError, ConfigError
from preferl.online import make_environments
from preferl.online.algorithms import (
    SmallPictures,
    algorithm_of,
    build_algorithm,
    normalised,
    picture_policy,
)
from preferl.registry import ALGORITHMS


@dataclass(frozen=True)
class A2CConfig:
    n_steps: int = 4
    learning_rate: float = 1e-3
    hidden: tuple[int, ...] = (8,)


def require_same_policy(agent, config, folder, env):
    """What was saved acts as the agent does."""
    save_policy(folder, agent, config)
    loaded = load_policy(folder)
    seen = env.reset()
    expected, actions = (one.predict(seen, deterministic=True)[0] for one in (agent, loaded))
    np.testing.assert_array_equal(actions, expected)


@pytest.fixture
def registered():
    ALGORITHMS.register("a2c", "stable_baselines3:A2C", A2CConfig)
    yield
    ALGORITHMS.remove("a2c")


@pytest.fixture
def env():
    env = make_environments("CartPole-v1", 2, seed=0)
    yield env
    env.close()


@pytest.mark.parametrize(
    ("name", "copies", "expected"),
    [
        ("Pendulum-v1", 4, SACConfig(buffer_size=50_000, gradient_steps=2)),
        ("Pendulum-v1", 1, SACConfig(buffer_size=50_000)),
        ("CartPole-v1", 4, PPOConfig(n_steps=256)),
        ("preferl/MovingDot-v0", 2, PPOConfig(n_steps=256)),
    ],
)
def test_without_a_name_the_spaces_choose(name, copies, expected):
    env = make_environments(name, copies, seed=0)
    assert algorithm_of(OnlineConfig(env=name, steps=50_000), env) == expected
    named = OnlineConfig(env=name, algorithm=SB3Config())
    assert algorithm_of(named, env) == SB3Config()
    env.close()


def test_it_learns_and_its_policy_comes_back(registered, env, tmp_path):
    agent = build_algorithm(A2CConfig(), env, seed=0)
    assert isinstance(agent, A2C)
    assert (agent.n_steps, agent.policy.net_arch) == (4, [8])
    agent.learn(16)
    require_same_policy(agent, A2CConfig(), tmp_path / "policy", env)
    ALGORITHMS.remove("a2c")
    with pytest.raises(CheckpointError, match="a module that may be imported"):
        load_policy(tmp_path / "policy")


def test_any_algorithm_learns_and_its_policy_comes_back(tmp_path):
    settings = {"buffer_size": 100, "train_freq": [2, "step"]}
    config = SB3Config("stable_baselines3:TD3", hidden=(8,), settings=settings)
    env = make_environments("Pendulum-v1", 2, seed=0)
    agent = build_algorithm(config, env, seed=0)
    assert type(agent) is TD3
    assert agent.policy.net_arch == [8]
    agent.learn(16)
    require_same_policy(agent, config, tmp_path / "policy", env)
    env.close()


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("sb3_contrib:TQC", "sb3_contrib, which is not installed. Run: pip install sb3-contrib"),
        ("stable_baselines3:TD4", "module:Name.*TD4"),
        ("stable_baselines3.common.save_util:load_from_zip_file", "the class of an algorithm"),
    ],
)
def test_what_is_no_algorithm_is_refused(name, match, env, monkeypatch):
    if not name.startswith("stable_baselines3"):  # whether it is installed here or not
        monkeypatch.setattr("preferl.online.algorithms.find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=match):
        build_algorithm(SB3Config(name), env, seed=0)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (SB3Config("stable_baselines3:A2C", settings={"gama": 1}), "gama. The nearest is gamma."),
        (SB3Config("stable_baselines3:A2C", settings={"seed": 1}), "seed. Leave it out of"),
        (SB3Config("stable_baselines3:A2C", policy="Tabular"), "policy and settings.*Tabular"),
        (SB3Config("stable_baselines3:TD3"), "spaces and settings of SB3Config.*Use PPO"),
    ],
)
def test_settings_that_an_algorithm_does_not_take_are_refused(config, match, env):
    with pytest.raises(ConfigError, match=match):
        build_algorithm(config, env, seed=0)


class Look(gymnasium.Env[Any, Any]):
    """Shows an example of a space."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


PICTURE = spaces.Box(0, 255, (8, 8, 3), np.uint8)


def test_arrays_alone_are_normalised():
    parts = {"at": spaces.Box(-9, 9, (2,)), "eye": PICTURE, "room": spaces.Discrete(7)}
    env = normalised(DummyVecEnv([lambda: Look(spaces.Dict(parts))]))
    assert (env.norm_obs, env.norm_obs_keys, env.norm_reward) == (True, ["at"], False)
    assert normalised(DummyVecEnv([lambda: Look(parts["at"])])).norm_obs_keys is None
    for space in (PICTURE, spaces.Discrete(3), spaces.Dict({"eye": PICTURE})):
        with pytest.raises(ConfigError, match="normalise_observations: expected observations"):
            normalised(DummyVecEnv([lambda space=space: Look(space)]))


@pytest.mark.parametrize(
    "env_id",
    [
        "preferl/MovingDot-v0",
        lambda: Look(spaces.Dict({"eye": PICTURE, "room": spaces.Discrete(4)})),
        lambda: Look(spaces.Dict({"an.image": spaces.Box(0, 255, (40, 40, 4), np.uint8)})),
    ],
)
def test_pictures_are_learned_from(env_id, tmp_path):
    env = make_environments(env_id, 2, seed=0)
    config = PPOConfig(n_steps=4, batch_size=4, n_epochs=1, hidden=(8,))
    agent = build_algorithm(config, env, seed=0)
    agent.learn(8)
    require_same_policy(agent, config, tmp_path / "policy", env)


@pytest.mark.parametrize("shape", [(8, 8, 1), (35, 20, 4), (3, 12, 12)])
def test_any_small_picture_becomes_features(shape):
    space = spaces.Box(0, 255, shape, np.uint8)
    assert picture_policy(space) == {"features_extractor_class": SmallPictures}
    first = shape if shape[0] < shape[2] else (shape[2], *shape[:2])
    extractor = SmallPictures(spaces.Box(0, 255, first, np.uint8), features_dim=5)
    assert extractor(torch.rand(2, *first)).shape == (2, 5)
