"""Read any kind of data, and two plain layouts: demonstrations and stacked episodes.

Demonstrations are a pickled list of dictionaries of arrays. This is the layout of hand_dapg
(Rajeswaran et al. 2018, "Learning Complex Dexterous Manipulation with Deep Reinforcement Learning
and Demonstrations"). Stacked episodes are `.npz` files of episodes that were recorded side by side
and have the same length.
"""

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from preferl.data.arrays import load_episodes, load_npz
from preferl.data.columns import (
    as_floats,
    naming,
    one_per_row,
    reading_foreign,
    require_names,
    require_numbers,
    require_rows,
)
from preferl.data.episodes import Episodes, join, one_episode, require_alike
from preferl.data.sources.d4rl import load_d4rl
from preferl.data.sources.endings import NEXT, check_next, warn_of_unread
from preferl.data.sources.hdf5 import SIGNATURE, open_hdf5
from preferl.data.sources.hub import PREFIX, holds_columns, load_hub_dataset
from preferl.data.sources.lerobot import holds_lerobot, open_lerobot
from preferl.data.sources.minari import load_minari
from preferl.data.sources.pickles import array_of, load_pickle
from preferl.data.sources.robomimic import check_observation_order, load_robomimic
from preferl.data.tasks import Task
from preferl.errors import DataError, require_one_of
from preferl.reading import Expansion
from preferl.shapes import Array

LastObservation = Literal["reset", "reached"]

_ZIP = b"PK\x03\x04"
_MINARI_ID = re.compile(r"[\w/-]+-v\d+")
_FIELDS = ("observations", "actions", "rewards")
_TERMINATIONS = ("terminals", "terminations", "dones")
_TIME_LIMITS = ("timeouts", "truncations")


def load_source(source: str | Path, *, task: str | Task | None = None) -> Episodes:
    """Read episodes from a source of any kind, with the defaults of that kind's reader.

    A source is a folder of preferl or of `.npz` files, a pickle of demonstrations, a D4RL or
    robomimic HDF5 file, an `.npz` file of stacked episodes, columns of `datasets` (as Parquet,
    Arrow, a `save_to_disk` folder or on the hub), a LeRobot data set, or a Minari data set on this
    machine. The kind of a file is recognised by its content, so its name does not matter.

    A robomimic file does not record in which order its simulator joins the parts of an observation.
    If a policy gets another order, it sees noise. There is therefore a warning; see
    `check_observation_order`.

    Args:
        source: a path, `hub:OWNER/NAME` or `hub:OWNER/NAME:CONFIG`, or the id of a Minari data set,
            with or without `minari:` before it. For a LeRobot data set, `:NAME,NAME` after it
            chooses which features to observe.
        task: row of `preferl.data.TASKS`. A D4RL file may need it. For columns, it gives the
            time limit.

    Raises:
        ConfigError: the task is unknown.
        DataError: the source is of none of these kinds, is damaged, or has no episodes. The message
            says which kind was expected.
        MissingExtraError: a library for the format is not installed.
    """
    episodes = _read_source(source, task)
    if not len(episodes):
        raise DataError(f"{source}: expected at least one episode, got none; record some first")
    return episodes


def _read_source(source: str | Path, task: str | Task | None) -> Episodes:
    name = str(source)
    path = Path(source)
    if name.startswith("minari:"):
        return load_minari(name.removeprefix("minari:"))
    if holds_lerobot(source):
        return open_lerobot(source).episodes()
    if name.startswith(PREFIX):
        return load_hub_dataset(name, task=task)
    if path.is_dir():
        if (path / "about.json").is_file():
            return load_episodes(path)
        if holds_columns(path):
            return load_hub_dataset(path, task=task)
        return load_stacked(path) if any(path.glob("*.npz")) else load_episodes(path)
    if not path.is_file():
        if not _MINARI_ID.fullmatch(name):
            raise DataError(
                f"{name}: expected a file, a folder, or the id of a Minari data set such as "
                "D4RL/door/human-v2, got none of them."
            )
        return load_minari(name)
    with path.open("rb") as file:
        head = file.read(len(SIGNATURE))
    if head == SIGNATURE or path.suffix in (".hdf5", ".h5"):
        with open_hdf5(path) as file_contents:
            robomimic = "data" in file_contents and "observations" not in file_contents
        if not robomimic:
            return load_d4rl(path, task=task)
        check_observation_order(path)
        return load_robomimic(path)
    if holds_columns(path):
        return load_hub_dataset(path, task=task)
    stacked = head.startswith(_ZIP) or path.suffix == ".npz"
    return load_stacked(path) if stacked else load_demonstrations(path)


