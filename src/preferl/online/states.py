"""Environments that tell how things stand, so that people can be shown what happened."""

from typing import Any, SupportsFloat, final

import gymnasium

from preferl.simulators import Environment
from preferl.store.stages import StateReader


@final
class RecordsStates(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Puts what it takes to draw a moment again into `info["state"]` of steps and resets.

    Recorders and wrappers that ask people keep it with the steps if they are told to
    (`states=True`), and `preferl.store` draws clips from it: positions and speeds of MuJoCo, with
    what is placed anew in each episode, or the `state` of classic control.

    Args:
        env: one of MuJoCo, or one with `state` as classic control has it. MuJoCo's is reset here.

    Raises:
        ConfigError: with the first reset, an environment that has no such state. Those whose
            observations are pictures need none.

    >>> env = RecordsStates(gymnasium.make("Pendulum-v1"))
    >>> observation, info = env.reset(seed=0)
    >>> info["state"].shape
    (2,)
    """

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self._read = StateReader(env)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; its first state is in the info."""
        observation, info = self.env.reset(**options)
        return observation, info | {"state": self._read()}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step; the state after it is in the info."""
        *outcome, info = self.env.step(action)
        observation, reward, terminated, truncated = outcome
        return observation, reward, terminated, truncated, info | {"state": self._read()}
