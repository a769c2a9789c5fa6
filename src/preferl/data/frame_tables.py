"""Tables with numbers for each frame of a LeRobot data set, for programs that train on them.

Their formats are those of LeRobot's sample weighting (SARM, Chen et al. 2025) and of RLinf's joins.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np

from preferl._optional import require
from preferl.data.columns import reading_foreign
from preferl.data.segments import Segments
from preferl.data.sources.lerobot import COUNTED, LeRobotFolder, read_numbers, read_table
from preferl.errors import DataError, require_in
from preferl.files import writing
from preferl.shapes import Array, FloatArray, IntArray

FrameTable = Literal["progress", "returns", "advantages", "rewards"]
"""Kinds of tables."""

PROGRESS: Final = "progress_sparse"
VALUES: Final = (PROGRESS, "progress_dense", "progress", "reward")
"""Columns of numbers that another program may have written; the first of them is read."""

ABOUT: Final = b"preferl"
"""Key in a table's metadata for the content id of its data set."""


@final
@dataclass(frozen=True, eq=False)
class FrameRewards:
    """Rewards of all frames of a data set, and where they come from.

    folder: the data set.
    rewards: `[T]` reward of each frame.
    version: name or number of the reward function.
    chunk: number of frames in an action chunk; LeRobot takes the difference of progress over it.
    best: share of the frames whose chunks count as good. LeRobot gives them full weight, and their
        column `advantage` is true. RLinf takes 0.3.

    Raises:
        ConfigError: the chunk has no frames, or the share is outside (0, 1].
        DataError: there is not one finite reward for each frame.
    """

    folder: LeRobotFolder
    rewards: FloatArray
    version: str
    chunk: int = 50
    best: float = 0.3

    def __post_init__(self) -> None:
        require_in("chunk", self.chunk, 1, float("inf"))
        require_in("best", self.best, 1e-6, 1)
        frames = int(self.folder.lengths.sum())
        if self.rewards.shape != (frames,) or not np.isfinite(self.rewards).all():
            raise DataError(
                f"rewards of {self.folder.path}: expected a finite number for each of {frames} "
                f"frames, got shape {self.rewards.shape}"
            )

    @property
    def ends(self) -> IntArray:
        """`[T]` number of the frame after the last one in each frame's episode."""
        return np.repeat(self.folder.starts + self.folder.lengths, self.folder.lengths)

    @property
    def total(self) -> FloatArray:
        """`[T + 1]` sum of the rewards before each frame of the data set."""
        return np.concatenate([[0.0], np.cumsum(self.rewards, dtype=np.float64)])

    @property
    def progress(self) -> FloatArray:
        """`[T]` sum of the episode's rewards before each frame, scaled to sizes of at most 1.

        Its difference over a chunk is the scaled return of the chunk's frames.
        """
        total = self.total
        sums = total[:-1] - np.repeat(total[self.folder.starts], self.folder.lengths)
        return sums / (np.abs(sums).max() or 1.0)

    @property
    def kappa(self) -> float:
        """LeRobot's `kappa`: the gain that the `best` share of frames exceeds, of weight 1.

        It is 0 if fewer frames than that gain anything.
        """
        progress = self.progress
        later = np.minimum(np.arange(len(progress)) + self.chunk, self.ends - 1)
        return max(0.0, float(np.quantile(progress[later] - progress, 1 - self.best)))

    def columns(self, kind: FrameTable) -> dict[str, Array]:
        """Return the columns `[T]` of a table, without those that number frames."""
        rewards = self.rewards.astype(np.float32)
        if kind == "progress":
            return {PROGRESS: self.progress.astype(np.float32)}
        if kind == "rewards":
            return {"reward": rewards}
        ends = self.ends
        total = self.total
        if kind == "returns":
            to_go = total[ends] - total[:-1]
            prompt = np.repeat(np.array(self.folder.tasks, object), self.folder.lengths)
            return {"return": to_go.astype(np.float32), "reward": rewards, "prompt": prompt}
        gains = total[np.minimum(np.arange(len(rewards)) + self.chunk, ends)] - total[:-1]
        advantages = gains - gains.mean()
        good = advantages >= np.quantile(advantages, 1 - self.best)
        return {"advantage": good, "advantage_continuous": advantages.astype(np.float32)}

    def write(self, path: Path, kind: FrameTable) -> None:
        """Write a table as Parquet, all or nothing, with the data set's content id.

        Raises:
            MissingExtraError: pyarrow is not installed.
            StorageError: the folder cannot be written to.
        """
        arrow = require("pyarrow", extra="parquet")
        parquet = require("pyarrow.parquet", extra="parquet")
        about: dict[str, Any] = {"content_id": self.folder.content_id, "reward": self.version}
        if kind == "progress":
            about |= {"chunk": self.chunk, "kappa": self.kappa}
        table = arrow.table(self.folder.counted | self.columns(kind))
        table = table.replace_schema_metadata({ABOUT: json.dumps(about)})
        with writing(path) as draft:
            parquet.write_table(table, draft)


