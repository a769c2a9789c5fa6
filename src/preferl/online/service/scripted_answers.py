"""A script that answers the store's queries instead of a person, through the same queue."""

from contextlib import suppress
from dataclasses import dataclass
from typing import final
from uuid import uuid4

import numpy as np

from preferl.errors import FeedbackError
from preferl.feedback.protocols import Teacher
from preferl.store.feedback import StoredFeedback


@final
@dataclass
class ScriptedAnswers:
    """Answers a project's queries by a teacher, under the name "script".

    The teacher looks at numbers, so queries need no pictures. In all else, it is treated like a
    person: leases, the order of clips, known pairs, repeats and budgets. `given` counts the
    answers.
    """

    feedback: StoredFeedback
    teacher: Teacher
    rng: np.random.Generator
    given: int = 0
    _person: int | None = None

    def answer(self) -> int:
        """Answer all open queries, storing each answer at once; return how many there were."""
        store = self.feedback.store
        project = self.feedback.project.id
        before = self.given
        if self._person is None:
            self._person = store.people.invite(project, "script").annotator.id
        while queries := store.queue.claim(project, self._person, 8, undrawn=True).queries:
            clips = [clip for query in queries for clip in (query.left, query.right)]
            shown = store.clips.segments(project, clips)
            pairs = np.arange(len(clips)).reshape(-1, 2)  # left, right
            left = np.asarray(self.teacher(shown[pairs], self.rng))
            sides = [np.isnan(left), left == 0.5, left > 0.5]
            kinds = np.select(sides, ["cannot_tell", "equal", "left"], "right").tolist()
            for query, kind in zip(queries, kinds, strict=True):
                with suppress(FeedbackError):  # the script of another agent was first
                    store.queue.answer(self._person, query.token, uuid4().hex, kind)
                    self.given += 1
        return self.given - before
