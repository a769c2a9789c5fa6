"""Steps of `V` parallel environments, recorded as whole episodes with their true rewards."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from preferl.data.episodes import Episodes
from preferl.errors import ConfigError, DataError
from preferl.online.lengths import EpisodeClock
from preferl.online.recording import Recording
from preferl.shapes import Array, BoolArray, Observations, map_observations


@final
class EpisodeRecorder(VecEnvWrapper):
    """Records what happens in the environments inside it, to be taken away as `Episodes`.

    Put it next to the environment, inside whatever changes rewards, so that it sees true ones.

    Args:
        venv: the environments; ended ones reset themselves, as is the convention of SB3.
        states: keep `info["state"]` of steps and resets, what it takes to draw them again. It
            must be there always, as an array of one shape. Off, since few environments tell.
        capacity: vector steps to allocate at first. 256 is about one episode of most tasks.

    Attributes:
        clock: how long episodes are, whatever pieces they are taken away in.

    Raises:
        SpaceError: observations or actions that are not arrays of one shape.
    """

    def __init__(self, venv: VecEnv, *, states: bool = False, capacity: int = 256) -> None:
        super().__init__(venv)
        self._recording = Recording(
            venv.observation_space, venv.action_space, venv.num_envs, capacity=capacity
        )
        self._keeps_states = states
        self._begun = False
        self.clock = EpisodeClock(venv.num_envs)

    @property
    def steps(self) -> int:
        """Steps seen since the beginning, of all environments together."""
        return self._recording.steps

    @property
    def finished_steps(self) -> int:
        """Steps of ended episodes that wait to be taken."""
        return self._recording.finished_steps

    def reset(self) -> VecEnvObs:
        """Begin anew; episodes under way are closed, and count as truncated here."""
        self._recording.cut()
        observations = self.venv.reset()
        states = stack_states(self.unwrapped.reset_infos) if self._keeps_states else None
        self._recording.begin(observations, states=states)
        self.clock.begin()
        self._begun = True
        return observations

    def step_async(self, actions: Array) -> None:
        """Note the actions and pass them on.

        Raises:
            ConfigError: the environments were never reset.
        """
        if not self._begun:
            raise ConfigError("EpisodeRecorder: call `reset()` before the first step.")
        self._recording.act(actions)
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Record the step's outcome and pass it on unchanged."""
        observations, rewards, dones, infos = self.venv.step_wait()
        states = None
        if self._keeps_states:
            states = stack_states(present_infos(self.unwrapped, dones, infos))
        self._recording.advance(observations, rewards, states=states)
        self.clock.step(dones)
        ended = np.flatnonzero(dones)
        if len(ended):
            self._recording.end(ended, *outcomes([infos[i] for i in ended]))
            self._recording.begin(which=dones)
        return observations, rewards, dones, infos

    def snapshot(self) -> dict[str, Any]:
        """What was recorded and not yet taken, for `restore`."""
        return {
            "recording": self._recording.snapshot(),
            "begun": self._begun,
            "clock": self.clock.snapshot(),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from where another recorder of the same environments stood."""
        self._recording.restore(snapshot["recording"])
        self._begun = bool(snapshot["begun"])
        self.clock.restore(snapshot["clock"])

    def cut_unfinished(self) -> None:
        """Close the episodes under way here; their later steps count as new episodes."""
        self._recording.cut()

    def take(self, *, unfinished: Literal["keep", "cut"] = "keep") -> Episodes | None:
        """The episodes that ended since the last call, in the order in which they ended.

        Args:
            unfinished: `keep` leaves episodes under way for later; `cut` hands over their steps
                so far, not terminated, and counts the rest as new episodes.

        Returns:
            Episodes with the environments' rewards, copied out, or None if there are none.

        Raises:
            DataError: the environments gave NaN or infinite numbers.
        """
        return self._recording.take(unfinished=unfinished)


def present_infos(
    venv: VecEnv, dones: BoolArray, infos: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """`[V]` infos that belong to what is seen after a step: of resets where episodes ended."""
    return [venv.reset_infos[i] if done else infos[i] for i, done in enumerate(dones)]


def stack_states(infos: Sequence[dict[str, Any]]) -> Array:
    """`[V, *state]` what infos tell of how things stand.

    Raises:
        DataError: an info that does not tell.
    """
    if any("state" not in info for info in infos):
        raise DataError.mismatch(
            "info of a step or reset",
            expected="the key state, since states are to be recorded",
            got=f"keys {sorted(infos[0])}",
            fix="Wrap each environment so that it tells its state, or record none.",
        )
    return np.stack([info["state"] for info in infos])


def outcomes(infos: list[dict[str, Any]]) -> tuple[BoolArray, Observations]:
    """How episodes ended, from the infos of their last steps: `[K]` terminated, final views.

    Raises:
        DataError: an info without the episode's last observation.
    """
    if any("terminal_observation" not in info for info in infos):
        raise DataError.mismatch(
            "info of an episode's last step",
            expected="the key terminal_observation, as vector environments of SB3 give it",
            got=f"keys {sorted(infos[0])}",
        )
    terminated = np.array([not info.get("TimeLimit.truncated", False) for info in infos])
    finals = [info["terminal_observation"] for info in infos]
    return terminated, map_observations(lambda *rows: np.stack(rows), *finals)
