"""Policies as folders: what comes back, what is refused, and statistics of observations."""

import json

import numpy as np
import pytest
from stable_baselines3.common.vec_env import VecNormalize

from helpers.normalised_cartpole import CONFIG, MEAN, balancing
from preferl.errors import CheckpointError, DataError
from preferl.online import PPOConfig, SACConfig, load_policy, make_environments, save_policy
from preferl.online.algorithms import build_algorithm
from preferl.online.checkpoints.policy_folder import read_vecnormalize
from preferl.online.configs import SB3Config

CARTPOLE = "CartPole-v1"


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


@pytest.mark.parametrize("name", ["policy.safetensors", "policy.json", "normalisation.safetensors"])
@pytest.mark.parametrize("missing", [False, True])
def test_damaged_policies_are_an_error(tmp_path, name, missing):
    save_policy(tmp_path / "policy", balancing(), CONFIG)
    file = tmp_path / "policy" / name
    content = file.read_bytes()
    file.unlink()
    if not missing:
        file.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="policy"):
        load_policy(tmp_path / "policy")


def test_statistics_out_of_range_are_an_error(tmp_path):
    save_policy(tmp_path / "policy", balancing(), CONFIG)
    about = tmp_path / "policy/policy.json"
    about.write_text(about.read_text().replace('"clip": 10.0', '"clip": -1.0'))
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


def test_a_file_that_normalises_rewards_alone_changes_no_observations(tmp_path):
    env = VecNormalize(make_environments(CARTPOLE, 1, seed=0), norm_obs=False)
    env.save(str(tmp_path / "it.pkl"))
    read = read_vecnormalize(tmp_path / "it.pkl", env.venv)
    assert not read.norm_obs
    np.testing.assert_array_equal(read.normalize_obs(np.full((1, 4), 3.0)), np.full((1, 4), 3.0))
    (tmp_path / "it.pkl").write_bytes(b"\x80\x04K\x03.")  # the number 3
    with pytest.raises(DataError, match=r"what VecNormalize\.save wrote"):
        read_vecnormalize(tmp_path / "it.pkl", env.venv)
