"""The converters write what this version reads, and read no more than they should."""

import ast
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from helpers.converters import SCRIPTS, imported
from preferl.data import load_comparisons, load_episodes
from preferl.training import load_reward


@pytest.fixture(scope="module")
def script():
    return imported("from_imitation")


def test_a_written_reward_is_read(script, tmp_path, rng):
    """The formats of the script are those that this version reads."""
    spaces = {
        "observation_space": {
            "kind": "Box",
            "low": "-inf",
            "high": "inf",
            "shape": [3],
            "dtype": "float32",
        },
        "action_space": {"kind": "Discrete", "n": 2, "start": 0, "dtype": "int64"},
    }
    network = {"activation": "relu", "dropout": 0.0, "use_actions": True, **spaces}
    networks = [
        network
        | {
            "kernels": [rng.normal(size=(5, 4)), rng.normal(size=(4, 1))],
            "biases": [rng.normal(size=4), np.ones(1)],
        }
        for _ in range(2)
    ]
    described = {"networks": networks, "mean": [0.0, 1.0], "deviation": [1.0, 2.0], "alpha": -1.0}
    script.write_reward(tmp_path / "reward", described)
    reward = load_reward(tmp_path / "reward")
    observations = rng.normal(size=(6, 1, 3)).astype(np.float32)
    actions = np.array([[0], [1], [1], [0], [1], [0]])
    inputs = np.concatenate([observations[:, 0], np.eye(2)[actions[:, 0]]], axis=1)
    members = [
        np.maximum(inputs @ n["kernels"][0] + n["biases"][0], 0) @ n["kernels"][1] + n["biases"][1]
        for n in networks
    ]
    members = np.stack([members[0][:, 0], (members[1][:, 0] - 1) / 2])
    expected = members.mean(axis=0) - members.std(axis=0, ddof=1)
    rewards = reward(observations, actions, np.ones((6, 1), bool))
    np.testing.assert_allclose(rewards, expected, rtol=1e-5)


@dataclass
class Walk:
    """A trajectory with imitation's attributes."""

    obs: np.ndarray
    acts: np.ndarray
    rews: np.ndarray
    terminal: bool
    infos: list | None = None


def test_written_episodes_and_comparisons_are_read(script, tmp_path, rng):
    walks = [
        Walk(
            rng.normal(size=(n + 1, 2)), rng.normal(size=(n, 1)), rng.normal(size=n), n != 4, infos
        )
        for n, infos in ((3, None), (4, None), (5, [{"TimeLimit.truncated": True}] * 5))
    ]
    script.write_arrays(tmp_path / "episodes", script.episodes_of(walks), {"kind": "episodes"})
    episodes = load_episodes(tmp_path / "episodes")
    assert episodes.terminated.nonzero()[0].tolist() == [2]
    np.testing.assert_array_equal(episodes.next_observations[:3], walks[0].obs[1:])
    arrays = script.comparisons_of(walks[:2], [walks[1], walks[0]], np.array([1.0, 0.5]))
    script.write_arrays(tmp_path / "pairs", arrays, {"kind": "comparisons", "length": 4})
    comparisons = load_comparisons(tmp_path / "pairs")
    assert comparisons.pairs.tolist() == [[0, 1], [1, 0]]
    assert comparisons.segments.real.tolist() == [3, 4]
    np.testing.assert_array_equal(comparisons.segments.observations[:3], walks[0].obs[:-1])


def test_another_environment_is_named():
    run = [sys.executable, SCRIPTS / "from_imitation.py", "reward", "net.pt", "out"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 1
    assert "the Python of imitation's environment" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["from_imitation", "from_preference_transformer"])
def test_old_pythons_read_the_scripts(name):
    ast.parse((SCRIPTS / f"{name}.py").read_text("utf-8"), feature_version=(3, 8))
