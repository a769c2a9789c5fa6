"""Experience as arrays: episodes, segments, comparisons, and where they come from (numpy only)."""

from preferl.bounds import allow_large
from preferl.data.arrays import (
    content_id,
    load_comparisons,
    load_episodes,
    save_comparisons,
    save_episodes,
)
from preferl.data.comparisons import Comparisons, concatenate, folds, split, split_off_episodes
from preferl.data.episodes import Episodes, join
from preferl.data.segments import Clips, Segments, crosses_end, cut, left_out, sample_segments
from preferl.data.tasks import TASKS, Task, find_task, normalised_score
from preferl.data.to_minari import save_minari
from preferl.data.windows import History, window_indices

__all__ = [
    "TASKS",
    "Clips",
    "Comparisons",
    "Episodes",
    "History",
    "Segments",
    "Task",
    "allow_large",
    "concatenate",
    "content_id",
    "crosses_end",
    "cut",
    "find_task",
    "folds",
    "join",
    "left_out",
    "load_comparisons",
    "load_episodes",
    "normalised_score",
    "sample_segments",
    "save_comparisons",
    "save_episodes",
    "save_minari",
    "split",
    "split_off_episodes",
    "window_indices",
]
