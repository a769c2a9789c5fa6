"""Rounds of queries: drawn, put, put anew where a script declines, and never put twice.

Lee et al., "B-Pref" (2021), section 3, has teachers whose thresholds follow the policy.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segments import Segments, Short, sample_segments, windows_of
from preferl.feedback.instant import InstantFeedback, check_pairs
from preferl.feedback.protocols import (
    Adapts,
    Feedback,
    LastingFeedback,
    PairSampler,
    SingleAnswers,
)
from preferl.feedback.sampling import segments_wanted
from preferl.online.answers import QueryMetrics, query_metrics
from preferl.online.wrappers.feedback_config import QueryConfig
from preferl.shapes import BoolArray, FloatArray, IntArray
from preferl.training.reward_function import RewardFunction

EPISODES: Final = 10
"""Whole episodes, the latest, whose mean return thresholds follow, as in B-Pref."""

ATTEMPTS: Final = 5
"""Times that a round asks others for the queries that a script declined."""


@final
class QueryRounds:
    """Puts the queries of a run, a round at a time, and finds again where a round was interrupted.

    Attributes:
        given: answers of the round under way that were given before an interruption, oldest first,
            each with the teacher's generator after it.
        newest: query of a lasting feedback when the interrupted round began; None if none was.
    """

    def __init__(self, config: QueryConfig, feedback: Feedback, sampler: PairSampler) -> None:
        self._config = config
        self._feedback = feedback
        self._sampler = sampler
        self.given: deque[tuple[Comparisons, np.random.Generator]] = deque()
        self.newest: int | None = None
        self._returns: list[float] = []  # of the latest whole episodes
        self._lengths: list[int] = []
        self._worst = 0.0

    def see(self, episodes: Episodes, whole: BoolArray) -> None:
        """Take in what the policy did, `[K]` episodes of which some are whole."""
        config = self._config
        if not (whole.any() or self._returns):  # a piece tells more than nothing
            whole = np.ones_like(whole)
        self._returns = [*self._returns, *episodes.returns[whole].tolist()][-EPISODES:]
        self._lengths = [*self._lengths, *episodes.lengths[whole].tolist()][-EPISODES:]
        returns = window_returns(episodes, config.segment_length, config.short)
        self._worst = min(self._worst, float(returns.min(initial=0.0)))

    def put(
        self,
        episodes: Episodes,
        count: int,
        rng: np.random.Generator,
        reward: RewardFunction | None = None,
    ) -> QueryMetrics:
        """Put `count` queries about episodes, and others for those that a script declines.

        What a person declines is not asked anew: they have seen as many pairs as they were to see.

        Args:
            episodes: to cut segments from, anew for each attempt.
            count: pairs to ask about.
            rng: of segments and pairs.
            reward: in use, if there is one.

        Returns:
            What the reward expects of the answers to the first `count` queries.
        """
        config = self._config
        feedback = self._feedback
        metrics = QueryMetrics()
        instant = feedback if isinstance(feedback, InstantFeedback) else None
        if instant is not None:
            self._adapt(instant)
        again = instant is not None and not isinstance(instant.teacher, SingleAnswers)
        for attempt in range(1 + ATTEMPTS if again else 1):
            wanted = segments_wanted(self._sampler, count, oversampling=config.oversampling)
            segments = sample_segments(
                episodes, wanted, config.segment_length, rng, short=config.short
            )
            pairs = check_pairs(self._sampler(segments, count, rng), len(segments))[:count]
            if attempt == 0:
                metrics = query_metrics(reward, segments, pairs)
            declined = 0 if instant is None else instant.declined
            self._put_rest(segments, pairs)
            count = 0 if instant is None else instant.declined - declined
            if count == 0:
                break
        return metrics

    def remember(self, most: float = float("inf")) -> int:
        """Take in answers that were given before an interruption, until there are `most` queries.

        Returns how many queries they answer.
        """
        feedback = self._feedback
        known = 0
        while self.given and known < most and isinstance(feedback, InstantFeedback):
            answers, feedback.rng = self.given.popleft()
            feedback.remember(answers)
            known += len(answers)
        return known

    def snapshot(self) -> dict[str, Any]:
        """What thresholds depend on, for `restore`."""
        return {"returns": self._returns, "lengths": self._lengths, "worst": self._worst}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Know the policy as another run of the same settings knew it."""
        self._returns = list(snapshot["returns"])
        self._lengths = list(snapshot["lengths"])
        self._worst = float(snapshot["worst"])

    def _adapt(self, feedback: InstantFeedback) -> None:
        """Let a teacher's thresholds follow the policy, as it was seen by now."""
        if isinstance(feedback.teacher, Adapts) and self._returns:
            share = min(self._config.segment_length / float(np.mean(self._lengths)), 1.0)
            typical = float(np.mean(self._returns)) * share
            feedback.teacher = feedback.teacher.adapted(typical, self._worst)

    def _put_rest(self, segments: Segments, pairs: IntArray) -> None:
        """Put queries, but for those that were put before an interruption of the round."""
        feedback = self._feedback
        if self.newest is not None and isinstance(feedback, LastingFeedback):
            feedback.ask_rest(segments, pairs, since=self.newest)
        else:
            feedback.ask(segments, pairs[self.remember(len(pairs)) :])
        self.newest = None


def window_returns(episodes: Episodes, length: int, short: Short = "drop") -> FloatArray:
    """`[N]` returns of all windows of `length` steps of the episodes, in their order.

    `short` says what becomes of shorter episodes, as in `sample_segments`.

    >>> zeros = np.zeros((5, 1))
    >>> episodes = Episodes(zeros, zeros, np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.zeros(5, bool),
    ...                     zeros[:2], np.array([2, 3]))
    >>> window_returns(episodes, 2).tolist()
    [3.0, 12.0, 24.0]
    """
    windows = windows_of(episodes, length, short)
    before = np.cumsum(windows) - windows
    first = np.arange(windows.sum()) + np.repeat(episodes.starts - before, windows)
    last = np.minimum(first + length, np.repeat(episodes.ends, windows))
    total = np.append(0.0, np.cumsum(np.asarray(episodes.rewards, np.float64)))
    return np.asarray(total[last] - total[first])
