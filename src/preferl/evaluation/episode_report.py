"""A report on episodes by a learned reward: which are the worst, and where they went wrong."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.errors import DataError, require_in
from preferl.evaluation import plots
from preferl.evaluation.report import (
    MISSING,
    Fact,
    Figure,
    Report,
    ReportTable,
    Section,
    Video,
    number,
)
from preferl.evaluation.reward_report import predicted_preferences
from preferl.shapes import Array, FloatArray, IntArray
from preferl.statistics import mean_interval
from preferl.training.reward_function import RewardFunction
from preferl.video import encode

CLIPS_SHOWN: Final = 6
"""Clips in each section of a report, about the worst episodes or disputed ones."""

Frames = Callable[[int, int, int], Array]
"""Maps an episode's number, a first step and the step after the last one to pictures."""


@final
@dataclass(frozen=True, eq=False)
class EpisodeScores:
    """What a reward predicts for each episode.

    Attributes:
        rewards: `[E, T]` each member's scaled reward of each step.
        starts: `[K]` row of each episode's first step.
        lengths: `[K]` steps of each episode.
        returns: `[E, K]` each member's predicted return.
        worst: `[K]` first step of the part with the lowest predicted return.
        part: `[K]` number of steps of that part.
        answers: `[K]` number of decided answers about clips of each episode.
        contradicted: `[K]` number of these answers that contradict the reward.
    """

    rewards: FloatArray
    starts: IntArray
    lengths: IntArray
    returns: FloatArray
    worst: IntArray
    part: IntArray
    answers: IntArray
    contradicted: IntArray

    @property
    def mean(self) -> FloatArray:
        """`[K]` predicted return, the mean over members."""
        return np.asarray(self.returns.mean(axis=0))

    @property
    def worst_first(self) -> IntArray:
        """`[K]` numbers of the episodes, from the lowest predicted return to the highest."""
        return np.argsort(self.mean, kind="stable")

    @property
    def disputed(self) -> IntArray:
        """Numbers of the episodes about which people and reward disagree, the most disputed first.

        They are ordered by the share of contradicted answers, then by their number.
        """
        share = self.contradicted / np.maximum(self.answers, 1)
        order = np.lexsort((-self.contradicted, -share))
        return order[self.contradicted[order] > 0]


def score_episodes(
    reward: RewardFunction,
    episodes: Episodes,
    *,
    part: int = 25,
    comparisons: Comparisons | None = None,
) -> EpisodeScores:
    """Predict returns of episodes, find their worst parts, and count contradicted answers.

    Args:
        reward: the learned reward.
        episodes: whole episodes.
        part: length in steps of the worst part to find in each episode.
        comparisons: people's answers about clips of these episodes, whose `origin` is known.

    Raises:
        ConfigError: `part` is less than one step.
        DataError: the answers are about other episodes.
    """
    require_in("part", part, 1, math.inf)
    rewards = reward.member_rewards(episodes)
    if reward.scaler is not None:
        rewards = reward.scaler(rewards)
    lengths = episodes.lengths
    part_lengths = np.minimum(part, lengths)
    mean = rewards.mean(axis=0)
    worst = np.zeros(len(lengths), np.int64)
    for k, of_episode in enumerate(np.split(mean, episodes.ends[:-1])):
        total = np.concatenate([[0.0], np.cumsum(of_episode, dtype=np.float64)])
        worst[k] = (total[part_lengths[k] :] - total[: -part_lengths[k]]).argmin()
    answers, contradicted = _answer_counts(reward, comparisons, len(lengths))
    return EpisodeScores(
        rewards=rewards,
        starts=episodes.starts,
        lengths=lengths,
        returns=np.add.reduceat(rewards, episodes.starts, axis=1, dtype=np.float64),
        worst=worst,
        part=part_lengths,
        answers=answers,
        contradicted=contradicted,
    )


def _answer_counts(
    reward: RewardFunction, comparisons: Comparisons | None, episodes: int
) -> tuple[IntArray, IntArray]:
    """`[K]` decided answers about each episode, and those that contradict the reward."""
    none = np.zeros(episodes, np.int64)
    if comparisons is None:
        return none, none
    decided = comparisons[comparisons.decided]
    origin = decided.segments.origin
    if origin is None or (len(origin) and origin[:, [0, 2]].max() >= episodes):
        raise DataError(
            "answers: expected clips of these episodes, got clips of others. Pass the episodes "
            "whose clips were compared."
        )
    against = (predicted_preferences(reward, decided) > 0.5) != (decided.preference > 0.5)
    answer = np.repeat(np.arange(len(decided)), 2)
    both = np.stack([answer, origin[decided.pairs, 0].ravel()], axis=1)
    answer, episode = np.unique(both, axis=0).T  # an answer about one episode counts once
    return (
        np.bincount(episode, minlength=episodes),
        np.bincount(episode[against[answer]], minlength=episodes),
    )


