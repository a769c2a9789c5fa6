"""D4RL's HDF5 files, read without gym or d4rl, in the view that published labels count rows in.

Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning".
"""

from pathlib import Path
from typing import Any

import numpy as np

from preferl.data.columns import as_floats, require_rows
from preferl.data.episodes import Episodes
from preferl.data.sources.hdf5 import open_hdf5, read_array
from preferl.data.tasks import Task, find_task
from preferl.errors import DataError
from preferl.shapes import Array, BoolArray, IntArray

_COLUMNS = {"rewards", "terminals", "timeouts"}


def load_d4rl(path: str | Path, *, task: str | Task | None = None) -> Episodes:
    """Read a D4RL file as its Q-learning view, whose row numbers label files use.

    The view has every row of the file but those that a time limit ended and the last one; a
    row's next observation is that of the following row of the file, dropped or not. An episode
    ends where the file says that it terminated (that step stays and is terminated) or timed out
    (that step is given up for its observation), and at the end of the file. In a maze it also
    ends where the goal moves in any direction; the original sees only moves of positive sum.

    Args:
        path: an `.hdf5` file with `observations`, `actions`, `rewards`, `terminals` and
            mostly `timeouts`. `infos/qpos` and `infos/qvel` become `states`.
        task: name or row of `preferl.data.TASKS`. Needed where the file has no `timeouts`: each
            `max_episode_steps`-th step of an episode then counts as one. By default a goal ends
            episodes wherever the file has `infos/goal`; with a task, where the task says so.

    Raises:
        ConfigError: an unknown task.
        DataError: no whole HDF5 file, a missing array, arrays of different lengths, NaN.
        MissingExtraError: h5py is not installed.
    """
    row = None if task is None else find_task(task)
    with open_hdf5(path) as file:
        arrays = _arrays(file, row, str(path))
    if require_rows(arrays, path) < 2:
        raise DataError.mismatch(f"{path}", expected="at least two rows", got="fewer")
    terminals = arrays["terminals"].astype(bool)
    timeouts = _timeouts(arrays, terminals, row, path)
    rows, lengths = qlearning_view(terminals, timeouts, _moves(arrays.get("infos/goal")))
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
    terminals: BoolArray, timeouts: BoolArray, moves: BoolArray | None = None
) -> tuple[IntArray, IntArray]:
    """Rows of a file that the view keeps, and how they part into episodes.

    Args:
        terminals: `[N]` true where an episode ended by the rules.
        timeouts: `[N]` true where it was cut off; these rows are dropped.
        moves: `[N]` true where a new episode follows for another reason.

    Returns:
        `(rows, lengths)`, `[T]` rows of the file and `[K]` steps of each episode.

    >>> rows, lengths = qlearning_view(np.array([0, 1, 0, 0, 0], bool),
    ...                                np.array([0, 0, 0, 1, 0], bool))
    >>> rows.tolist(), lengths.tolist()
    ([0, 1, 2], [2, 1])
    """
    ends = terminals | timeouts if moves is None else terminals | timeouts | moves
    episode: IntArray = np.cumsum(ends) - ends  # a row that ends an episode still belongs to it
    kept = ~timeouts
    kept[-1:] = False  # nothing is known to follow
    lengths = np.bincount(episode[kept])
    return np.flatnonzero(kept), lengths[lengths > 0]


def _arrays(file: Any, task: Task | None, name: str) -> dict[str, Array]:
    keys = ["observations", "actions", "rewards", "terminals"]
    keys += [key for key in ("timeouts", "infos/qpos", "infos/qvel") if key in file]
    if "infos/goal" in file if task is None else task.goal_ends_episode:
        keys.append("infos/goal")
    arrays = {key: read_array(file, key, name) for key in keys}
    return arrays | {key: _column(arrays[key], f"{name}, {key}") for key in _COLUMNS & set(arrays)}


def _column(array: Array, name: str) -> Array:
    """`[N]` from that or from `[N, 1]`, which some files have."""
    if array.size != len(array):
        raise DataError.mismatch(name, expected="one number per row", got=f"shape {array.shape}")
    return array.reshape(-1)


def _timeouts(
    arrays: dict[str, Array], terminals: BoolArray, task: Task | None, path: str | Path
) -> BoolArray:
    if "timeouts" in arrays:
        return arrays["timeouts"].astype(bool)
    if task is None:
        raise DataError.mismatch(
            f"{path}",
            expected="an array 'timeouts'",
            got="none",
            fix="Pass `task`, whose max_episode_steps then tells where episodes were cut.",
        )
    row = np.arange(len(terminals))
    begins = np.append(True, terminals[:-1])
    step = row - np.maximum.accumulate(np.where(begins, row, 0))
    return np.asarray(step % task.max_episode_steps == task.max_episode_steps - 1)


def _moves(goal: Array | None) -> BoolArray | None:
    """`[N]` true where the goal of the next row is another one."""
    if goal is None:
        return None
    other = (goal[1:] != goal[:-1]).reshape(len(goal) - 1, -1).any(axis=1)
    return np.append(other, False)
