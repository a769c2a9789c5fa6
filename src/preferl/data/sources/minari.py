"""Data sets of Minari, the Farama Foundation's collection of offline trajectories."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from preferl._optional import require
from preferl.data.columns import check, reading_foreign, require_numbers
from preferl.data.episodes import Episodes, join, one_episode
from preferl.data.sources.hdf5 import open_hdf5
from preferl.errors import DataError
from preferl.reading import read_object
from preferl.shapes import Array, Observations, leaves, map_observations


def load_minari(dataset: Any, *, download: bool = False) -> Episodes:
    """Read a Minari data set, whole, into memory.

    Nested observations become one dictionary whose keys are joined by `/`; the parts of a tuple
    are named by their position. `qpos` and `qvel` among the infos of every episode, or else
    `state`, become `states`, so that steps can be rendered again.

    Args:
        dataset: an id such as `"D4RL/door/human-v2"`, or a `minari.MinariDataset`.
        download: fetch an id that is not on this machine. False by default, since data sets
            may be many gigabytes.

    Raises:
        DataError: an unknown id, no episodes, no spaces or spaces that arrays of numbers cannot
            hold, or HDF5 that points to other files or is far larger in memory.
        MissingExtraError: minari is not installed.
    """
    if isinstance(dataset, str):
        dataset = _open(dataset, download)
    name = f"Minari data set {dataset.spec.dataset_id}"
    parts = [_episode(data, f"{name}, episode {data.id}") for data in dataset]
    check(parts, name, "at least one episode", "none")
    return join(parts)


def _open(name: str, download: bool) -> Any:
    """Open a data set once nothing is left that Minari would follow to other code or files."""
    minari, what = require("minari", extra="minari"), f"Minari data set {name!r}"
    fix = f"See `minari list local` and `minari list remote`; fetch it: `minari download {name}`."
    with reading_foreign(what, "the id of one that is on this machine", fix):
        folder = Path(minari.storage.datasets_root_dir.get_dataset_path(name)) / "data"
        if download and not folder.is_dir():
            minari.download_dataset(name)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not there")
        metadata = read_object(folder / "metadata.json")
        if not {"observation_space", "action_space"} <= metadata.keys():
            raise DataError(
                f"{what}: expected its observation space and action space in metadata.json, got "
                f"{sorted(metadata)}. Without them, Minari calls what the data set names as its "
                "environment. If you trust its maker, load it with minari.load_dataset and pass "
                "what it returns."
            )
        for file in sorted(folder.rglob("*.hdf5")):
            with open_hdf5(file):
                pass  # checked as it is opened
        return minari.load_dataset(name)


def _episode(data: Any, name: str) -> Episodes:
    steps = len(data.rewards)
    observations = _observations(data.observations, f"{name}, observations", steps)
    actions, states = _numbers(data.actions, f"{name}, actions"), _states(data.infos or {}, steps)
    check(len(actions) == steps, f"{name}, actions", f"{steps} rows", f"{len(actions)} rows")
    terminated = np.asarray(data.terminations, bool)
    columns = observations, actions, np.asarray(data.rewards)
    success = _success(data.infos or {}, steps)
    return one_episode(*columns, steps, terminated=terminated, states=states, success=success)


def _observations(nested: Any, name: str, steps: int) -> Observations:
    """`[T + 1, *obs]`, each array checked."""
    flat: Any = _flatten(nested) if isinstance(nested, Mapping | tuple) else nested
    arrays: Observations = map_observations(lambda a: _numbers(a, name), flat)
    rows = {len(array) for array in leaves(arrays)}
    expected = f"{steps + 1} rows, one more than the {steps} steps"
    check(rows == {steps + 1}, name, expected, f"{sorted(rows)} rows")
    return arrays


def _flatten(nested: Any) -> dict[str, Any]:
    """Leaves of nested dictionaries and tuples by their path."""
    flat: dict[str, Any] = {}
    for key, value in nested.items() if isinstance(nested, Mapping) else enumerate(nested):
        if isinstance(value, Mapping | tuple):
            flat |= {f"{key}/{inner}": leaf for inner, leaf in _flatten(value).items()}
        else:
            flat[str(key)] = value
    return flat


def _numbers(value: Any, name: str) -> Array:
    expected = "a space of numbers (Box, Discrete, MultiDiscrete, MultiBinary)"
    plain = not isinstance(value, Mapping | tuple)
    check(plain, name, expected, f"a {type(value).__name__}")
    array = np.asarray(value)
    require_numbers(name, array, expected)
    return array


def _success(infos: Mapping[str, Any], steps: int) -> Array | None:
    """`[T]` whether the environment reported success with each step, or None."""
    found = np.asarray(infos.get("success", ()))
    whole = found.ndim == 1 and len(found) >= steps and found.dtype.kind in "biuf"
    return found[len(found) - steps :].astype(bool) if whole and steps else None


def _states(infos: Mapping[str, Any], steps: int) -> Array | None:
    """`[T, state]` of the simulator at each step's observation, or None."""
    keys = ("qpos", "qvel") if "qpos" in infos and "qvel" in infos else ("state",)
    parts = [np.asarray(infos[key]) for key in keys if key in infos]
    whole = [part.ndim == 2 and len(part) >= steps and part.dtype.kind in "iuf" for part in parts]
    if not parts or not all(whole):
        return None
    return np.concatenate([part[:steps] for part in parts], axis=1)
