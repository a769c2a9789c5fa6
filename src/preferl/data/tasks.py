"""Published offline tasks as a table: reference returns, horizons, and how rewards are scaled.

Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning"; Mandlekar et al. 2021,
"What Matters in Learning from Offline Human Demonstrations for Robot Manipulation".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast, final

import numpy as np

from preferl.errors import ConfigError, require_in, require_one_of
from preferl.shapes import FloatArray

Hyperparameters = Literal["mujoco", "antmaze", "adroit"]
Returns = TypeVar("Returns", float, FloatArray)


@final
@dataclass(frozen=True)
class Task:
    """Facts about a data set that it does not contain.

    The fields about scaling rewards follow Kim et al. 2023 (Preference Transformer).
    `preferl.training.scale_by_return_range` uses them.

    Attributes:
        name: name of the data set, as in the names of label folders.
        random: mean return of a random policy, 0 on the normalised scale.
        expert: mean return of an expert, 100 on the normalised scale.
        max_episode_steps: steps after which an episode is cut off. Pass it to `evaluate_policy`,
            since today's environment may have another limit.
        env: id of the environment in gymnasium or gymnasium-robotics that replaces the original;
            None if none has the same observations.
        hyperparameters: name of the implicit Q-learning settings that were published for it.
        query_length: steps per segment of the published human labels.
        shift_after: number added to each learned reward after scaling.
        from_lowest: whether the lowest return, spread evenly over each episode, is subtracted from
            learned rewards before scaling.
        scales_own_reward: whether the environment's own reward is also scaled.
        own_shift: number added to each of the environment's own rewards.
        goal_ends_episode: whether a change of the goal marks a new episode in the data.

    Raises:
        ConfigError: the reference returns are equal, there are no steps, or the settings are
            unpublished.

    >>> TASKS["hopper-medium-replay-v2"].max_episode_steps
    1000
    """

    name: str
    random: float
    expert: float
    max_episode_steps: int
    env: str | None = None
    hyperparameters: Hyperparameters = "mujoco"
    query_length: int = 100
    shift_after: float = 0.0
    from_lowest: bool = False
    scales_own_reward: bool = False
    own_shift: float = 0.0
    goal_ends_episode: bool = False

    def __post_init__(self) -> None:
        if self.random == self.expert:
            raise ConfigError(
                f"Task.expert: expected another return than that of random, got {self.expert:g}."
            )
        for name in ("max_episode_steps", "query_length"):
            require_in(f"Task.{name}", getattr(self, name), 1, float("inf"))
        require_one_of("Task.hyperparameters", self.hyperparameters, Hyperparameters)


def find_task(task: str | Task) -> Task:
    """Return the task of a name. A task is returned unchanged.

    Raises:
        ConfigError: the name is unknown; the message lists similar names.

    >>> find_task("door-human-v1").env
    'AdroitHandDoor-v1'
    """
    if isinstance(task, Task):
        return task
    if task not in TASKS:
        near = get_close_matches(task, TASKS, n=5, cutoff=0.5) or ("door-human-v1", "Lift_ph")
        raise ConfigError(
            f"task: expected a name such as {', '.join(near)}, got {task!r}. See "
            "preferl.data.TASKS for all names, or pass a Task of your own."
        )
    return TASKS[task]


def normalised_score(task: str | Task, returns: Returns) -> Returns:
    """Put returns on D4RL's scale (Fu et al. 2020, section 6): 0 is random, 100 is an expert.

    `returns` is a number or an array of any shape.

    Raises:
        ConfigError: the name is unknown.

    >>> normalised_score(Task("reach", random=10, expert=20, max_episode_steps=5), 15.0)
    50.0
    >>> normalised_score("antmaze-umaze-v2", np.array([0.0, 1.0])).tolist()
    [0.0, 100.0]
    """
    row = find_task(task)
    score: Any = 100 * (np.asarray(returns, np.float64) - row.random) / (row.expert - row.random)
    return cast("Returns", score.item() if np.ndim(returns) == 0 else score)


_LOCOMOTION = {  # environment today, random, expert
    "hopper": ("Hopper-v5", -20.272305, 3234.3),
    "walker2d": ("Walker2d-v5", 1.629008, 4592.3),
    "halfcheetah": ("HalfCheetah-v5", -280.178953, 12135.0),
    "ant": ("Ant-v5", -325.6, 3879.7),
}
_LOCOMOTION_DATA = ("random", "medium", "medium-replay", "medium-expert", "full-replay", "expert")

_MAZES = {  # environment today, data, steps
    "umaze": ("preferl/AntMaze_UMaze-v0", ("", "-diverse"), 700),
    "medium": ("preferl/AntMaze_Medium-v0", ("-play", "-diverse"), 1000),
    "large": ("preferl/AntMaze_Large-v0", ("-play", "-diverse"), 1000),
}

_ADROIT = {  # environment today, random, expert, steps
    "pen": ("AdroitHandPen-v1", 96.262799, 3076.8331017826877, 100),
    "hammer": ("AdroitHandHammer-v1", -274.856578, 12794.134825156867, 200),
    "door": ("AdroitHandDoor-v1", -56.512833, 2880.5693087298737, 200),
    "relocate": ("AdroitHandRelocate-v1", -6.425911, 4233.877797728884, 200),
}


def _rows() -> Iterator[Task]:
    for body, (env, random, expert) in _LOCOMOTION.items():
        for name in (env, *(f"{body}-{data}-v2" for data in _LOCOMOTION_DATA)):
            yield Task(name, random, expert, 1000, env=env, shift_after=0.5, scales_own_reward=True)
    for maze, (env, recorded, steps) in _MAZES.items():
        names = [f"antmaze-{maze}{data}-v{version}" for data in recorded for version in range(3)]
        for name in (env, *names):
            yield Task(
                name,
                random=0,
                expert=1,
                max_episode_steps=steps,
                env=env,
                hyperparameters="antmaze",
                shift_after=-1,
                from_lowest=True,
                own_shift=-1,
                goal_ends_episode=True,
            )
    for hand, (env, random, expert, steps) in _ADROIT.items():
        for name in (env, *(f"{hand}-{data}-v1" for data in ("human", "cloned", "expert"))):
            yield Task(name, random, expert, steps, env=env, hyperparameters="adroit")
    for body in ("Lift", "Can", "Square"):
        for data, length in (("ph", 50), ("mh", 100)):
            name = f"{body}_{data}"
            yield Task(name, 0, 1, 500, hyperparameters="adroit", query_length=length)


TASKS: Mapping[str, Task] = MappingProxyType({row.name: row for row in _rows()})
"""D4RL's locomotion, antmaze and hand tasks, and robomimic's arms, with today's environments.

Reference returns are from D4RL's table of reference scores. For robomimic and antmaze, they are
shares of successful episodes.
"""
