"""Low-dimensional robomimic files: people's demonstrations of robot manipulation.

Mandlekar et al. 2021, "What Matters in Learning from Offline Human Demonstrations for Robot
Manipulation"; read as Kim et al. 2023, "Preference Transformer", index it.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from preferl.data.columns import as_floats, require_rows
from preferl.data.episodes import Episodes, join
from preferl.data.sources.hdf5 import members, open_hdf5, read_array
from preferl.errors import ConfigError, DataError, mismatch, require_one_of
from preferl.reading import parse_json

Order = Literal["lexicographic", "numeric"]

OBSERVATION_KEYS = (
    "object",
    "robot0_joint_pos",
    "robot0_joint_pos_cos",
    "robot0_joint_pos_sin",
    "robot0_joint_vel",
    "robot0_eef_pos",
    "robot0_eef_quat",
    "robot0_gripper_qpos",
    "robot0_gripper_qvel",
)
"""What the Preference Transformer's observation is made of, in its order."""


def load_robomimic(
    path: str | Path,
    *,
    observation_keys: Sequence[str] = OBSERVATION_KEYS,
    order: Order = "lexicographic",
) -> Episodes:
    """Read a `low_dim.hdf5` of robomimic v0.1, one episode per demonstration.

    The last step of each demonstration is given up to be what followed the one before, as the
    published labels count rows. Frames flagged done are frames of success, several in a row at
    the end: they do not cut an episode, which is terminated if its last kept step is flagged.

    Args:
        path: the file.
        observation_keys: arrays of `obs` that are put end to end, in this order. A simulator may
            order them differently: see `check_observation_order`.
        order: of the demonstrations: `"lexicographic"` (demo_0, demo_1, demo_10, ...; the
            default, since labels count rows in it) or `"numeric"`.

    Raises:
        ConfigError: another order, or no keys.
        DataError: no whole HDF5 file, no demonstrations, or one without one of the arrays, with
            arrays of different lengths, NaN, or fewer than two steps.
        MissingExtraError: h5py is not installed.
    """
    require_one_of("order", order, Order)
    if isinstance(observation_keys, str) or not observation_keys:
        raise ConfigError.mismatch(
            "observation_keys", expected="a list of keys", got=repr(observation_keys)
        )
    with open_hdf5(path) as file:
        group, names = _demonstrations(file, path)
        if order == "numeric":
            names = sorted(names, key=_number)
        return join([_episode(group[name], observation_keys, f"{path}, {name}") for name in names])


def check_observation_order(
    path: str | Path,
    environment: Mapping[str, int] | None = None,
    *,
    observation_keys: Sequence[str] = OBSERVATION_KEYS,
) -> None:
    """Compare the order in which recorded observations are put end to end with a simulator's.

    A policy trained on one order and played in another sees noise. The file names its simulator
    but not the order in which that concatenates, so without `environment` there is only a
    warning.

    Args:
        path: the file.
        environment: keys in the simulator's order to their dimensions.
        observation_keys: as given to `load_robomimic`.

    Raises:
        DataError: other keys, another order or other dimensions; or a damaged file.
        MissingExtraError: h5py is not installed.
    """
    with open_hdf5(path) as file:
        group, names = _demonstrations(file, path)
        name = f"{path}, {names[0]}"
        recorded = {
            key: int(np.prod(read_array(group[names[0]], f"obs/{key}", name).shape[1:]))
            for key in observation_keys
        }
        simulator = _environment(group)
    if environment is None:
        warnings.warn(
            mismatch(
                f"order of observations in {path}",
                expected="that of the simulator",
                got=f"{simulator}, which does not say its order",
                fix="Pass `environment`, its keys and dimensions, before playing a policy there.",
            ),
            stacklevel=2,
        )
    elif list(environment.items()) != list(recorded.items()):
        raise DataError.mismatch(
            f"order of observations in {path}",
            expected=f"the simulator's {dict(environment)}",
            got=recorded,
            fix="Load with observation_keys in the simulator's order.",
        )


def _demonstrations(file: Any, path: str | Path) -> tuple[Any, list[str]]:
    """The group that holds demonstrations, and their names in lexicographic order."""
    names = members(file, "data")
    if not names:
        raise DataError.mismatch(
            f"{path}",
            expected="a group 'data' of demonstrations",
            got=f"{', '.join(sorted(file)) or 'an empty file'}",
        )
    return file["data"], names


def _number(name: str) -> tuple[int, str]:
    found = re.search(r"\d+$", name)
    return (int(found[0]) if found else -1, name)


def _episode(demonstration: Any, keys: Sequence[str], name: str) -> Episodes:
    fields = [f"obs/{key}" for key in keys] + ["actions", "rewards", "dones"]
    arrays = {key: read_array(demonstration, key, name) for key in fields}
    if "states" in demonstration:
        arrays["states"] = read_array(demonstration, "states", name)
    steps = require_rows(arrays, name) - 1
    if steps < 1:
        raise DataError.mismatch(name, expected="at least two steps", got=steps + 1)
    observations = np.concatenate(
        [arrays[f"obs/{key}"].reshape(steps + 1, -1) for key in keys], axis=1
    )
    terminated = np.zeros(steps, bool)
    terminated[-1] = arrays["dones"][steps - 1] != 0
    states = arrays.get("states")
    return Episodes(
        observations=observations[:steps],
        actions=arrays["actions"][:steps],
        rewards=as_floats(arrays["rewards"][:steps]),
        terminated=terminated,
        final_observations=observations[steps:],
        lengths=np.array([steps]),
        states=None if states is None else states[:steps],
    )


def _environment(group: Any) -> str:
    """What the file's `env_args` call the simulator."""
    try:
        about = parse_json(group.attrs["env_args"])
        return f"{about['env_name']} {about.get('env_version', '')}".strip()
    except (AttributeError, KeyError, TypeError, ValueError):
        return "a file without env_args"
