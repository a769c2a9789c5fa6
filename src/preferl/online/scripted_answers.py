"""A script in a person's place: it answers the store's queries through the same queue."""

from typing import Final, final
from uuid import uuid4

import numpy as np

from preferl.feedback.protocols import Teacher
from preferl.store.feedback import StoredFeedback

NAME: Final = "script"
AT_ONCE: Final = 8


@final
class ScriptedAnswers:
    """Answers a project's queries by a teacher, under the name "script".

    The teacher looks at numbers, so queries need no pictures. Everything else is as with a person:
    leases, the order of clips, known pairs, repeats and budgets. `given` counts the answers.
    """

    def __init__(
        self, feedback: StoredFeedback, teacher: Teacher, rng: np.random.Generator
    ) -> None:
        self._store, self._project = feedback.store, feedback.project.id
        self._teacher, self.rng = teacher, rng
        self._person: int | None = None
        self.given = 0

    def answer(self) -> int:
        """Answer whatever is open; returns how many answers that were.

        Raises:
            StorageError: the store cannot be reached; what was answered until then is kept.
        """
        queue, before = self._store.queue, self.given
        if self._person is None:
            self._person = self._store.people.invite(self._project, NAME).annotator.id
        while queries := queue.claim(self._project, self._person, AT_ONCE, undrawn=True).questions:
            clips = [clip for query in queries for clip in (query.left, query.right)]
            shown = self._store.clips.segments(self._project, clips)
            pairs = np.arange(len(clips)).reshape(-1, 2)  # left, right
            for query, left in zip(queries, self._teacher(shown[pairs], self.rng), strict=True):
                queue.answer(self._person, query.token, uuid4().hex, _word(left))
                self.given += 1
        return self.given - before


def _word(left: float) -> str:
    """What a person would press who finds the left clip better with this probability."""
    if np.isnan(left):
        return "cannot_tell"
    return "equal" if left == 0.5 else ("left" if left > 0.5 else "right")
