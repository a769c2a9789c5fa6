"""How a teacher stops in the middle of its questions without losing the answers it has."""

from typing import final

from preferl.errors import FeedbackError
from preferl.shapes import FloatArray


@final
class FeedbackInterrupted(KeyboardInterrupt):
    """The person asked to stop; ends the program like Ctrl-C unless someone saves and goes on.

    Attributes:
        answers: `[A]` preferences for the first `A` pairs of the call that was interrupted.
    """

    def __init__(self, answers: FloatArray) -> None:
        super().__init__(f"stopped by the person who answers, after {len(answers)} answers")
        self.answers = answers


@final
class InputEndedError(FeedbackError):
    """There is nobody left to answer: the input was closed.

    Attributes:
        answers: `[A]` preferences for the first `A` pairs of the call that was cut short.
    """

    def __init__(self, message: str, answers: FloatArray) -> None:
        super().__init__(message)
        self.answers = answers
