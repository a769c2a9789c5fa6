"""Tasks of Meta-World with goals that depend on the seed of `reset`.

Yu et al. 2019, "Meta-World: A Benchmark and Evaluation for Multi-Task and Meta Reinforcement
Learning". Its environments ignore that seed, and choose among goals that do not depend on any seed.
Two evaluations therefore have different goals, and two people record different data.
"""

from typing import Any, SupportsFloat, cast, final

import gymnasium
from gymnasium.utils import seeding

from preferl.envs.checks import Environment
from preferl.errors import ConfigError


@final
class SeededGoals(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A task of Meta-World that draws a new goal at each `reset`, from the last given seed.

    Meta-World's `MT1` draws 50 goals when it is made, and picks one of them for each episode. Here
    each episode has a goal of its own, from the same distribution and drawn by the same code. `MT1`
    therefore needs no goals: pass it `num_goals=1`, which saves seconds for each copy. Also pass it
    a `seed`, since without one, making a copy draws from numpy's global generator. The observation
    space covers the goal, unlike that of `MT1`.

    Args:
        env: `Meta-World/MT1` of one task.

    Raises:
        ConfigError: `env` is another environment.
    """

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        if not env.has_wrapper_attr("toggle_sample_tasks_on_reset"):
            raise ConfigError(
                f"environment of SeededGoals: expected the environment Meta-World/MT1, got {env}."
            )
        env.get_wrapper_attr("toggle_sample_tasks_on_reset")(False)
        self._world = cast(Any, env.unwrapped)
        tasks = env.get_wrapper_attr("tasks")
        self._world.set_task(tasks[0])  # from now on, observations contain the goal
        tasks.clear()  # a checkpoint could not hold them
        self._world.seeded_rand_vec = True
        self._world._freeze_rand_vec = False
        self.observation_space = self._world.sawyer_observation_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with a new goal; the same seed gives the same goal."""
        if seed is not None:
            self._world.np_random, _ = seeding.np_random(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Make one step of the environment."""
        # Rewards of some tasks read the place of the fingers from the simulator's own memory. A
        # restored checkpoint would leave copies there, which do not move.
        for side in ("left", "right"):
            setattr(self._world, f"init_{side}_pad", self._world.get_body_com(f"{side}pad"))
        return self.env.step(action)
