"""A Markovian reward model: a perceptron on one step (MR; Christiano et al. 2017, section 3.1)."""

from collections.abc import Sequence
from functools import partial
from typing import Any, final

import torch
from torch import Tensor

from preferl.models.base import ConfiguredReward, LastRewards, RewardOutput
from preferl.models.blocks import Perceptrons
from preferl.models.configs import MLPRewardConfig
from preferl.shapes import BoolArray


@final
class MLPReward(ConfiguredReward):
    """`r(o, a)`, by `E` perceptrons at once.

    >>> from gymnasium.spaces import Box
    >>> model = MLPReward(Box(-1, 1, (3,)), Box(-1, 1, (1,)), seed=0)
    >>> model(torch.ones(4, 10, 3), torch.ones(4, 10, 1), torch.ones(4, 10) > 0).rewards.shape
    torch.Size([1, 4, 10])
    """

    config: MLPRewardConfig
    defaults = MLPRewardConfig

    def build(self, generator: torch.Generator) -> None:
        """Make the networks."""
        config = self.config
        sizes = (self.encoder.size, *config.hidden, 1)
        settings: Any = {"activation": config.activation, "dropout": config.dropout}
        self.networks = Perceptrons(sizes, config.members, **settings, generator=generator)

    def judge(self, features: Tensor, mask: Tensor) -> RewardOutput:
        """Compute rewards `[E, B, L]` and scores `[E, B]` of features `[B, L, F]`."""
        rewards = self.networks(features.flatten(0, -2)).view(self.members, *mask.shape)
        if self.config.bounded:
            rewards = torch.tanh(rewards)
        return RewardOutput(rewards, self.pool(rewards, mask))

    def scores_where(self, features: Tensor, mask: Tensor, asked: Tensor) -> Tensor:
        """Compute scores `[E, B]` of windows that a member is asked about; other scores are 0."""
        if not self.networks.computes_in_turn(features.flatten(0, -2)) or bool(asked.all()):
            return self.judge(features, mask).scores
        member, window = asked.nonzero(as_tuple=True)  # [N], by member
        length = mask.shape[1]
        rows = features.index_select(0, window).flatten(0, 1)  # [N, L, F] to [N * L, F]
        parts = rows.split((asked.sum(1) * length).tolist())
        rewards = torch.cat(self.networks.in_turn(parts, self.networks.layers()))
        rewards = rewards.view(1, -1, length)  # [1, N, L]
        if self.config.bounded:
            rewards = torch.tanh(rewards)
        scores = self.pool(rewards, mask[window])[0]
        return scores.new_zeros(asked.shape).index_put((member, window), scores)

    def last_rewards(self) -> LastRewards:
        """Return a function that computes the rewards of last steps only."""
        return partial(_last, self.networks, self.networks.layers(), self.config.bounded)


def _last(
    networks: Perceptrons, layers: Sequence[Tensor], bounded: bool, features: Tensor, _: BoolArray
) -> Tensor:
    """Compute rewards `[E, B]` of features `[B, 1, F]`.

    The last step of a window is always real.
    """
    rewards = networks.through(features[:, -1], layers)[..., 0]
    return rewards.tanh() if bounded else rewards
