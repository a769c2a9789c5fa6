"""The settings of algorithms of stable-baselines3, as that library names them (no torch)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any, Final

from preferl.errors import ConfigError, require_in
from preferl.trust import admitted

WRITING: Final = ("tensorboard_log",)
"""Settings of algorithms that write where a file of settings says."""

LINEAR: Final = "lin_"
"""What texts begin with that mean a number which falls to 0 over the run, as in RL Zoo."""


SB3_CLASSES: Final = {
    **{name.lower(): f"stable_baselines3:{name}" for name in ("A2C", "DDPG", "DQN", "TD3")},
    **{
        name.lower(): f"sb3_contrib:{name}"
        for name in ("ARS", "CrossQ", "MaskablePPO", "QRDQN", "RecurrentPPO", "TQC", "TRPO")
    },
}
"""Names of algorithms, in small letters, to the classes that `SB3Config` takes."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation (Schulman et al. 2017); defaults are stable-baselines3's.

    Attributes:
        n_steps: steps of each environment per rollout.
        batch_size: steps per gradient step.
        n_epochs: passes over each rollout.
        learning_rate: of Adam; "lin_0.001" falls from that number to 0 over the run, after which
            the policy no longer changes from one rollout to the next.
        gamma: discount of future rewards.
        gae_lambda: trade-off of bias and variance in advantages.
        clip_range: how far a policy may move per rollout; "lin_0.2" falls to 0.
        clip_range_vf: how far a value may move per rollout, in units of returns; None is free.
        normalize_advantage: to mean 0 and deviation 1 in each minibatch.
        ent_coef: bonus for randomness.
        vf_coef: weight of the values' loss beside the policy's.
        max_grad_norm: longest gradient; longer ones are shortened.
        use_sde: state-dependent exploration (Raffin et al. 2021), smooth over steps.
        sde_sample_freq: steps between new exploration noise; -1 once per rollout.
        target_kl: divergence from the rollout's policy that ends its passes early; None never.
        hidden: units of each hidden layer of policy and value function.
    """

    n_steps: int = 2048
    batch_size: int = 64
    n_epochs: int = 10
    learning_rate: float | str = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float | str = 0.2
    clip_range_vf: float | None = None
    normalize_advantage: bool = True
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    use_sde: bool = False
    sde_sample_freq: int = -1
    target_kl: float | None = None
    hidden: tuple[int, ...] = (64, 64)

    def __post_init__(self) -> None:
        require_fields(self, ("n_steps", "n_epochs"), 1)
        _require_schedules(learning_rate=self.learning_rate, clip_range=self.clip_range)
        # The advantage of one step alone cannot be normalised.
        require_fields(self, ("batch_size",), 2 if self.normalize_advantage else 1)
        require_fields(self, ("ent_coef", "vf_coef"), 0)
        require_fields(self, ("max_grad_norm", "clip_range_vf", "target_kl"), 1e-12)
        require_fields(self, ("sde_sample_freq",), -1)
        require_fields(self, ("gamma", "gae_lambda"), 0, 1)


@dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic (Haarnoja et al. 2018); defaults are stable-baselines3's.

    Attributes:
        buffer_size: steps kept; all are relabelled when the reward changes.
        learning_starts: random steps before learning.
        batch_size: steps per gradient step.
        train_freq: vector steps between updates.
        gradient_steps: updates each time; -1 as many as steps were taken.
        learning_rate: of Adam; "lin_0.001" falls from that number to 0 over the run.
        gamma: discount of future rewards.
        tau: share of the target network replaced per update.
        n_steps: rewards that are summed before values are bootstrapped; only 1 where observations
            are dictionaries.
        ent_coef: bonus for randomness; "auto" learns it, "auto_0.1" from .1 on.
        target_entropy: of the policy, by which that is learned; "auto" is minus the number of
            actions.
        target_update_interval: updates between those of the target network.
        use_sde: state-dependent exploration (Raffin et al. 2021), smooth over steps.
        sde_sample_freq: steps between new exploration noise; -1 once per rollout.
        use_sde_at_warmup: also before learning, in place of random steps.
        hidden: units of each hidden layer of policy and critics.
    """

    buffer_size: int = 1_000_000
    learning_starts: int = 100
    batch_size: int = 256
    train_freq: int = 1
    gradient_steps: int = 1
    learning_rate: float | str = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    n_steps: int = 1
    ent_coef: float | str = "auto"
    target_entropy: float | str = "auto"
    target_update_interval: int = 1
    use_sde: bool = False
    sde_sample_freq: int = -1
    use_sde_at_warmup: bool = False
    hidden: tuple[int, ...] = (256, 256)

    def __post_init__(self) -> None:
        require_fields(self, ("buffer_size", "batch_size", "train_freq"), 1)
        _require_schedules(learning_rate=self.learning_rate)
        require_fields(self, ("learning_starts",), 0)
        require_fields(self, ("gradient_steps", "sde_sample_freq"), -1)
        require_fields(self, ("n_steps", "target_update_interval"), 1)
        require_fields(self, ("gamma", "tau"), 0, 1)
        given = self.ent_coef
        aim = self.target_entropy
        right = given == "auto" or (
            0 < _number(given.removeprefix("auto_")) < inf and given.startswith("auto_")
            if isinstance(given, str)
            else 0 <= given < inf
        )
        if not right:
            raise ConfigError(
                'ent_coef: expected a number of at least 0, "auto", or "auto_" and a number '
                f"above 0, got {given!r}."
            )
        if not (aim == "auto" or (not isinstance(aim, str) and abs(aim) < inf)):
            raise ConfigError(f'target_entropy: expected a number, or "auto", got {aim!r}.')


