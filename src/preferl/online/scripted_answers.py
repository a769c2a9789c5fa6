"""A script in a person's place: it answers the store's questions through the same queue."""

from typing import Final, final
from uuid import uuid4

import numpy as np

from preferl.feedback.protocols import Teacher
from preferl.store.feedback import StoredFeedback

NAME: Final = "script"
AT_ONCE: Final = 8


@final
class ScriptedAnswers:
    """Answers a project's questions by a teacher, under the name "script".

    It looks at numbers, so questions need no pictures. Everything else is as with a person:
    leases, sides, known pairs, repeats and budgets.

    Attributes:
        given: how many answers.
        rng: of the teacher.

    Args:
        feedback: whose questions.
        teacher: looks at pairs of clips with the environment's rewards.
        rng: of the teacher.
    """

    def __init__(
        self, feedback: StoredFeedback, teacher: Teacher, rng: np.random.Generator
    ) -> None:
        self._store, self._project = feedback.store, feedback.project
        self._teacher, self.rng = teacher, rng
        self._person: int | None = None
        self.given = 0

    def answer(self) -> int:
        """Answer whatever is open; returns how many answers that were.

        Raises:
            StorageError: the store cannot be reached; what was answered until then is kept.
        """
        project = self._project.id
        if self._person is None:
            self._person = self._store.people.invite(project, NAME).annotator.id
        before = self.given
        while True:
            claim = self._store.queue.claim(project, self._person, AT_ONCE, undrawn=True)
            if not claim.questions:
                return self.given - before
            clips = [
                clip for question in claim.questions for clip in (question.left, question.right)
            ]
            shown = self._store.clips.segments(project, clips)
            pairs = np.arange(len(clips)).reshape(-1, 2)  # left, right
            for question, left in zip(
                claim.questions, self._teacher(shown[pairs], self.rng), strict=True
            ):
                self._store.queue.answer(self._person, question.token, uuid4().hex, _word(left))
                self.given += 1


def _word(left: float) -> str:
    """What a person would press who finds the left clip better with this probability."""
    if np.isnan(left):
        return "cannot_tell"
    return "equal" if left == 0.5 else ("left" if left > 0.5 else "right")
