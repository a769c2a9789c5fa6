"""Ranked lists: clips sorted by comparisons, so that few answers imply many.

Choi et al. 2024, "Listwise Reward Estimation for Offline Preference-based Reinforcement Learning"
(LiRE), section 4.2: each new clip is inserted into a list by binary search, and clips that are
called equal share a place. Sorting `n` clips takes about `n log2(n)` answers, which imply all
`n (n - 1) / 2` comparisons of these clips (`preferl.data.implied`).
"""

from math import inf
from typing import final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segment_sampling import sample_segments
from preferl.data.segments import Segments
from preferl.errors import require_in
from preferl.feedback.instant import adapted_to, check_answers
from preferl.feedback.protocols import Teacher
from preferl.shapes import BoolArray, FloatArray, IntArray


@final
class RankedLists:
    """Decides what to ask, so that answers sort the clips of `M` lists.

    The lists grow side by side. `pairs` returns the next query of each list that has queries left,
    and `add` takes the answers.

    Args:
        clips: `[M, K]` rows of segments, in the order in which they enter the lists.
        queries: number of queries, shared evenly by all lists; or `[M]` queries of each list.
        rng: draws which clip of a pair comes first, and which clip is compared if several share a
            place. Without it, the new clip comes first, and the first clip at a place is compared.
            The same answers then always lead to the same queries.

    Attributes:
        place: `[M, K]` place of each clip in its list, from 0, the worst. It is -1 for a clip
            without a place yet, or for a clip whose comparison was declined.

    Raises:
        ConfigError: there is no query, or there are fewer queries than lists.

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
        count, clips_per_list = self._clips.shape
        self._left = shared_evenly(queries, count) if isinstance(queries, int) else queries.copy()
        self.place = np.full((count, clips_per_list), -1)
        self.place[:, :1] = 0
        self._places = np.ones(count, np.int64)  # how many places each list has
        self._new = np.ones(count, np.int64)  # column of the clip that is being inserted
        self._low = np.zeros(count, np.int64)
        self._high = np.ones(count, np.int64)
        self._asked = np.arange(0)
        self._flipped = np.zeros(0, bool)

    def pairs(self) -> IntArray:
        """Return rows of segments to ask about, `[Q, 2]`; empty when all lists are finished."""
        self._asked = np.flatnonzero((self._left > 0) & (self._new < self._clips.shape[1]))
        lists = self._asked
        is_at_middle = self.place[lists] == self._middle[lists, None]
        draw = (
            is_at_middle
            if self._rng is None
            else np.where(is_at_middle, self._rng.random(is_at_middle.shape), -1)
        )
        representative = draw.argmax(1)
        clips = self._clips[lists]
        row = np.arange(len(lists))
        pairs = np.stack([clips[row, self._new[lists]], clips[row, representative]], 1)
        self._flipped = np.zeros(len(lists), bool)
        if self._rng is not None:
            self._flipped = self._rng.random(len(lists)) < 0.5
        self._left[lists] -= 1
        return np.where(self._flipped[:, None], pairs[:, ::-1], pairs)

    def add(self, preference: FloatArray, known: BoolArray | None = None) -> None:
        """Sort clips by the answers `[Q]` to the last `pairs`; above 0.5, the first is preferred.

        NaN is a declined answer. If an answer is not `known`, its list stops growing.
        """
        if known is not None:
            self._left[self._asked[~known]] = 0
            preference = preference[known]
            self._flipped = self._flipped[known]
            self._asked = self._asked[known]
        lists = self._asked
        middle = self._middle[self._asked]
        # than the clip in the list
        better = np.where(self._flipped, 0.5 - preference, preference - 0.5)
        self._low[lists] = np.where(better > 0, middle + 1, self._low[lists])
        self._high[lists] = np.where(better < 0, middle, self._high[lists])
        self.place[lists, self._new[lists]] = np.where(better == 0, middle, -1)
        placed = lists[(self._low == self._high)[lists]]  # its place is known
        low = self._low[placed, None]
        self.place[placed] += self.place[placed] >= low
        self.place[placed, self._new[placed]] = low[:, 0]
        self._places[placed] += 1
        settled = lists[~(np.abs(better) > 0) | (self._low == self._high)[lists]]
        self._new[settled] += 1
        self._high[settled] = self._places[settled]
        self._low[settled] = 0

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
    """Sample segments for lists; return them and their rows `[M, K]`.

    A list gets one clip more than it has queries, which is enough even if all clips are called
    equal.
    """
    clips_per_list = int(shared_evenly(queries, lists).max()) + 1
    segments = sample_segments(episodes, lists * clips_per_list, length, rng)
    return segments, np.arange(lists * clips_per_list).reshape(lists, clips_per_list)


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
        queries: number of queries, over all lists.
        length: steps of a segment.
        teacher: teacher that answers at once.
        rng: generator of all draws, including the teacher's.
        lists: number of lists, which grow side by side. LiRE has one list for each 100 queries.
            Take at least four, so that each member of an ensemble has out-of-bag lists.

    Returns:
        The queries in the order in which they were asked, without declined ones. `with_implied`
        adds the answers that follow from them.

    Raises:
        ConfigError: there is less than one query, no list, or more lists than queries.
        DataError: no episode is as long as a segment.
        FeedbackError: the teacher breaks its contract.
    """
    segments, clips = sample_lists(episodes, queries, length, rng, lists=lists)
    state = RankedLists(clips, queries, rng)
    teacher = adapted_to(segments, teacher)
    asked_pairs = []
    answers = []
    while len(pairs := state.pairs()):
        answers.append(check_answers(teacher(segments[pairs], rng), len(pairs)))
        state.add(answers[-1])
        asked_pairs.append(pairs)
    preference = np.concatenate(answers)
    answered = ~np.isnan(preference)
    return Comparisons.of(segments, np.concatenate(asked_pairs)[answered], preference[answered])