def episode_rows(
    scores: EpisodeScores, numbers: Sequence[int] | IntArray, tasks: Sequence[str], fps: float
) -> list[tuple[str, ...]]:
    """Return a row of text for each of these episodes, with the columns `COLUMNS`.

    `fps` is the number of steps per second. The last cell counts the answers that contradict the
    reward.
    """
    rows: list[tuple[str, ...]] = []
    for k in map(int, numbers):
        interval = mean_interval(scores.returns[:, k])
        ends = MISSING if interval is None else f"{number(interval[0])} to {number(interval[1])}"
        first_step = scores.worst[k]
        seconds_range = f"{first_step / fps:.1f}–{(first_step + scores.part[k]) / fps:.1f}"
        answers = f"{scores.contradicted[k]} of {scores.answers[k]}"
        seconds = f"{scores.lengths[k] / fps:.1f}"
        mean = number(scores.mean[k])
        rows.append((f"{k}", tasks[k], seconds, mean, ends, seconds_range, answers))
    return rows


COLUMNS: Final = (
    "episode", "task", "seconds", "return", "95 % interval", "worst part", "against",
)  # fmt: skip


def episode_page(
    title: str,
    scores: EpisodeScores,
    *,
    tasks: Sequence[str],
    fps: float,
    frames: Frames | None,
    details: Mapping[str, Mapping[str, Any]],
) -> Report:
    """Build the report on episodes: all of them in a table, and the worst parts as clips.

    Args:
        title: title of the report.
        scores: what the reward predicts.
        tasks: `K` descriptions of the task of each episode.
        fps: steps per second.
        frames: draws parts of episodes; if it is None, there are no clips.
        details: settings, folded away at the end.
    """
    order = scores.worst_first
    sections_by_title = {"The worst episodes": order, "People and reward disagree": scores.disputed}
    sections = [
        Section(name, (_WORDS[name],), **_drawn(scores, numbers[:CLIPS_SHOWN], tasks, fps, frames))
        for name, numbers in sections_by_title.items()
        if len(numbers)
    ]
    rows = tuple(episode_rows(scores, order, tasks, fps))
    caption = "Predicted returns, lowest first; the last column counts answers against the reward"
    table = ReportTable(caption, COLUMNS, rows)
    return Report(
        title,
        lead="A reward that was fitted to people's answers predicts the return of each episode. "
        "Intervals are over the members of its ensemble.",
        facts=_facts(scores),
        sections=(*sections, Section("All episodes", tables=(table,))),
        details=details,
    )


def _facts(scores: EpisodeScores) -> tuple[Fact, ...]:
    order = scores.worst_first
    least, largest = (number(scores.mean[k]) for k in order[[0, -1]])
    answered = int((scores.answers > 0).sum())
    return (
        Fact("Episodes", f"{len(order):,}", f"{int(scores.lengths.sum()):,} steps"),
        Fact("Least predicted return", least, f"episode {order[0]}"),
        Fact("Largest predicted return", largest, f"episode {order[-1]}"),
        Fact("Disputed episodes", f"{len(scores.disputed):,}", f"of {answered:,} with answers"),
    )


_WORDS: Final = {
    "The worst episodes": "The episodes with the lowest predicted returns. Each clip shows the "
    "part with the lowest return.",
    "People and reward disagree": "The episodes with the largest share of answers that contradict "
    "the reward. Either the reward is wrong there, or the answer.",
}


def _drawn(
    scores: EpisodeScores,
    numbers: IntArray,
    tasks: Sequence[str],
    fps: float,
    frames: Frames | None,
) -> dict[str, Any]:
    """Return the clips and figures of a section about some episodes."""
    clips = []
    figures = []
    for k in numbers.tolist():
        first_step = int(scores.worst[k])
        end = first_step + int(scores.part[k])
        name = f"Episode {k}: {first_step / fps:.1f} to {end / fps:.1f} s"
        if frames is not None:
            mp4 = encode(frames(k, first_step, end), max(1, round(fps)))
            clips.append(Video(mp4, name, f"{tasks[k]}, steps {first_step} to {end - 1}", tasks[k]))
        steps = slice(scores.starts[k], scores.starts[k] + scores.lengths[k])
        svg = plots.reward_over_clip(scores.rewards[:, steps])
        alt = f"Predicted reward of episode {k}, least from step {first_step} to {end - 1}."
        figures.append(Figure(svg, alt, f"Episode {k}: predicted reward of each step", half=True))
    return {"clips": tuple(clips), "figures": tuple(figures)}
