"""Steps of `V` parallel environments of any library, as preallocated arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, final

import numpy as np
from gymnasium import spaces

from preferl.data.episodes import Episodes
from preferl.errors import CheckpointError, DataError, DivergenceError, SpaceError
from preferl.shapes import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    Observations,
    keeps_values,
    map_observations,
    take,
)


def zeros_of(space: spaces.Space[Any], axes: tuple[int, ...]) -> Observations:
    """Return zeros `[*axes, *space]`, per key; refuse spaces that are not of arrays."""
    if isinstance(space, spaces.Dict):
        arrays = {key: zeros_of(part, axes) for key, part in space.spaces.items()}
        if any(isinstance(array, dict) for array in arrays.values()):
            raise SpaceError(
                f"observation space: expected a dictionary one level deep, got {space}. Flatten "
                "nested keys with a wrapper; `outer/inner` is the usual name."
            )
        return arrays  # type: ignore[return-value]  # nested dictionaries have just been refused
    if space.shape is None or space.dtype is None or space.dtype.kind not in "biuf":
        raise SpaceError(
            f"space: expected Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these, got "
            f"{space}. Turn it into one of these with a gymnasium wrapper."
        )
    return np.zeros((*axes, *space.shape), space.dtype)


def require_recordable(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> None:
    """Raise `SpaceError` unless actions are arrays, and observations arrays or a Dict of arrays."""
    zeros_of(observation_space, (0,))
    if isinstance(action_space, spaces.Dict):
        raise SpaceError(
            "action space: expected Box, Discrete, MultiDiscrete or MultiBinary, got "
            f"{action_space}. Flatten it with a wrapper around gymnasium.spaces.flatten_space."
        )
    zeros_of(action_space, (0,))


STEPS: Final = ("observations", "actions", "rewards", "states", "success")
"""Arrays that `Episodes` are made of; the last two are optional."""


@final
@dataclass
class EpisodeLengths:
    """Lengths of the shortest episode that ended, and of the longest episode.

    The shortest is None before an episode has ended. The longest episode may still be running.
    """

    shortest: int | None = None
    longest: int = 0

    def end(self, length: int) -> None:
        """Count the length of an episode that ended."""
        self.shortest = length if self.shortest is None else min(self.shortest, length)


class _EndedEpisodes(NamedTuple):
    """Episodes that ended at the same vector step, `[K]` each."""

    environment: IntArray
    start: IntArray
    end: IntArray
    terminated: BoolArray
    final_observations: Observations
    whole: BoolArray


def _fitting(name: str, values: Any, recorded: Any) -> Any:
    """Return `values [V, ...]` in the shape of a row of `recorded [rows, V, ...]`, per key.

    Raises:
        SpaceError: there are other keys, another shape (axes of length 1 aside), or numbers that
            the type of `recorded` cannot hold.
    """
    fix = "Change the space, or what the environment returns."
    if isinstance(recorded, Mapping):
        keys = sorted(values) if isinstance(values, Mapping) else f"a {type(values).__name__}"
        if not isinstance(values, Mapping) or not recorded.keys() <= values.keys():
            raise SpaceError(
                f"{name}: expected the keys {sorted(recorded)}, as their space, got {keys}. {fix}"
            )
        return {key: _fitting(f"{name}/{key}", values[key], part) for key, part in recorded.items()}
    values = np.asarray(values)
    shape = recorded.shape[1:]
    if _without_ones(values.shape) != _without_ones(shape):
        raise SpaceError(
            f"{name}: expected shape {shape[1:]}, as their space, got {values.shape[1:]}. {fix}"
        )
    if not keeps_values(values, recorded.dtype):
        raise SpaceError(
            f"{name}: expected numbers of dtype {recorded.dtype}, as their space, got "
            f"{values.dtype} between {values.min()} and {values.max()}, which it cannot hold. "
            f"{fix}"
        )
    return values.reshape(shape)


def _finite(values: Any) -> bool:
    array = np.asarray(values)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _require_finite(name: str, values: Any) -> None:
    """Raise `DataError` if there is NaN or infinity in `values [V, ...]`, per key."""
    if isinstance(values, Mapping):
        for key, part in values.items():
            _require_finite(f"{name}/{key}", part)
    elif not _finite(values):
        rows = np.asarray(values).reshape(len(values), -1)
        environment = int(np.argmin(np.isfinite(rows).all(axis=1)))
        raise DataError(
            f"{name} of environment {environment}: expected finite numbers, got NaN or infinity. "
            "Check what its `reset` and `step` return."
        )


def _shapes_and_dtypes(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return shape and dtype of a row of observations, actions and rewards."""
    return {
        name: map_observations(lambda array: (array.shape[1:], array.dtype), arrays[name])
        for name in STEPS[:3]
    }


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


