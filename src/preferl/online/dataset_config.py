"""Settings of a data set that is recorded here: which policies act, and how much of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal, cast, final, get_args

from preferl.errors import ConfigError, require_in
from preferl.online.algorithm_configs import AlgorithmConfig

Tier = Literal["random", "medium", "expert", "replay"]
"""A quality of behaviour: uniformly random actions, the policy a third of the way to the best, the
best one, and what the learner lived through on its way there."""

Unit = Literal["episodes", "steps"]


@final
@dataclass(frozen=True)
class DatasetConfig:
    """Settings of a recording.

    A *medium* policy is the checkpoint whose judged return is nearest to
    `random + (expert - random) / 3`, among those before the expert's. The *expert* is the
    checkpoint that was judged best, the earlier one of equals. *Replay* takes whole episodes of
    training, spread evenly from the first to the last.

    Attributes:
        env: id of the environment.
        mix: how much of each tier, such as `random:200,medium:200,expert:200,replay:100`; they
            are recorded, and lie in the data set, in this order.
        unit: what the mix counts. With `"steps"` a tier has at least as many, since episodes are
            always whole.
        train_steps: environment steps of training, at most.
        target_return: training ends with the first checkpoint that is judged at least as good;
            None trains to the end.
        checkpoint_every: steps between two checkpoints, from which training can go on and among
            which tiers are chosen. Ten thousand is ten episodes of locomotion.
        judge_episodes: by which each checkpoint is judged, with its most likely actions.
        algorithm: None takes soft actor-critic where actions are continuous and PPO elsewhere,
            with stable-baselines3's settings.
        training_environments: that act side by side while training; None takes one for soft
            actor-critic, which updates after each step of all of them, and eight for PPO.
        environments: that act side by side while recording.
        deterministic: record the most likely actions in place of drawn ones. Off, so that a tier
            covers more than one path.
        policy: the expert, in place of training one: a policy folder of a preferl run, or a
            `.zip` of stable-baselines3. There is then neither a medium nor a replay tier.
        trust_pickle: open a `.zip`, which can run whatever its maker put into it.
        vecnormalize: statistics of observations that belong to a `.zip`, as `VecNormalize.save`
            writes them; nothing in that file is run. None takes a `vecnormalize.pkl` or
            `vec_normalize.pkl` beside it.
        seed: of networks, actions and environments.
        device: where networks are.

    Raises:
        ConfigError: a setting out of range, or a mix that names no tier, or one twice.

    >>> DatasetConfig("Pendulum-v1", mix="random:20,expert:5").amounts
    {'random': 20, 'expert': 5}
    """

    env: str
    mix: str = "random:200,medium:200,expert:200,replay:200"
    unit: Unit = "episodes"
    train_steps: int = 200_000
    target_return: float | None = None
    checkpoint_every: int = 10_000
    judge_episodes: int = 5
    algorithm: AlgorithmConfig | None = None
    training_environments: int | None = None
    environments: int = 8
    deterministic: bool = False
    policy: Path | None = None
    trust_pickle: bool = False
    vecnormalize: Path | None = None
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        _amounts(self.mix)
        if self.unit not in get_args(Unit):
            raise ConfigError.mismatch("unit", expected=f"one of {get_args(Unit)}", got=self.unit)
        for name in ("train_steps", "checkpoint_every", "judge_episodes", "environments"):
            require_in(name, getattr(self, name), 1, inf)
        if self.policy is not None:
            self.require_no_training()
        if self.training_environments is not None:
            require_in("training_environments", self.training_environments, 1, inf)

    @property
    def amounts(self) -> Mapping[Tier, int]:
        """Tiers to how much is asked of them, in the order of the mix."""
        return _amounts(self.mix)

    def require_no_training(self) -> None:
        """Raise `ConfigError` if a tier of the mix needs more than the expert itself."""
        if {"medium", "replay"} & self.amounts.keys():
            raise ConfigError.mismatch(
                "mix of a policy that is there",
                expected="random and expert alone, since its training is not",
                got=self.mix,
                fix="Leave out medium and replay, or train a policy here.",
            )


def _amounts(mix: str) -> dict[Tier, int]:
    found: dict[Tier, int] = {}
    for part in [word.strip() for word in mix.split(",") if word.strip()] or [mix]:
        name, _, amount = part.partition(":")
        if name not in get_args(Tier) or name in found or not amount.isdecimal():
            raise ConfigError.mismatch(
                "mix",
                expected=f"TIER:AMOUNT between commas, each of {', '.join(get_args(Tier))} once",
                got=repr(part),
                fix="For example random:200,medium:200,expert:200.",
            )
        require_in(f"mix, {name}", int(amount), 1, inf)
        found[cast("Tier", name)] = int(amount)
    return found
