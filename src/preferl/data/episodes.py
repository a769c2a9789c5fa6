"""Experience as whole episodes, stored one after another in one block of steps."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import getitem
from typing import Any, Final, Self, cast, final

import numpy as np

from preferl.data.columns import as_floats, require_finite
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

STEPS: Final = ("observations", "actions", "rewards", "states")
"""Columns with a row per step that both `Episodes` and `Segments` have."""

OUTCOMES: Final = ("terminated", "success")
"""Columns with a row per step that only `Episodes` have."""


@final
@dataclass(frozen=True, eq=False)
class Episodes:
    """Many episodes as one block of steps, with their boundaries.

    Attributes:
        observations: `[T, *obs]`, or a dictionary of such arrays: what the policy saw before it
            acted.
        actions: `[T, *act]`
        rewards: `[T]` from the environment, or learned rewards after `relabel`.
        terminated: `[T]`, true where an episode ended by the rules and not by a time limit.
        final_observations: `[K, *obs]` observations after each episode's last step. With them,
            `next_observations` needs no second copy of all observations.
        lengths: `[K]` steps of each episode, at least 1.
        states: `[T, *state]` states from which a simulator renders a step (qpos and qvel), or None.
        success: `[T]` whether the environment reported success with a step; None if it reports
            none.

    Raises:
        DataError: shapes do not agree, numbers are NaN or infinite, or an episode has a termination
            before its end.

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
    success: BoolArray | None = None

    def __post_init__(self) -> None:
        lengths = np.asarray(self.lengths)
        if not (lengths.ndim == 1 and lengths.dtype.kind in "iu" and (lengths >= 1).all()):
            raise DataError(
                f"Episodes.lengths: expected [K] whole numbers of at least 1, got {lengths}."
            )
        require_alike("Episodes.final_observations", [self.observations, self.final_observations])
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "lengths"}
        steps = (int(lengths.sum()), "the sum of the episodes' lengths")
        for name in ("rewards", "terminated"):
            if getattr(columns[name], "ndim", 0) != 1:
                raise DataError(
                    f"Episodes.{name}: expected one axis [T], got shape "
                    f"{getattr(columns[name], 'shape', 'of none')}."
                )
        for name, column in columns.items():
            final = name == "final_observations"
            rows, why = (len(lengths), "one for each episode") if final else steps
            for array in [] if column is None else leaves(column):
                if len(array) != rows:
                    raise DataError(
                        f"Episodes.{name}: expected {rows} rows, {why}, got {len(array)} rows."
                    )
                if name not in (*OUTCOMES, "states"):
                    require_finite(f"Episodes.{name}", array)
        for name in OUTCOMES:
            kind = "b" if columns[name] is None else columns[name].dtype.kind
            if kind != "b":
                raise DataError(f"Episodes.{name}: expected booleans, got {kind}.")
        what = "Episodes.terminated"
        inside = np.asarray(self.terminated).copy()
        inside[self.ends - 1] = False
        if inside.any():
            raise DataError(
                f"{what}: expected true only at the last step of an episode, got true inside "
                f"an episode at step {int(inside.argmax()) if len(inside) else 0}. Check that "
                "`lengths` holds every episode's boundary."
            )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def steps(self) -> int:
        """`T`, the number of steps of all episodes."""
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
        return np.asarray(np.add.reduceat(np.asarray(self.rewards, np.float64), self.starts))

    @property
    def has_true_reward(self) -> bool:
        """Whether the environment gave any reward other than 0.

        A reward that is the same at every step counts as one, since episodes differ in length.
        """
        return bool(np.any(self.rewards))

    @property
    def succeeded(self) -> BoolArray | None:
        """`[K]` whether each episode had a success at any step; None if success is not reported."""
        if self.success is None:
            return None
        return np.asarray(np.logical_or.reduceat(self.success, self.starts))

    @property
    def truncated(self) -> BoolArray:
        """`[T]` true at the last step of an episode that did not terminate."""
        last = np.zeros(self.steps, bool)
        last[self.ends - 1] = True
        return last & ~self.terminated

    @property
    def next_observations(self) -> Observations:
        """`[T, *obs]` the observation after each step. Every call makes a new copy."""

        def shifted(observations: Array, final: Array) -> Array:
            following = np.empty_like(observations)
            following[:-1] = observations[1:]
            following[self.ends - 1] = final
            return following

        return map_observations(shifted, self.observations, self.final_observations)

    def __iter__(self) -> Iterator[Self]:
        """Iterate over the episodes, each as a table of one episode."""
        return (self[episode] for episode in range(len(self)))

    def __getitem__(self, episodes: int | IntArray | BoolArray | slice) -> Self:
        """Select episodes in the given order; a number selects a table of one episode.

        Raises:
            IndexError: a number is beyond the last episode.
        """
        numbers = np.atleast_1d(np.arange(len(self))[episodes])
        lengths = self.lengths[numbers]
        offset = np.repeat(self.starts[numbers] - (np.cumsum(lengths) - lengths), lengths)
        rows = np.arange(int(lengths.sum())) + offset
        final = take(self.final_observations, numbers)
        steps = take_columns(self, rows, (*STEPS, *OUTCOMES))
        return replace(self, **steps, final_observations=final, lengths=lengths)


