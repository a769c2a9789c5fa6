"""Ant mazes: observations, walls, physics, starts and goals of D4RL in gymnasium-robotics."""

import sys
from contextlib import closing

import numpy as np
import pytest

from preferl.data import TASKS
from preferl.envs.ant_maze import MAZES, AntMaze
from preferl.envs.simulators import make_registered
from preferl.errors import ConfigError, MissingExtraError


@pytest.fixture(params=MAZES)
def maze(request):
    pytest.importorskip("gymnasium_robotics")
    return request.param


@pytest.fixture
def env():
    pytest.importorskip("gymnasium_robotics")
    with closing(make_registered("preferl/AntMaze_UMaze-v0")) as umaze:
        yield umaze


def cells(maze, letter):
    """Rows and columns of the cells that have a letter."""
    return [
        (row, column)
        for row, line in enumerate(MAZES[maze])
        for column, cell in enumerate(line)
        if cell == letter
    ]


def test_observations_are_places_and_velocities_in_the_simulator(env):
    seen, info = env.reset(seed=0)
    assert (env.observation_space.shape, env.action_space.shape) == ((29,), (8,))
    assert info == {"success": False}
    data = env.unwrapped.data
    for step in range(5):
        np.testing.assert_array_equal(seen, [*data.qpos, *data.qvel])
        seen, reward, terminated, truncated, info = env.step(np.full(8, 0.1 * step))
        assert (reward, terminated, truncated, info["success"]) == (0, False, False, False)
    np.testing.assert_array_equal(seen, [*data.qpos, *data.qvel])


def test_walls_are_those_of_gymnasium_robotics_where_d4rl_has_them(maze):
    maps = pytest.importorskip("gymnasium_robotics.envs.maze.maps")
    theirs = {"UMaze": maps.U_MAZE, "Medium": maps.MEDIUM_MAZE, "Large": maps.LARGE_MAZE}[maze]
    assert [[int(cell == "#") for cell in line] for line in MAZES[maze]] == theirs
    with closing(make_registered(f"preferl/AntMaze_{maze}-v0")) as env:
        model = env.unwrapped.model
        walls = [number for number in range(model.ngeom) if "block" in model.geom(number).name]
        centres = sorted(map(tuple, model.geom_pos[walls]))
        assert (model.geom_size[walls] == (2, 2, 1)).all()
    [(start_row, start_column)] = cells(maze, "r")
    assert centres == sorted(
        (4.0 * (column - start_column), 4.0 * (row - start_row), 1.0)
        for row, column in cells(maze, "#")
    )


def test_the_ant_moves_as_d4rls_model_does(env):
    """D4RL's own ant.xml and walls gave the expected state, both in MuJoCo 2.3.7 and in 3.3.7."""
    env.reset(seed=0)
    ant = env.unwrapped.ant_env
    place = np.array([0, 0, 0.75, 1, *[0] * 11])
    ant.set_state(place, np.zeros(14))
    for step in range(6):
        seen, *_ = env.step(np.sin(step + np.arange(8)))
    assert ant.data.time == pytest.approx(0.6)
    expected = [-0.1632, -0.158, 0.5205, 0.9944, -0.0945, -0.0459, -0.0077, -0.0994, 0.87, 0.4442]
    expected += [-0.4826, 0.2438, -1.1574, -0.0088, 0.4706, 0.4274, 0.246, 1.2262, -0.8929, -1.157]
    expected += [1.3604, -0.9714, 2.6671, 5.2542, -0.6571, -4.0793, -3.9738, -5.2871, 0.5903]
    np.testing.assert_allclose(seen, expected, atol=2e-4)


def test_starts_and_goals_vary_as_in_d4rl(maze):
    with closing(make_registered(f"preferl/AntMaze_{maze}-v0")) as env:
        starts = []
        goals = []
        for seed in range(200):
            starts.append(env.reset(seed=seed)[0])
            goals.append(env.unwrapped.goal)
        again = env.reset(seed=7)[0]
        np.testing.assert_array_equal(again, starts[7])
        np.testing.assert_array_equal(env.unwrapped.goal, goals[7])
    starts = np.array(starts)
    lying = np.array([0, 0, 0.75, 1, *[0] * 11])
    assert 0.09 < np.abs(starts[:, :15] - lying).max() <= 0.1
    assert starts[:, 15:].std() == pytest.approx(0.1, rel=0.05)
    [(row, column)] = cells(maze, "g")
    offsets = np.array(goals) - (4 * (column - 1), 4 * (row - 1))
    assert offsets.min() >= 0
    assert 1.3 < offsets.max() <= 1.5
    np.testing.assert_allclose(offsets.mean(axis=0), 0.75, atol=0.08)


@pytest.mark.parametrize(("metres", "reached"), [(0.4, True), (0.6, False)])
def test_an_episode_ends_at_the_goal(env, metres, reached):
    env.reset(seed=1)
    ant = env.unwrapped.ant_env
    qpos = np.array([0, 0, 0.75, 1, *[0] * 11])
    qpos[:2] = env.unwrapped.goal + np.array([0, metres])
    ant.set_state(qpos, np.zeros(14))
    _, reward, terminated, truncated, info = env.step(np.zeros(8))
    assert (reward, terminated, info["success"]) == (float(reached), reached, reached)
    assert not truncated


def test_time_limits_are_d4rls(env):
    env.reset(seed=0)
    for step in range(700):
        truncated = env.step(np.zeros(8))[3]
        assert truncated == (step == 699)


def test_tasks_name_the_maze_of_their_data():
    names = {"umaze": "UMaze", "medium-play": "Medium", "large-diverse": "Large"}
    for data, name in names.items():
        for version in range(3):
            task = TASKS[f"antmaze-{data}-v{version}"]
            assert task.env == f"preferl/AntMaze_{name}-v0"
            assert TASKS[task.env].max_episode_steps == task.max_episode_steps


def test_without_gymnasium_robotics_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'preferl\[robotics\]'"):
        make_registered(TASKS["antmaze-large-play-v2"].env)


def test_other_mazes_are_refused():
    with pytest.raises(ConfigError, match=r"maze: .*'Huge'"):
        AntMaze("Huge")
