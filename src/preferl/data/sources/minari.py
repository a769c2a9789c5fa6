"""Data sets of Minari, the Farama Foundation's collection of offline trajectories."""

import io
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from preferl._optional import require
from preferl.data.columns import naming, reading_foreign, require_numbers
from preferl.data.episodes import Episodes, join, one_episode
from preferl.data.sources.hdf5 import open_hdf5, read_array
from preferl.errors import DataError
from preferl.reading import Expansion, read_object
from preferl.shapes import Array, Observations, leaves, map_observations

INFOS: Final = ("qpos", "qvel", "state", "success")
"""Infos of an episode that are read."""

NUMBERS: Final = "a space of numbers (Box, Discrete, MultiDiscrete, MultiBinary)"

ROWS_AT_ONCE: Final = 16
"""Number of compressed pictures read at once: few, since each may be as large as its file."""


def load_minari(dataset: Any, *, download: bool = False) -> Episodes:
    """Read a whole Minari data set into memory.

    Nested observations become one dictionary whose keys are joined by `/`. Parts of a tuple are
    named by their position. If the infos of every episode have `qpos` and `qvel`, or else `state`,
    these become `states`, so that steps can be rendered again.

    Args:
        dataset: an id such as `"D4RL/door/human-v2"`, or a `minari.MinariDataset`.
        download: fetch an id that is not on this machine. False by default, since data sets may
            have many gigabytes.

    Raises:
        DataError: the id is unknown; there are no episodes, no spaces, or spaces of other things
            than numbers; or HDF5 links to other files, or unpacks to far more than its size on
            disk.
        MissingExtraError: minari is not installed.
    """
    if isinstance(dataset, str):
        return _joined(_stored(dataset, download), f"Minari data set {dataset!r}")
    return _joined(dataset, f"Minari data set {dataset.spec.dataset_id}")


def _joined(dataset: Iterable[Any], name: str) -> Episodes:
    with reading_foreign(name, "a whole data set of Minari", "Fetch or write it again."):
        parts = [_episode(data, f"{name}, episode {data.id}") for data in dataset]
    if not parts:
        raise DataError(f"{name}: expected at least one episode, got none.")
    return join(parts)


def _stored(name: str, download: bool) -> Iterable[Any]:
    """Return the episodes of a local data set, by Minari's name. No code that it names is run."""
    minari = require("minari", extra="minari")
    what = f"Minari data set {name!r}"
    fix = f"See `minari list local` and `minari list remote`; fetch it: `minari download {name}`."
    with reading_foreign(what, "the id of one that is on this machine", fix):
        folder = Path(minari.storage.datasets_root_dir.get_dataset_path(name)) / "data"
        if download and not folder.is_dir():
            minari.download_dataset(name)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not there")
    with reading_foreign(what, "a whole metadata.json", "Fetch or write it again."):
        metadata = read_object(folder / "metadata.json")
        if not {"observation_space", "action_space"} <= metadata.keys():
            raise DataError(
                f"{what}: expected its observation space and action space in metadata.json, got "
                f"{sorted(metadata)}. Without them, Minari calls what the data set names as its "
                "environment. If you trust its maker, load it with minari.load_dataset and pass "
                "what it returns."
            )
        version = metadata["minari_version"]
        versions = sorted(minari.supported_dataset_versions)
        if version not in versions:
            raise DataError(f"{what}: expected one of versions {versions}, got {version}.")
        if metadata["data_format"] != "hdf5":
            return cast("Iterable[Any]", minari.load_dataset(name))
        return _hdf5_episodes(folder / "main_data.hdf5", metadata, what)


def _hdf5_episodes(file: Path, metadata: Mapping[str, Any], what: str) -> Iterator[Any]:
    """Yield the episodes of an HDF5 file. Minari itself would unpack it without a limit."""
    from gymnasium.spaces import Dict, Tuple

    to_space = require("minari.serialization", extra="minari").deserialize_space
    is_picture = require("minari.dataset.minari_storage", extra="minari").is_image_space
    spaces = {
        name: to_space(metadata[f"{name[:-1]}_space"]) for name in ("observations", "actions")
    }
    packs_pictures = bool(metadata.get("jpeg_encoding", True))
    expansion = Expansion.of(file)

    def read(held: Any, space: Any, name: str) -> Any:
        if isinstance(space, Dict):
            return {key: read(held[key], part, name) for key, part in space.items()}
        if isinstance(space, Tuple):
            return tuple(read(held[f"_index_{k}"], part, name) for k, part in enumerate(space))
        if packs_pictures and is_picture(space):
            return _pictures(held, space.shape, name, expansion)
        require_numbers(name, held, NUMBERS)
        return held[()]

    with open_hdf5(file, expansion) as opened:
        for number in range(metadata["total_episodes"]):
            group = opened[f"episode_{number}"]
            name = f"{what}, episode {number}"
            infos = group.get("infos", {})
            yield SimpleNamespace(
                id=number,
                rewards=read_array(group, "rewards", name),
                terminations=read_array(group, "terminations", name),
                infos={key: infos[key][()] for key in INFOS if _is_numbers(infos.get(key))},
                **{key: read(group[key], space, f"{name}, {key}") for key, space in spaces.items()},
            )