def one_episode(
    observations: Observations, actions: Array, rewards: Array, steps: int, **others: Array | None
) -> Episodes:
    """Build an episode of the first `steps` rows; the observation after them is its final one."""
    return Episodes(
        observations=take(observations, slice(steps)),
        actions=actions[:steps],
        rewards=as_floats(rewards[:steps]),
        final_observations=take(observations, slice(-1, None)),
        lengths=np.array([steps]),
        **{"terminated": np.zeros(steps, bool)} | cast("Any", others),
    )


def take_columns(
    table: Any, rows: Any, names: Sequence[str] = STEPS, pick: Callable[..., Any] = getitem
) -> dict[str, Any]:
    """Return rows of a table's columns, by name; None for a column that it lacks."""
    columns = {name: getattr(table, name) for name in names}
    return {
        name: None if column is None else map_observations(lambda a: pick(a, rows), column)
        for name, column in columns.items()
    }


def join(parts: Sequence[Episodes]) -> Episodes:
    """Join the episodes of all parts, one after another; keep states if all parts have them.

    Raises:
        DataError: there are no parts, or their steps have different shapes or keys.
    """
    if not parts:
        raise DataError("There are no episodes to join. Record or load at least one episode.")
    if len(parts) == 1:
        return parts[0]
    names = [f.name for f in fields(Episodes)]
    return Episodes(**join_columns(parts, "{} of episodes to join", names))


def join_columns(parts: Sequence[Any], what: str, names: Sequence[str]) -> dict[str, Any]:
    """Join each column of several tables end to end; None for a column that a part lacks.

    Errors name a column by `what`, in which `{}` stands for the column's name.
    """
    columns = {name: [getattr(part, name) for part in parts] for name in names}
    return {
        name: None if any(c is None for c in held) else end_to_end(what.format(name), held)
        for name, held in columns.items()
    }


def end_to_end(name: str, parts: Sequence[Tree]) -> Tree:
    """Concatenate arrays, or dictionaries of arrays, by rows; pictures on disk stay there."""
    require_alike(name, parts)
    return map_observations(lambda *arrays: concatenate_rows(arrays), *parts)


def require_alike(name: str, parts: Sequence[Any], *, unit: str = "part") -> None:
    """Raise `DataError` unless all parts have the keys and row shapes of the first."""
    shapes = [map_observations(lambda array: array.shape[1:], part) for part in parts]
    for k, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise DataError(
                f"{name}: expected rows of {shapes[0]}, as in {unit} 0, got {shape} in {unit} {k}."
            )
