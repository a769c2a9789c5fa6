"""A third algorithm of stable-baselines3 is an entry of a table, not another name for SAC."""

from dataclasses import dataclass

import numpy as np
import pytest
from stable_baselines3 import A2C

from preferl.errors import CheckpointError, ConfigError
from preferl.online import load_policy, make_environments, save_policy
from preferl.online.algorithms import build_algorithm
from preferl.registry import ALGORITHMS


@dataclass(frozen=True)
class A2CConfig:
    n_steps: int = 4
    learning_rate: float = 1e-3
    hidden: tuple[int, ...] = (8,)


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


def test_it_learns_and_its_policy_comes_back(registered, env, tmp_path):
    agent = build_algorithm(A2CConfig(), env, seed=0)
    assert isinstance(agent, A2C)
    assert (agent.n_steps, agent.policy.net_arch) == (4, [8])
    agent.learn(16)
    save_policy(tmp_path / "policy", agent, A2CConfig())
    loaded = load_policy(tmp_path / "policy")
    seen = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    expected, got = (one.predict(seen, deterministic=True)[0] for one in (agent, loaded))
    np.testing.assert_array_equal(got, expected)
    ALGORITHMS.remove("a2c")
    with pytest.raises(CheckpointError, match="a module that may be imported"):
        load_policy(tmp_path / "policy")


def test_settings_of_none_are_refused(env):
    with pytest.raises(ConfigError, match="algorithm config: expected one of ppo, sac, got A2C"):
        build_algorithm(A2CConfig(), env, seed=0)
