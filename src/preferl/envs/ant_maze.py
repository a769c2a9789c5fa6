"""Ant mazes of D4RL's `antmaze` tasks, in gymnasium-robotics' simulator (extra `robotics`).

Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning", section 5.1.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, SupportsFloat, cast, final

import gymnasium
import numpy as np
from gymnasium import spaces

from preferl.envs.simulators import make_registered
from preferl.errors import require_one_of
from preferl.shapes import FloatArray

MAZES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "UMaze": (
            "#####",
            "#r..#",
            "###.#",
            "#g..#",
            "#####",
        ),
        "Medium": (
            "########",
            "#r.##..#",
            "#..#...#",
            "##...###",
            "#..#...#",
            "#.#..#.#",
            "#...#.g#",
            "########",
        ),
        "Large": (
            "############",
            "#r...#.....#",
            "#.##.#.#.#.#",
            "#......#...#",
            "#.####.###.#",
            "#..#.#.....#",
            "##.#.#.#.###",
            "#..#...#.g.#",
            "############",
        ),
    }
)
"""D4RL's maps for evaluation, in cells of 4 m: walls, the start `r` and the goal `g`."""

GOAL_RADIUS: Final = 0.5
"""Metres from the goal at which an episode ends with a reward of 1."""


@final
class AntMaze(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An ant that learns to walk through a maze to a goal, as in version 2 of D4RL's tasks.

    An observation is the ant's `qpos` (15 numbers; the first are the place in metres from the
    start's cell) and `qvel` (14 numbers). It does not contain the goal. The reward is 1 at the
    goal, where the episode ends, and 0 elsewhere.

    gymnasium-robotics' own environment has the same walls, but differs in other ways. Its map is
    mirrored and has its origin in the middle, its ant is five times as strong, its ground is
    harder, its steps are half as long, and its starts and goals vary more. Here all of this is as
    in D4RL.

    Args:
        maze: key of `MAZES`.
        render_mode: see Gymnasium.

    Raises:
        ConfigError: the maze is unknown.
        MissingExtraError: the extra `robotics` is not installed.
    """

    def __init__(self, maze: str, *, render_mode: str | None = None) -> None:
        require_one_of("maze", maze, tuple(MAZES))
        env = make_registered(
            f"AntMaze_{maze}-v5",
            maze_map=_around_start(MAZES[maze]),
            include_cfrc_ext_in_observation=False,
            render_mode=render_mode,
        )
        super().__init__(env)
        self.observation_space = spaces.Box(-np.inf, np.inf, (29,), np.float64)
        self.metadata = {**env.metadata, "render_fps": 10}
        self._world = cast(Any, env.unwrapped)
        model = self._world.model
        model.opt.timestep = 0.02  # five of them make a step
        model.actuator_gear[:, 0] = 30  # newton metres at an action of 1
        model.geom_solimp[:, :3] = 0.8, 0.8, 0.01
        # MuJoCo 3.5 began to add the margins of a pair
        model.geom_margin[model.geom_bodyid == 0] = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode at the start, with noise and a goal from the same seed."""
        self.env.reset(seed=seed, options=options)
        rng = self.np_random
        goal = self._world.maze.unique_goal_locations[0]
        self._world.goal = goal + rng.uniform(0, 1, size=2) + rng.uniform(0, 0.5, size=2)
        self._world.update_target_site_pos()
        ant = self._world.ant_env
        ant.init_qpos[:2] = 0
        qpos = ant.init_qpos + rng.uniform(-0.1, 0.1, size=15)
        qvel = ant.init_qvel + 0.1 * rng.standard_normal(14)
        ant.set_state(qpos, qvel)
        return self._observation(), {"success": False}

    def step(self, action: Any) -> tuple[FloatArray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Make one step of 0.1 seconds."""
        _, _, _, truncated, info = self.env.step(action)
        observation = self._observation()
        distance = np.linalg.norm(observation[:2] - self._world.goal)
        success = bool(distance <= GOAL_RADIUS)
        return observation, float(success), success, truncated, info | {"success": success}

    def _observation(self) -> FloatArray:
        data = self._world.data
        return np.concatenate([data.qpos, data.qvel])


def _around_start(rows: Sequence[str]) -> list[list[int | str]]:
    """Return gymnasium-robotics' map of a maze, in which the start is at (0, 0) and rows go up y.

    gymnasium-robotics puts the origin in the middle of a map and its first row at the top. Free
    cells beside and below the maze move the middle to the start, in row 1 and column 1.
    """
    width = 2 * len(rows[0]) - 3
    cells = [row.rjust(width, ".") for row in reversed(rows)]
    cells += ["." * width] * (len(rows) - 3)
    return [[{"#": 1, ".": 0}.get(cell, cell) for cell in row] for row in cells]
