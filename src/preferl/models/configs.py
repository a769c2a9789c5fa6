"""Settings of reward models, from which `preferl.models.build_reward_model` builds (no torch).

`least_numbers` gives a lower bound of a model's parameters before anything is built, since a config
of a few bytes can describe a model that no memory holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, lcm, prod
from typing import Literal

from preferl.configs import require_fields
from preferl.errors import ConfigError, require_in, require_share
from preferl.models.spaces import Channels, Space, feature_size

Activation = Literal["relu", "leaky_relu", "tanh", "gelu"]
Head = Literal["preference", "plain"]
Pooling = Literal["sum", "mean"]


@dataclass(frozen=True)
class MLPRewardConfig:
    """Shape of an `MLPReward`.

    Attributes:
        hidden: units of each hidden layer; empty for a linear reward.
        members: `E`, the number of networks. They differ by their initial weights and bootstraps. A
            single network cannot measure its own uncertainty. Online runs use 3 by default, as
            DRLHP does.
        activation: function between layers; leaky ReLU as in the DRLHP paper.
        dropout: share of hidden units dropped in training, in [0, 1).
        pooling: whether a segment's score is the "sum" (DRLHP) or the "mean" of its rewards. If
            episodes differ in length, the mean takes length out of the comparison.
        discount: weight of each step in the score relative to the step before, in (0, 1].
        bounded: squash rewards into (-1, 1) with tanh, as PEBBLE does.
        use_actions: whether the reward sees the action. In Python, change it with
            `replace(OnlineConfig().model, use_actions=False)`, since a new `MLPRewardConfig` has
            only one member.
            one member.
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
        for units in self.hidden:
            require_in("hidden", units, 1, inf)
        require_fields(self, members=1, discount=(1e-9, 1))
        require_share("dropout", self.dropout)

    def least_numbers(self, observations: Space, actions: Space) -> int:
        """Return a lower bound of the model's number of parameters.

        >>> from gymnasium import spaces
        >>> box = spaces.Box(-1, 1, (3,))
        >>> MLPRewardConfig(hidden=(10, 10), members=2).least_numbers(box, box)
        340
        """
        seen = feature_size(observations) + (feature_size(actions) if self.use_actions else 0)
        return self.members * dense((seen, *self.hidden, 1))