@final
class Recording:
    """Records the steps of `V` environments, for `Episodes` and for rewards that look back.

    Arrays `[rows, V, ...]` are allocated once and doubled when full; a vector step writes one row.
    `take` returns each step once and leaves unfinished episodes. After an episode's end, its
    environment is not recorded until the next episode begins. Spaces are those of a single
    environment.

    Attributes:
        collecting: whether episodes are kept for `take`; otherwise steps only serve `windows` and
            `since`.
        kept_from: vector step from which `windows` and `since` need steps, even if `take` returned
            them; None keeps only steps that `take` has not returned.
        idle: `[V]` true where no episode is running.
        time: vector steps since the beginning.
        steps: steps collected since the beginning, of all environments together.
        lengths: lengths of the shortest and the longest episode. An episode that a reset cut short
            does not count as ended.
        whole: `[K]` for the episodes of the last `take`: true for complete episodes, false for
            pieces of cut ones.

    Raises:
        SpaceError: observations or actions are not arrays of one shape.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        environments: int,
        *,
        capacity: int = 256,
    ) -> None:
        require_recordable(observation_space, action_space)
        axes = (max(capacity, 2), environments)
        # Row `_row` always holds the current observations, so that they need no copy. The numbers
        # below are vector steps.
        self._arrays: dict[str, Any] = {  # "states" and "success" are added when first given
            "observations": zeros_of(observation_space, axes),
            "actions": np.asarray(zeros_of(action_space, axes)),
            "rewards": np.zeros(axes, np.float32),
            "real": np.zeros(axes, bool),  # where an episode is running at that step
            "first": np.zeros(axes, bool),  # where it begins with that step
        }
        self.time = 0
        self._first_time = 0  # vector step of the first row
        # [V] the first step that `take` has not returned
        self._untaken_from = np.zeros(environments, int)
        self._episode_start = np.zeros(environments, int)  # [V] where the running episode began
        self.idle = np.ones(environments, bool)
        self._ended_episodes: list[_EndedEpisodes] = []
        self.collecting = True
        self.kept_from: int | None = None
        self.steps = 0
        self.lengths = EpisodeLengths()
        self.whole = np.zeros(0, bool)

    @property
    def has_begun(self) -> bool:
        """Whether any episode has ever begun."""
        return self.lengths.longest > 0 or not self.idle.all()

    @property
    def present(self) -> Observations:
        """The current observations `[V, *obs]`, without a copy."""
        observations: Observations = self._arrays["observations"]
        return take(observations, self._row)

    @property
    def capacity(self) -> int:
        """Vector steps for which there is room now."""
        return len(self._arrays["rewards"])

    @property
    def finished_steps(self) -> int:
        """Steps of ended episodes that `take` has not returned yet."""
        return sum(int((closed.end - closed.start).sum()) for closed in self._ended_episodes)

    @property
    def pending(self) -> IntArray:
        """`[V]` steps of the running episodes that `take` has not returned yet."""
        return np.where(self.idle, 0, self.time - self._untaken_from) * self.collecting

    def begin(
        self,
        observations: Any = None,
        *,
        environments: BoolArray | None = None,
        states: Array | None = None,
    ) -> None:
        """Begin episodes where `environments [V]` is true, or everywhere; cut running ones there.

        `observations [V, *obs]` are the first ones of the episodes; None if `advance` wrote them
        already.
        """
        self.cut(environments)
        if observations is not None:
            self._write_observations(observations, states, environments)
        rows = slice(None) if environments is None else environments
        self._untaken_from[rows] = self._episode_start[rows] = self.time
        self.idle[rows] = False
        self._arrays["first"][self._row, rows] = True

    def act(self, actions: Array) -> None:
        """Write the actions `[V, *act]` of the step that now begins."""
        actions = _fitting("actions", actions, self._arrays["actions"])
        if self.collecting and not _finite(actions):
            raise DivergenceError.of("the agent's actions")
        self._arrays["actions"][self._row] = actions
        np.logical_not(self.idle, out=self._arrays["real"][self._row])

    def advance(
        self,
        observations: Any,
        rewards: FloatArray,
        *,
        states: Array | None = None,
        success: BoolArray | None = None,
    ) -> None:
        """Write a step's outcome: next observations `[V, *obs]`, true rewards and success `[V]`."""
        if self.collecting:
            _require_finite("rewards", rewards)
        self._arrays["rewards"][self._row] = rewards
        if success is not None:
            self._column("success", success)[self._row] = success
        elif "success" in self._arrays:
            self._arrays["success"][self._row] = False  # replaces an earlier value of this row
        if self._row + 1 == self.capacity:
            self._drop()
        if self._row + 1 == self.capacity:
            self._double()
        self.time += 1
        self._arrays["first"][self._row] = False
        self._write_observations(observations, states)
        running = np.where(self.idle, 0, self.time - self._episode_start)
        self.lengths.longest = max(self.lengths.longest, int(running.max()))
        if self.collecting:
            self.steps += len(self.idle) - int(np.count_nonzero(self.idle))

    def end(self, ended: IntArray, terminated: BoolArray, final: Observations) -> None:
        """End the episodes of environments `ended [K]`: `terminated [K]`, or by a time limit."""
        self.lengths.end(int((self.time - self._episode_start[ended]).min()))
        whole = self._untaken_from[ended] == self._episode_start[ended]
        self._close(ended, terminated, final, whole)
        self.idle[ended] = True

    def cut(self, environments: BoolArray | None = None) -> None:
        """Cut the running episodes. Their later steps count as new episodes."""
        ended = np.flatnonzero(
            self.pending > 0 if environments is None else (self.pending > 0) & environments
        )
        if len(ended):
            present = take(self._arrays["observations"], (self._row, ended))
            not_terminated = np.zeros(len(ended), bool)
            self._close(ended, not_terminated, present, not_terminated)

    def pause(self) -> None:
        """Stop collecting. Running episodes are cut."""
        self.cut()
        self.collecting = False

    def resume(self) -> None:
        """Collect again, from the current observations on."""
        self.collecting = True
        self._untaken_from[:] = self.time

    def windows(self, length: int) -> tuple[Observations, Array, BoolArray]:
        """Return the observations and actions of the last `length` steps of running episodes.

        These are windows `[V, H, ...]` and a mask `[V, H]`. The mask is false where no step is
        kept. It is always true at the last step.
        """
        if length == 1:  # needs no copy
            observations = map_observations(lambda array: array[:, None], self.present)
            actions = self._arrays["actions"][self._row, :, None]
            return observations, actions, np.ones((len(self.idle), 1), bool)
        times = np.arange(self.time + 1 - length, self.time + 1)
        mask = (times >= self._episode_start[:, None]) & (times >= self._first_time)  # [V, H]
        mask[:, -1] = True
        index = np.maximum(times - self._first_time, 0)[None], np.arange(len(self.idle))[:, None]
        return take(self._arrays["observations"], index), self._arrays["actions"][index], mask

    def since(self, time: int, history_length: int = 0) -> tuple[Episodes | None, BoolArray]:
        """Return all steps from a vector step on, and up to `history_length` before them.

        Returns:
            Pieces of episodes, one environment after another, or None if there are none. Then a
            mask `[V, t]` that is true where an environment made a step. The mask's last columns are
            the steps from `time` on.
        """
        rows = slice(max(time - history_length - self._first_time, 0), self._row)

        def by_environment(array: Array) -> Array:  # to [V, t, ...]
            return np.ascontiguousarray(np.swapaxes(array[rows], 0, 1))

        is_step = by_environment(self._arrays["real"])
        if not is_step.any():
            return None, is_step
        is_first = by_environment(self._arrays["first"])
        active = np.flatnonzero(is_step.any(axis=1))
        # or the episode began before these rows
        is_first[active, is_step[active].argmax(axis=1)] = True
        count = int(np.count_nonzero(is_step))
        lengths = np.diff(np.append(np.flatnonzero(is_first[is_step]), count))
        observations = take(map_observations(by_environment, self._arrays["observations"]), is_step)
        pieces = Episodes(
            observations=observations,
            actions=by_environment(self._arrays["actions"])[is_step],
            rewards=by_environment(self._arrays["rewards"])[is_step],
            terminated=np.zeros(count, bool),
            final_observations=take(observations, np.cumsum(lengths) - 1),
            lengths=lengths,
        )
        return pieces, is_step

    def take(self, *, unfinished: Literal["keep", "cut"] = "keep") -> Episodes | None:
        """Return copies of the episodes that ended since the last call, in the order of their ends.

        With `unfinished="keep"`, running episodes are left for later calls. With "cut", their steps
        so far are returned as not terminated, and later steps count as new episodes.

        Raises:
            DataError: the environments gave NaN or infinite numbers that were not collected.
        """
        if unfinished == "cut":
            self.cut()
        if not self._ended_episodes:
            self.whole = self.whole[:0]
            return None
        columns = zip(*self._ended_episodes, strict=True)
        joined = (map_observations(lambda *a: np.concatenate(a), *column) for column in columns)
        closed = _EndedEpisodes(*joined)
        self._ended_episodes = []
        self.whole = closed.whole
        lengths = closed.end - closed.start
        ends = np.cumsum(lengths)
        shift = closed.start - self._first_time - (ends - lengths)
        rows = np.arange(ends[-1]) + np.repeat(shift, lengths)
        index = (rows, np.repeat(closed.environment, lengths))
        terminated = np.zeros(len(rows), bool)
        terminated[ends - 1] = closed.terminated
        arrays = self._arrays
        steps = {name: take(arrays[name], index) for name in STEPS if name in arrays}
        final = map_observations(
            lambda f, o: f.astype(o.dtype, copy=False),
            closed.final_observations,
            steps["observations"],
        )
        return Episodes(**steps, terminated=terminated, final_observations=final, lengths=lengths)

    def snapshot(self) -> dict[str, Any]:
        """Return all steps that `take` or a looking-back reward can still need, for `restore`."""
        self._drop(at_least=0.0)
        rows = slice(self._row + 1)
        arrays = self._arrays
        return {
            **{name: take(arrays[name], rows) if name in arrays else None for name in STEPS},
            "row": self._row,
            "open": self._untaken_from - self._first_time,
            "begun": self._episode_start - self._first_time,
            "idle": self.idle,
            "closed": [
                (environment, start - self._first_time, end - self._first_time, *others)
                for environment, start, end, *others in self._ended_episodes
            ],
            "steps": self.steps,
            "lengths": [self.lengths.shortest, self.lengths.longest],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from the snapshot of another recording of the same environments."""
        self.time = int(snapshot["row"])
        self._first_time = 0
        self.kept_from = None
        self.steps = int(snapshot["steps"])
        self.lengths = EpisodeLengths(*snapshot["lengths"])
        self._untaken_from[:] = snapshot["open"]
        self._episode_start[:] = snapshot["begun"]
        self.idle[:] = snapshot["idle"]
        self._ended_episodes = [_EndedEpisodes(*closed) for closed in snapshot["closed"]]
        # Of earlier steps, rewards only look back on those of the running episodes.
        time = np.arange(self._row + 1)[:, None]
        steps = {name: snapshot[name] for name in STEPS if snapshot.get(name) is not None}
        expected = _shapes_and_dtypes(self._arrays)
        saved_arrays = _shapes_and_dtypes(steps)
        if saved_arrays != expected:
            raise CheckpointError(
                f"recording: expected {expected}, got {saved_arrays}. Build the environments in "
                "the same way as when the run began."
            )
        self._arrays = {
            "real": (time >= self._episode_start) & ~self.idle,
            "first": (time == self._episode_start) & ~self.idle,
            **steps,
        }
        self._double()

    def _write_observations(
        self, observations: Any, states: Array | None, environments: BoolArray | None = None
    ) -> None:
        """Write current observations `[V, *obs]` in some environments; by default in all."""
        rows = slice(None) if environments is None else environments
        observations = _fitting("observations", observations, self._arrays["observations"])
        if self.collecting:
            _require_finite("observations", observations)

        def write(array: Array, value: Array) -> None:
            array[self._row, rows] = value[rows]

        map_observations(write, self._arrays["observations"], observations)
        if states is not None:
            write(self._column("states", states), states)

    def _column(self, name: str, values: Array) -> Array:
        """Return the array of a name; if it is absent, allocate it for `values [V, ...]`."""
        if name not in self._arrays:
            shape = *self._arrays["rewards"].shape, *values.shape[1:]
            self._arrays[name] = np.zeros(shape, values.dtype)
        column: Array = self._arrays[name]
        return column

    @property
    def _row(self) -> int:
        """The row of the current vector step."""
        return self.time - self._first_time

    def _double(self) -> None:
        def doubled(array: Array) -> Array:
            return np.concatenate([array, np.zeros_like(array)])

        for name, array in self._arrays.items():
            self._arrays[name] = map_observations(doubled, array)

    def _close(
        self, ended: IntArray, terminated: BoolArray, final: Observations, whole: BoolArray
    ) -> None:
        if self.collecting:
            end = np.full(len(ended), self.time)
            self._ended_episodes.append(
                _EndedEpisodes(ended, self._untaken_from[ended], end, terminated, final, whole)
            )
        self._untaken_from[ended] = self.time

    def _drop(self, at_least: float = 0.5) -> None:
        """Drop the first rows that nothing needs, if they are at least `at_least` of all rows."""
        needed_times = [self.time, *(int(closed.start.min()) for closed in self._ended_episodes)]
        if self.kept_from is not None:
            needed_times.append(self.kept_from)
        if self.collecting:
            needed_times.append(int(np.where(self.idle, self.time, self._untaken_from).min()))
        rows = min(needed_times) - self._first_time
        if rows <= 0 or rows < at_least * self._row:  # moving so few rows would cost too much
            return

        def shift(array: Array) -> None:
            array[: self._row + 1 - rows] = array[rows : self._row + 1].copy()

        for array in self._arrays.values():
            map_observations(shift, array)
        self._first_time += rows
