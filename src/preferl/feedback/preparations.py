"""What becomes of answers before each fit: a plain function of them and a `FitContext` will do."""

from dataclasses import dataclass, field
from typing import Protocol, final, runtime_checkable

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segments import Segments, Short
from preferl.feedback.likelihood import likelihood_of
from preferl.feedback.step_rewards import Reward
from preferl.shapes import BoolArray, FloatArray, IntArray


@final
@dataclass(frozen=True, eq=False)
class FitContext:
    """What is known before a fit to `P` answers.

    Attributes:
        reward: of the last fit; None before the first.
        votes: `[E, P]` the members whose prediction of an answer counts: those that have not been
            trained on it, or all where all have. At least one for each answer.
        experience: recent episodes, for pairs that nobody was asked about; None before there are.
        segment_length: steps of a clip.
        short: what becomes of shorter episodes, as in `sample_segments`.
        rng: source of draws; runs of the same seed have the same.
        trust: `[P]` in the annotator of each answer, where trust is fitted: it multiplies log-odds,
            and below 0 a person means the opposite of what they answer. `[1]`, 1, elsewhere.
    """

    reward: Reward | None = None
    votes: BoolArray = field(default_factory=lambda: np.ones((1, 0), bool))
    experience: Episodes | None = None
    segment_length: int = 50
    short: Short = "drop"
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    trust: FloatArray = field(default_factory=lambda: np.ones(1))

    def logits(self, segments: Segments, pairs: IntArray) -> FloatArray:
        """`[E, N]` log-odds that the first of pairs `[N, 2]` is better, by the last fit's members.

        They have the scale that was fitted, and leave out its noise: they are about which clip is
        better, not about what a person who errs would answer.
        """
        if self.reward is None:
            return np.zeros((1, len(pairs)))
        scores = np.asarray(self.reward.scores(segments), np.float64)[:, pairs]  # [E, N, 2]
        return np.asarray(likelihood_of(self.reward).scale * (scores[..., 0] - scores[..., 1]))


@runtime_checkable
class Preparation(Protocol):
    """Changes what a reward is fitted to."""

    def __call__(self, comparisons: Comparisons, context: FitContext) -> Comparisons:
        """Give the comparisons of a fit: the same rows first, and then any others.

        The first `P` rows are the given answers, of which weight and preference may change. Each
        further row is a pseudo-label: every member trains on it, and none is validated on it.
        """
        ...