@dataclass(frozen=True)
class CNNRewardConfig:
    """Shape of a `CNNReward`; the defaults are the paper's layers without its regularisation.

    Attributes:
        kernels: side of each convolution's kernel, in pixels.
        strides: stride of each convolution. Pictures that are too small for the kernels are padded
            by half a kernel at each layer, so that only strides make them smaller. Pictures of 84
            pixels are not padded, as in the paper.
        filters: number of filters of each convolution.
        hidden: units of the dense layer.
        members: `E`, see `MLPRewardConfig`.
        dropout: share of each convolution's outputs dropped in training, in [0, 1). The paper
            takes 0.5, on top of `batch_norm` and an adaptive penalty.
        batch_norm: whether outputs of convolutions are normalised over the minibatch in training,
            and by running statistics afterwards, as in the paper. It is off by default: with it,
            rewards would depend on statistics of clips that the agent leaves behind.
        pooling: whether a segment's score is the "sum" (the paper) or the "mean" of its rewards.
        discount: weight of each step in the score relative to the step before, in (0, 1].
        use_actions: whether the dense layer sees the action. In the paper, the reward of pictures
            does not see it.
        channels: where the pictures' channels are; see `preferl.models.spaces.channels_first`.
    """

    kernels: tuple[int, ...] = (7, 5, 3, 3)
    strides: tuple[int, ...] = (3, 2, 1, 1)
    filters: int = 16
    hidden: int = 64
    members: int = 1
    dropout: float = 0.0
    batch_norm: bool = False
    pooling: Pooling = "sum"
    discount: float = 1.0
    use_actions: bool = False
    channels: Channels = "auto"

    def __post_init__(self) -> None:
        for name in ("kernels", "strides"):
            sizes = getattr(self, name)
            if not (min(sizes, default=0) >= 1 and len(sizes) == len(self.kernels)):
                raise ConfigError(
                    f"{name}: expected a number of at least 1 per layer, got {sizes}."
                )
        require_fields(self, filters=1, hidden=1, members=1, discount=(1e-9, 1))
        require_share("dropout", self.dropout)

    def least_numbers(self, observations: Space, actions: Space) -> int:  # noqa: ARG002  # as all have it
        """Return a lower bound of the parameters. The largest layer is the dense one."""
        sides = sorted(observations.shape or ())[-2:]
        kernels = self.filters * self.kernels[0] ** 2
        kernels += self.filters**2 * sum(kernel**2 for kernel in self.kernels[1:])
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            sides = [max(1, (side - kernel) // stride + 1) for side in sides]
        return self.members * (kernels + self.hidden * self.filters * prod(sides))


@dataclass(frozen=True)
class LSTMRewardConfig:
    """Shape of an `LSTMReward`.

    Attributes:
        width: units of the first layer, a multiple of 4; the LSTM has half as many.
        context: `H`, the number of steps that a reward may see; at least the length of training
            segments.
        dropout: share of units dropped in training after each layer except the LSTM, in [0, 1).
        activation: function after each layer except the LSTM and the last layer.
        pooling: whether a segment's score is the "sum" (as in the original), the "mean" or the
            "last" of its rewards.
        normalise: whether inputs are normalised by the training set's statistics. The original does
            not normalise them.
    """

    width: int = 256
    context: int = 100
    dropout: float = 0.1
    activation: Activation = "relu"
    pooling: Literal["sum", "mean", "last"] = "sum"
    normalise: bool = True

    def __post_init__(self) -> None:
        require_fields(self, context=1)
        require_share("dropout", self.dropout)
        _require_width(self.width, multiple=4)

    def least_numbers(self, observations: Space, actions: Space) -> int:
        """Return a lower bound of the model's number of parameters."""
        seen = feature_size(observations) + feature_size(actions)
        return dense((seen, self.width, self.width // 2, self.width // 2))


@dataclass(frozen=True)
class PreferenceTransformerConfig:
    """Shape of a `PreferenceTransformer`.

    Attributes:
        width: numbers per token, a multiple of `heads`; also a multiple of 2 with the plain head.
        layers: blocks of causal attention.
        heads: attention heads in each block.
        head: "preference" weighs steps by attention among them, as in the paper. "plain" pools
            rewards without weights, like the models that the original's README trains.
        preference_width: numbers per query and key of the preference attention.
        context: `H`, the number of steps that a reward may see, at least 2; at least the length of
            training segments.
        positions: number of time embeddings; None takes `context`. The original has 1000, and
            trains as many as a segment has steps.
        dropout: share dropped in training, in [0, 1), of token embeddings, attention probabilities
            and outputs of blocks.
        activation: function in the perceptrons. The original's code has ReLU, not GELU.
        pooling: whether a segment's score is the "mean", the "sum" or the "last" of its steps'
            rewards. The preference attention weighs these rewards; the plain head does not.
        normalise: whether inputs are normalised by the training set's statistics. The original does
            not normalise them.
    """

    width: int = 256
    layers: int = 1
    heads: int = 4
    head: Head = "preference"
    preference_width: int = 256
    context: int = 100
    positions: int | None = None
    dropout: float = 0.1
    activation: Activation = "relu"
    pooling: Literal["mean", "sum", "last"] = "mean"
    normalise: bool = True

    def __post_init__(self) -> None:
        require_fields(self, layers=1, heads=1, preference_width=1, context=2)
        require_fields(self, positions=self.context)
        require_share("dropout", self.dropout)
        _require_width(self.width, multiple=lcm(self.heads, 2))

    def least_numbers(self, observations: Space, actions: Space) -> int:
        """Return a lower bound of the model's number of parameters."""
        seen = feature_size(observations) + feature_size(actions)
        own = self.preference_width if self.head == "preference" else 0
        rows = seen + own + (self.positions or self.context)
        return self.width * (rows + 4 * self.layers * self.width)


@dataclass(frozen=True)
class EnsembleConfig:
    """Shape of an `Ensemble`: the configs of its members."""

    models: tuple["RewardModelConfig", ...]

    @property
    def members(self) -> int:
        """`E`, the number of members over all models."""
        return sum(map(members_of, self.models))

    def least_numbers(self, observations: Space, actions: Space) -> int:
        """Return a lower bound of the models' number of parameters."""
        return sum(least_numbers(part, observations, actions) for part in self.models)


RewardModelConfig = (
    MLPRewardConfig
    | CNNRewardConfig
    | LSTMRewardConfig
    | PreferenceTransformerConfig
    | EnsembleConfig
)
"""Configs of this library; a config in `preferl.registry.REWARD_MODELS` works as well."""


def members_of(config: RewardModelConfig) -> int:
    """Return `E` of the model of a config; 1 if the config has no `members`.

    >>> members_of(EnsembleConfig((MLPRewardConfig(members=3), LSTMRewardConfig())))
    4
    """
    return int(getattr(config, "members", 1))


def least_numbers(config: RewardModelConfig, observations: Space, actions: Space) -> int:
    """Return a lower bound of a model's parameters; 0 if the config has no such method."""
    known = getattr(config, "least_numbers", None)
    return 0 if known is None else int(known(observations, actions))


def dense(sizes: Sequence[int]) -> int:
    """Count the weights of dense layers between layers of these sizes.

    >>> dense((3, 10, 1))
    40
    """
    return sum(a * b for a, b in pairwise(sizes))


def _require_width(width: int, *, multiple: int) -> None:
    """Raise `ConfigError` unless `width` is a positive multiple of `multiple`."""
    if width < 1 or width % multiple:
        raise ConfigError(f"width: expected a multiple of {multiple}, got {width}.")
