"""Inverse preference learning (Hejna and Sadigh 2023): values with implied rewards fit answers."""

from typing import Any, final

import torch
from torch import Tensor

from preferl.data.comparisons import Comparisons
from preferl.errors import DataError
from preferl.functional.preference import cross_entropy
from preferl.functional.value import td_target
from preferl.offline.iql import ImplicitQLearner
from preferl.offline.learner_configs import IPLConfig
from preferl.offline.pairs import AnswerLearner
from preferl.offline.transitions import Batch


@final
class IPL(ImplicitQLearner[IPLConfig], AnswerLearner[IPLConfig]):
    """Implicit Q-learning whose critics fit answers instead of rewards.

    Critics and values imply a reward, `Q(s, a) - γ V(s')`. Its sums over segments are fitted to the
    answers. A penalty keeps its squares small (section 4), half of it on compared steps and half on
    recorded steps. Everything else is as in `IQL`. The last step of a segment does not count, since
    the segment does not hold the state after it.

    >>> import numpy as np
    >>> from gymnasium import spaces
    >>> from preferl.offline import Transitions
    >>> from preferl.testing import make_comparisons, make_episodes
    >>> rng = np.random.default_rng(0)
    >>> agents = IPL(spaces.Box(-2, 2, (2,)), spaces.Box(-1, 1, (2,)), seeds=[0, 1], steps=10)
    >>> agents.set_answers(make_comparisons(rng))
    >>> agents.fit(Transitions.of(make_episodes(rng, [30, 20])), 10)["accuracy"].shape
    (2,)
    """

    _settings = IPLConfig

    def set_answers(self, comparisons: Comparisons, *args: Any, **how: Any) -> None:
        """Set answers, see `AnswerLearner`; raise `DataError` for segments of a single step.

        A step's implied reward needs the value of the next state, which such segments do not hold.
        """
        steps = comparisons.segments.length
        if not steps > 1:
            raise DataError(f"steps of a segment: expected at least 2 for IPL, got {steps}.")
        super().set_answers(comparisons, *args, **how)

    def _critic_loss(self, batch: Batch, q_values: Tensor, following: Tensor) -> dict[str, Tensor]:
        config = self.config
        pairs = batch.compared
        steps = torch.cat([pairs.states, pairs.actions], -1)  # [S, N, O + A]
        compared = self._critics.forward(torch.cat([steps, steps])).view(2, *pairs.mask.shape)
        with torch.no_grad():
            after = self._values.forward(pairs.following).view(pairs.mask.shape)
        implied = (compared - td_target(0.0, 1.0, after, config.discount)) * pairs.followed
        rewards = q_values - td_target(0.0, batch.continues, following, config.discount)
        logits = implied.sum(-1)  # [2, S, B, 2]
        logits = logits[..., 0] - logits[..., 1]
        fit = (cross_entropy(logits, pairs.preference) * pairs.weight).mean(-1)  # [2, S]
        squares = implied.square().sum((2, 3, 4)) / pairs.followed.sum((1, 2, 3)).clamp(min=1)
        size = (rewards.square().mean(-1) + squares) / 2
        with torch.no_grad():
            accuracy = pairs.accuracy(logits.mean(0) > 0)
        loss = (fit + config.regulariser * size).sum(0)
        return {"critic_loss": loss, "preference_loss": fit.mean(0), "accuracy": accuracy}
