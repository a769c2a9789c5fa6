"""A learned reward in LeRobot: as a reward model, and as weights of its training."""

import numpy as np
import pytest
import torch
from benchmarks.lerobot_weights import batches_of, weights_by_skill
from lerobot.configs.rewards import RewardModelConfig
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.rewards.factory import make_reward_model, make_reward_pre_post_processors

from preferl.data.frame_tables import FrameRewards
from preferl.data.sources import open_lerobot
from preferl.errors import ModelError
from preferl.models import CNNReward, CNNRewardConfig, MLPReward, MLPRewardConfig, infer_spaces
from preferl.training import RewardFunction, relabel
from preferl.training.lerobot import PreferlConfig, PreferlRewardModel

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
    PreferlRewardModel.of(reward, [feature]).save_pretrained(tmp_path / "reward")
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


def test_what_a_reward_model_needs(shared):
    episodes = open_lerobot(shared / "data" / "lerobot" / "barcode_images").episodes()
    reward = model_of(episodes, MLPReward, MLPRewardConfig())
    with pytest.raises(ModelError, match="expected the name of one feature"):
        PreferlRewardModel.of(reward, ["observation.state", FRONT])
    of_features = reward.model
    of_features.frozen_encoder = "1f"
    with pytest.raises(ModelError, match="one of features of the encoder 1f"):
        PreferlRewardModel.of(RewardFunction(of_features), ["observation.state"])
    wrapped = PreferlRewardModel.of(reward, ["observation.state"])
    with pytest.raises(ModelError, match="got no action"):
        wrapped.compute_reward({"observation.state": torch.zeros(2, 3)})


def test_better_skills_weigh_more_in_lerobots_training(shared, tmp_path):
    data = shared / "data" / "lerobot"
    opened = open_lerobot(data / "reacher_arm")
    with np.load(data / "reacher_arm_truth.npz") as truth:
        rewards = truth["reward"]
    centred = FrameRewards(opened, rewards - rewards.mean(), version="true", chunk=CHUNK)
    centred.write(tmp_path / "true.parquet", "progress")
    batches = batches_of(data)
    weights = weights_by_skill(data, tmp_path / "true.parquet", batches)
    assert weights["random"] < weights["early"] < weights["middle"] < weights["late"]
    drawn = np.random.default_rng(0).normal(size=len(rewards))
    control = FrameRewards(opened, drawn, version="random", chunk=CHUNK)
    control.write(tmp_path / "random.parquet", "progress")
    others = weights_by_skill(data, tmp_path / "random.parquet", batches)
    rise = weights["late"] - weights["random"]
    assert abs(others["late"] - others["random"]) < rise / 2
