"""Settings of the learners of Gaussian policies: implicit Q-learning and behaviour cloning."""

from dataclasses import dataclass
from typing import Literal, Self, final

from preferl.configs import require_words
from preferl.errors import ConfigError, require_in, require_one_of, require_share
from preferl.training.configs import Precision

PRESETS: dict[str, dict[str, float]] = {
    "mujoco": {},
    "antmaze": {"expectile": 0.9, "temperature": 10.0},
    "adroit": {"temperature": 0.5, "dropout": 0.1},
}


@dataclass(frozen=True)
class GaussianConfig:
    """Settings that all learners of Gaussian policies share.

    Attributes:
        dropout: share of the policy's hidden units dropped in training, in [0, 1).
        hidden: units of each hidden layer.
        learning_rate: of Adam.
        batch_size: transitions per update and agent.
        decay: whether the policy's learning rate falls to 0 over the planned updates by half a
            cosine.
        log_std_bounds: of the policy's log deviations.
        precision: of products between hidden layers; "bfloat16" is nearly twice as fast on
            processors that have it, while parameters and everything else keep 32 bits.
    """

    dropout: float = 0.0
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    batch_size: int = 256
    decay: bool = True
    log_std_bounds: tuple[float, float] = (-5.0, 2.0)
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if any(units < 1 for units in self.hidden):
            raise ConfigError.mismatch("hidden", expected="units of at least 1", got=self.hidden)
        require_share("dropout", self.dropout)
        require_in("learning_rate", self.learning_rate, 0, float("inf"))
        require_in("batch_size", self.batch_size, 1, float("inf"))
        low, high = self.log_std_bounds
        if not -float("inf") < low < high < float("inf"):
            raise ConfigError.mismatch(
                "log_std_bounds", expected="a low and a higher one", got=(low, high)
            )
        require_words(self)


@final
@dataclass(frozen=True)
class CloningConfig(GaussianConfig):
    """Settings of `BehaviourCloning`: those of `GaussianConfig`, as IQL's policy has them."""


@final
@dataclass(frozen=True)
class IQLConfig(GaussianConfig):
    """Settings of `IQL` beside those of `GaussianConfig`; the defaults are for MuJoCo locomotion.

    Attributes:
        expectile: of the values, in (0, 1); 0.5 learns what the recorded policy is worth, towards
            1 what the best recorded actions are.
        temperature: an inverse one, at least 0; 0 clones, more trusts advantages more.
        dropout: share of the policy's hidden units dropped in training, in [0, 1).
        discount: per step, in [0, 1].
        target_rate: share by which the target networks follow per update, in (0, 1].
        max_weight: of one action in the policy's loss.
    """

    expectile: float = 0.7
    temperature: float = 3.0
    discount: float = 0.99
    target_rate: float = 0.005
    max_weight: float = 100.0

    def __post_init__(self) -> None:
        if not 0 < self.expectile < 1:
            raise ConfigError.mismatch("expectile", expected="in (0, 1)", got=self.expectile)
        require_in("temperature", self.temperature, 0, float("inf"))
        require_in("discount", self.discount, 0, 1)
        require_in("target_rate", self.target_rate, 1e-9, 1)
        require_in("max_weight", self.max_weight, 1e-9, float("inf"))
        super().__post_init__()

    @classmethod
    def preset(cls, name: Literal["mujoco", "antmaze", "adroit"]) -> Self:
        """The paper's settings for a family of tasks; "adroit" also serves robosuite.

        Raises:
            ConfigError: another name.

        >>> IQLConfig.preset("antmaze").expectile
        0.9
        """
        require_one_of("preset", name, PRESETS)
        return cls(**PRESETS[name])  # type: ignore[arg-type]  # names and types are those above
