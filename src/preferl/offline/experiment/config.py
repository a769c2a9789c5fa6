"""Settings of an offline run: data, labels or a reward, agents, and their evaluation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, final

from preferl.data.sources.labels import Crossing
from preferl.data.tasks import TASKS, Task, find_task
from preferl.errors import ConfigError, require_one_of
from preferl.offline.learner_configs import (
    CloningConfig,
    DTConfig,
    DTRConfig,
    IQLConfig,
    require_ranges,
)
from preferl.training.configs import Precision
from preferl.training.reward_presets import RewardSettings, model_names

UPDATES: Final = 100_000  # a tenth of the papers', enough for a few thousand recorded steps
SEQUENCE_UPDATES: Final = 10_000  # whose minibatches have twenty times as many steps
SEED_LIMIT: Final = 2**32  # of seeds; those of condition `k` are this many times `k` higher


@final
@dataclass(frozen=True)
class PolicyKind:
    """How the agents of a name of `preferl.registry.OFFLINE_LEARNERS` take part in a run."""

    words: str  # their algorithm, for reports
    settings: "Callable[[OfflineConfig], Any]"  # theirs, as a run's config has them
    uses_rewards: bool = True  # clones do not, and are controls of all others
    has_target: bool = False  # whether they have target returns, and so learn one after the other
    updates: int = UPDATES  # of each agent, unless the config has a number


POLICIES: Final[dict[str, PolicyKind]] = {
    "iql": PolicyKind("implicit Q-learning", lambda config: config.agent),
    "bc": PolicyKind("cloning", lambda config: config.clone, uses_rewards=False),
    "dt": PolicyKind(
        "Decision Transformers",
        lambda config: replace(config.transformer, regulariser=None),
        has_target=True,
        updates=SEQUENCE_UPDATES,
    ),
    "dtr": PolicyKind(
        "Decision Transformers with critics (DTR)",
        lambda config: replace(
            config.transformer, regulariser=config.transformer.regulariser or DTRConfig()
        ),
        has_target=True,
        updates=SEQUENCE_UPDATES,
    ),
}
"""Choices of `OfflineConfig.policy`."""


@final
@dataclass(frozen=True)
class OfflineConfig:
    """Settings of an offline run.

    Attributes:
        demonstrations: file or folder of recorded episodes: a pickle of demonstrations, D4RL or
            robomimic HDF5, `.npz` files, or a folder written by preferl.
        dataset: id of a Minari data set on this machine, in place of a file.
        labels: folder of Uni-RLHF or Preference Transformer labels, to which a reward is fitted.
        reward: run or folder of a fitted reward, in place of fitting one; labels then evaluate it.
        model: how the reward is fitted: `"mlp"` (ours), or as published `"mr"`, `"nmr"`, `"pt"`
            or `"pt-readme"`; see `preferl.training.reward_preset`.
        members: networks of the ensemble, each normalised over the data before they are averaged
            (DTR measured that better than normalising the average). None takes the model's own,
            three for `"mlp"` and one for the published models.
        budget: optimiser updates of the fit. None makes the model's own number of epochs, which
            for `"pt"` takes a GPU.
        batch_size: pairs per update of the fit; None takes the model's own.
        noise: share of answers that the fit takes to be random; None takes the model's own.
        normalise: whether a reward's inputs are normalised; None takes the model's own.
        precision: of the products while a reward is fitted; None takes the model's own.
        length: steps per labelled segment, where the file names do not have it.
        crossing: what becomes of pairs with a segment that crosses an episode's end; None takes
            the choice of the kind of label folder.
        policy: `"iql"` learns from rewards; `"dt"`, a Decision Transformer, which actions led to
            which returns; `"dtr"` also draws it towards actions of higher value (both take the
            extra `hub`); `"bc"` only imitates, and needs no reward.
        target_return: of a Decision Transformer: a number, or a quantile of the returns that the
            learned reward gives the recorded episodes, such as `q0.95`. None takes that of `dt`.
        task: row of `preferl.data.TASKS`, for normalising scores and scaling rewards; found by
            `env` if None.
        env: id of the environment that policies are evaluated in; the task's if None.
        iql: settings of the agents; None takes those published for the task.
        dt: settings of Decision Transformers; None takes the published ones.
        steps: updates of each agent. None makes 100,000 of IQL and cloning, a tenth of what the
            papers make and enough for a few thousand recorded steps, and 10,000 of a Decision
            Transformer (its clones 100,000).
        episodes: that evaluate each policy after training; 0 trains without an environment.
        controls: whether agents are trained on true, zero, random and negated rewards and by
            cloning beside the learned one. They cost time; without them the result shows little.
        device: where networks train: "cpu" or "cuda".

    Raises:
        ConfigError: no data, neither labels nor a reward, or a value out of range.
    """

    demonstrations: str | None = None
    dataset: str | None = None
    labels: Path | None = None
    reward: Path | None = None
    model: str = "mlp"
    members: int | None = None
    budget: int | None = None
    batch_size: int | None = None
    noise: float | None = None
    normalise: bool | None = None
    precision: Precision | None = None
    length: int | None = None
    crossing: Crossing | None = None
    policy: str = "iql"
    target_return: str | None = None
    task: str | None = None
    env: str | None = None
    iql: IQLConfig | None = None
    dt: DTConfig | None = None
    steps: int | None = None
    episodes: int = 100
    controls: bool = True
    device: str = "cpu"

    def __post_init__(self) -> None:
        if (self.demonstrations is None) == (self.dataset is None):
            raise ConfigError.mismatch(
                "recorded episodes",
                expected="either demonstrations or a dataset",
                got="neither" if self.dataset is None else "both",
            )
        require_one_of("policy", self.policy, POLICIES)
        if self.kind.uses_rewards and self.labels is None and self.reward is None:
            raise ConfigError.mismatch(
                "a reward",
                expected="labels to fit one to, or the run of a fitted one",
                got="neither labels nor reward",
                fix="Set `labels` or `reward`; only cloning (policy bc) learns without.",
            )
        require_one_of("model", self.model, model_names())
        least = {"members": 1, "budget": 1, "steps": 1, "episodes": 0}
        require_ranges(self, **{name: (low, math.inf) for name, low in least.items()})
        if self.target_return is not None and not self.kind.has_target:
            kinds = " or ".join(name for name, kind in POLICIES.items() if kind.has_target)
            expected = f"a policy with one, {kinds}"
            raise ConfigError.mismatch("target_return", expected=expected, got=self.policy)
        if self.episodes and self.env_id is None:
            raise ConfigError.mismatch(
                "env",
                expected="the environment to evaluate policies in",
                got=f"none, and task {self.task!r} names none",
                fix="Set `env`, or `episodes` to 0 to train without evaluation.",
            )

    @property
    def source(self) -> str:
        """Where the episodes are, as `load_source` takes it."""
        return self.demonstrations or f"minari:{self.dataset}"

    @property
    def row(self) -> Task | None:
        """Of the table of tasks; None where neither `task` nor `env` has one."""
        return TASKS.get(self.env or "") if self.task is None else find_task(self.task)

    @property
    def env_id(self) -> str | None:
        """Of the environment for evaluation; None if that is not known."""
        return self.env or (self.row.env if self.row else None)

    @property
    def max_steps(self) -> int | None:
        """Of an episode of evaluation; None leaves it to the environment."""
        return self.row.max_episode_steps if self.row else None

    @property
    def fitting(self) -> RewardSettings:
        """How the reward is fitted."""
        names = ("model", "members", "budget", "batch_size", "noise", "normalise", "precision")
        return RewardSettings(**{name: getattr(self, name) for name in names})

    @property
    def kind(self) -> PolicyKind:
        """How the agents take part."""
        return POLICIES[self.policy]

    @property
    def settings(self) -> Any:
        """Of the agents that `policy` names."""
        return self.kind.settings(self)

    @property
    def updates(self) -> int:
        """Of each agent."""
        return self.steps or self.kind.updates

    @property
    def transformer(self) -> DTConfig:
        """Settings of Decision Transformers: as given, or the published ones."""
        settings = self.dt or (DTConfig(horizon=self.max_steps) if self.max_steps else DTConfig())
        target = settings.target if self.target_return is None else self.target_return
        return replace(settings, target=target)

    @property
    def agent(self) -> IQLConfig:
        """Settings of implicit Q-learning: as given, or those published for the task."""
        row = self.row
        return self.iql or IQLConfig.preset(row.hyperparameters if row else "mujoco")

    @property
    def clone(self) -> CloningConfig:
        """Settings of clones: those that the policies of implicit Q-learning have."""
        agent = self.agent
        return CloningConfig(**{f.name: getattr(agent, f.name) for f in fields(CloningConfig)})


@final
@dataclass(frozen=True)
class OfflineRun:
    """All that determines the result of a run, as its folder keeps it."""

    config: OfflineConfig
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        require_seeds(self.seeds)


def require_seeds(seeds: Sequence[int]) -> None:
    """Raise `ConfigError` unless seeds are different numbers from 0 to `SEED_LIMIT`."""
    fine = all(0 <= seed < SEED_LIMIT for seed in seeds) and len(set(seeds)) == len(seeds)
    if not seeds or not fine:
        raise ConfigError.mismatch(
            "seeds", expected="different whole numbers of at least 0", got=list(seeds)
        )