def _is_numbers(held: Any) -> bool:
    return getattr(held, "dtype", np.dtype(object)).kind in "biuf"


def _pictures(held: Any, shape: tuple[int, ...], name: str, expansion: Expansion) -> Array:
    """Return pictures `[T, *shape]` that are stored as JPEG or PNG."""
    image = require("PIL.Image", extra="minari")
    expansion.add(len(held) * math.prod(shape))
    pictures = np.empty((len(held), *shape), np.uint8)
    for row in range(len(held)):
        if row % ROWS_AT_ONCE == 0:
            packed = held[row : row + ROWS_AT_ONCE]
        picture = image.open(io.BytesIO(packed[row % ROWS_AT_ONCE]), formats=("JPEG", "PNG"))
        if (picture.height, picture.width) != shape[:2]:  # checked before it is unpacked
            raise DataError(
                f"{name}: expected pictures of shape {shape}, as in its space, got "
                f"{picture.height} x {picture.width} pixels."
            )
        pictures[row] = np.asarray(picture)
    return pictures


def _episode(data: Any, name: str) -> Episodes:
    steps = len(data.rewards)
    observations = _observations(data.observations, f"{name}, observations", steps)
    actions = _numbers(data.actions, f"{name}, actions")
    states = _states(data.infos or {}, steps)
    if len(actions) != steps:
        raise DataError(f"{name}, actions: expected {steps} rows, got {len(actions)} rows.")
    terminated = np.asarray(data.terminations, bool)
    with naming(name):
        return one_episode(
            observations,
            actions,
            np.asarray(data.rewards),
            steps,
            terminated=terminated,
            states=states,
            success=_success(data.infos or {}, steps),
        )


def _observations(nested: Any, name: str, steps: int) -> Observations:
    """Return observations `[T + 1, *obs]`, after checking each array."""
    flat: Any = _flatten(nested) if isinstance(nested, Mapping | tuple) else nested
    arrays: Observations = map_observations(lambda a: _numbers(a, name), flat)
    rows = {len(array) for array in leaves(arrays)}
    if rows != {steps + 1}:
        raise DataError(
            f"{name}: expected {steps + 1} rows, one more than the {steps} steps, got "
            f"{sorted(rows)} rows."
        )
    return arrays


def _flatten(nested: Any) -> dict[str, Any]:
    """Return the leaves of nested dictionaries and tuples by their path."""
    flat: dict[str, Any] = {}
    for key, value in nested.items() if isinstance(nested, Mapping) else enumerate(nested):
        if isinstance(value, Mapping | tuple):
            flat |= {f"{key}/{inner}": leaf for inner, leaf in _flatten(value).items()}
        else:
            flat[str(key)] = value
    return flat


def _numbers(value: Any, name: str) -> Array:
    if isinstance(value, Mapping | tuple):
        raise DataError(f"{name}: expected {NUMBERS}, got a {type(value).__name__}.")
    array = np.asarray(value)
    require_numbers(name, array, NUMBERS)
    return array


def _success(infos: Mapping[str, Any], steps: int) -> Array | None:
    """Return whether the environment reported success with each step, `[T]`, or None."""
    success = np.asarray(infos.get("success", ()))
    whole = success.ndim == 1 and len(success) >= steps and success.dtype.kind in "biuf"
    return success[len(success) - steps :].astype(bool) if whole and steps else None


def _states(infos: Mapping[str, Any], steps: int) -> Array | None:
    """Return the simulator's state `[T, state]` at each step's observation, or None."""
    keys = ("qpos", "qvel") if "qpos" in infos and "qvel" in infos else ("state",)
    parts = [np.asarray(infos[key]) for key in keys if key in infos]
    whole = [part.ndim == 2 and len(part) >= steps and part.dtype.kind in "iuf" for part in parts]
    if not parts or not all(whole):
        return None
    return np.concatenate([part[:steps] for part in parts], axis=1)
