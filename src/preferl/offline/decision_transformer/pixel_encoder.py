"""The pixel encoder of a Decision Transformer, which makes features of pictures."""

from typing import Any, final

import torch
from gymnasium import spaces
from torch import Tensor, nn

from preferl.models.cnn import convolutions, initialise
from preferl.models.encoders import PictureEncoder
from preferl.offline.learner_configs import PixelEncoderConfig


@final
class PixelEncoder(nn.Module):
    """Encodes pictures `[..., *obs]` of bytes as features `[..., F]`, as `CNNReward` does.

    >>> import numpy as np
    >>> pictures = spaces.Box(0, 255, (3, 20, 20), np.uint8)
    >>> encoder = PixelEncoder(pictures, PixelEncoderConfig(), torch.Generator())
    >>> encoder(torch.zeros(2, 5, 3, 20, 20, dtype=torch.uint8)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(
        self, space: spaces.Space[Any], config: PixelEncoderConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.size = config.size
        self._encoder = PictureEncoder(
            space, spaces.Discrete(2), channels=config.channels, use_actions=False
        )
        self.convolutions, flat = convolutions(self._encoder.size, config.network())
        self.dense = nn.utils.skip_init(nn.Linear, flat, config.size)
        initialise(self, generator)

    def forward(self, pictures: Tensor) -> Tensor:
        """Encode each picture."""
        batch = pictures.ndim - len(self._encoder.observation_space.shape or ())
        planes = self._encoder.planes(pictures.flatten(0, batch - 1))
        features: Tensor = self.dense(
            self.convolutions(planes).flatten(1)
        )  # [R, F * h * w] to [R, F]
        return features.view(*pictures.shape[:batch], self.size)
