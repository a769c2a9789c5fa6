"""Steps of `V` parallel environments, recorded as whole episodes with their true rewards."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, final

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from preferl.data.episodes import Episodes
from preferl.errors import ConfigError, DataError, SpaceError, mismatch
from preferl.shapes import Array, BoolArray, IntArray, Observations, map_observations, take


def blank(space: spaces.Space[Any], axes: tuple[int, ...]) -> Observations:
    """Zeros for one value of `space` at each place of `axes`: `[*axes, *space]`, per key of a dict.

    Raises:
        SpaceError: a space whose values are not arrays of one shape.

    >>> blank(spaces.Discrete(3), (2, 4)).shape
    (2, 4)
    """
    if isinstance(space, spaces.Dict):
        arrays = {key: blank(part, axes) for key, part in space.spaces.items()}
        if any(isinstance(array, dict) for array in arrays.values()):
            raise SpaceError(
                mismatch(
                    "observation space",
                    expected="a dictionary one level deep",
                    got=space,
                    fix="Flatten nested keys with a wrapper; `outer/inner` is the usual name.",
                )
            )
        return arrays  # type: ignore[return-value]  # nested dictionaries have just been refused
    if space.shape is None:
        raise SpaceError(
            mismatch(
                "space",
                expected="Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these",
                got=space,
            )
        )
    return np.zeros((*axes, *space.shape), space.dtype)


class _Closed(NamedTuple):
    """Episodes that ended at one moment; `[K]` each, rows counted in the recorder's arrays."""

    environment: IntArray
    start: IntArray
    end: IntArray
    terminated: BoolArray
    final_observations: Observations


