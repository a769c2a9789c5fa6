"""Ranked lists: clips sorted by comparisons, so that few answers imply many.

Choi et al. 2024, "Listwise Reward Estimation for Offline Preference-based Reinforcement Learning"
(LiRE), section 4.2: each new clip is inserted into a list by binary search, and clips that are
called equal share a place. `n` clips take about `n log2(n)` answers, which imply the other
comparisons of these clips, `n (n - 1) / 2` in all (`preferl.data.implied`).
"""

from math import inf
from typing import final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segments import Segments, sample_segments
from preferl.errors import require_in
from preferl.feedback.instant import adapted_to, check_answers
from preferl.feedback.protocols import Teacher
from preferl.shapes import BoolArray, FloatArray, IntArray


@final
class RankedLists:
    """Decides what to ask, so that answers sort the clips of `M` lists.

    The lists grow side by side: `pairs` returns the next query of each list that has queries left,
    and `add` takes the answers.

    Args:
        clips: `[M, K]` rows of segments, in the order in which they enter the lists.
        queries: number of queries, shared evenly by all lists; or `[M]` queries of each list.
        rng: draws which clip of a pair comes first, and which of several clips represents a place
            that they share. Without it, the new clip comes first, and the first clip at a place
            represents it, so that the same answers always lead to the same queries.

    Attributes:
        place: `[M, K]` place of each clip in its list, from 0, the worst. It is -1 for a clip
            without a place yet, or about which the teacher declined to answer.

    Raises:
        ConfigError: no query, or fewer queries than lists.

    >>> lists = RankedLists(np.array([[4, 2, 9]]), 10, np.random.default_rng(0))
    >>> while len(pairs := lists.pairs()):
    ...     lists.add(np.sign(pairs[:, 0] - pairs[:, 1]) / 2 + 0.5)  # the higher number is better
    >>> lists.place.tolist()
    [[1, 0, 2]]
    """

    def __init__(
        self, clips: IntArray, queries: int | IntArray, rng: np.random.Generator | None = None
    ) -> None:
        self._clips = np.asarray(clips, np.int64)
        self._rng = rng
        count, each = self._clips.shape
        self._left = shared_evenly(queries, count) if isinstance(queries, int) else queries.copy()
        self.place = np.full((count, each), -1)
        self.place[:, :1] = 0
        self._places = np.ones(count, np.int64)  # of each list
        self._new = np.ones(count, np.int64)  # column of the clip that enters
        self._low = np.zeros(count, np.int64)
        self._high = np.ones(count, np.int64)
        self._asked = np.arange(0)
        self._flipped = np.zeros(0, bool)

    def pairs(self) -> IntArray:
        """Return rows of segments to ask about, `[Q, 2]`; none at the end, or before `add`."""
        self._asked = np.flatnonzero((self._left > 0) & (self._new < self._clips.shape[1]))
        lists = self._asked
        there = self.place[lists] == self._middle[lists, None]
        chance = there if self._rng is None else np.where(there, self._rng.random(there.shape), -1)
        stands = chance.argmax(1)
        clips = self._clips[lists]
        row = np.arange(len(lists))
        pairs = np.stack([clips[row, self._new[lists]], clips[row, stands]], 1)
        self._flipped = np.zeros(len(lists), bool)
        if self._rng is not None:
            self._flipped = self._rng.random(len(lists)) < 0.5
        self._left[lists] -= 1
        return np.where(self._flipped[:, None], pairs[:, ::-1], pairs)

    def add(self, preference: FloatArray, known: BoolArray | None = None) -> None:
        """Sort clips by the answers `[Q]` to the last `pairs`; the first is preferred above 0.5.

        NaN is a declined answer. A list whose answer is not `known` stops growing.
        """
        if known is not None:
            self._left[self._asked[~known]] = 0
            preference = preference[known]
            self._flipped = self._flipped[known]
            self._asked = self._asked[known]
        lists = self._asked
        middle = self._middle[self._asked]
        better = np.where(self._flipped, 0.5 - preference, preference - 0.5)  # than what is there
        self._low[lists] = np.where(better > 0, middle + 1, self._low[lists])
        self._high[lists] = np.where(better < 0, middle, self._high[lists])
        self.place[lists, self._new[lists]] = np.where(better == 0, middle, -1)
        placed = lists[(self._low == self._high)[lists]]  # between two other clips
        low = self._low[placed, None]
        self.place[placed] += self.place[placed] >= low
        self.place[placed, self._new[placed]] = low[:, 0]
        self._places[placed] += 1
        over = lists[~(np.abs(better) > 0) | (self._low == self._high)[lists]]
        self._new[over] += 1
        self._high[over] = self._places[over]
        self._low[over] = 0

    @property
    def _middle(self) -> IntArray:
        return (self._low + self._high) // 2


def shared_evenly(queries: int, lists: int) -> IntArray:
    """Return the queries `[M]` of each list; raise `ConfigError` for less than one query or list.

    >>> shared_evenly(5, 3).tolist()
    [2, 2, 1]
    """
    require_in("queries", queries, 1, inf)
    require_in("lists", lists, 1, queries)
    return queries // lists + (np.arange(lists) < queries % lists)


def sample_lists(
    episodes: Episodes, queries: int, length: int, rng: np.random.Generator, *, lists: int
) -> tuple[Segments, IntArray]:
    """Draw segments, and rows `[M, K]` of them for lists.

    A list gets one clip more than its queries, which is enough even if all clips are called equal.
    """
    each = int(shared_evenly(queries, lists).max()) + 1
    segments = sample_segments(episodes, lists * each, length, rng)
    return segments, np.arange(lists * each).reshape(lists, each)


def sample_ranked(
    episodes: Episodes,
    queries: int,
    length: int,
    teacher: Teacher,
    rng: np.random.Generator,
    *,
    lists: int,
) -> Comparisons:
    """Ask a teacher about clips of episodes in an order in which they form ranked lists.

    Args:
        episodes: episodes with the environment's rewards, by which a scripted teacher answers.
        queries: queries of all lists together.
        length: steps of a segment.
        teacher: teacher that answers at once.
        rng: generator of all draws, including the teacher's.
        lists: number of lists that grow side by side. LiRE has one for each 100 queries; take at
            least four, so that members of an ensemble can leave some out.

    Returns:
        The queries in the order in which they were asked, without those that were declined;
        `with_implied` adds what they imply.

    Raises:
        ConfigError: less than one query, no list, or more lists than queries.
        DataError: no episode as long as a segment.
        FeedbackError: the teacher breaks its contract.
    """
    segments, clips = sample_lists(episodes, queries, length, rng, lists=lists)
    state = RankedLists(clips, queries, rng)
    teacher = adapted_to(segments, teacher)
    asked = []
    answers = []
    while len(pairs := state.pairs()):
        answers.append(check_answers(teacher(segments[pairs], rng), len(pairs)))
        state.add(answers[-1])
        asked.append(pairs)
    preference = np.concatenate(answers)
    answered = ~np.isnan(preference)
    return Comparisons.of(segments, np.concatenate(asked)[answered], preference[answered])
