"""Folders as earlier versions wrote them, laid out here by hand, are read as they always were."""

import json
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from safetensors.numpy import save_file

from preferl.errors import CheckpointError
from preferl.models import (
    CNNRewardConfig,
    LSTMRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
    load_reward_model,
    save_reward_model,
)
from preferl.online import load_policy
from preferl.runs.versioned import versions
from preferl.training import load_reward
from preferl.training.checkpoint_folder import read_checkpoint
from preferl.training.publish import read_version

BOX = {"kind": "Box", "low": -1.0, "high": 1.0, "shape": [2], "dtype": "float32"}
ACTIONS = {"kind": "Discrete", "n": 2, "start": 0, "dtype": "int64"}
SEEN = spaces.Box(-1, 1, (2,))
WEIGHTS = np.array([[[1.0], [2.0], [0.0], [4.0]]], np.float32)  # [E, F, 1], of one linear layer


def write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value), encoding="utf-8")


def digest(file: Path) -> str:
    return blake2b(file.read_bytes(), digest_size=16).hexdigest()


def old_reward(folder: Path) -> Path:
    folder.mkdir(parents=True)
    shape = {
        "kind": "mlp",
        "hidden": [],
        "members": 1,
        "activation": "leaky_relu",
        "dropout": 0.0,
        "pooling": "sum",
        "discount": 1.0,
        "bounded": False,
        "use_actions": True,
        "normalise": True,
    }
    both = {"observation_space": BOX, "action_space": ACTIONS}
    about = {"format": 1, "preferl": "0.1.0", "model": shape}
    write_json(folder / "config.json", about | both)
    tensors = {
        "encoder.mean": np.array([0.5, 0, 0, 0], np.float32),
        "encoder.deviation": np.ones(4, np.float32),
        "encoder.count": np.array(7),
        "networks.weights.0": WEIGHTS,
        "networks.biases.0": np.zeros((1, 1, 1), np.float32),
    }
    save_file(tensors, folder / "model.safetensors")
    scaler = {"mean": [1.0], "deviation": [2.0], "target": 1.0}
    write_json(folder / "reward.json", {"combine": {"kind": "mean"}, "scaler": scaler})
    return folder


def rewards_of(reward) -> list[float]:
    seen = np.array([[[0.5, 1.0]], [[-0.5, 0.0]]], np.float32)
    return reward(seen, np.array([[1], [0]]), np.ones((2, 1), bool)).tolist()


REWARDS = [(2 + 4 - 1) / 2, (-1 - 1) / 2]


def test_a_saved_reward_computes_what_it_computed(tmp_path):
    assert rewards_of(load_reward(old_reward(tmp_path / "reward"))) == REWARDS


def test_a_published_reward_is_whole_by_bytes_and_digests(tmp_path):
    folder = old_reward(tmp_path / "00003")
    files = {f.name: [f.stat().st_size, digest(f)] for f in folder.iterdir()}
    write_json(folder / "version.json", {"version": 3, "metrics": {"of": 9}, "files": files})
    found = read_version(tmp_path, *versions(tmp_path))
    assert (found.number, found.metrics, rewards_of(found.reward)) == (3, {"of": 9}, REWARDS)
    (folder / "reward.json").write_text("{}", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"another reward\.json than was written"):
        read_version(tmp_path, 3)


def test_a_checkpoint_is_whole_by_digests(tmp_path):
    folder = tmp_path / "00012"
    old_reward(folder / "rewards" / "00002")
    save_file({"00001": np.arange(3)}, folder / "arrays.safetensors")
    save_file({}, folder / "tensors.safetensors")
    state = {
        "rows": {"$": "array", "is": "00001"},
        "reward": {"$": "reward", "is": "00002"},
        "pair": {"$": "tuple", "is": [1, {"$": "float", "is": "inf"}]},
    }
    write_json(folder / "state.json", state)
    files = {f.relative_to(folder).as_posix(): digest(f) for f in folder.rglob("*") if f.is_file()}
    about = {"format": 2, "steps": 40, "run": {"agent": "PPO"}, "versions": {"packages": {}}}
    write_json(folder / "checkpoint.json", about | {"files": files})
    found = read_checkpoint(tmp_path, run={"agent": "PPO"})
    assert (found.steps, found.state["pair"]) == (40, (1, np.inf))
    assert found.state["rows"].tolist() == [0, 1, 2]
    assert rewards_of(found.state["reward"]) == REWARDS


def test_a_policy_acts_as_it_did(tmp_path):
    folder = tmp_path / "policy"
    folder.mkdir()
    about = {"kind": "PPOConfig", "config": {"n_steps": 8, "batch_size": 8, "hidden": []}}
    both = {"observation_space": BOX, "action_space": ACTIONS}
    write_json(folder / "policy.json", about | both)
    tensors = {
        "action_net.weight": np.array([[1.0, 0.0], [0.0, 1.0]], np.float32),
        "action_net.bias": np.zeros(2, np.float32),
        "value_net.weight": np.zeros((1, 2), np.float32),
        "value_net.bias": np.zeros(1, np.float32),
    }
    save_file(tensors, folder / "policy.safetensors")
    seen = np.array([[0.9, 0.1], [0.1, 0.9]], np.float32)
    assert load_policy(folder).predict(seen, deterministic=True)[0].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("written", "config"),
    [
        (
            {"kind": "lstm", "width": 8, "context": 5, "dropout": 0.1, "activation": "relu"},
            LSTMRewardConfig(width=8, context=5),
        ),
        (
            {"kind": "transformer", "width": 8, "layers": 1, "heads": 2, "positions": None},
            PreferenceTransformerConfig(width=8, heads=2),
        ),
        (
            {"kind": "cnn", "kernels": [3], "strides": [1], "channels": "first"},
            CNNRewardConfig(kernels=(3,), strides=(1,), channels="first"),
        ),
    ],
)
def test_shapes_of_all_kinds_are_known(tmp_path, written, config):
    seen = spaces.Box(0, 255, (1, 9, 9), np.uint8) if written["kind"] == "cnn" else SEEN
    model = build_reward_model(config, seen, spaces.Discrete(2), seed=0)
    save_reward_model(tmp_path / "it", model)
    about = json.loads((tmp_path / "it" / "config.json").read_text())
    write_json(tmp_path / "it" / "config.json", about | {"model": written})
    assert load_reward_model(tmp_path / "it").config == config