def load_demonstrations(path: str | Path, *, drop_last: bool = True) -> Episodes:
    """Read a pickled list of demonstrations, each `{observations, actions, rewards}`.

    The layout of hand_dapg does not record how demonstrations ended, so none counts as terminated.
    The layout of the Decision Transformer's data (Chen et al. 2021) does. In it, the last of
    `terminals` or `dones` tells whether a demonstration terminated, and `next_observations` holds
    what followed its last step, so every step is kept. Other keys, such as `init_state_dict`, are
    not read.

    Args:
        path: a pickle written by Python 2 or 3; it is read without running anything in it.
        drop_last: leave out the last step of each demonstration, and take its observation as the
            final one, as D4RL's Q-learning view does. A demonstration that terminated or has
            `next_observations` keeps its last step. True is the default for two reasons: every next
            observation was then recorded, and published label files count rows in this view. False
            keeps every step and repeats the last observation as the final one.

    Raises:
        DataError: the file is not a list of demonstrations, or a demonstration (counted from 0)
            lacks an array, has arrays of other lengths or shapes, is too short, has an end before
            its last step, or has `next_observations` that contradict its observations.
        UnsafePickleError: the pickle wants to run code.
    """
    demonstrations = load_pickle(path)
    if not demonstrations or not isinstance(demonstrations, list | tuple):
        raise DataError(
            f"{path}: expected a list of demonstrations, each a dictionary of arrays, got "
            f"{type(demonstrations).__name__ if demonstrations else 'nothing'}."
        )
    expansion = Expansion.of(Path(path))  # the list may hold one demonstration many times
    episodes = [
        _demonstration(arrays, f"{path}, demonstration {k}", expansion, drop_last)
        for k, arrays in enumerate(demonstrations)
    ]
    for field in _FIELDS:
        parts = [getattr(episode, field) for episode in episodes]
        require_alike(f"{path}, {field}", parts, unit="demonstration")
    return join(episodes)


def _demonstration(
    demonstration: Any, name: str, expansion: Expansion, drop_last: bool
) -> Episodes:
    if not isinstance(demonstration, Mapping):
        raise DataError(
            f"{name}: expected a dictionary of arrays, got {type(demonstration).__name__}."
        )
    require_names(name, _FIELDS, demonstration, "keys")
    end_keys = [key for key in (*_TERMINATIONS, *_TIME_LIMITS, NEXT) if key in demonstration]
    warn_of_unread(
        name, demonstration, end_keys, "only the last of `terminals` or `dones` terminates"
    )
    arrays = {
        key: np.asarray(array_of(demonstration[key], f"{name}, {key}", expansion))
        for key in (*_FIELDS, *end_keys)
    }
    for key, array in arrays.items():
        require_numbers(f"{name}, {key}", array)
    expansion.add(sum(array.nbytes for array in arrays.values()))
    if arrays["rewards"].ndim != 1:
        raise DataError(f"{name}, rewards: expected shape [T], got {arrays['rewards'].shape}.")
    steps = require_rows(arrays, name)
    terminated = _terminated(arrays, name)
    fields = {key: arrays[key] for key in _FIELDS}
    if NEXT in arrays:
        check_next(name, fields["observations"], arrays[NEXT], np.ones(max(0, steps - 1), bool))
        fields["observations"] = np.concatenate([fields["observations"], arrays[NEXT][-1:]])
    dropped = int(drop_last and not terminated and NEXT not in arrays)
    steps -= dropped
    if steps < 1:
        raise DataError(f"{name}: expected at least {1 + dropped} steps, got {steps + dropped}.")
    with naming(name):
        terminated_steps = (np.arange(steps) == steps - 1) & terminated
        return one_episode(**fields, steps=steps, terminated=terminated_steps)


