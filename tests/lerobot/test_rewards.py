"""A learned reward in LeRobot: as a reward model, and as weights of its training."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lerobot.configs.rewards import RewardModelConfig
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.rewards.factory import make_reward_model, make_reward_pre_post_processors
from lerobot.utils.sample_weighting import SampleWeightingConfig, make_sample_weighter

from preferl.data.frame_tables import FrameRewards
from preferl.data.sources import open_lerobot
from preferl.errors import ModelError
from preferl.models import (
    CNNReward,
    CNNRewardConfig,
    MLPReward,
    MLPRewardConfig,
    infer_spaces,
)
from preferl.training import RewardFunction, relabel
from preferl.training.lerobot import PreferlConfig, PreferlRewardModel, save_lerobot_reward

FRONT = "observation.images.front"
CHUNK = 10


def model_of(episodes, kind, config):
    spaces = infer_spaces(episodes.observations, episodes.actions)
    return RewardFunction(kind(*spaces, config, seed=0)).scaled(episodes)


@pytest.mark.parametrize(
    ("feature", "kind", "config"),
    [
        ("observation.state", MLPReward, MLPRewardConfig(members=2)),
        (FRONT, CNNReward, CNNRewardConfig(members=2, filters=4)),
    ],
)
def test_lerobot_loads_a_reward_and_computes_the_same(shared, tmp_path, feature, kind, config):
    folder = shared / "data" / "lerobot" / "barcode_images"
    episodes = open_lerobot(folder).episodes([feature])
    reward = model_of(episodes, kind, config)
    save_lerobot_reward(tmp_path / "reward", reward, [feature])
    assert {file.name for file in (tmp_path / "reward").iterdir()} >= {
        "config.json",
        "model.safetensors",
    }
    settings = RewardModelConfig.from_pretrained(tmp_path / "reward")
    assert isinstance(settings, PreferlConfig)
    settings.pretrained_path = str(tmp_path / "reward")
    settings.device = "cpu"
    loaded = make_reward_model(settings)
    assert isinstance(loaded, PreferlRewardModel)
    assert not loaded.is_trainable
    before, _ = make_reward_pre_post_processors(settings)
    rows = torch.utils.data.DataLoader(LeRobotDataset("me/set", root=folder), batch_size=7)
    rewards = torch.cat([loaded.compute_reward(before(batch)) for batch in rows])
    expected = relabel(episodes, reward).rewards
    assert rewards.shape == expected.shape
    np.testing.assert_allclose(rewards.numpy(), expected, atol=1e-4)


def test_what_a_reward_model_needs(shared, tmp_path):
    episodes = open_lerobot(shared / "data" / "lerobot" / "barcode_images").episodes()
    reward = model_of(episodes, MLPReward, MLPRewardConfig())
    with pytest.raises(ModelError, match="expected the name of one feature"):
        save_lerobot_reward(tmp_path, reward, ["observation.state", FRONT])
    wrapped = PreferlRewardModel.of(reward, ["observation.state"])
    with pytest.raises(ModelError, match="got no action"):
        wrapped.compute_reward({"observation.state": torch.zeros(2, 3)})


def weights_by_skill(folder, progress, kappa, skills):
    """Mean weight of the frames of each skill, by LeRobot's weighting and its loader."""
    settings = SampleWeightingConfig(progress_path=str(progress), kappa=kappa)
    policy = SimpleNamespace(config=SimpleNamespace(chunk_size=CHUNK))
    weighter = make_sample_weighter(settings, policy, torch.device("cpu"))
    rows = LeRobotDataset("me/arm", root=folder)
    loader = torch.utils.data.DataLoader(rows, batch_size=500, shuffle=True)
    weights = np.zeros(len(rows))
    for batch in loader:
        weights[batch["index"].numpy()] = weighter.compute_batch_weights(batch)[0].numpy()
    return {name: weights[skills == name].mean() for name in ("random", "early", "middle", "late")}


def test_better_skills_weigh_more_in_lerobots_training(shared, tmp_path):
    folder = shared / "data" / "lerobot" / "reacher_arm"
    opened = open_lerobot(folder)
    with np.load(shared / "data" / "lerobot" / "reacher_arm_truth.npz") as truth:
        rewards = truth["reward"]
        skills = np.repeat(truth["skill"], truth["lengths"])
    centred = FrameRewards(opened, rewards - rewards.mean(), version="true", chunk=CHUNK)
    centred.write(tmp_path / "true.parquet", "progress")
    weights = weights_by_skill(folder, tmp_path / "true.parquet", centred.kappa, skills)
    assert weights["random"] < weights["early"] < weights["middle"] < weights["late"]
    drawn = np.random.default_rng(0).normal(size=len(rewards))
    control = FrameRewards(opened, drawn, version="random", chunk=CHUNK)
    control.write(tmp_path / "random.parquet", "progress")
    others = weights_by_skill(folder, tmp_path / "random.parquet", control.kappa, skills)
    rise = weights["late"] - weights["random"]
    assert abs(others["late"] - others["random"]) < rise / 2
