"""A Markovian reward model: a perceptron on one step (MR; Christiano et al. 2017, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from gymnasium import spaces
from torch import Tensor

from preferl.errors import ConfigError, require_in
from preferl.functional.pooling import Pooling, pool
from preferl.models.base import LastRewards, RewardModel, RewardOutput
from preferl.models.blocks import ACTIVATIONS, Activation, Perceptrons
from preferl.models.encoders import VectorEncoder
from preferl.shapes import BoolArray


@dataclass(frozen=True)
class MLPRewardConfig:
    """Shape of an `MLPReward`.

    Attributes:
        hidden: units of each hidden layer; empty for a linear reward.
        members: `E` networks that differ by their initialisation and their bootstrap; 1 has no
            notion of its own doubt, 3 is DRLHP's choice.
        activation: between layers; leaky ReLU as in the DRLHP paper.
        dropout: share of hidden units dropped in training, in [0, 1).
        pooling: a segment's score is the "sum" (DRLHP) or "mean" of its rewards; the mean takes
            length out of the comparison where episodes differ in length.
        discount: weight of each step in the score relative to the one before, in (0, 1].
        bounded: squash rewards into (-1, 1) with tanh, as PEBBLE does.
        use_actions: whether the reward sees the action.
        normalise: whether inputs are normalised by the training set's statistics.
    """

    hidden: tuple[int, ...] = (64, 64)
    members: int = 1
    activation: Activation = "leaky_relu"
    dropout: float = 0.0
    pooling: Pooling = "sum"
    discount: float = 1.0
    bounded: bool = False
    use_actions: bool = True
    normalise: bool = True

    def __post_init__(self) -> None:
        if any(units < 1 for units in self.hidden):
            raise ConfigError.mismatch("hidden", expected="units of at least 1", got=self.hidden)
        if self.members < 1:
            raise ConfigError.mismatch("members", expected="at least 1", got=self.members)
        if self.activation not in ACTIVATIONS:
            raise ConfigError.mismatch(
                "activation", expected=f"one of {list(ACTIVATIONS)}", got=self.activation
            )
        if self.pooling not in ("sum", "mean"):
            raise ConfigError.mismatch("pooling", expected="sum or mean", got=self.pooling)
        if not 0 <= self.dropout < 1:
            raise ConfigError.mismatch("dropout", expected="in [0, 1)", got=self.dropout)
        require_in("discount", self.discount, 1e-9, 1)


@final
class MLPReward(RewardModel):
    """`r(o, a)` by `E` perceptrons at once.

    >>> model = MLPReward(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,)), seed=0)
    >>> output = model(torch.zeros(4, 10, 3), torch.zeros(4, 10, 1),
    ...                torch.ones(4, 10, dtype=torch.bool))
    >>> output.rewards.shape, output.scores.shape
    (torch.Size([1, 4, 10]), torch.Size([1, 4]))
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: MLPRewardConfig | None = None,
        *,
        seed: int,
    ) -> None:
        """Build the networks.

        Args:
            observation_space: Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these.
            action_space: likewise.
            config: shape; the defaults if None.
            seed: of the initial weights.

        Raises:
            SpaceError: a space that has no encoding.
        """
        config = config or MLPRewardConfig()
        encoder = VectorEncoder(
            observation_space,
            action_space,
            normalise=config.normalise,
            use_actions=config.use_actions,
        )
        super().__init__(encoder, context=1, members=config.members)
        self.config = config
        self.networks = Perceptrons(
            (encoder.size, *config.hidden, 1),
            config.members,
            activation=config.activation,
            dropout=config.dropout,
            generator=torch.Generator().manual_seed(seed),
        )

    def judge(self, features: Tensor, mask: Tensor) -> RewardOutput:
        """Rewards `[E, B, L]` and scores `[E, B]` of features `[B, L, F]`."""
        rows = features.flatten(0, -2)  # [B * L, F]
        rewards = self.networks(rows).view(self.members, *mask.shape)
        if self.config.bounded:
            rewards = torch.tanh(rewards)
        return RewardOutput(rewards, self.pool(rewards, mask))

    def last_rewards(self) -> LastRewards:
        """Rewards of last steps alone: what paying a few environments at each step takes."""
        return partial(_last, self.networks, self.networks.layers(), self.config.bounded)

    def pool(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """Scores `[E, B]` from rewards `[E, B, L]`."""
        return pool(rewards, mask, self.config.pooling, self.config.discount)


def _last(
    networks: Perceptrons,
    layers: Sequence[Tensor],
    bounded: bool,
    features: Tensor,
    mask: BoolArray,
) -> Tensor:
    """`[E, B]` of features `[B, 1, F]`; the last step of a window is always real."""
    del mask
    rewards = networks.through(features[:, -1], layers)[..., 0]
    return rewards.tanh() if bounded else rewards
