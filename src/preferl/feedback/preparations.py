"""Preparations change answers before each fit; they are functions of answers and a `FitContext`."""

from dataclasses import dataclass, field
from typing import Protocol, final, runtime_checkable

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segment_sampling import Short
from preferl.data.segments import Segments
from preferl.feedback.likelihood import likelihood_of
from preferl.feedback.step_rewards import Reward
from preferl.shapes import BoolArray, FloatArray, IntArray


@final
@dataclass(frozen=True, eq=False)
class FitContext:
    """What is known before a fit to `P` answers.

    Attributes:
        reward: reward of the last fit; None before the first fit.
        votes: `[E, P]` true for members whose prediction of an answer counts. These are the members
            that were not trained on it, or all members if all were. At least one counts for each
            answer.
        experience: recent episodes, for pairs that nobody was asked about; None if there are none.
        segment_length: steps of a clip.
        short: how to treat shorter episodes, see `sample_segments`.
        rng: source of draws; the same in runs of the same seed.
        trust: `[P]` trust in the annotator of each answer, if it is fitted. It multiplies log-odds;
            below 0, a person means the opposite of their answers. If it is not fitted, `[1]` with
            the value 1.
    """

    reward: Reward | None = None
    votes: BoolArray = field(default_factory=lambda: np.ones((1, 0), bool))
    experience: Episodes | None = None
    segment_length: int = 50
    short: Short = "drop"
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    trust: FloatArray = field(default_factory=lambda: np.ones(1))

    def logits(self, segments: Segments, pairs: IntArray) -> FloatArray:
        """Compute log-odds `[E, N]` of each member that the first clip of pairs `[N, 2]` is better.

        The log-odds include the fitted scale but not the noise. They are about which clip is
        better, not about what a person who errs would answer.
        """
        if self.reward is None:
            return np.zeros((1, len(pairs)))
        scores = np.asarray(self.reward.scores(segments), np.float64)[:, pairs]  # [E, N, 2]
        return np.asarray(likelihood_of(self.reward).scale * (scores[..., 0] - scores[..., 1]))


@runtime_checkable
class Preparation(Protocol):
    """Changes the answers to which a reward is fitted."""

    def __call__(self, comparisons: Comparisons, context: FitContext) -> Comparisons:
        """Return the comparisons of a fit: the given rows first, then any others.

        The first `P` rows are the given answers, whose weights and preferences may have changed.
        Each further row is a pseudo-label: every member trains on it, and none is validated on it.
        """
        ...
