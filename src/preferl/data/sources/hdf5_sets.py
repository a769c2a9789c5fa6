"""HDF5 files of D4RL and robomimic, in the views that published labels count rows in.

Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning"; Mandlekar et al. 2021,
"What Matters in Learning from Offline Human Demonstrations for Robot Manipulation", read as Kim et
al. 2023, "Preference Transformer", index it. Neither gym nor d4rl is needed.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from preferl.data.columns import as_floats, check, require_rows
from preferl.data.episodes import Episodes, join, one_episode
from preferl.data.sources.hdf5 import open_hdf5, read_array
from preferl.data.tasks import Task, find_task
from preferl.errors import ConfigError, DataError, mismatch, require_one_of
from preferl.reading import parse_json
from preferl.shapes import BoolArray, IntArray

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


def load_d4rl(path: str | Path, *, task: str | Task | None = None) -> Episodes:
    """Read a D4RL file as its Q-learning view, whose row numbers label files use.

    The view has every row of the file but those that a time limit ended and the last one; a
    row's next observation is that of the following row of the file, dropped or not. An episode
    ends where the file marks that it terminated (that step stays and is terminated) or timed out
    (that step is given up for its observation), and at the end of the file. In a maze it also
    ends where the goal moves in any direction; the original sees only moves of positive sum.

    Args:
        path: an `.hdf5` file with `observations`, `actions`, `rewards`, `terminals` and
            mostly `timeouts`. `infos/qpos` and `infos/qvel` become `states`.
        task: name or row of `preferl.data.TASKS`. Needed where the file has no `timeouts`: each
            `max_episode_steps`-th step of an episode then counts as one. By default a goal ends
            episodes wherever the file has `infos/goal`; with a task, where the task has it so.

    Raises:
        ConfigError: an unknown task.
        DataError: no whole HDF5 file, a missing array, arrays of different lengths, NaN.
        MissingExtraError: h5py is not installed.
    """
    row = None if task is None else find_task(task)
    keys = ["observations", "actions", "rewards", "terminals"]
    with open_hdf5(path) as file:
        keys += [key for key in ("timeouts", "infos/qpos", "infos/qvel") if key in file]
        if "infos/goal" in file if row is None else row.goal_ends_episode:
            keys.append("infos/goal")
        arrays = {key: read_array(file, key, f"{path}") for key in keys}
    for key in {"rewards", "terminals", "timeouts"} & arrays.keys():
        array = arrays[key]
        flat = array.size == len(array)
        check(flat, f"{path}, {key}", "one number per row", f"shape {array.shape}")
        arrays[key] = array.reshape(-1)  # some files have [N, 1]
    check(require_rows(arrays, path) >= 2, path, "at least two rows", "fewer")
    terminals = arrays["terminals"].astype(bool)
    known = arrays.get("timeouts")
    timeouts = _timeouts(terminals, row, path) if known is None else known.astype(bool)
    goal = arrays.get("infos/goal", np.zeros(len(terminals)))
    moves = np.append((goal[1:] != goal[:-1]).reshape(len(goal) - 1, -1).any(axis=1), False)
    rows, lengths = qlearning_view(terminals, timeouts, moves)
    observations, last = arrays["observations"], rows[np.cumsum(lengths) - 1]
    states = [arrays[key][rows] for key in ("infos/qpos", "infos/qvel") if key in arrays]
    return Episodes(
        observations=observations[rows],
        actions=arrays["actions"][rows],
        rewards=as_floats(arrays["rewards"][rows]),
        terminated=terminals[rows],
        final_observations=observations[last + 1],
        lengths=lengths,
        states=np.concatenate(states, axis=1) if len(states) == 2 else None,
    )


def qlearning_view(
    terminals: BoolArray, timeouts: BoolArray, moves: BoolArray | bool = False
) -> tuple[IntArray, IntArray]:
    """Rows of a file that the view keeps, and how they are divided into episodes.

    Episodes end by the rules (`terminals`, `[N]`), by a time limit (`timeouts`, whose rows are
    dropped) or because a goal `moves`. `[T]` rows come with `[K]` steps of each episode.
    """
    ends = terminals | timeouts | moves
    episode: IntArray = np.cumsum(ends) - ends  # a row that ends an episode still belongs to it
    kept = ~timeouts
    kept[-1:] = False  # nothing is known to follow
    lengths = np.bincount(episode[kept])
    return np.flatnonzero(kept), lengths[lengths > 0]


def _timeouts(terminals: BoolArray, task: Task | None, path: str | Path) -> BoolArray:
    """`[N]` true at each `max_episode_steps`-th step of an episode."""
    if task is None:
        fix = "Pass `task`, whose max_episode_steps are where episodes were cut."
        raise DataError.mismatch(f"{path}", expected="an array 'timeouts'", got="none", fix=fix)
    row = np.arange(len(terminals))
    begins = np.append(True, terminals[:-1])
    step = row - np.maximum.accumulate(np.where(begins, row, 0))
    return np.asarray(step % task.max_episode_steps == task.max_episode_steps - 1)


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
    several = observation_keys and not isinstance(observation_keys, str)
    ConfigError.check(several, "observation_keys", "a list of keys", repr(observation_keys))
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
    """Compare the order in which recorded observations are put end to end with a simulator's.

    A policy trained on one order and played in another sees noise. The file names its simulator
    but not the order in which that concatenates, so without `environment` there is only a
    warning.

    Args:
        path: the file.
        environment: keys in the simulator's order to their dimensions.
        observation_keys: as for `load_robomimic`.

    Raises:
        DataError: other keys, another order or other dimensions; or a damaged file.
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
    if environment is not None:
        same, expected = [*environment.items()] == [*recorded.items()], dict(environment)
        fix = "Load with observation_keys in the simulator's order."
        check(same, what, f"the simulator's {expected}", recorded, fix)
        return
    got = f"{simulator}, which does not record its order"
    fix = "Pass `environment`, its keys and dimensions, before playing a policy there."
    message = mismatch(what, expected="that of the simulator", got=got, fix=fix)
    warnings.warn(message, stacklevel=2)


def _demonstrations(file: Any, path: str | Path) -> tuple[Any, list[str]]:
    """The group that holds demonstrations, and their names in lexicographic order."""
    group, there = file.get("data"), ", ".join(sorted(file)) or "an empty file"
    names = sorted(group) if isinstance(group, Mapping) else []  # not there, or an array
    check(names, path, "a group 'data' of demonstrations", there)
    return group, names


def _episode(demonstration: Any, keys: Sequence[str], name: str) -> Episodes:
    fields = [f"obs/{key}" for key in keys] + ["actions", "rewards", "dones"]
    fields += ["states"] if "states" in demonstration else []
    arrays = {key: read_array(demonstration, key, name) for key in fields}
    steps = require_rows(arrays, name) - 1
    check(steps >= 1, name, "at least two steps", steps + 1)
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
