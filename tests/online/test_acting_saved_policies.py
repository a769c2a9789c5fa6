"""Policies that somebody saved: opened when they are trusted, and never by mistake."""

import zipfile

import gymnasium
import numpy as np
import pytest
import stable_baselines3

from preferl.errors import CheckpointError, ConfigError
from preferl.online.acting import load_actor

OBSERVATIONS = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -0.5]], np.float32)


@pytest.mark.parametrize("name", ["PPO", "A2C", "SAC", "TD3"])
def test_zip_files_of_every_algorithm(name, tmp_path):
    env = gymnasium.make("Pendulum-v1")
    made = getattr(stable_baselines3, name)("MlpPolicy", env, policy_kwargs={"net_arch": [8]})
    made.save(tmp_path / "theirs.zip")
    with pytest.warns(UserWarning, match="runs what its maker put into it"):
        actor = load_actor(tmp_path / "theirs.zip", trust_pickle=True)
    assert type(actor) is type(made)
    expected, _ = made.predict(OBSERVATIONS, deterministic=True)
    np.testing.assert_array_equal(actor.predict(OBSERVATIONS, deterministic=True)[0], expected)


def test_a_zip_file_is_not_opened_unasked(tmp_path):
    (tmp_path / "theirs.zip").write_bytes(b"PK")
    with pytest.raises(ConfigError, match="--trust-pickle"):
        load_actor(tmp_path / "theirs.zip")


def test_what_is_no_policy(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("data", '{"policy_class": {"__module__": "somewhere.else"}}')
    (tmp_path / "half.zip").write_bytes(b"PK\x03\x04")
    for name in ("other.zip", "half.zip"):
        with (
            pytest.warns(UserWarning, match="its maker"),
            pytest.raises(CheckpointError, match=r"a whole \.zip of stable-baselines3"),
        ):
            load_actor(tmp_path / name, trust_pickle=True)
    with pytest.raises(CheckpointError, match="Name the policy folder"):
        load_actor(tmp_path / "absent")
