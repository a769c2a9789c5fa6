"""robomimic files name the environment of robosuite that policies are evaluated in.

robosuite is not among the developers' tools: where it is installed, its environment is made, and
elsewhere the error says what to install.
"""

import json
from importlib.util import find_spec

import numpy as np
import pytest

from preferl.data.sources import OBSERVATION_KEYS
from preferl.errors import ConfigError, DataError, MissingExtraError
from preferl.evaluation.rollout import make_task_env
from preferl.offline.experiment.config import OfflineConfig
from preferl.offline.robosuite import HORIZON, RecordedTask

h5py = pytest.importorskip("h5py", reason="the extra preferl[d4rl] is not installed")

WIDTHS = (10, 7, 7, 7, 7, 3, 4, 2, 2)
CONTROLLER = {
    "type": "OSC_POSE",
    "input_max": 1,
    "input_min": -1,
    "output_max": [0.05, 0.05, 0.05, 0.5, 0.5, 0.5],
    "output_min": [-0.05, -0.05, -0.05, -0.5, -0.5, -0.5],
    "kp": 150,
    "damping": 1,
    "impedance_mode": "fixed",
    "kp_limits": [0, 300],
    "damping_limits": [0, 10],
    "position_limits": None,
    "orientation_limits": None,
    "uncouple_pos_ori": True,
    "control_delta": True,
    "interpolation": None,
    "ramp_ratio": 0.2,
}
LIFT = {
    "env_name": "Lift",
    "type": 1,
    "env_kwargs": {
        "robots": ["Panda"],
        "control_freq": 20,
        "ignore_done": True,
        "has_offscreen_renderer": True,
        "controller_configs": CONTROLLER,
    },
}


def recorded(folder, about):
    """A file of two demonstrations with `env_args`, or without."""
    path = folder / "low_dim.hdf5"
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        if about is not None:
            data.attrs["env_args"] = about
        for name in ("demo_0", "demo_1"):
            demo = data.create_group(name)
            for key, width in zip(OBSERVATION_KEYS, WIDTHS, strict=True):
                demo[f"obs/{key}"] = rng.normal(size=(9, width))
            demo["actions"] = rng.uniform(-1, 1, (9, 7))
            demo["rewards"] = demo["dones"] = (np.arange(9) == 8).astype(int)
    return path


def config(path, **changes):
    return OfflineConfig(demonstrations=str(path), reward="true", **changes)


def test_a_file_names_its_environment(tmp_path):
    path = recorded(tmp_path, json.dumps(LIFT))
    for chosen in (config(path), config(path, task="Lift_ph")):
        assert chosen.environment.env == "preferl.offline.robosuite:RecordedTask"
        assert chosen.environment.env_kwargs == {"demonstrations": str(path)}
    assert config(path, env="Pendulum-v1").environment.env == "Pendulum-v1"
    assert config(path, episodes=0).env is None


@pytest.mark.parametrize("about", [None, "{", json.dumps({"env_name": "Lift"})])
def test_without_a_whole_name_one_has_to_be_given(tmp_path, about):
    path = recorded(tmp_path, about)
    with pytest.raises(ConfigError, match="expected the environment to evaluate"):
        config(path)
    with pytest.raises(DataError, match=r"low_dim\.hdf5.*env_args"):
        RecordedTask(path)


@pytest.mark.parametrize("controller", ["/etc/passwd", {"parts": ["../secrets.json"]}])
def test_its_settings_name_no_files(tmp_path, controller):
    settings = LIFT["env_kwargs"] | {"controller_configs": controller}
    path = recorded(tmp_path, json.dumps(LIFT | {"env_kwargs": settings}))
    with pytest.raises(DataError, match=r"low_dim\.hdf5: expected names .*(passwd|secrets)"):
        RecordedTask(path)


@pytest.mark.skipif(find_spec("robosuite") is not None, reason="robosuite is installed")
def test_robosuite_is_asked_for(tmp_path):
    path = recorded(tmp_path, json.dumps(LIFT))
    with pytest.raises(MissingExtraError, match=r"low_dim\.hdf5 .* Lift.* pip install robosuite"):
        make_task_env(config(path))


@pytest.mark.skipif(find_spec("robosuite") is None, reason="robosuite is not installed")
def test_its_environment_is_made(tmp_path):
    env = make_task_env(config(recorded(tmp_path, json.dumps(LIFT))))
    observation, _ = env.reset(seed=0)
    assert observation.shape == env.observation_space.shape == (sum(WIDTHS),)
    assert env.action_space.shape == (7,)
    for _ in range(HORIZON):
        *_, terminated, truncated, _ = env.step(np.zeros(7))
    assert (terminated, truncated) == (False, True)
