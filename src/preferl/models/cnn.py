"""A Markovian reward of pictures: convolutions (Christiano et al. 2017, appendix A.2)."""

import math
from typing import Final, final

import torch
from torch import Tensor, nn

from preferl.errors import SpaceError
from preferl.models.base import ConfiguredReward, RewardOutput
from preferl.models.configs import CNNRewardConfig
from preferl.models.encoders import PictureEncoder
from preferl.models.spaces import Space

SMALLEST: Final = 8
"""Fewest pixels on a side. Of smaller pictures, the first two layers leave nothing."""

AT_ONCE: Final = 512
"""Pictures per forward pass without gradients: 60 MB as floats for 84 x 84 x 4."""


@final
class CNNReward(ConfiguredReward):
    """`r(o)` of pictures, or `r(o, a)`, by `E` convolutional networks.

    >>> from gymnasium.spaces import Box, Discrete
    >>> frames = Box(0, 255, (84, 84, 4), "uint8")
    >>> model = CNNReward(frames, Discrete(6), CNNRewardConfig(members=3), seed=0)
    >>> pictures, actions = torch.zeros(2, 5, 84, 84, 4).byte(), torch.zeros(2, 5).long()
    >>> model(pictures, actions, torch.ones(2, 5) > 0).rewards.shape
    torch.Size([3, 2, 5])
    """

    config: CNNRewardConfig
    defaults = CNNRewardConfig

    @staticmethod
    def encode(observations: Space, actions: Space, config: CNNRewardConfig) -> PictureEncoder:
        """Keep pictures as bytes.

        They have at least 8 x 8 pixels, and any number of channels or frames.
        """
        return PictureEncoder(
            observations, actions, channels=config.channels, use_actions=config.use_actions
        )

    def build(self, generator: torch.Generator) -> None:
        """Make the networks."""
        # Members run in turn. On a CPU, this is about as fast as grouped convolutions.
        self.networks = nn.ModuleList(
            _Network(self.encoder, self.config, generator) for _ in range(self.config.members)
        )

    def judge(self, features: dict[str, Tensor], mask: Tensor) -> RewardOutput:
        """Compute rewards `[E, B, L]` and scores `[E, B]` of pictures and actions `[B, L, ...]`."""
        if mask.all():
            rows = {name: feature.flatten(0, 1) for name, feature in features.items()}
            rewards = self._of_rows(rows).view(self.members, *mask.shape)
        else:  # padding would change the statistics of `batch_norm`
            real = self._of_rows({name: feature[mask] for name, feature in features.items()})
            rewards = real.new_zeros(self.members, *mask.shape)
            rewards[:, mask] = real
        return RewardOutput(rewards, self.pool(rewards, mask))

    def _of_rows(self, rows: dict[str, Tensor]) -> Tensor:
        """Compute rewards `[E, R]` of pictures `[R, *obs]` and actions `[R, A]`."""
        size = max(1, len(rows["pictures"])) if torch.is_grad_enabled() else AT_ONCE
        parts = []
        for pictures, *actions in zip(*(r.split(size) for r in rows.values()), strict=True):
            planes = self.encoder.planes(pictures)
            parts.append(torch.stack([network(planes, *actions) for network in self.networks]))
        return torch.cat(parts, dim=1)


@final
class _Network(nn.Module):
    """One member: maps planes `[R, channels, height, width]` and actions `[R, A]` to `[R]`."""

    def __init__(
        self, encoder: PictureEncoder, config: CNNRewardConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.convolutions, flat = convolutions(encoder.size, config)
        self.dense = nn.utils.skip_init(nn.Linear, flat + encoder.action_size, config.hidden)
        self.reward = nn.utils.skip_init(nn.Linear, config.hidden, 1)
        initialise(self, generator)

    def forward(self, planes: Tensor, actions: Tensor | None = None) -> Tensor:
        hidden = self.convolutions(planes).flatten(1)  # [R, F, h, w] to [R, F * h * w]
        if actions is not None:
            hidden = torch.cat([hidden, actions], dim=1)
        hidden = nn.functional.leaky_relu_(self.dense(hidden))  # slope 0.01, as in the paper
        rewards: Tensor = self.reward(hidden)[:, 0]
        return rewards


def convolutions(size: tuple[int, int, int], config: CNNRewardConfig) -> tuple[nn.Sequential, int]:
    """Make layers for planes `[R, *size]`; return them and their number of outputs.

    `initialise` sets their weights.
    """
    channels, *sides = size
    least = 1  # fewest pixels on a side for unpadded layers: 43 in the paper
    for kernel, stride in zip(reversed(config.kernels), reversed(config.strides), strict=True):
        least = (least - 1) * stride + kernel
    layers: list[nn.Module] = []
    for kernel, stride in zip(config.kernels, config.strides, strict=True):
        padding = kernel // 2 if min(size[1:]) < least else 0
        sides = [(side + 2 * padding - kernel) // stride + 1 for side in sides]
        # A bias before normalisation would have no effect.
        shape = (channels, config.filters, kernel, stride, padding)
        layers.append(nn.utils.skip_init(nn.Conv2d, *shape, bias=not config.batch_norm))
        if config.batch_norm:
            layers.append(nn.BatchNorm2d(config.filters))
        layers.append(nn.LeakyReLU(inplace=True))
        if config.dropout:
            layers.append(nn.Dropout(config.dropout))
        channels = config.filters
    if not (min(size[1:]) >= SMALLEST and min(sides) >= 1):
        raise SpaceError(
            f"pictures: expected at least {SMALLEST} pixels on a side, and some left after all "
            f"layers, got {size[1]} x {size[2]}. Use fewer layers, smaller strides, or an "
            "MLPReward."
        )
    return nn.Sequential(*layers), channels * math.prod(sides)


@torch.no_grad()
def initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Set the weights of convolutions and dense layers as torch would, but from `generator`."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters():
                parameter.uniform_(-bound, bound, generator=generator)