@final
class EpisodeRecorder(VecEnvWrapper):
    """Records what happens in the environments inside it, to be taken away as `Episodes`.

    Put it next to the environment, inside whatever changes rewards, so that it sees true ones.
    Every field is one preallocated array `[rows, V, ...]` that doubles when it is full, and each
    vector step writes one row of it. Steps are handed out once; those of episodes under way wait.

    Args:
        venv: the environments; ended ones reset themselves, as is the convention of SB3.
        states: keep `info["state"]` of steps and resets, what it takes to draw them again. It
            must be there always, as an array of one shape. Off, since few environments tell.
        capacity: vector steps to allocate at first. 256 is about one episode of most tasks.

    Raises:
        SpaceError: observations or actions that are not arrays of one shape.
    """

    def __init__(self, venv: VecEnv, *, states: bool = False, capacity: int = 256) -> None:
        super().__init__(venv)
        axes = (max(capacity, 2), venv.num_envs)
        # The observation before a step is written as soon as it is known, so that row `_row`
        # always holds the present one and no copy of it is needed.
        self._observations = blank(venv.observation_space, axes)
        self._actions = np.asarray(blank(venv.action_space, axes))
        self._rewards = np.zeros(axes, np.float32)
        self._keeps_states = states
        self._states: Array | None = None  # allocated when the first is seen
        self._row = 0
        self._open = np.zeros(venv.num_envs, int)  # [V] row where the episode under way began
        self._closed: list[_Closed] = []
        self._vector_steps = 0
        self._begun = False

    @property
    def steps(self) -> int:
        """Steps seen since the beginning, of all environments together."""
        return self._vector_steps * self.num_envs

    @property
    def finished_steps(self) -> int:
        """Steps of ended episodes that wait to be taken."""
        return sum(int((closed.end - closed.start).sum()) for closed in self._closed)

    def reset(self) -> VecEnvObs:
        """Begin anew; episodes under way are closed, and count as truncated here."""
        self.cut_unfinished()
        observations = self.venv.reset()
        self._see(self._row, observations)
        if self._keeps_states:
            self._note_states(self._row, self.unwrapped.reset_infos)
        self._begun = True
        return observations

    def step_async(self, actions: Array) -> None:
        """Note the actions and pass them on.

        Raises:
            ConfigError: the environments were never reset.
        """
        if not self._begun:
            raise ConfigError("EpisodeRecorder: call `reset()` before the first step.")
        self._actions[self._row] = actions
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Record the step's outcome and pass it on unchanged."""
        observations, rewards, dones, infos = self.venv.step_wait()
        self._see(self._row + 1, observations)
        if self._keeps_states:
            resets = self.unwrapped.reset_infos
            present = [resets[i] if done else infos[i] for i, done in enumerate(dones)]
            self._note_states(self._row + 1, present)
        self._rewards[self._row] = rewards
        self._row += 1
        self._vector_steps += 1
        ended = np.flatnonzero(dones)
        if len(ended):
            self._close(ended, *_outcomes([infos[i] for i in ended]))
        return observations, rewards, dones, infos

    def cut_unfinished(self) -> None:
        """Close the episodes under way here; their later steps count as new episodes."""
        ended = np.flatnonzero(self._open < self._row)
        if len(ended):
            present = take(self._observations, (self._row, ended))
            self._close(ended, np.zeros(len(ended), bool), present)

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
        if unfinished == "cut":
            self.cut_unfinished()
        if not self._closed:
            return None
        closed = _Closed(
            *(
                map_observations(lambda *arrays: np.concatenate(arrays), *parts)
                for parts in zip(*self._closed, strict=True)
            )
        )
        lengths = closed.end - closed.start
        ends = np.cumsum(lengths)
        rows = np.arange(ends[-1]) + np.repeat(closed.start - (ends - lengths), lengths)
        where = (rows, np.repeat(closed.environment, lengths))
        terminated = np.zeros(len(rows), bool)
        terminated[ends - 1] = closed.terminated
        self._closed = []
        episodes = Episodes(
            observations=take(self._observations, where),
            actions=self._actions[where],
            rewards=self._rewards[where],
            terminated=terminated,
            final_observations=map_observations(
                lambda f, o: f.astype(o.dtype, copy=False),
                closed.final_observations,
                self._observations,
            ),
            lengths=lengths,
            states=None if self._states is None else self._states[where],
        )
        self._drop(int(self._open.min()))
        return episodes

    def _see(self, row: int, observations: Any) -> None:
        """Write what is seen now into `row`, and make room if that is the last one."""
        if row == len(self._rewards):
            self._observations = map_observations(_doubled, self._observations)
            self._actions, self._rewards = _doubled(self._actions), _doubled(self._rewards)
            self._states = None if self._states is None else _doubled(self._states)

        def write(array: Array, value: Array) -> None:
            array[row] = value

        map_observations(write, self._observations, observations)

    def _note_states(self, row: int, infos: Sequence[dict[str, Any]]) -> None:
        if any("state" not in info for info in infos):
            raise DataError(
                mismatch(
                    "info of a step or reset",
                    expected="the key state, since states are to be recorded",
                    got=f"keys {sorted(infos[0])}",
                    fix="Wrap each environment so that it tells its state, or record none.",
                )
            )
        states = np.stack([info["state"] for info in infos])
        if self._states is None:
            self._states = np.zeros((*self._rewards.shape, *states.shape[1:]), states.dtype)
        self._states[row] = states

    def _close(self, ended: IntArray, terminated: BoolArray, final: Observations) -> None:
        end = np.full(len(ended), self._row)
        self._closed.append(_Closed(ended, self._open[ended], end, terminated, final))
        self._open[ended] = self._row

    def _drop(self, rows: int) -> None:
        """Forget the first `rows`, whose steps have all been taken."""

        def shift(array: Array) -> None:
            array[: self._row + 1 - rows] = array[rows : self._row + 1].copy()

        map_observations(shift, self._observations)
        shift(self._actions)
        shift(self._rewards)
        if self._states is not None:
            shift(self._states)
        self._row -= rows
        self._open -= rows


def _doubled(array: Array) -> Array:
    return np.concatenate([array, np.zeros_like(array)])


def _outcomes(infos: list[dict[str, Any]]) -> tuple[BoolArray, Observations]:
    """How episodes ended, from the infos of their last steps: `[K]` terminated, final views."""
    if any("terminal_observation" not in info for info in infos):
        raise DataError(
            mismatch(
                "info of an episode's last step",
                expected="the key terminal_observation, as vector environments of SB3 give it",
                got=f"keys {sorted(infos[0])}",
            )
        )
    terminated = np.array([not info.get("TimeLimit.truncated", False) for info in infos])
    finals = [info["terminal_observation"] for info in infos]
    return terminated, map_observations(lambda *rows: np.stack(rows), *finals)
