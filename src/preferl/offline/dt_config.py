"""Settings of Decision Transformers, by default the paper's (Chen et al. 2021, appendix A)."""

import math
from dataclasses import dataclass, field
from typing import Literal, final, get_args

from preferl.errors import ConfigError, require_in
from preferl.offline.context import Spending
from preferl.offline.dtr import DTRConfig
from preferl.offline.sight import SightConfig
from preferl.training.precision import Precision

ActionLoss = Literal["squares", "gaussian"]
"""How far continuous actions are from those recorded, each number the same or by its deviation."""


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
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError.mismatch(name, expected="in [0, 1)", got=getattr(self, name))
        for name, known in (
            ("action_loss", ActionLoss),
            ("precision", Precision),
            ("spending", Spending),
        ):
            if getattr(self, name) not in get_args(known):
                raise ConfigError.mismatch(
                    name, expected=f"one of {get_args(known)}", got=getattr(self, name)
                )