def _terminated(arrays: Mapping[str, Array], name: str) -> bool:
    """Whether a demonstration terminated at its last step; refuse an earlier end."""
    last_step_marked = {}
    for key in (*_TERMINATIONS, *_TIME_LIMITS):
        if key in arrays:
            marks = one_per_row(f"{name}, {key}", arrays[key]).astype(bool)
            if marks[:-1].any():
                raise DataError(
                    f"{name}, {key}: expected none before the last step, got one in step "
                    f"{int(marks.argmax())}."
                )
            last_step_marked[key] = bool(marks[-1:].any())
    if any(key in last_step_marked for key in _TERMINATIONS[:-1]):
        return any(last_step_marked.get(key, False) for key in _TERMINATIONS[:-1])
    # A file that has only `dones` also marks time limits by them.
    return last_step_marked.get("dones", False) and not any(
        last_step_marked.get(key, False) for key in _TIME_LIMITS
    )


def load_stacked(path: str | Path, *, last_observation: LastObservation = "reset") -> Episodes:
    """Read `.npz` files of `observations [K, T, *obs]`, `actions`, `rewards` and `dones`.

    Each episode gives `T - 1` steps, since no row follows its last one. `dones` may be true only in
    that last row. They are time limits, so no episode terminates. Such files do not record whether
    a task was solved.

    Args:
        path: a file, or a folder whose `.npz` files are read in the order of their names.
        last_observation: what the last row observed. `"reset"`, the default and the safe choice,
            means the first observation of the next episode, from a simulator that resets by itself.
            It is left out, and the observation before it is the final one. `"reached"` means the
            observation after the last step.

    Raises:
        ConfigError: `last_observation` is unknown.
        DataError: files are missing or damaged, arrays are missing, axes do not agree, an episode
            has a done before its end, or a number is NaN.
    """
    require_one_of("last_observation", last_observation, LastObservation)
    path = Path(path)
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: expected a folder with .npz files, got none.")
    return join([_stacked_episodes(file, last_observation) for file in files])


def _stacked_episodes(file: Path, last: LastObservation) -> Episodes:
    with reading_foreign(file, "a whole .npz file of numbers"):
        arrays = load_npz(file, (*_FIELDS, "dones"))
        with zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    warn_of_unread(file, names, ("dones",), "`dones` are time limits, and no episode terminates")
    axes = arrays["rewards"].shape
    if len(axes) != 2 or axes[0] < 1 or axes[1] < 2:
        raise DataError(f"{file}, rewards: expected shape [K, T], T at least 2, got {axes}.")
    for name, array in arrays.items():
        expected = f"numbers of shape {axes} and more"
        require_numbers(f"{file}, {name}", array, expected, axes=2)
        if array.shape[:2] != axes:
            raise DataError(f"{file}, {name}: expected {expected}, got {array.shape}.")
    has_early_done = arrays["dones"][:, :-1].any(axis=1)
    if has_early_done.any():
        raise DataError(
            f"{file}, dones: expected none before the last row, since all episodes have the same "
            f"length, got one inside episode {int(has_early_done.argmax())}."
        )
    episodes = axes[0]
    steps = axes[1] - 1
    flat = {name: array[:, :-1].reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
    with naming(file):
        return Episodes(
            observations=flat["observations"],
            actions=flat["actions"],
            rewards=as_floats(flat["rewards"]),
            terminated=np.zeros(episodes * steps, bool),
            final_observations=arrays["observations"][:, -1 if last == "reached" else -2],
            lengths=np.full(episodes, steps),
        )
