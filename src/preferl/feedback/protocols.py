"""The protocols of samplers, teachers and feedback. Plain functions can be samplers or teachers.

With two exceptions, a teacher can stop half-way without losing the answers so far.
"""

from collections.abc import Iterator
from typing import Protocol, final, runtime_checkable

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.segments import Clips, Segments
from preferl.errors import FeedbackError
from preferl.shapes import FloatArray, IntArray


class PairSampler(Protocol):
    """Chooses pairs to ask about. `WantsSegments` tells how many segments it chooses from."""

    def __call__(self, segments: Segments, count: int, rng: np.random.Generator) -> IntArray:
        """Return pairs `[count, 2]` of rows of `segments`; the two rows of a pair differ."""
        ...


@runtime_checkable
class WantsSegments(Protocol):
    """A sampler that chooses among a certain number of segments; samplers need not be one."""

    def segments_for(self, queries: int) -> int:
        """Return how many segments to draw for choosing this number of queries."""
        ...


@runtime_checkable
class Teacher(Protocol):
    """Answers at once: a script, or a person at a blocking prompt."""

    def __call__(self, shown: Clips, rng: np.random.Generator) -> FloatArray:
        """Map clips `[P, 2, L]` to probabilities `[P]` that the first is preferred, or NaN."""
        ...


@runtime_checkable
class Adapts(Protocol):
    """A teacher whose standards follow the policy; the loop calls `adapted` in each round."""

    def adapted(self, typical: float, worst: float) -> Teacher:
        """Return the teacher for a policy whose segments have the mean return `typical`.

        `worst` is the least return of any segment seen so far, or 0 if all are above 0.
        """
        ...


@runtime_checkable
class SingleAnswers(Protocol):
    """A teacher whose answers can be kept one by one, since each takes a person's time."""

    def one_by_one(self, shown: Clips, rng: np.random.Generator) -> Iterator[float]:
        """Ask about clips `[P, 2, L]` one by one; each only after the last answer was stored."""
        ...


class Feedback(Protocol):
    """Takes queries, and has answers at once or later; all ways of asking share this interface."""

    def ask(self, segments: Segments, pairs: IntArray) -> None:
        """Take queries. Return nothing, since people answer later."""
        ...

    def comparisons(self) -> Comparisons:
        """Return all answers so far, oldest first.

        Raises:
            FeedbackError: nothing has been answered yet.
        """
        ...


@runtime_checkable
class LastingFeedback(Protocol):
    """Feedback whose queries and answers outlive the program, as in a store."""

    @property
    def newest_query(self) -> int:
        """Return the number of the newest query; 0 before the first one."""
        ...

    def ask_rest(self, segments: Segments, pairs: IntArray, *, since: int) -> None:
        """Take queries like `ask`, except those that were asked after query `since`."""
        ...


@final
class FeedbackInterrupted(KeyboardInterrupt):
    """The person asked to stop. Like Ctrl-C, it ends the program unless somebody catches it.

    Attributes:
        answers: `[A]` preferences for the first `A` pairs of the call that was interrupted.
    """

    def __init__(self, answers: FloatArray) -> None:
        super().__init__(f"stopped by the person who answers, after {len(answers)} answers")
        self.answers = answers


@final
class InputEndedError(FeedbackError):
    """Raised when the input was closed, so that nobody can answer.

    Attributes:
        answers: `[A]` preferences for the first `A` pairs of the call that was cut short.
    """

    def __init__(self, message: str, answers: FloatArray) -> None:
        super().__init__(message)
        self.answers = answers
