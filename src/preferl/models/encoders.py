"""Encoders of observations and actions for models: a vector per step, or bytes of pictures."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, final

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from preferl.errors import SpaceError
from preferl.models.spaces import Channels, Space, channels_first, feature_size, is_image
from preferl.shapes import take

CLIP = 10.0
"""Number of standard deviations at which normalised features are cut off.

Without this limit, unusual states could make the reward explode.
"""


EXACT: Final = (torch.float64, torch.int32, torch.int64)
"""Types whose numbers float32 may not represent exactly."""


@final
class VectorEncoder(nn.Module):
    """Maps Box, Discrete, MultiDiscrete, MultiBinary and Dict spaces to `[..., F]` floats.

    It has no parameters; `size` is `F`. Boxes are flattened. With `normalise`, features of boxes
    are centred, scaled and cut off. `observe` sets the statistics for this, and they are saved with
    the model. Images are scaled to [0, 1]. Discrete values become one-hot vectors. Without
    `use_actions`, actions have no features.

    Raises:
        SpaceError: a space is of another kind.

    >>> encoder = VectorEncoder(spaces.Box(-1, 1, (2,)), spaces.Discrete(3))
    >>> encoder(torch.zeros(4, 2), torch.tensor([0, 1, 2, 0])).shape
    torch.Size([4, 5])
    """

    exact: Final = True
    """Whether float64 inputs keep their precision until the mean is subtracted."""

    mean: Tensor
    deviation: Tensor
    count: Tensor

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        normalise: bool = True,
        use_actions: bool = True,
    ) -> None:
        super().__init__()
        self.observation_space = observation_space
        self.action_space = action_space
        self.use_actions = use_actions
        self.normalise = normalise
        seen = [observation_space, action_space] if use_actions else [observation_space]
        scaled = torch.cat([_is_measured(space) for space in seen]) & normalise
        self.size = len(scaled)
        self.register_buffer("_scaled", scaled, persistent=False)
        # In float32, a mean of 1.7e9 seconds is off by a minute.
        self.register_buffer("mean", torch.zeros(self.size, dtype=torch.float64))
        self.register_buffer("deviation", torch.ones(self.size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        # Looked up once: for a few rows, finding a space's kind takes as long as the arithmetic.
        self._read_observations = _reader(observation_space)
        self._read_actions = _reader(action_space)

    def forward(self, observations: Any, actions: Tensor) -> Tensor:
        """Encode observations `[..., *obs]` and actions `[..., *act]` as features `[..., F]`."""
        raw = self._raw(observations, actions)
        if not self.normalise:
            return raw.float()
        mean = self.mean.to(raw.dtype)
        deviation = self.deviation.to(raw.dtype)
        return (raw - mean).div_(deviation).clamp_(-CLIP, CLIP).float()

    def observe(self, observations: Any, actions: Tensor) -> None:
        """Set the statistics from all steps of a training set, `[T, ...]`, each step once."""
        rows = len(actions)
        if rows == 0:
            return

        def parts() -> Iterator[Tensor]:
            for first in range(0, rows, 65_536):
                part = slice(first, first + 65_536)  # a view, without a copy
                yield self._raw(take(observations, part), actions[part])

        mean = torch.as_tensor(sum(part.sum(0, dtype=torch.float64) for part in parts())) / rows
        precise = self._raw(take(observations, [0]), actions[:1]).dtype == torch.float64
        squares = torch.as_tensor(sum((part - mean).square().sum(0) for part in parts()))
        deviation = (squares / rows).sqrt()
        # A feature that is constant, except for rounding, has no scale: it is centred, not scaled.
        rounding = 1e-12 if precise else 1e-6
        deviation = torch.where(deviation > 1e-6 + rounding * mean.abs(), deviation, 1.0)
        scaled = self.get_buffer("_scaled")
        self.mean.copy_(torch.where(scaled, mean, 0.0))
        self.deviation.copy_(torch.where(scaled, deviation, 1.0))
        self.count.fill_(rows)

    def _raw(self, observations: Any, actions: Tensor) -> Tensor:
        parts = self._read_observations(observations)
        if self.use_actions:
            parts = parts + self._read_actions(actions)
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


def _is_measured(space: Space) -> Tensor:
    """Return `[F]` true for numbers, which can be normalised, and false for categories."""
    if isinstance(space, spaces.Dict):
        return torch.cat([_is_measured(part) for part in space.values()])
    measured = isinstance(space, spaces.Box) and not is_image(space)
    return torch.full((feature_size(space),), measured)


Reader = Callable[[Any], list[Tensor]]
"""Maps values `[..., *space]` to parts of features; joined, these are `[..., F]`."""


def _reader(space: Space) -> Reader:
    axes = len(space.shape or ())
    match space:
        case spaces.Dict():
            return partial(_of_keys, {key: _reader(part) for key, part in space.items()})
        case spaces.Discrete():
            return partial(_of_choices, axes, [(int(space.start), int(space.n))])
        case spaces.MultiDiscrete():
            ranges = zip(space.start.ravel().tolist(), space.nvec.ravel().tolist(), strict=True)
            return partial(_of_choices, axes, list(ranges))
    return partial(_of_numbers, axes, 255 if is_image(space) else 1)


def _of_keys(readers: Mapping[str, Reader], values: Any) -> list[Tensor]:
    if not isinstance(values, Mapping) or set(values) != set(readers):
        got = sorted(values) if isinstance(values, Mapping) else type(values)
        raise SpaceError(f"observation: expected the keys {sorted(readers)}, got {got}.")
    return [part for key, reader in readers.items() for part in reader(values[key])]


def _of_choices(axes: int, ranges: list[tuple[int, int]], values: Tensor) -> list[Tensor]:
    flat = _flat(axes, values.long())
    return [F.one_hot(flat[..., i] - s, n).float() for i, (s, n) in enumerate(ranges)]


def _of_numbers(axes: int, largest: int, values: Tensor) -> list[Tensor]:
    numbers = values if axes == 1 else _flat(axes, values)
    if largest != 1:
        return [numbers.float() / largest]
    return [numbers.double() if numbers.dtype in EXACT else numbers.float()]


def _flat(axes: int, values: Tensor) -> Tensor:
    """Flatten values `[..., *space]` to `[..., F]`.

    `F` is computed, since -1 fails without rows.
    """
    shape = values.shape
    return values.reshape(*shape[: len(shape) - axes], math.prod(shape[len(shape) - axes :]))


@final
class PictureEncoder(nn.Module):
    """Leaves pictures as bytes, and encodes actions as numbers if `use_actions`.

    It has no parameters or statistics. Bytes become floats only inside the model, one minibatch at
    a time, since floats of a whole training set would take four times its memory.

    Attributes:
        size: channels, height and width of the output of `planes`.
        action_size: how many numbers encode an action; 0 if actions are not used.
    """

    late: Final = True

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        channels: Channels = "auto",
        use_actions: bool = False,
    ) -> None:
        super().__init__()
        self.observation_space = observation_space
        self.action_space = action_space
        self._first = channels_first(observation_space, channels)
        # shape of the frames in a stack
        self._shape = (1, 1, *(observation_space.shape or ()))[-4:]
        stack, *sides = self._shape
        depth, height, width = sides if self._first else [sides[2], *sides[:2]]
        self.size = (stack * depth, height, width)
        plain: Any = {"normalise": False, "use_actions": False}
        own = VectorEncoder(action_space, action_space, **plain) if use_actions else None
        self._actions = own
        self.action_size = own.size if own else 0
        # Encoders are compared by their buffers, so these settings have to be buffers.
        settings = torch.tensor([use_actions, self._first])
        self.register_buffer("_settings", settings, persistent=False)

    def forward(self, observations: Tensor, actions: Tensor) -> dict[str, Tensor]:
        """Return bytes `[..., *obs]` unchanged, and actions as `[..., A]` if they are used."""
        features = {"pictures": observations}
        if self._actions is not None:
            features["actions"] = self._actions(actions, actions)
        return features

    def observe(self, observations: Any, actions: Any) -> None:
        """Do nothing, as there are no statistics to set."""

    def planes(self, pictures: Tensor) -> Tensor:
        """Map bytes `[R, *obs]` to floats in [0, 1], `[R, channels, height, width]`."""
        frames = pictures.view(len(pictures), *self._shape)
        frames = frames if self._first else frames.movedim(-1, 2)  # [R, stack, depth, h, w]
        return frames.flatten(1, 2).float().div_(255)
