"""Pseudo-labels: the reward's own answers about pairs that nobody was asked about.

Park et al., "SURF: Semi-supervised Reward Learning with Data Augmentation for Feedback-efficient
Preference-based RL" (2022), section 4.1.
"""

from dataclasses import dataclass
from math import inf
from typing import final

import numpy as np

from preferl.data.comparisons import Comparisons, concatenate
from preferl.data.segment_sampling import sample_segments
from preferl.errors import require_in
from preferl.feedback.pair_sampling import sigmoid
from preferl.feedback.preparations import FitContext


@final
@dataclass(frozen=True)
class PseudoLabels:
    """Adds pairs of recent clips with answers, if the reward of the last fit is sure of them.

    Attributes:
        confidence: a pair is labelled if, by the members' mean probability, one of its clips is
            better with at least this probability; in [0.5, 1).
        ratio: number of pairs drawn for each answer.
        weight: total weight of all drawn pairs if all were labelled, in multiples of the number of
            answers. Each labelled pair weighs `weight / ratio`.

    Raises:
        ConfigError: a number is out of its range.
    """

    confidence: float = 0.99
    ratio: float = 4.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        require_in("confidence", self.confidence, 0.5, 1 - 1e-9)
        require_in("ratio", self.ratio, 0.01, 1000)
        require_in("weight", self.weight, 0, inf)

    def __call__(self, comparisons: Comparisons, context: FitContext) -> Comparisons:
        """Return the answers, followed by pseudo-labels. Before the first fit, there are none."""
        drawn = round(self.ratio * len(comparisons))
        if context.reward is None or context.experience is None or not drawn:
            return comparisons
        segments = sample_segments(
            context.experience,
            2 * drawn,
            context.segment_length,
            context.rng,
            short=context.short,
        )
        pairs = np.arange(2 * drawn).reshape(-1, 2)
        first = sigmoid(context.logits(segments, pairs)).mean(0)
        sure = np.maximum(first, 1 - first) >= self.confidence
        if not sure.any():
            return comparisons
        weight = np.full(int(sure.sum()), self.weight / self.ratio)
        labels = Comparisons.of(segments, pairs[sure], 1.0 * (first[sure] > 0.5), weight)
        return concatenate([comparisons, labels])
