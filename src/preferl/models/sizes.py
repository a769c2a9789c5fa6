"""How many numbers a model needs at least, told by its config before it is built.

A config of a few bytes can ask for a model that no memory holds; its weights lie beside it.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

from gymnasium import spaces

from preferl.models.build import EnsembleConfig, RewardModelConfig
from preferl.models.cnn import CNNRewardConfig
from preferl.models.encoders import feature_size
from preferl.models.lstm import LSTMRewardConfig
from preferl.models.mlp import MLPRewardConfig


def require_numbers(needed: int, there: int) -> None:
    """Refuse a config whose model needs more numbers than were saved beside it.

    Raises:
        ValueError: it does.
    """
    if needed > there:
        raise ValueError(
            f"one of at least {needed:,} numbers beside {there:,}: they belong to different models"
        )


def least_numbers(
    config: RewardModelConfig, observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> int:
    """A lower bound of a model's parameters, without what costs less than that again.

    Args:
        config: of any kind.
        observations: what they look like.
        actions: likewise.

    Raises:
        SpaceError: a space that has no encoding.

    >>> box = spaces.Box(-1, 1, (3,))
    >>> least_numbers(MLPRewardConfig(hidden=(10, 10), members=2), box, box)
    340
    """
    if isinstance(config, EnsembleConfig):
        return sum(least_numbers(part, observations, actions) for part in config.models)
    if isinstance(config, CNNRewardConfig):
        return config.members * least_convolutions(config, observations)
    features = feature_size(observations)
    if isinstance(config, MLPRewardConfig):
        features += feature_size(actions) if config.use_actions else 0
        return config.members * dense((features, *config.hidden, 1))
    features += feature_size(actions)
    if isinstance(config, LSTMRewardConfig):
        return dense((features, config.width, config.width // 2, config.width // 2))
    own = config.preference_width if config.head == "preference" else 0
    rows = features + own + (config.positions or config.context)
    return config.width * (rows + 4 * config.layers * config.width)


def dense(sizes: Sequence[int]) -> int:
    """Weights of layers between these numbers of units.

    >>> dense((3, 10, 1))
    40
    """
    return sum(a * b for a, b in pairwise(sizes))


def least_convolutions(config: CNNRewardConfig, observations: spaces.Space[Any]) -> int:
    """The same for one network that looks at pictures; its largest layer is the dense one."""
    sides = sorted(observations.shape or ())[-2:]
    kernels = sum(kernel**2 for kernel in config.kernels[1:]) * config.filters**2
    kernels += config.kernels[0] ** 2 * config.filters
    for kernel, stride in zip(config.kernels, config.strides, strict=True):
        sides = [max(1, (side - kernel) // stride + 1) for side in sides]
    return kernels + config.hidden * config.filters * prod(sides)
