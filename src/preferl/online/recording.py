"""Steps of `V` parallel environments as preallocated arrays, whichever library made them."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, final

import numpy as np
from gymnasium import spaces

from preferl.data.episodes import Episodes
from preferl.errors import SpaceError
from preferl.shapes import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    Observations,
    map_observations,
    take,
)


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
            raise SpaceError.mismatch(
                "observation space",
                expected="a dictionary one level deep",
                got=space,
                fix="Flatten nested keys with a wrapper; `outer/inner` is the usual name.",
            )
        return arrays  # type: ignore[return-value]  # nested dictionaries have just been refused
    if space.shape is None:
        raise SpaceError.mismatch(
            "space",
            expected="Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these",
            got=space,
        )
    return np.zeros((*axes, *space.shape), space.dtype)


class _Closed(NamedTuple):
    """Episodes that ended at one moment; `[K]` each, rows counted in the recording's arrays."""

    environment: IntArray
    start: IntArray
    end: IntArray
    terminated: BoolArray
    final_observations: Observations


@final
class Recording:
    """The steps of `V` environments, to be taken away as `Episodes` and to look back on.

    Every field is one preallocated array `[rows, V, ...]` that doubles when it is full, and each
    vector step writes one row of it. Steps are handed out once; those of episodes under way wait.
    An environment whose episode is over is not recorded until the next one begins.

    Attributes:
        collecting: whether episodes wait to be taken; otherwise steps are only looked back on.
        lookback: latest steps that stay for `windows`, whether or not they were taken.
        pinned: vector step from which all stay for `since`; None keeps `lookback` alone.
        idle: `[V]` where no episode is under way.
        steps: collected since the beginning, of all environments together.
        shortest: steps of the shortest episode that ended, whatever ended it; None before the
            first. One that is given up, by a reset for instance, has not ended.
        longest: steps of the longest one, also of those under way or given up.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        environments: `V`.
        capacity: vector steps to allocate at first. 256 is about one episode of most tasks.

    Raises:
        SpaceError: observations or actions that are not arrays of one shape.

    >>> recording = Recording(spaces.Box(0, 9, (1,)), spaces.Discrete(2), 1)
    >>> recording.begin(np.array([[5.0]]))
    >>> recording.act(np.array([1]))
    >>> recording.advance(np.array([[6.0]]), np.array([0.5]))
    >>> recording.end(np.array([0]), np.array([True]), np.array([[6.0]]))
    >>> episodes = recording.take()
    >>> episodes.observations.tolist(), episodes.final_observations.tolist()
    ([[5.0]], [[6.0]])
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        environments: int,
        *,
        capacity: int = 256,
    ) -> None:
        axes = (max(capacity, 2), environments)
        # The observation before a step is written as soon as it is known, so that row `_row`
        # always holds the present one and no copy of it is needed.
        self._observations = blank(observation_space, axes)
        self._actions = np.asarray(blank(action_space, axes))
        self._rewards = np.zeros(axes, np.float32)
        self._states: Array | None = None  # allocated when the first is seen
        self._real = np.zeros(axes, bool)  # where an episode is under way at that step
        self._first = np.zeros(axes, bool)  # where it begins with that step
        self._row = 0
        self._dropped = 0  # rows before the first that is kept
        self._open = np.zeros(environments, int)  # [V] row from which steps wait to be taken
        self._oldest = 0  # of these, kept since each step asks for it
        self._begun = np.zeros(environments, int)  # [V] row where the episode under way began
        self.idle = np.ones(environments, bool)
        self._closed: list[_Closed] = []
        self.collecting, self.lookback, self.steps = True, 0, 0
        self.pinned: int | None = None
        self.shortest: int | None = None
        self.longest = 0

    @property
    def present(self) -> Observations:
        """`[V, *obs]` what is seen now, without a copy."""
        return take(self._observations, self._row)

    @property
    def time(self) -> int:
        """Vector steps since the beginning."""
        return self._dropped + self._row

    @property
    def finished_steps(self) -> int:
        """Steps of ended episodes that wait to be taken."""
        return sum(int((closed.end - closed.start).sum()) for closed in self._closed)

    @property
    def most_waiting(self) -> int:
        """No environment has more steps waiting; it may be that none has as many."""
        return self._row - self._oldest

    @property
    def waiting(self) -> IntArray:
        """`[V]` steps of the episodes under way that wait to be taken."""
        return np.where(self.idle, 0, self._row - self._open) * self.collecting

    def see(
        self, observations: Any, *, which: BoolArray | None = None, states: Array | None = None
    ) -> None:
        """Write what is seen now, `[V, *obs]`, where `which` is true; everywhere by default."""
        here = slice(None) if which is None else which

        def write(array: Array, value: Array) -> None:
            array[self._row, here] = value if which is None else np.asarray(value)[which]

        map_observations(write, self._observations, observations)
        if states is not None:
            if self._states is None:
                self._states = np.zeros((*self._rewards.shape, *states.shape[1:]), states.dtype)
            write(self._states, states)

    def begin(
        self,
        observations: Any = None,
        *,
        which: BoolArray | None = None,
        states: Array | None = None,
    ) -> None:
        """Begin episodes where `which` is true; any that are under way there are cut.

        Args:
            observations: `[V, *obs]` the first of them; None where they have been seen already.
            which: `[V]`, all by default.
            states: `[V, *state]` with them, or None.
        """
        self.cut(which)
        if observations is not None:
            self.see(observations, which=which, states=states)
        here = slice(None) if which is None else which
        self._open[here] = self._begun[here] = self._row
        self._oldest = int(self._open.min())
        self.idle[here] = False
        self._first[self._row, here] = True

    def act(self, actions: Array) -> None:
        """Note the actions `[V, *act]` that are taken now."""
        self._actions[self._row] = actions
        np.logical_not(self.idle, out=self._real[self._row])

    def advance(
        self, observations: Any, rewards: FloatArray, *, states: Array | None = None
    ) -> None:
        """Record the outcome of a step: what is seen next `[V, *obs]`, and true rewards `[V]`."""
        self._rewards[self._row] = rewards
        if self._row + 1 == len(self._rewards):
            self._make_room()
        self._row += 1
        self._first[self._row] = False
        self.see(observations, states=states)
        lengths = np.where(self.idle, 0, self._row - self._begun)
        self.longest = max(self.longest, int(lengths.max()))
        if self.collecting:
            self.steps += len(self.idle) - int(np.count_nonzero(self.idle))

    def end(self, ended: IntArray, terminated: BoolArray, final: Observations) -> None:
        """End the episodes under way in these environments; their next ones begin by `begin`.

        Args:
            ended: `[K]` environments.
            terminated: `[K]` true where the rules ended the episode, not a time limit.
            final: `[K, *obs]` what was seen last.
        """
        shortest = int((self._row - self._begun[ended]).min())
        self.shortest = shortest if self.shortest is None else min(self.shortest, shortest)
        self._close(ended, terminated, final)
        self.idle[ended] = True

    def cut(self, which: BoolArray | None = None) -> None:
        """Close the episodes under way here; their later steps count as new episodes."""
        some = self.waiting > 0
        ended = np.flatnonzero(some if which is None else some & which)
        if len(ended):
            present = take(self._observations, (self._row, ended))
            self._close(ended, np.zeros(len(ended), bool), present)

    def pause(self) -> None:
        """Collect nothing; the episodes under way are cut."""
        self.cut()
        self.collecting = False

    def resume(self) -> None:
        """Collect again, from what is seen now."""
        self.collecting = True
        self._open[:] = self._oldest = self._row

    def windows(self, length: int) -> tuple[Observations, Array, BoolArray]:
        """The last `length` steps of the episodes under way, the one whose action was noted last.

        They reach back as far as steps are kept.

        Returns:
            Windows `[V, H, ...]` and a mask `[V, H]`, true at the last step everywhere.
        """
        rows = np.arange(self._row + 1 - length, self._row + 1)
        mask = (rows >= self._begun[:, None]) & (rows >= 0)  # [V, H]
        mask[:, -1] = True
        where = (np.maximum(rows, 0)[None, :], np.arange(len(self.idle))[:, None])
        return take(self._observations, where), self._actions[where], mask

    def since(self, time: int) -> tuple[Observations, Array, BoolArray, BoolArray, int]:
        """All steps from a vector step on, and up to `lookback` before them.

        Returns:
            Observations and actions `[V, t, ...]`, where an episode is under way and where one
            begins `[V, t]`, and how many columns come before `time`.
        """
        start = time - self._dropped
        rows = slice(max(start - self.lookback, 0), self._row)
        steps = map_observations(lambda array: _by_environment(array[rows]), self._observations)
        others = (_by_environment(a[rows]) for a in (self._actions, self._real, self._first))
        actions, real, first = others
        return steps, actions, real, first, start - rows.start

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
            self.cut()
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
        try:
            return Episodes(
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
        finally:
            self._drop()

    def snapshot(self) -> dict[str, Any]:
        """Everything that waits to be taken or is looked back on, for `restore`."""
        self._drop(at_least=0.0)
        rows = slice(self._row + 1)
        return {
            "observations": take(self._observations, rows),
            "actions": self._actions[rows],
            "rewards": self._rewards[rows],
            "states": None if self._states is None else self._states[rows],
            "row": self._row,
            "open": self._open,
            "begun": self._begun,
            "idle": self.idle,
            "closed": [tuple(closed) for closed in self._closed],
            "steps": self.steps,
            "lengths": [self.shortest, self.longest],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from where another recording of the same environments stood."""
        self._row, self._dropped = int(snapshot["row"]), 0
        self.steps, self.pinned = int(snapshot["steps"]), None
        self.shortest, self.longest = snapshot.get("lengths", (None, 0))  # older ones have none
        while len(self._rewards) <= self._row:
            self._double()
        rows = slice(self._row + 1)

        def write(array: Array, value: Array) -> None:
            array[rows] = value

        map_observations(write, self._observations, snapshot["observations"])
        write(self._actions, snapshot["actions"])
        write(self._rewards, snapshot["rewards"])
        self._states = None
        if snapshot["states"] is not None:
            states = snapshot["states"]
            self._states = np.zeros((*self._rewards.shape, *states.shape[2:]), states.dtype)
            write(self._states, states)
        self._open[:], self._begun[:] = snapshot["open"], snapshot["begun"]
        self._oldest = int(self._open.min())
        self.idle[:] = snapshot["idle"]
        self._closed = [_Closed(*closed) for closed in snapshot["closed"]]
        # Of steps before now, only those of the episodes under way are looked back on.
        time = np.arange(len(self._rewards))[:, None]
        self._real[:] = (time >= self._begun) & ~self.idle
        self._first[:] = (time == self._begun) & ~self.idle

    @property
    def _arrays(self) -> list[Array]:
        """All arrays `[rows, V, ...]` but those of observations."""
        states = [] if self._states is None else [self._states]
        return [self._actions, self._rewards, self._real, self._first, *states]

    def _double(self) -> None:
        self._observations = map_observations(_doubled, self._observations)
        doubled = map(_doubled, self._arrays)
        self._actions, self._rewards, self._real, self._first, *states = doubled
        self._states = states[0] if states else None

    def _close(self, ended: IntArray, terminated: BoolArray, final: Observations) -> None:
        if self.collecting:
            end = np.full(len(ended), self._row)
            self._closed.append(_Closed(ended, self._open[ended], end, terminated, final))
        self._open[ended] = self._row
        self._oldest = int(self._open.min())

    def _make_room(self) -> None:
        self._drop()
        if self._row + 1 == len(self._rewards):
            self._double()

    def _drop(self, at_least: float = 0.5) -> None:
        """Forget the first rows that nobody needs any more, if they are such a share of all."""
        needed = [self._row - self.lookback]
        if self.pinned is not None:
            needed.append(self.pinned - self._dropped - self.lookback)
        if self.collecting:
            needed.append(int(np.where(self.idle, self._row, self._open).min()))
        needed += [int(closed.start.min()) for closed in self._closed]
        rows = min(needed)
        if rows <= 0 or rows < at_least * self._row:  # moving the rest costs more than these
            return

        def shift(array: Array) -> None:
            array[: self._row + 1 - rows] = array[rows : self._row + 1].copy()

        map_observations(shift, self._observations)
        for array in self._arrays:
            shift(array)
        self._row, self._dropped = self._row - rows, self._dropped + rows
        self._open -= rows
        self._oldest -= rows
        self._begun -= rows
        for number, closed in enumerate(self._closed):
            self._closed[number] = closed._replace(start=closed.start - rows, end=closed.end - rows)


def _by_environment(array: Array) -> Array:
    """`[t, V, ...]` as `[V, t, ...]`."""
    return np.ascontiguousarray(np.swapaxes(array, 0, 1))


def _doubled(array: Array) -> Array:
    return np.concatenate([array, np.zeros_like(array)])
