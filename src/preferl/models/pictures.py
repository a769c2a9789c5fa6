"""Pictures as reward models see them: bytes, with stacked frames as channels."""

from typing import Any, Literal, final

import torch
from gymnasium import spaces
from torch import Tensor, nn

from preferl.models.encoders import VectorEncoder
from preferl.models.spaces import Channels, channels_first, picture_shape


@final
class PictureEncoder(nn.Module):
    """Pictures stay the bytes they are; actions become numbers.

    It has neither parameters nor statistics. Bytes become floats only inside of the model, for
    one minibatch at a time, since floats of a whole training set take four times its memory.

    Attributes:
        observation_space: what observations look like.
        action_space: what actions look like.
        size: channels, height and width of what `planes` makes.
        action_size: numbers that an action becomes; 0 where actions are not looked at.
        late: features are those of a minibatch, made when it is gathered.

    Raises:
        SpaceError: a space of another kind, or one that does not tell where its channels are.

    >>> frames = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    >>> PictureEncoder(frames, spaces.Discrete(6)).size
    (4, 84, 84)
    """

    late: Literal[True] = True

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        channels: Channels = "auto",
        use_actions: bool = False,
    ) -> None:
        super().__init__()
        self.observation_space = observation_space
        self.action_space = action_space
        self._first = channels_first(observation_space, channels)
        *stack, first, second, third = (1, *picture_shape(observation_space))[-4:]
        depth, height, width = (first, second, third) if self._first else (third, first, second)
        self._stack = stack[0] if stack else 1
        self.size = (self._stack * depth, height, width)
        self._actions = (
            VectorEncoder(action_space, action_space, normalise=False, use_actions=False)
            if use_actions
            else None
        )
        self.action_size = 0 if self._actions is None else self._actions.size
        # Encoders are told apart by their buffers, so these settings have to be among them.
        settings = torch.tensor([use_actions, self._first])
        self.register_buffer("_settings", settings, persistent=False)

    def forward(self, observations: Tensor, actions: Tensor) -> dict[str, Tensor]:
        """`[..., *obs]` bytes as they are, and `[..., *act]` as floats `[..., A]` if looked at."""
        features = {"pictures": observations}
        if self._actions is not None:
            features["actions"] = self._actions(actions, actions)
        return features

    def observe(self, observations: Any, actions: Any) -> None:
        """There are no statistics to set."""

    def planes(self, pictures: Tensor) -> Tensor:
        """Bytes `[R, *obs]` to floats in [0, 1], `[R, channels, height, width]`."""
        depth, height, width = self.size[0] // self._stack, *self.size[1:]
        sides = (depth, height, width) if self._first else (height, width, depth)
        frames = pictures.view(len(pictures), self._stack, *sides)
        frames = frames if self._first else frames.movedim(-1, 2)  # [R, stack, depth, h, w]
        return frames.flatten(1, 2).float().div_(255)