def read_frame_rewards(path: Path, folder: LeRobotFolder) -> FloatArray:
    """Read rewards `[T]` from a table of progress or rewards, of this program or another one.

    The reward of a frame is the slope of progress there: half of the gain from the frame before to
    the frame after, within the episode.

    Raises:
        DataError: there is no such table, it is of another data set, it lacks frames, or it is
            damaged.
    """
    counted = read_table(path, COUNTED)
    with reading_foreign(path, "the data set that it belongs to"):
        about = (counted.schema.metadata or {}).get(ABOUT)
        content_id = folder.content_id if about is None else json.loads(about)["content_id"]
    if content_id != folder.content_id:
        raise DataError(
            f"{path}: expected a table of {folder.path}, whose content id is {folder.content_id}, "
            f"got one of {content_id!s:.64}. Write the table again for these episodes."
        )
    names = require("pyarrow.parquet", extra="parquet").read_schema(path).names
    name = next((name for name in VALUES if name in names), None)
    if name is None:
        raise DataError(f"{path}: expected a column {' or '.join(VALUES)}, got {', '.join(names)}")
    columns = read_numbers([path], dict.fromkeys((*COUNTED, name), ()))
    order = np.argsort(columns["index"], kind="stable")
    for key, numbers in folder.counted.items():
        if len(order) != len(numbers) or (columns[key][order] != numbers).any():
            raise DataError(
                f"{path}, {key}: expected the {len(numbers)} frames of {folder.path}, got "
                f"{len(order)} rows or other frames. Give a table of this data set."
            )
    values = columns[name][order].astype(np.float64)
    if not np.isfinite(values).all():
        raise DataError(
            f"{path}, {name}: expected a number for each frame, got none in "
            f"{int((~np.isfinite(values)).sum())} rows"
        )
    if name == "reward":
        return values
    frame = np.arange(len(values))
    before = np.maximum(frame - 1, np.repeat(folder.starts, folder.lengths))
    after = np.minimum(frame + 1, np.repeat(folder.starts + folder.lengths - 1, folder.lengths))
    return np.asarray((values[after] - values[before]) / np.maximum(after - before, 1))


def frames_of(segments: Segments, folder: LeRobotFolder, actions: Array) -> IntArray:
    """Return the number `[S]` of each step's frame in a data set; 0 for steps without a clip.

    Args:
        segments: clips whose `origin` is known.
        folder: the data set.
        actions: `[T, *act]` actions of the data set, to recognise clips of another one.

    Raises:
        DataError: the clips are of another data set, or their origin is unknown.
    """
    origin = segments.origin
    if origin is not None and (origin[:, [0, 2]] < len(folder.lengths)).all():
        first = folder.starts[origin[:, 0]] + origin[:, 1] - segments.start
        rows = segments.rows()
        used = rows[segments.mask()]
        frames = np.zeros(segments.steps, np.int64)
        frames[used] = (rows + first[:, None])[segments.mask()]
        inside = ((frames >= 0) & (frames < len(actions))).all()
        if inside and (segments.actions[used] == actions[frames[used]]).all():
            return frames
    raise DataError(
        f"answers: expected clips of {folder.path}, got other clips. Give the data set that they "
        "were cut from."
    )
