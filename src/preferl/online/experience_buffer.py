"""Finished experience that waits to become queries: bounded, the oldest goes first."""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from preferl.data.episodes import Episodes, join
from preferl.shapes import leaves


@dataclass
class _Waiting:
    """One hand-over, and whether questions have been drawn from it."""

    episodes: Episodes
    megabytes: float
    drawn: bool = False


@final
class ExperienceBuffer:
    """The latest experience, put in by one thread and drawn from by another.

    Neither waits for the other longer than it takes to note an arrival.

    Attributes:
        dropped_episodes: that went before any question was drawn with them in the buffer.
        dropped_segments: whole clips that those would have held, end to end.
        steps_in: steps that ever came in.

    Args:
        steps: at most so many stay.
        megabytes: and no more than this; one hand-over stays however large.
        segment_length: of a clip, for the count.
    """

    def __init__(self, steps: int, megabytes: float, segment_length: int) -> None:
        self._most = steps, megabytes
        self._length = segment_length
        self._waiting: deque[_Waiting] = deque()
        self._held = 0, 0.0
        self._lock = threading.Lock()
        self.dropped_episodes = self.dropped_segments = self.steps_in = 0

    @property
    def steps(self) -> int:
        """How many steps wait."""
        return self._held[0]

    def put(self, episodes: Episodes) -> None:
        """Take these in; the oldest make room."""
        arrival = _Waiting(episodes, _megabytes(episodes))
        with self._lock:
            self._waiting.append(arrival)
            self.steps_in += episodes.steps
            self._held = self._held[0] + episodes.steps, self._held[1] + arrival.megabytes
            while len(self._waiting) > 1 and (
                self._held[0] > self._most[0] or self._held[1] > self._most[1]
            ):
                self._leave(self._waiting.popleft())

    def look(self) -> Episodes | None:
        """All that is there, which stays, and from now on counts as drawn from; None if nothing."""
        with self._lock:
            waiting = list(self._waiting)
            for one in waiting:
                one.drawn = True
        return join([one.episodes for one in waiting]) if waiting else None

    def snapshot(self) -> dict[str, Any]:
        """What waits, and the counts, for `restore`."""
        with self._lock:
            waiting = [(one.episodes, one.drawn) for one in self._waiting]
            return {
                "waiting": waiting,
                "steps_in": self.steps_in,
                "dropped": [self.dropped_episodes, self.dropped_segments],
            }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Hold what another buffer of these settings held."""
        for episodes, drawn in snapshot["waiting"]:
            self.put(episodes)
            self._waiting[-1].drawn = bool(drawn)
        self.steps_in = int(snapshot["steps_in"])
        self.dropped_episodes, self.dropped_segments = map(int, snapshot["dropped"])

    def _leave(self, one: _Waiting) -> None:
        self._held = self._held[0] - one.episodes.steps, self._held[1] - one.megabytes
        if not one.drawn:
            self.dropped_episodes += len(one.episodes)
            self.dropped_segments += int((one.episodes.lengths // self._length).sum())


def _megabytes(episodes: Episodes) -> float:
    arrays = [*leaves(episodes.observations), episodes.actions, episodes.rewards]
    if episodes.states is not None:
        arrays.append(episodes.states)
    return float(np.sum([array.nbytes for array in arrays])) / 2**20
