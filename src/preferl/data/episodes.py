"""Experience of whole episodes, end to end in one block of steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, final

import numpy as np

from preferl.data.on_disk import concatenate_rows
from preferl.errors import DataError
from preferl.shapes import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    Observations,
    Tree,
    leaves,
    map_observations,
    take,
)


@final
@dataclass(frozen=True, eq=False)
class Episodes:
    """Many episodes as one block; boundaries are data, never guessed.

    Attributes:
        observations: `[T, *obs]`, or a dictionary of such: what the policy saw before acting.
        actions: `[T, *act]`
        rewards: `[T]` of the environment (for scripted teachers and evaluation), or learned
            ones after `relabel`.
        terminated: `[T]`, true where an episode ended by the rules, not by a time limit.
        final_observations: `[K, *obs]` after each episode's last step, so that
            `next_observations` needs no second copy.
        lengths: `[K]` steps of each episode, at least 1.
        states: `[T, *state]` what it takes to draw a step again (qpos and qvel), or None.

    Raises:
        DataError: shapes that do not agree, NaN or infinite numbers, a termination inside an
            episode.

    >>> episodes = Episodes(np.zeros((5, 2)), np.zeros((5, 1)), np.ones(5), np.zeros(5, bool),
    ...                     np.zeros((2, 2)), np.array([2, 3]))
    >>> len(episodes), episodes.steps, episodes.returns.tolist()
    (2, 5, [2.0, 3.0])
    """

    observations: Observations
    actions: Array
    rewards: FloatArray
    terminated: BoolArray
    final_observations: Observations
    lengths: IntArray
    states: Array | None = None

    def __post_init__(self) -> None:
        lengths = np.asarray(self.lengths)
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
            raise DataError.mismatch(
                "Episodes.lengths", expected="[K] whole numbers of at least 1", got=lengths
            )
        steps = int(lengths.sum())
        for name in ("actions", "rewards", "terminated", "states"):
            array = getattr(self, name)
            if array is not None:
                _require_rows(f"Episodes.{name}", array, steps)
            if name in ("rewards", "terminated") and array.ndim != 1:
                raise DataError.mismatch(
                    f"Episodes.{name}", expected="one axis [T]", got=f"shape {array.shape}"
                )
        require_alike("Episodes.final_observations", [self.observations, self.final_observations])
        map_observations(
            lambda o, f: _require_observations(o, f, steps, len(lengths)),
            self.observations,
            self.final_observations,
        )
        for name, value in (
            ("observations", self.observations),
            ("final_observations", self.final_observations),
            ("actions", self.actions),
            ("rewards", self.rewards),
        ):
            _require_finite(f"Episodes.{name}", value)
        if self.terminated.dtype != bool:
            raise DataError.mismatch(
                "Episodes.terminated", expected="booleans", got=self.terminated.dtype
            )
        inside = np.asarray(self.terminated).copy()
        inside[self.ends - 1] = False
        if inside.any():
            raise DataError.mismatch(
                "Episodes.terminated",
                expected="true only at the last step of an episode",
                got=f"true inside an episode at step {int(inside.argmax())}",
                fix="Check that `lengths` holds every episode's boundary.",
            )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def steps(self) -> int:
        """`T`, the steps of all episodes."""
        return len(self.rewards)

    @cached_property
    def ends(self) -> IntArray:
        """`[K]` the row after the last step of each episode."""
        return np.cumsum(self.lengths)

    @cached_property
    def starts(self) -> IntArray:
        """`[K]` the row of the first step of each episode."""
        return self.ends - self.lengths

    @cached_property
    def start_of_step(self) -> IntArray:
        """`[T]` the row at which the episode of each step begins."""
        return np.repeat(self.starts, self.lengths)

    @property
    def returns(self) -> FloatArray:
        """`[K]` the undiscounted sum of rewards of each episode."""
        if not len(self):
            return np.zeros(0)
        return np.asarray(np.add.reduceat(np.asarray(self.rewards, np.float64), self.starts))

    @property
    def truncated(self) -> BoolArray:
        """`[T]` true at the last step of an episode that did not terminate."""
        last = np.zeros(self.steps, bool)
        last[self.ends - 1] = True
        return last & ~self.terminated

    @property
    def next_observations(self) -> Observations:
        """`[T, *obs]` what followed each step; a copy, made on each call."""

        def shifted(observations: Array, final: Array) -> Array:
            following = np.empty_like(observations)
            following[:-1] = observations[1:]
            following[self.ends - 1] = final
            return following

        return map_observations(shifted, self.observations, self.final_observations)

    def __iter__(self) -> Iterator[Self]:
        """Each episode by itself, as a table of one."""
        return (self[episode] for episode in range(len(self)))

    def __getitem__(self, episodes: int | IntArray | BoolArray | slice) -> Self:
        """Some of the episodes, in the order asked for; a number gives a table of that one.

        Raises:
            IndexError: a number beyond the last episode.
        """
        chosen = np.atleast_1d(np.arange(len(self))[episodes])
        lengths = self.lengths[chosen]
        offset = np.repeat(self.starts[chosen] - (np.cumsum(lengths) - lengths), lengths)
        rows = np.arange(int(lengths.sum())) + offset
        return replace(
            self,
            observations=take(self.observations, rows),
            actions=self.actions[rows],
            rewards=self.rewards[rows],
            terminated=self.terminated[rows],
            final_observations=take(self.final_observations, chosen),
            lengths=lengths,
            states=None if self.states is None else self.states[rows],
        )


def join(parts: Sequence[Episodes]) -> Episodes:
    """The episodes of all parts, one after another; states are kept if every part has them.

    Raises:
        DataError: nothing to join, or steps of different shapes or keys.
    """
    if not parts:
        raise DataError("There are no episodes to join. Record or load at least one episode.")
    if len(parts) == 1:
        return parts[0]
    names = [f.name for f in fields(Episodes) if f.name != "states"]
    joined: dict[str, Any] = {
        name: end_to_end(f"{name} of episodes to join", [getattr(part, name) for part in parts])
        for name in names
    }
    states = [part.states for part in parts if part.states is not None]
    complete = len(states) == len(parts)
    return Episodes(
        **joined, states=end_to_end("states of episodes to join", states) if complete else None
    )


def end_to_end(name: str, parts: Sequence[Tree]) -> Tree:
    """Concatenate arrays, or dictionaries of them, along their first axis.

    Pictures that are on disk stay there.

    Raises:
        DataError: parts of other keys, or whose rows have other shapes.
    """
    require_alike(name, parts)
    return map_observations(lambda *arrays: concatenate_rows(arrays), *parts)


def require_alike(name: str, parts: Sequence[Any], *, unit: str = "part") -> None:
    """Raise `DataError` unless all parts have the keys and row shapes of the first."""
    shapes = [_row_shapes(part) for part in parts]
    for k, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise DataError.mismatch(
                name, expected=f"rows of {shapes[0]}, as in {unit} 0", got=f"{shape} in {unit} {k}"
            )


def _row_shapes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: array.shape[1:] for key, array in value.items()}
    return value.shape[1:]


def _require_rows(name: str, array: Array, rows: int) -> None:
    if len(array) != rows:
        raise DataError.mismatch(
            name,
            expected=f"{rows} rows, the sum of the episodes' lengths",
            got=f"{len(array)} rows",
        )


def _require_observations(observations: Array, final: Array, steps: int, episodes: int) -> None:
    _require_rows("Episodes.observations", observations, steps)
    if len(final) != episodes:
        raise DataError.mismatch(
            "Episodes.final_observations",
            expected=f"shape {(episodes, *observations.shape[1:])}, one row per episode",
            got=f"shape {final.shape}",
        )


def _require_finite(name: str, values: Observations) -> None:
    for array in leaves(values):
        if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
            row = int((~np.isfinite(array.reshape(len(array), -1)).all(axis=1)).argmax())
            raise DataError.mismatch(
                name,
                expected="finite numbers",
                got=f"NaN or infinity, first in row {row}",
                fix="Repair or drop that step before it becomes training data.",
            )
