"""Contrastive preference learning (Hejna et al. 2024): a policy from answers, without a reward."""

import math
from typing import final

import torch
from torch import Tensor

from preferl.functional.preference import contrastive_loss
from preferl.functional.value import gaussian_log_density
from preferl.offline.learner_configs import CPLConfig
from preferl.offline.pairs import AnswerLearner
from preferl.offline.transitions import Batch


@final
class CPL(AnswerLearner[CPLConfig]):
    """Makes the actions of preferred segments more likely than those of other segments.

    People who compare regret instead of return prefer the segment with the higher sum of
    advantages. The advantage of an action is its log likelihood under the best policy, times a
    temperature (section 3.1). The first updates clone all recorded steps. Later updates learn from
    comparisons, with a new optimiser and a new schedule. As in the paper's experiments, a log
    likelihood is minus the square error of the mean action.

    >>> import numpy as np
    >>> from gymnasium import spaces
    >>> from preferl.offline import Transitions
    >>> from preferl.testing import make_comparisons, make_episodes
    >>> rng = np.random.default_rng(0)
    >>> agents = CPL(spaces.Box(-2, 2, (2,)), spaces.Box(-1, 1, (2,)), seeds=[0, 1], steps=10)
    >>> agents.set_answers(make_comparisons(rng))
    >>> sorted(agents.fit(Transitions.of(make_episodes(rng, [30, 20])), 10))
    ['accuracy', 'policy_loss', 'preference_loss']
    """

    _settings = CPLConfig

    def _update(self, batch: Batch) -> dict[str, Tensor]:
        config = self.config
        if self.step < self._cloning:
            cloned = self._climb(batch)
            unknown = torch.full_like(cloned["policy_loss"], torch.nan)
            return cloned | {"preference_loss": unknown, "accuracy": unknown}
        pairs = batch.compared
        mean = self._policies.forward(pairs.states, batch.factors).tanh()
        error = (mean - pairs.actions.mT).square().sum(1).view(pairs.mask.shape)
        scores = -config.temperature * (error * pairs.mask).sum(-1)  # [S, B, 2]
        answers = scores[..., 0], scores[..., 1], pairs.preference
        loss = (contrastive_loss(*answers, bias=config.bias) * pairs.weight).mean(1)
        # The loss does not determine deviations. They become those of the preferred actions.
        log_std = self._policies.parameters["log_std"].clamp(*config.log_std_bounds)
        density = gaussian_log_density(pairs.actions, mean.detach().mT, log_std.mT)
        share = torch.stack([pairs.preference, 1 - pairs.preference], -1)[..., None] * pairs.mask
        spread = -(density.view(share.shape) * share).sum((1, 2, 3)) / share.sum((1, 2, 3))
        self._policies.descend(loss + spread, self._policy_rate)
        with torch.no_grad():
            accuracy = pairs.accuracy(scores[..., 0] > scores[..., 1])
        return {"policy_loss": spread, "preference_loss": loss, "accuracy": accuracy}

    @property
    def _cloning(self) -> int:
        """Number of the first updates, which clone; later updates compare."""
        return math.ceil(self.config.cloning * self.steps)

    def _rows(self, batch: Batch) -> int:
        cloning = self.step < self._cloning
        return super()._rows(batch) if cloning else batch.compared.states.shape[1]

    def _prepare(self) -> None:
        if self.step < self._cloning:
            super()._prepare()
            return
        if self.step == self._cloning:
            self._forget_moments()
            self._make_update = self._fresh_update()
        self._set_rate(self.step - self._cloning, self.steps - self._cloning)

    def _forget_moments(self) -> None:
        """Reset Adam: moments of a density's steeper gradients would slow down later updates."""
        for name, tensor in self._policies.tensors().items():
            if not name.startswith("values."):
                tensor.zero_()
