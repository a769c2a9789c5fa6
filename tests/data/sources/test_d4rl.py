"""D4RL files become the view that labels count rows in; damaged ones say what is wrong."""

import numpy as np
import pytest

from preferl.data import Task
from preferl.data.sources import load_d4rl
from preferl.data.sources.d4rl import qlearning_view
from preferl.errors import DataError

h5py = pytest.importorskip("h5py", reason="the extra preferl[d4rl] is not installed")


def _arrays(rows=9, terminals=(2,), timeouts=(6,)):
    """Row `i` observes `[i, -i]`, acts `[i]` and has reward `i`."""
    steps = np.arange(rows, dtype=np.float32)
    marks = np.zeros((2, rows), bool)
    marks[0, list(terminals)] = True
    marks[1, list(timeouts)] = True
    return {
        "observations": np.stack([steps, -steps], axis=1),
        "actions": steps[:, None],
        "rewards": steps,
        "terminals": marks[0],
        "timeouts": marks[1],
    }


def _file(folder, arrays=None, **changes):
    path = folder / "data.hdf5"
    with h5py.File(path, "w") as file:
        for key, array in ((_arrays() if arrays is None else arrays) | changes).items():
            if array is not None:
                file[key] = array
    return path


def test_the_q_learning_view(tmp_path):
    # rows 0-2 terminate, 3-6 time out (6 is given up), 7-8 are unfinished (8 is given up)
    episodes = load_d4rl(_file(tmp_path))
    assert episodes.rewards.tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert episodes.lengths.tolist() == [3, 3, 1]
    assert episodes.terminated.tolist() == [False, False, True] + [False] * 4
    assert episodes.truncated.tolist() == [False] * 5 + [True, True]
    assert episodes.final_observations[:, 0].tolist() == [3, 6, 8]
    assert episodes.next_observations[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 8]
    assert episodes.observations.dtype == np.float32
    assert episodes.states is None


@pytest.mark.parametrize(
    ("terminals", "timeouts"),
    [((), range(9)), (range(9), range(9)), ((8,), range(8))],
)
def test_a_file_of_timeouts_alone_has_no_episode(tmp_path, terminals, timeouts):
    path = _file(tmp_path, _arrays(terminals=terminals, timeouts=timeouts))
    with pytest.raises(DataError, match=r"got 9 rows, of which . are timeouts"):
        load_d4rl(path)


def test_the_view_equals_a_loop_over_rows(rng):
    for _ in range(30):
        terminals, timeouts, moves = rng.random((3, 60)) < 0.1
        rows = []
        lengths = []
        length = 0
        for i in range(59):
            if not timeouts[i]:
                rows.append(i)
                length += 1
            if (terminals[i] or timeouts[i] or moves[i] or i == 58) and length:
                lengths.append(length)
                length = 0
        found = qlearning_view(terminals, timeouts, moves)
        assert (found[0].tolist(), found[1].tolist()) == (rows, lengths)


def test_without_timeouts_the_task_determines_them(tmp_path):
    task = Task("walk", random=0, expert=1, max_episode_steps=4)
    # steps 0-2 terminate; 3-6 are four steps, the fourth dropped; 7-8 are unfinished
    episodes = load_d4rl(_file(tmp_path, timeouts=None), task=task)
    assert episodes.rewards.tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert episodes.lengths.tolist() == [3, 3, 1]
    with pytest.raises(DataError, match=r"timeouts.*Pass `task`"):
        load_d4rl(_file(tmp_path, timeouts=None))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_goal_that_moves_ends_an_episode(tmp_path, sign):
    goal = np.zeros((9, 2))
    goal[5:] = sign
    path = _file(tmp_path, **{"infos/goal": goal})
    assert load_d4rl(path).lengths.tolist() == [3, 2, 1, 1]
    assert load_d4rl(path, task="antmaze-umaze-v2").lengths.tolist() == [3, 2, 1, 1]
    assert load_d4rl(path, task="hopper-medium-v2").lengths.tolist() == [3, 3, 1]
    with pytest.raises(DataError, match="an array 'infos/goal'"):
        load_d4rl(_file(tmp_path), task="antmaze-umaze-v2")


def test_positions_and_velocities_become_states(tmp_path):
    infos = {"infos/qpos": np.arange(18.0).reshape(9, 2), "infos/qvel": np.arange(9.0)[:, None]}
    states = load_d4rl(_file(tmp_path, **infos)).states
    assert states.shape == (7, 3)
    assert states[-1].tolist() == [14, 15, 7]
    assert load_d4rl(_file(tmp_path, **{"infos/qpos": np.zeros((9, 2))})).states is None


def test_columns_with_an_axis_of_one(tmp_path):
    arrays = {key: a[:, None] for key, a in _arrays().items() if key in ("rewards", "terminals")}
    assert load_d4rl(_file(tmp_path, **arrays)).rewards.tolist() == [0, 1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rewards": None}, "'rewards'.*got only actions, observations, terminals, timeouts"),
        ({"actions": np.zeros((8, 1))}, "one length.*'actions': 8"),
        ({"observations": np.full((9, 1), np.nan)}, "observations.*finite.*row 0"),
        ({"rewards": np.array([0, 1, np.inf] * 3)}, "rewards.*finite.*row 2"),
        ({"rewards": np.zeros((9, 2))}, r"rewards.*one number per row.*\(9, 2\)"),
        ({"actions": np.array([b"a"] * 9)}, "actions.*numbers"),
        ({"terminals": np.float32(0)}, "terminals.*axis of steps"),
        ({"infos/qpos": np.zeros((3, 1))}, "one length.*'infos/qpos': 3"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path, changes, named):
    with pytest.raises(DataError, match=rf"data\.hdf5.*{named}"):
        load_d4rl(_file(tmp_path, **changes))
