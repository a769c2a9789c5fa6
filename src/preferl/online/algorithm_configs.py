"""Settings of stable-baselines3's algorithms (no torch)."""

from dataclasses import dataclass
from typing import Final

from preferl.errors import require_in

INFINITY: Final = float("inf")


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation (Schulman et al. 2017); defaults are stable-baselines3's.

    Attributes:
        n_steps: steps of each environment per rollout.
        batch_size: steps per gradient step.
        n_epochs: passes over each rollout.
        learning_rate: of Adam.
        gamma: discount of future rewards.
        gae_lambda: trade-off of bias and variance in advantages.
        clip_range: how far a policy may move per rollout.
        ent_coef: bonus for randomness.
        use_sde: state-dependent exploration (Raffin et al. 2021), smooth over steps.
        sde_sample_freq: steps between new exploration noise; -1 once per rollout.
        hidden: units of each hidden layer of policy and value function.
    """

    n_steps: int = 2048
    batch_size: int = 64
    n_epochs: int = 10
    learning_rate: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    ent_coef: float = 0.0
    use_sde: bool = False
    sde_sample_freq: int = -1
    hidden: tuple[int, ...] = (64, 64)

    def __post_init__(self) -> None:
        _require_positive(self, "n_steps", "n_epochs", "learning_rate", "clip_range")
        require_in("batch_size", self.batch_size, 2, INFINITY)  # one alone has no advantage
        require_in("ent_coef", self.ent_coef, 0, INFINITY)
        _require_shares(self, "gamma", "gae_lambda")


@dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic (Haarnoja et al. 2018); defaults are stable-baselines3's.

    Attributes:
        buffer_size: steps kept; all are relabelled when the reward changes.
        learning_starts: random steps before learning.
        batch_size: steps per gradient step.
        train_freq: vector steps between updates.
        gradient_steps: updates each time; -1 as many as steps were taken.
        learning_rate: of Adam.
        gamma: discount of future rewards.
        tau: share of the target network replaced per update.
        hidden: units of each hidden layer of policy and critics.
    """

    buffer_size: int = 1_000_000
    learning_starts: int = 100
    batch_size: int = 256
    train_freq: int = 1
    gradient_steps: int = 1
    learning_rate: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    hidden: tuple[int, ...] = (256, 256)

    def __post_init__(self) -> None:
        _require_positive(self, "buffer_size", "batch_size", "train_freq", "learning_rate")
        require_in("learning_starts", self.learning_starts, 0, INFINITY)
        require_in("gradient_steps", self.gradient_steps, -1, INFINITY)
        _require_shares(self, "gamma", "tau")


AlgorithmConfig = PPOConfig | SACConfig
"""Those of this library; any config that `preferl.registry.ALGORITHMS` has will do."""


def _require_positive(config: AlgorithmConfig, *names: str) -> None:
    for name in names:
        require_in(name, getattr(config, name), 1e-12, INFINITY)


def _require_shares(config: AlgorithmConfig, *names: str) -> None:
    for name in names:
        require_in(name, getattr(config, name), 0, 1)
