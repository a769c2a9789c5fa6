"""The extension points of asking and answering; a plain function is a sampler or a teacher.

Beside them are the two ways in which a teacher stops half-way without losing the answers it has.
"""

from collections.abc import Iterator
from typing import Protocol, final, runtime_checkable

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.segments import Clips, Segments
from preferl.errors import FeedbackError
from preferl.shapes import FloatArray, IntArray


class PairSampler(Protocol):
    """Chooses what to ask; see `WantsSegments` for how many segments it chooses from."""

    def __call__(self, segments: Segments, count: int, rng: np.random.Generator) -> IntArray:
        """`[count, 2]` rows of `segments`, two different ones each."""
        ...


@runtime_checkable
class WantsSegments(Protocol):
    """A sampler that wants to choose among a certain number of segments; others need not."""

    def segments_for(self, queries: int) -> int:
        """How many segments to draw for it when so many queries are to be put."""
        ...


@runtime_checkable
class Teacher(Protocol):
    """Answers at once: a script, or a person at a blocking prompt."""

    def __call__(self, shown: Clips, rng: np.random.Generator) -> FloatArray:
        """`[P, 2, L]` clips to `[P]` probabilities that the first is preferred; NaN = declined."""
        ...


@runtime_checkable
class Adapts(Protocol):
    """A teacher who asks more of a better policy; the loop takes its `adapted` for each round."""

    def adapted(self, typical: float, worst: float) -> Teacher:
        """Give the teacher for a policy whose segments return `typical` on average.

        `worst` is the least return of a segment that was seen, or 0 if that is less.
        """
        ...


@runtime_checkable
class SingleAnswers(Protocol):
    """A teacher whose answers can be kept one by one, since each takes a person's time."""

    def one_by_one(self, shown: Clips, rng: np.random.Generator) -> Iterator[float]:
        """Put each query of `[P, 2, L]` clips only once the answer before has been taken."""
        ...


class Feedback(Protocol):
    """Takes queries and sooner or later has answers: the seam between all modes."""

    def ask(self, segments: Segments, pairs: IntArray) -> None:
        """Take queries; returns nothing, since people answer when they like."""
        ...

    def comparisons(self) -> Comparisons:
        """Everything answered so far, oldest first.

        Raises:
            FeedbackError: nothing has been answered yet.
        """
        ...


@runtime_checkable
class LastingFeedback(Protocol):
    """Feedback whose queries and answers outlive the program, as in a store."""

    @property
    def newest(self) -> int:
        """Number of the query that was put last; 0 before the first."""
        ...

    def ask_rest(self, segments: Segments, pairs: IntArray, *, since: int) -> None:
        """Take queries as `ask` does, but for those that were put after query `since`."""
        ...


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
