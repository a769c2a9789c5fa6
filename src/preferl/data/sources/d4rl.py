"""HDF5 files of D4RL, read in the Q-learning view, whose rows published labels number.

Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning"; gym is not needed.
"""

from pathlib import Path

import numpy as np

from preferl.data.columns import as_floats, one_per_row, require_rows
from preferl.data.episodes import Episodes
from preferl.data.sources.endings import NEXT, check_next, warn_of_unread
from preferl.data.sources.hdf5 import open_hdf5, read_array
from preferl.data.tasks import Task, find_task
from preferl.errors import DataError
from preferl.shapes import BoolArray, IntArray


def load_d4rl(path: str | Path, *, task: str | Task | None = None) -> Episodes:
    """Read a D4RL file in its Q-learning view. Label files number the rows of this view.

    The view drops the file's last row, and all rows at which a time limit ended the episode. The
    next observation of a row is the observation of the file's following row, even if the view drops
    that row. If the file has `next_observations`, they must agree with this.

    An episode ends where the file marks that it terminated or timed out, and at the end of the
    file. A terminated step stays in the view. A step that timed out is dropped, and its observation
    becomes the final one. In a maze, an episode also ends where the goal moves in any direction.
    D4RL's own code only notices moves whose coordinates sum to more than 0.

    Args:
        path: an `.hdf5` file with `observations`, `actions`, `rewards`, `terminals` and usually
            `timeouts`. `infos/qpos` and `infos/qvel` become `states`.
        task: name or row of `preferl.data.TASKS`, needed if the file has no `timeouts`. Each
            `max_episode_steps`-th step of an episode then counts as a timeout. With a task, a moved
            goal ends episodes if the task says so; without a task, if the file has `infos/goal`.

    Raises:
        ConfigError: the task is unknown.
        DataError: the file is damaged, an array is missing, arrays differ in length, a number is
            NaN, the view keeps no row, or `next_observations` contradict the following rows.
        MissingExtraError: h5py is not installed.
    """
    row = None if task is None else find_task(task)
    keys = ["observations", "actions", "rewards", "terminals"]
    with open_hdf5(path) as file:
        keys += [key for key in ("timeouts", "infos/qpos", "infos/qvel", NEXT) if key in file]
        warn_of_unread(path, file, keys, "episodes end by `terminals` and `timeouts` alone")
        if "infos/goal" in file if row is None else row.goal_ends_episode:
            keys.append("infos/goal")
        arrays = {key: read_array(file, key, f"{path}") for key in keys}
    for key in {"rewards", "terminals", "timeouts"} & arrays.keys():
        arrays[key] = one_per_row(f"{path}, {key}", arrays[key])
    if require_rows(arrays, path) < 2:
        raise DataError(f"{path}: expected at least two rows, got fewer.")
    terminals = arrays["terminals"].astype(bool)
    recorded_timeouts = arrays.get("timeouts")
    timeouts = (
        _timeouts(terminals, row, path)
        if recorded_timeouts is None
        else recorded_timeouts.astype(bool)
    )
    goal = arrays.get("infos/goal", np.zeros(len(terminals)))
    moves = np.append((goal[1:] != goal[:-1]).reshape(len(goal) - 1, -1).any(axis=1), False)
    observations = arrays["observations"]
    if NEXT in arrays:
        check_next(f"{path}", observations, arrays[NEXT], ~(terminals | timeouts | moves)[:-1])
    rows, lengths = qlearning_view(terminals, timeouts, moves)
    if not len(rows):
        raise DataError(
            f"{path}: expected a row, other than the last one, that is not a timeout, got "
            f"{len(terminals)} rows, of which {int(timeouts.sum())} are timeouts. Rows of timeouts "
            "are dropped; mark only the last row of each episode in `timeouts`."
        )
    last_rows = rows[np.cumsum(lengths) - 1]
    states = [arrays[key][rows] for key in ("infos/qpos", "infos/qvel") if key in arrays]
    return Episodes(
        observations=observations[rows],
        actions=arrays["actions"][rows],
        rewards=as_floats(arrays["rewards"][rows]),
        terminated=terminals[rows],
        final_observations=arrays[NEXT][last_rows]
        if NEXT in arrays
        else observations[last_rows + 1],
        lengths=lengths,
        states=np.concatenate(states, axis=1) if len(states) == 2 else None,
    )


def qlearning_view(
    terminals: BoolArray, timeouts: BoolArray, moves: BoolArray | bool = False
) -> tuple[IntArray, IntArray]:
    """Return the rows `[T]` of a file that the view keeps, and the lengths `[K]` of its episodes.

    Episodes terminate (`terminals` `[N]`), are ended by a time limit (`timeouts`, whose rows are
    dropped), or end where a goal `moves`.
    """
    is_end = terminals | timeouts | moves
    episode: IntArray = np.cumsum(is_end) - is_end  # a row that ends an episode belongs to it
    is_kept = ~timeouts
    is_kept[-1:] = False  # the row after it is not known
    lengths = np.bincount(episode[is_kept])
    return np.flatnonzero(is_kept), lengths[lengths > 0]


def _timeouts(terminals: BoolArray, task: Task | None, path: str | Path) -> BoolArray:
    """`[N]` true at each `max_episode_steps`-th step of an episode."""
    if task is None:
        raise DataError(
            f"{path}: expected an array 'timeouts', got none. Pass `task`: its max_episode_steps "
            "tell where episodes were cut."
        )
    row = np.arange(len(terminals))
    is_start = np.append(True, terminals[:-1])
    step = row - np.maximum.accumulate(np.where(is_start, row, 0))
    return np.asarray(step % task.max_episode_steps == task.max_episode_steps - 1)
