"""HDF5 files of robomimic v0.1, with rows in the order of the Preference Transformer.

That order is the one of Kim et al. 2023, "Preference Transformer". The files are those of
Mandlekar et al. 2021, "What Matters in Learning from Offline Human Demonstrations for Robot
Manipulation".
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from preferl.data.columns import require_rows
from preferl.data.episodes import Episodes, join, one_episode
from preferl.data.sources.hdf5 import open_hdf5, read_array
from preferl.errors import ConfigError, DataError, require_one_of
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
"""The parts of the Preference Transformer's observation, in order."""


def load_robomimic(
    path: str | Path,
    *,
    observation_keys: Sequence[str] = OBSERVATION_KEYS,
    order: Order = "lexicographic",
) -> Episodes:
    """Read a `low_dim.hdf5` of robomimic v0.1, one episode per demonstration.

    The last step of each demonstration is dropped, and its observation is the final one, since
    published labels count rows in this way. Several frames at the end are flagged as done, namely
    all that show success. These flags do not cut the episode. It is terminated if its last kept
    step is flagged.

    Args:
        path: the file.
        observation_keys: arrays of `obs` that are concatenated, in this order. A simulator may have
            another order: see `check_observation_order`.
        order: order of the demonstrations: `"lexicographic"` (demo_0, demo_1, demo_10, ...; the
            default, since labels count rows in it) or `"numeric"`.

    Raises:
        ConfigError: `order` is unknown, or there are no keys.
        DataError: the file is damaged, has no demonstrations, or has one that lacks an array, has
            arrays of different lengths, NaN, or fewer than two steps.
        MissingExtraError: h5py is not installed.
    """
    require_one_of("order", order, Order)
    if not (observation_keys and not isinstance(observation_keys, str)):
        raise ConfigError(f"observation_keys: expected a list of keys, got {observation_keys!r}.")
    with open_hdf5(path) as file:
        group, names = _demonstrations(file, path)
        if order == "numeric":
            names.sort(key=lambda name: (int((re.findall(r"\d+$", name) or [-1])[0]), name))
        return join([_episode(group[name], observation_keys, f"{path}, {name}") for name in names])


def check_observation_order(
    path: str | Path,
    environment: Mapping[str, int] | None = None,
    *,
    observation_keys: Sequence[str] = OBSERVATION_KEYS,
) -> None:
    """Compare the order of parts in recorded observations with a simulator's order.

    A policy that is trained with one order and acts with another sees noise. The file names its
    simulator, but not the simulator's order. Without `environment`, there is therefore only a
    warning.

    Args:
        path: the file.
        environment: dimensions by key, in the simulator's order.
        observation_keys: see `load_robomimic`.

    Raises:
        DataError: keys, their order or their dimensions differ, or the file is damaged.
        MissingExtraError: h5py is not installed.
    """
    with open_hdf5(path) as file:
        group, (first, *_) = _demonstrations(file, path)
        arrays = {
            key: read_array(group[first], f"obs/{key}", f"{path}, {first}")
            for key in observation_keys
        }
        try:
            about = parse_json(group.attrs["env_args"])
            simulator = f"{about['env_name']} {about.get('env_version', '')}".strip()
        except (AttributeError, KeyError, TypeError, ValueError):
            simulator = "a file without env_args"
    recorded = {key: int(np.prod(array.shape[1:])) for key, array in arrays.items()}
    what = f"order of observations in {path}"
    if environment is None:
        warnings.warn(
            f"{what}: expected that of the simulator, got {simulator}, which does not record its "
            "order. Before a policy acts there, pass `environment`, its keys and dimensions.",
            stacklevel=2,
        )
    elif [*environment.items()] != [*recorded.items()]:
        raise DataError(
            f"{what}: expected the simulator's {dict(environment)}, got {recorded}. Load with "
            "observation_keys in the simulator's order."
        )


def _demonstrations(file: Any, path: str | Path) -> tuple[Any, list[str]]:
    """Return the group that holds demonstrations, and their names in lexicographic order."""
    group = file.get("data")
    if not isinstance(group, Mapping) or not group:  # missing, an array, or empty
        there = ", ".join(sorted(file)) or "an empty file"
        raise DataError(f"{path}: expected a group 'data' of demonstrations, got {there}.")
    return group, sorted(group)


def _episode(demonstration: Any, keys: Sequence[str], name: str) -> Episodes:
    fields = [f"obs/{key}" for key in keys] + ["actions", "rewards", "dones"]
    fields += ["states"] if "states" in demonstration else []
    arrays = {key: read_array(demonstration, key, name) for key in fields}
    steps = require_rows(arrays, name) - 1
    if steps < 1:
        raise DataError(f"{name}: expected at least two steps, got {steps + 1}.")
    parts = [arrays[f"obs/{key}"].reshape(steps + 1, -1) for key in keys]
    ended = (np.arange(steps) == steps - 1) & (arrays["dones"][steps - 1] != 0)
    return one_episode(
        np.concatenate(parts, axis=1),
        arrays["actions"],
        arrays["rewards"],
        steps,
        terminated=ended,
        states=arrays["states"][:steps] if "states" in arrays else None,
    )
