"""A learned reward of a pendulum, and a store that queries go to.

`make interop` installs the libraries that these tests are about; elsewhere they skip.
"""

from types import SimpleNamespace

import gymnasium
import pytest
from gymnasium.vector import AutoresetMode

from preferl.models import MLPReward, MLPRewardConfig
from preferl.store import Store, StoredFeedback
from preferl.training import RewardFunction
from preferl.training.publish import publish

# Warnings of other libraries are theirs.
MODES = {"autoreset_mode": AutoresetMode.SAME_STEP}


@pytest.fixture
def pendulum(tmp_path):
    """A store with a project, and a published reward that no environment has."""
    env = gymnasium.make("Pendulum-v1")
    spaces = env.observation_space, env.action_space
    reward = RewardFunction(MLPReward(*spaces, MLPRewardConfig(members=2), seed=3))
    publish(tmp_path / "rewards", reward, version=7)
    with Store.open(tmp_path / "store") as store:
        frames = {"kind": "env", "env_id": "Pendulum-v1"}
        store.projects.create("pendulum", fps=20, frames=frames)
        yield SimpleNamespace(
            feedback=StoredFeedback(store),
            rewards=tmp_path / "rewards",
            reward=reward,
            make_vec=lambda: gymnasium.make_vec("Pendulum-v1", 4, "sync", MODES),
            make=lambda: gymnasium.make("Pendulum-v1"),
        )
