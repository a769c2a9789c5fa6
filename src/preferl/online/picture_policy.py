"""What policies of stable-baselines3 make of pictures: its own network, or a smaller one."""

from typing import Any, Final, final

import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

NATURE_SIDE: Final = 36
"""Pixels on a side that stable-baselines3's network needs (that of Mnih et al. 2015)."""


@final
class SmallPictures(BaseFeaturesExtractor):
    """Two convolutions and a dense layer, for pictures of 8 to 35 pixels on a side.

    Args:
        observation_space: pictures with channels first, as stable-baselines3 turns them.
        features_dim: numbers that a picture becomes.
    """

    def __init__(self, observation_space: spaces.Box, features_dim: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        channels = observation_space.shape[0]
        convolutions = nn.Sequential(
            nn.Conv2d(channels, 16, 4, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        size = convolutions(torch.zeros(1, *observation_space.shape)).shape[1]
        self.layers = nn.Sequential(convolutions, nn.Linear(size, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        """Pictures `[B, channels, height, width]` in [0, 1] to `[B, features_dim]`."""
        features: Tensor = self.layers(observations)
        return features


def picture_policy(space: spaces.Space[Any]) -> dict[str, Any] | None:
    """What stable-baselines3 is to build for pictures of this space; None if it holds none.

    >>> import numpy as np
    >>> picture_policy(spaces.Box(0, 255, (84, 84, 4), np.uint8))
    {}
    """
    if not (isinstance(space, spaces.Box) and is_image_space(space)):
        return None
    sides = sorted(space.shape)[1:]
    return {} if sides[0] >= NATURE_SIDE else {"features_extractor_class": SmallPictures}
