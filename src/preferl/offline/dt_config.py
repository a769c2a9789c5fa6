"""Settings of Decision Transformers, by default the paper's (Chen et al. 2021, appendix A)."""

import math
from dataclasses import dataclass, field
from typing import Final, Literal, final

from preferl.configs import require_words
from preferl.errors import ConfigError, require_in, require_share
from preferl.models.configs import CNNRewardConfig
from preferl.models.spaces import Channels
from preferl.training.configs import Precision

Spending = Literal["paid", "even"]
"""How the return that is asked for goes down: by what was paid, or evenly over an episode."""

ActionLoss = Literal["squares", "gaussian"]
"""How far continuous actions are from those recorded, each number the same or by its deviation."""


CANDIDATES: Final = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Target returns among whose actions the critics choose, in multiples of the one asked for."""


@final
@dataclass(frozen=True)
class DTRConfig:
    """Settings of the regulariser.

    Attributes:
        weight: of the critics' opinion in the policy's loss at the end of training, `η_max`. It
            grows from 0 in proportion to the updates made ("learn to walk before you can run"),
            and is divided by the mean size of what critics say, so that it means the same
            whatever rewards are. 0 leaves the critics to choose among candidates only.
        discount: of rewards per step, in [0, 1].
        hidden: units of each layer of a critic.
        learning_rate: of the critics.
        target_rate: share by which target critics follow per update, in (0, 1].
        candidates: target returns, in multiples of the one asked for, among whose actions the
            critics choose when acting.
    """

    weight: float = 1.0
    discount: float = 0.99
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    target_rate: float = 0.005
    candidates: tuple[float, ...] = CANDIDATES

    def __post_init__(self) -> None:
        require_in("weight", self.weight, 0, math.inf)
        require_in("discount", self.discount, 0, 1)
        require_in("learning_rate", self.learning_rate, 1e-12, math.inf)
        require_in("target_rate", self.target_rate, 1e-9, 1)
        if not self.hidden or min(self.hidden) < 1 or not self.candidates:
            raise ConfigError.mismatch(
                "hidden and candidates",
                expected="at least one each, and at least one unit per layer",
                got=(self.hidden, self.candidates),
            )


@final
@dataclass(frozen=True)
class SightConfig:
    """Shape of `PixelEncoder`; the defaults are those of `CNNRewardConfig`.

    Attributes:
        kernels: side of each convolution's kernel, in pixels.
        strides: of each convolution.
        filters: of each convolution.
        size: numbers that a picture becomes.
        channels: where the pictures' channels are, "last" or "first"; "auto" tells from the shape.
    """

    kernels: tuple[int, ...] = (7, 5, 3, 3)
    strides: tuple[int, ...] = (3, 2, 1, 1)
    filters: int = 16
    size: int = 64
    channels: Channels = "auto"

    def __post_init__(self) -> None:
        self.network()

    def network(self) -> CNNRewardConfig:
        """The same as the settings of a reward's network, which knows what is out of range."""
        return CNNRewardConfig(
            kernels=self.kernels,
            strides=self.strides,
            filters=self.filters,
            hidden=self.size,
            channels=self.channels,
        )


@final
@dataclass(frozen=True)
class TokenShape:
    """What the parameters of a Decision Transformer do not tell about themselves.

    Attributes:
        layers: of the transformer.
        heads: of each layer's attention.
        squashed: whether actions end in a tanh.
        dropout: share of embeddings, attention and residuals dropped in training, in [0, 1).
    """

    layers: int
    heads: int
    squashed: bool
    dropout: float = 0.0

    def __post_init__(self) -> None:
        require_in("layers", self.layers, 1, float("inf"))
        require_in("heads", self.heads, 1, float("inf"))
        require_share("dropout", self.dropout)


@final
@dataclass(frozen=True)
class DTConfig:
    """Settings of `DecisionTransformer`; the defaults are the paper's for locomotion.

    Attributes:
        context: `H`, steps that are looked at.
        width: numbers of a token.
        layers: of the transformer.
        heads: of each layer's attention; they share the width.
        dropout: share of embeddings, attention and residuals dropped in training, in [0, 1).
        discount: of the returns that are asked for, in [0, 1]; the paper's 1 makes them sums.
        scale: that returns are divided by. None takes the largest recorded one; the paper takes
            1000 for locomotion.
        horizon: timesteps that are told apart; later ones count as the last.
        batch_size: windows per update, over all processes.
        learning_rate: highest; it rises over `warmup` and then falls linearly to 0.
        weight_decay: of matrices.
        warmup: share of the updates during which the learning rate rises, in [0, 1).
        max_grad_norm: that gradients are scaled down to.
        target: what a policy asks for unless told otherwise: a return, or `"q0.95"` for that
            quantile of the recorded ones.
        spending: how a policy lowers what it asks for as it goes: by what it is paid (`"paid"`),
            or evenly over the steps of the longest episode (`"even"`), which needs no reward.
        action_loss: of continuous actions: their mean square error (`"squares"`), as in the paper,
            or what a Gaussian says against them whose deviation, of each number of an action, is
            the likeliest for the minibatch (`"gaussian"`). That fits numbers which people repeat
            to a hundredth as well as those they vary by a tenth.
        precision: of products; `"bfloat16"` takes less time where the processor has it.
        regulariser: critics towards whose opinion actions are drawn (DTR); None for none.
        sight: shape of what looks at pictures; not looked at where states are numbers.
    """

    context: int = 20
    width: int = 128
    layers: int = 3
    heads: int = 1
    dropout: float = 0.1
    discount: float = 1.0
    scale: float | None = None
    horizon: int = 1000
    batch_size: int = 64
    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    warmup: float = 0.1
    max_grad_norm: float = 0.25
    target: str = "q0.95"
    spending: Spending = "paid"
    action_loss: ActionLoss = "squares"
    precision: Precision = "float32"
    regulariser: DTRConfig | None = None
    sight: SightConfig = field(default_factory=SightConfig)

    def __post_init__(self) -> None:
        for name in ("context", "width", "layers", "heads", "horizon", "batch_size"):
            require_in(name, getattr(self, name), 1, math.inf)
        if self.width % self.heads:
            raise ConfigError.mismatch(
                "width", expected=f"a multiple of {self.heads} heads", got=self.width
            )
        if self.regulariser is not None and self.context < 2:
            expected = "at least 2 for the regulariser: critics learn a step from what follows it"
            raise ConfigError.mismatch("context", expected=expected, got=self.context)
        require_in("discount", self.discount, 0, 1)
        require_in("scale", 1 if self.scale is None else self.scale, 1e-12, math.inf)
        require_in("learning_rate", self.learning_rate, 1e-12, math.inf)
        require_in("weight_decay", self.weight_decay, 0, math.inf)
        require_in("max_grad_norm", self.max_grad_norm, 1e-12, math.inf)
        for name in ("dropout", "warmup"):
            require_share(name, getattr(self, name))
        require_words(self)
