"""`preferl reward fit --model cnn` on recorded episodes of pictures."""

import json
import pickle

import numpy as np
import pytest
from gymnasium import spaces

from preferl.cli.main import main
from preferl.data import save_episodes
from preferl.models import CNNReward
from preferl.testing import make_episodes
from preferl.training import load_reward

FRAMES = spaces.Box(0, 255, (32, 32, 2), np.uint8)


def test_a_reward_of_pictures_is_fitted_to_a_folder_of_labels(rng, tmp_path):
    episodes = make_episodes(rng, [40], FRAMES, spaces.Discrete(3))
    save_episodes(tmp_path / "episodes", episodes)
    labels = {
        "label_human": [0, 1, -1],
        "indices_num3_q5": np.array([0, 10, 20]),
        "indices_2_num3_q5": np.array([5, 15, 30]),
    }
    (tmp_path / "labels").mkdir()
    for name, content in labels.items():
        (tmp_path / "labels" / name).write_bytes(pickle.dumps(content))
    command = ["reward", "fit", "--out", str(tmp_path / "run"), "--model", "cnn"]
    command += ["--demonstrations", str(tmp_path / "episodes")]
    command += ["--labels", str(tmp_path / "labels"), "--epochs", "1"]
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 0
    reward = load_reward(tmp_path / "run" / "reward")
    assert isinstance(reward.model, CNNReward)
    assert reward.members == 3
    assert json.loads((tmp_path / "run" / "result.json").read_text())["fit"]["pairs"] == 3
