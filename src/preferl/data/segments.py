"""Segments: windows of L steps over one block of steps; and clips, which lay out their steps."""

from dataclasses import dataclass, fields, replace
from typing import Self, final

import numpy as np

from preferl.data.columns import require_rows, require_shape
from preferl.data.episodes import STEPS, Episodes, join_columns, take_columns
from preferl.data.on_disk import select_rows
from preferl.errors import DataError, require_in
from preferl.shapes import Array, BoolArray, FloatArray, IntArray, Observations, leaves, take


@final
@dataclass(frozen=True, eq=False)
class Clips:
    """Segments whose steps are laid out as `[..., L]`, for teachers and models to read.

    Attributes:
        observations: `[..., L, *obs]`
        actions: `[..., L, *act]`
        mask: `[..., L]` true where a step is real; real steps come last.
        rewards: `[..., L]` the environment's rewards; zero where padded.
        states: `[..., L, *state]` or None.
    """

    observations: Observations
    actions: Array
    mask: BoolArray
    rewards: FloatArray
    states: Array | None = None

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, rows: object) -> Self:
        """Select clips along the leading axes. A slice or a number copies nothing."""
        return type(self)(**take_columns(self, rows, [f.name for f in fields(self)]))


@final
@dataclass(frozen=True, eq=False)
class Segments:
    """N windows over one block of steps; windows that overlap share their steps.

    Nothing is copied until `segments[rows]` lays out steps as `Clips`. Ten thousand candidates
    therefore cost only two integers each. A model that looks at single steps scores each step once,
    however many windows hold it.

    Attributes:
        observations: `[T, *obs]`: an array, a memory map, or `OnDisk` if several maps were joined.
        actions: `[T, *act]`
        rewards: `[T]` the environment's rewards, only for scripted teachers and evaluation.
        start: `[N]` row of the first real step of each window.
        real: `[N]` number of real steps of each window, from 1 to L.
        length: `L`. Windows with fewer real steps are padded on the left.
        origin: `[N, 3]` where each window was cut: the episode of its first step, the place of that
            step in its episode, and the episode of its last step. The two episodes differ only for
            windows of label files that run across an episode's end. None if it is not known.
        states: `[T, *state]` for rendering on demand, or None.

    >>> block = np.arange(6.0)[:, None]
    >>> segments = Segments(block, block, np.zeros(6), np.array([0, 4]), np.array([3, 2]), 3)
    >>> segments[np.array([1])].observations[..., 0].tolist(), segments.mask().tolist()
    ([[4.0, 4.0, 5.0]], [[True, True, True], [False, True, True]])
    """

    observations: Observations
    actions: Array
    rewards: FloatArray
    start: IntArray
    real: IntArray
    length: int
    origin: IntArray | None = None
    states: Array | None = None

    def __post_init__(self) -> None:
        require_in("segment length", self.length, 1, float("inf"))
        columns = {f"observations {leaf.shape}": leaf for leaf in leaves(self.observations)}
        columns |= {"actions": self.actions, "rewards": self.rewards}
        columns |= {} if self.states is None else {"states": self.states}
        steps = require_rows(columns, "steps of Segments")
        require_shape("Segments.start", self.start, (len(self),))
        require_shape("Segments.real", self.real, (len(self),))
        if self.origin is not None:
            require_shape("Segments.origin", self.origin, (len(self), 3))
        first_row = self.start.min(initial=0)
        last_row = (self.start + self.real).max(initial=0)
        has_valid_lengths = (
            self.real.min(initial=1) >= 1 and self.real.max(initial=1) <= self.length
        )
        if not has_valid_lengths or first_row < 0 or last_row > steps:
            raise DataError(
                f"Segments.start and .real: expected windows of 1 to {self.length} steps inside "
                f"{steps} steps, got rows {first_row} to {last_row}."
            )

    def __len__(self) -> int:
        return len(self.start)

    @property
    def steps(self) -> int:
        """`T`, the number of distinct steps that the windows share."""
        return len(self.rewards)

    def rows(self, segments: object = slice(None)) -> IntArray:
        """Return the rows `[..., L]` of each window; padded places repeat its first real step."""
        start = take(self.start, segments)[..., None]
        real = take(self.real, segments)[..., None]
        return np.asarray(np.maximum(start + np.arange(self.length) - (self.length - real), start))

    def mask(self, segments: object = slice(None)) -> BoolArray:
        """`[..., L]` true where a step is real."""
        return np.arange(self.length) >= self.length - take(self.real, segments)[..., None]

    def __getitem__(self, segments: object) -> Clips:
        """Lay out windows as `Clips`. With `segments[pairs]`, the axes are `[P, 2, L, ...]`."""
        mask = self.mask(segments)
        steps = take_columns(self, self.rows(segments))
        return Clips(**steps | {"mask": mask, "rewards": steps["rewards"] * mask})

    def returns(self, segments: object = slice(None)) -> FloatArray:
        """Return the sum `[...]` of the environment's rewards over each window."""
        rows = self.rows(segments)
        mask = self.mask(segments)
        return np.asarray((np.asarray(self.rewards, np.float64)[rows] * mask).sum(-1))

    def episodes(self) -> Episodes:
        """Return the real steps of each window as a separate episode."""
        rows = self.rows()[self.mask()]
        steps = take_columns(self, rows, pick=select_rows)
        # later observations are not known
        final = take(steps["observations"], np.cumsum(self.real) - 1)
        unknown = np.zeros(len(rows), bool)
        return Episodes(**steps, terminated=unknown, final_observations=final, lengths=self.real)

    def select(self, segments: IntArray | BoolArray | slice) -> Self:
        """Copy some windows with only the steps that they need, so that the rest can be freed.

        Pictures on disk stay there.
        """
        numbers = np.arange(len(self))[segments]
        start = self.start[numbers]
        real = self.real[numbers]
        change = np.zeros(self.steps + 1, np.int64)
        np.add.at(change, start, 1)
        np.add.at(change, start + real, -1)
        covered = np.cumsum(change[:-1]) > 0
        return replace(
            self,
            **take_columns(self, np.flatnonzero(covered), pick=select_rows),
            start=(np.cumsum(covered) - 1)[start] if len(start) else start,
            real=real,
            origin=None if self.origin is None else self.origin[numbers],
        )


def join_segments(parts: list[Segments]) -> Segments:
    """Join the windows of all parts, over their blocks of steps laid end to end.

    Origins are dropped, since each part counts its episodes from 0. If parts differ in segment
    length, the result has the longest one, and shorter windows are padded like short episodes.
    """
    if not parts:
        raise DataError("There are no segments to join. Send at least one query first.")
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0] + [part.steps for part in parts[:-1]])
    return Segments(
        **join_columns(parts, "{} to join", STEPS),
        start=np.concatenate([part.start + o for part, o in zip(parts, offsets, strict=True)]),
        real=np.concatenate([part.real for part in parts]),
        length=max(part.length for part in parts),
    )
