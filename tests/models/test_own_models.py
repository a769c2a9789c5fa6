"""A reward model from somebody's own module: registered, saved, trusted, loaded and published."""

import sys

import numpy as np
import pytest
from gymnasium import spaces

from preferl.errors import CheckpointError, ConfigError
from preferl.models import Ensemble, build_reward_model, save_reward_model
from preferl.models.build import config_of
from preferl.registry import REWARD_MODELS
from preferl.testing import check_reward_model
from preferl.training import PublishedReward, RewardFunction, RewardSettings, load_reward
from preferl.training.publish import publish

SPACES = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,))

MODULE = """
from dataclasses import dataclass
import torch
from preferl.functional import pool
from preferl.models import ConfiguredReward, RewardOutput
from preferl.registry import REWARD_MODELS

@dataclass(frozen=True)
class TiltConfig:
    members: int = 2
    slope: float = 1.0

class Tilt(ConfiguredReward):
    defaults = TiltConfig

    def build(self, generator):
        self.weights = torch.nn.Parameter(
            torch.randn(self.members, self.encoder.size, generator=generator)
        )

    def judge(self, features, mask):
        rewards = self.config.slope * torch.einsum("blf,ef->ebl", features, self.weights)
        return RewardOutput(rewards, self.pool(rewards, mask))

    def pool(self, rewards, mask):
        return pool(rewards, mask)

REWARD_MODELS.register("tilt", Tilt, TiltConfig)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """`own_tilts`, which can be imported; what it registers is gone afterwards."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "own_tilts.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "path")
    monkeypatch.setattr("preferl.registry._TRUSTED", set())
    yield __import__("own_tilts")
    forget()


def forget():
    """As another process that has not imported the module."""
    sys.modules.pop("own_tilts", None)
    REWARD_MODELS.remove("tilt")


def steps():
    rng = np.random.default_rng(0)
    drawn = rng.uniform(-1, 1, (4, 5, 3)), rng.uniform(-1, 1, (4, 5, 1))
    return *(array.astype(np.float32) for array in drawn), np.ones((4, 5), bool)


def test_it_is_a_model_like_others(module):
    model = build_reward_model(module.TiltConfig(members=3, slope=0.5), *SPACES, seed=1)
    check_reward_model(model)
    assert config_of(model) == module.TiltConfig(3, 0.5)
    assert RewardSettings("tilt", members=4).preset(length=5, answers=9).model.members == 4
    with pytest.raises(ConfigError, match="hidden: expected None for model tilt"):
        RewardSettings("tilt", hidden=(3,)).preset(length=5, answers=9)


def test_it_comes_back_where_its_module_is_imported_or_trusted(module, tmp_path):
    reward = RewardFunction(build_reward_model(module.TiltConfig(), *SPACES, seed=1))
    publish(tmp_path / "rewards", reward)
    saved = tmp_path / "rewards" / "00001"
    np.testing.assert_array_equal(load_reward(saved)(*steps()), reward(*steps()))
    forget()
    with pytest.raises(CheckpointError, match="--trust own_tilts"):
        load_reward(saved)
    published = PublishedReward(tmp_path / "rewards")
    assert not published.refresh()
    assert "own_tilts" in published.problem
    assert "own_tilts" not in sys.modules
    loaded = load_reward(saved, trust=["own_tilts"])
    np.testing.assert_array_equal(loaded(*steps()), reward(*steps()))
    assert published.refresh()  # now that it is imported
    np.testing.assert_array_equal(published.reward(*steps()), reward(*steps()))


def test_one_that_nothing_registers_is_not_saved(module, tmp_path):
    model = build_reward_model(module.TiltConfig(), *SPACES, seed=1)
    REWARD_MODELS.remove("tilt")
    for one in (model, Ensemble([model, model])):
        with pytest.raises(ConfigError, match="Register its class"):
            save_reward_model(tmp_path / "it", one)
    assert not (tmp_path / "it").exists()
