"""Sampling segments: windows of episodes, drawn uniformly or cut at given rows; whole episodes."""

from typing import Literal

import numpy as np

from preferl.data.episodes import STEPS, Episodes
from preferl.data.segments import Segments
from preferl.errors import ConfigError, DataError, require_one_of
from preferl.shapes import BoolArray, IntArray

Short = Literal["drop", "pad", "auto"]


def cut(episodes: Episodes, start: IntArray, length: int) -> Segments:
    """Cut `N` windows of `length` steps that begin at rows `start`, which label files contain.

    In some published label files, windows run across an episode's end. `crosses_end` finds such
    windows, so that you can drop them or knowingly keep them.
    such windows, so that you can drop them or keep them knowingly.

    Raises:
        DataError: a window is outside the data, which means that the labels belong to other data.
    """
    start = np.asarray(start, np.int64)
    last_start = episodes.steps - length
    first_start = start.min(initial=last_start)
    latest_start = start.max(initial=0)
    expected = f"rows in [0, {last_start}] of these {episodes.steps} steps"
    fix = "Load the data set that the labels were made for."
    if len(start) and (first_start < 0 or latest_start > last_start):
        raise DataError(
            f"segment starts: expected {expected}, got rows in "
            f"[{first_start}, {latest_start}]. {fix}"
        )
    return _windows(episodes, start, np.full(len(start), length), length)


def whole_episodes(episodes: Episodes) -> Segments:
    """Return each episode as one segment; shorter episodes are padded to the longest one.

    The return of such a segment is the sum over all steps of its episode.
    """
    longest = int(episodes.lengths.max(initial=1))
    return _windows(episodes, episodes.starts, episodes.lengths, longest)


def crosses_end(episodes: Episodes, start: IntArray, length: int) -> BoolArray:
    """Return `[N]` whether each window of `length` steps runs across its episode's end."""
    first_row = np.asarray(start)
    return np.asarray(
        episodes.start_of_step[first_row] != episodes.start_of_step[first_row + length - 1]
    )


def sample_segments(
    episodes: Episodes, count: int, length: int, rng: np.random.Generator, *, short: Short = "drop"
) -> Segments:
    """Sample segments uniformly over all windows of all episodes, never across an episode's end.

    Args:
        episodes: experience to cut from; the result refers to its arrays.
        count: `N`, the number of segments. If there are at least `N` windows, all segments are
            different.
        length: `L`, steps per segment.
        rng: source of the draw.
        short: `"drop"`, the default, takes only windows with `L` real steps, so that all segments
            hold equal evidence. Shorter episodes are left out. `"pad"` also takes windows with
            fewer real steps, padded on the left. There are two kinds of them. An episode with fewer
            than `L` steps is one such window. The others are at the end of episodes that
            terminated, and have at least `L / 2` real steps; their returns show that the episode
            ended. `"auto"` drops if at least one episode is long enough, and pads if none is.

    Raises:
        ConfigError: `count` is negative, `length` is below 1, or `short` is unknown.
        DataError: no episode is long enough.

    >>> episodes = Episodes(np.zeros((5, 1)), np.zeros((5, 1)), np.arange(5.0), np.zeros(5, bool),
    ...                     np.zeros((2, 1)), np.array([2, 3]))
    >>> segments = sample_segments(episodes, 3, 2, np.random.default_rng(0))
    >>> sorted(segments.start.tolist())
    [0, 2, 3]
    """
    if not (count >= 0 and length >= 1):
        raise ConfigError(f"segments: expected count >= 0 and length >= 1, got {(count, length)}.")
    windows = windows_of(episodes, length, short)
    total = int(windows.sum())
    longest = int(episodes.lengths.max(initial=0))
    if total <= 0:
        raise DataError(
            f"segment length: expected at most {longest}, the longest of {len(episodes)} "
            f"episodes, got {length}. Shorten the segments, record longer episodes, or pass "
            'short="pad".'
        )
    window = rng.choice(total, count, replace=count > total, shuffle=True)
    window_ends = np.cumsum(windows)
    episode = np.searchsorted(window_ends, window, side="right")
    start = episodes.starts[episode] + window - (window_ends - windows)[episode]
    return _windows(episodes, start, np.minimum(episodes.ends[episode] - start, length), length)


def windows_of(episodes: Episodes, length: int, short: Short = "drop") -> IntArray:
    """Count the windows `[K]` of `length` steps in each episode.

    For `short`, see `sample_segments`.

    Raises:
        ConfigError: `short` is unknown.
    """
    require_one_of("short", short, Short)
    if short == "auto":
        short = "drop" if (episodes.lengths >= length).any() else "pad"
    if short == "drop":
        return np.maximum(episodes.lengths - length + 1, 0)
    fewest_steps = np.where(episodes.terminated[episodes.ends - 1], (length + 1) // 2, length)
    return np.maximum(episodes.lengths - fewest_steps + 1, 1)


def _windows(episodes: Episodes, start: IntArray, real: IntArray, length: int) -> Segments:
    episode = np.searchsorted(episodes.ends, start, side="right")
    last_episode = np.searchsorted(episodes.ends, start + real - 1, side="right")
    steps = {name: getattr(episodes, name) for name in STEPS}
    origin = np.stack([episode, start - episodes.starts[episode], last_episode], axis=1)
    return Segments(**steps, start=start, real=real, length=length, origin=origin)
