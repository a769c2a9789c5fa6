"""Policies as folders: what comes back, what is refused, and statistics of observations."""

import json

import numpy as np
import pytest
from stable_baselines3.common.vec_env import VecNormalize

from helpers.normalised_cartpole import CONFIG, MEAN, VAR, balancing
from preferl.errors import CheckpointError, DataError, StorageError
from preferl.online import PPOConfig, SACConfig, load_policy, make_environments, save_policy
from preferl.online.algorithms import build_algorithm
from preferl.online.checkpoints.policy_folder import read_vecnormalize
from preferl.online.configs import SB3Config

CARTPOLE = "CartPole-v1"


@pytest.mark.parametrize("config", [PPOConfig(hidden=(8,)), SACConfig(hidden=(8,))])
def test_policy_reloads_bit_for_bit(tmp_path, config):
    algorithm = build_algorithm(config, make_environments("Pendulum-v1", 1, seed=0), seed=0)
    save_policy(tmp_path / "policy", algorithm, config)
    again = load_policy(tmp_path / "policy")
    observation = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    for one, two in zip(again.policy.parameters(), algorithm.policy.parameters(), strict=True):
        assert one.equal(two)
    np.testing.assert_array_equal(
        again.predict(observation, deterministic=True)[0],
        algorithm.predict(observation, deterministic=True)[0],
    )


@pytest.mark.parametrize("file", ["policy.safetensors", "policy.json"])
def test_damaged_policy_is_an_error(tmp_path, file):
    config = PPOConfig(hidden=(8,))
    algorithm = build_algorithm(config, make_environments("Pendulum-v1", 1, seed=0), seed=0)
    save_policy(tmp_path / "policy", algorithm, config)
    path = tmp_path / "policy" / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointError, match="policy"):
        load_policy(tmp_path / "policy")


@pytest.mark.parametrize(
    ("config", "room"),
    [
        (PPOConfig(hidden=(8,)), {"n_steps": 10**12}),
        (SACConfig(hidden=(8,)), {"buffer_size": 10**12}),
        (
            SB3Config(algorithm="stable_baselines3:TD3", hidden=(8,)),
            {"settings": {"buffer_size": 10**12}},
        ),
    ],
)
def test_what_only_acts_makes_no_room_for_steps(tmp_path, config, room):
    """The steps that a file asks for have nothing to do with its size."""
    algorithm = build_algorithm(config, make_environments("Pendulum-v1", 1, seed=0), seed=0)
    save_policy(tmp_path / "policy", algorithm, config)
    path = tmp_path / "policy" / "policy.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"config": about["config"] | room}))
    again = load_policy(tmp_path / "policy")
    seen = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(
        again.predict(seen, deterministic=True)[0], algorithm.predict(seen, deterministic=True)[0]
    )


@pytest.mark.parametrize(
    "network",
    [{"net_arch": [30_000, 30_000]}, {"net_arch": [8], "n_critics": 10**9}],
)
def test_larger_networks_than_were_saved_are_not_built(tmp_path, network):
    config = SB3Config(algorithm="stable_baselines3:SAC", settings={"policy_kwargs": network})
    small = SB3Config(algorithm="stable_baselines3:SAC", hidden=(8,))
    algorithm = build_algorithm(small, make_environments("Pendulum-v1", 1, seed=0), seed=0)
    save_policy(tmp_path / "policy", algorithm, config)
    with pytest.raises(CheckpointError, match="that were saved: they belong to different models"):
        load_policy(tmp_path / "policy")


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_damaged_statistics_are_an_error(tmp_path, damage):
    save_policy(tmp_path / "policy", balancing(), CONFIG)
    file = tmp_path / "policy/normalisation.safetensors"
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:20])
    else:
        about = tmp_path / "policy/policy.json"
        contents = json.loads(about.read_text())
        contents["normalisation"]["clip"] = -1.0
        about.write_text(json.dumps(contents))
    with pytest.raises(CheckpointError, match="policy"):
        load_policy(tmp_path / "policy")


def test_a_loaded_policy_learns_on_with_its_statistics(tmp_path):
    save_policy(tmp_path / "policy", balancing(), CONFIG)
    agent = load_policy(tmp_path / "policy", env=make_environments(CARTPOLE, 2, seed=1))
    agent.learn(16)
    normaliser = agent.get_vec_normalize_env()
    assert normaliser.training
    assert normaliser.obs_rms.count > 1e6
    np.testing.assert_allclose(normaliser.obs_rms.mean, MEAN, atol=1e-3)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="holds something else"):
        save_policy(tmp_path, balancing(), CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_statistics_of_a_file_of_stable_baselines3_are_read(tmp_path):
    balancing(clip_obs=8.0).get_vec_normalize_env().save(str(tmp_path / "vecnormalize.pkl"))
    read = read_vecnormalize(tmp_path / "vecnormalize.pkl", make_environments(CARTPOLE, 1, seed=0))
    np.testing.assert_array_equal(read.obs_rms.mean, MEAN)
    np.testing.assert_array_equal(read.obs_rms.var, VAR)
    assert (read.clip_obs, read.training, read.norm_reward) == (8.0, False, False)


def test_a_file_that_normalises_rewards_alone_changes_no_observations(tmp_path):
    env = VecNormalize(make_environments(CARTPOLE, 1, seed=0), norm_obs=False)
    env.save(str(tmp_path / "it.pkl"))
    read = read_vecnormalize(tmp_path / "it.pkl", env.venv)
    assert not read.norm_obs
    np.testing.assert_array_equal(read.normalize_obs(np.full((1, 4), 3.0)), np.full((1, 4), 3.0))
    (tmp_path / "it.pkl").write_bytes(b"\x80\x04K\x03.")  # the number 3
    with pytest.raises(DataError, match=r"what VecNormalize\.save wrote"):
        read_vecnormalize(tmp_path / "it.pkl", env.venv)