@dataclass(frozen=True)
class SB3Config:
    """Any algorithm of stable-baselines3, sb3_contrib or sbx, by the name of its class.

    Attributes:
        algorithm: `module:Class`, such as `sb3_contrib:TQC`; its package has to be installed.
        policy: name of its policy, such as `MlpLstmPolicy`; None chooses by the observations
            among `MlpPolicy`, `CnnPolicy` and `MultiInputPolicy`.
        hidden: units of each hidden layer; None leaves it to the algorithm.
        settings: what else its constructor takes, by name; lists stand for tuples, and "lin_0.001"
            for a number that falls to 0. Layers and learning rates have the algorithm's own
            defaults.

    Raises:
        ConfigError: not such a name, a module that may not be imported, or settings that write
            files.
    """

    algorithm: str = "stable_baselines3:TD3"
    policy: str | None = None
    hidden: tuple[int, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if ":" not in self.algorithm:
            raise ConfigError(
                "algorithm: expected module:Class, such as sb3_contrib:TQC, got "
                f"{self.algorithm!r}."
            )
        admitted(self.algorithm, source="the algorithm's config")
        for name in WRITING:
            if name in self.settings:
                raise ConfigError(
                    f"settings of {self.algorithm}: expected none that write files, got {name!r}. "
                    "Metrics lie in the folder of the run: choose them with --report-to."
                )
        texts = {name: one for name, one in self.settings.items() if isinstance(one, str)}
        _require_schedules(**{n: one for n, one in texts.items() if one.startswith(LINEAR)})


AlgorithmConfig = PPOConfig | SACConfig | SB3Config
"""Those of this library; any config that `preferl.registry.ALGORITHMS` has will do."""


def require_fields(config: object, names: tuple[str, ...], low: float, high: float = inf) -> None:
    """Raise `ConfigError` unless each of these fields is in a range, or None where it may be."""
    for name in names:
        if (value := getattr(config, name)) is not None:
            require_in(name, value, low, high)


def _require_schedules(**values: float | str) -> None:
    for name, value in values.items():
        start = value if not isinstance(value, str) else _number(value.removeprefix(LINEAR))
        right = 0 < start < inf and (not isinstance(value, str) or value.startswith(LINEAR))
        if not right:
            raise ConfigError(
                f'{name}: expected a number above 0, or "{LINEAR}" and one, got {value!r}.'
            )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan
