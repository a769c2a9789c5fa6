"""What an offline run is made of: data, labels or a reward, agents, and how they are judged."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, final

from preferl.data.sources.labels import Crossing
from preferl.data.tasks import TASKS, Task, find_task
from preferl.errors import ConfigError, require_in, require_one_of
from preferl.offline.arms import require_seeds
from preferl.offline.dt_config import DTConfig, DTRConfig
from preferl.offline.learner_configs import CloningConfig, IQLConfig
from preferl.training.configs import Precision
from preferl.training.reward_presets import RewardSettings, model_names

UPDATES: Final = 100_000
"""Of an agent: a tenth of what the papers make, enough for a few thousand recorded steps."""

SEQUENCE_UPDATES: Final = 10_000
"""The same of a Decision Transformer, whose update sees twenty times as many steps."""


@final
@dataclass(frozen=True)
class PolicyKind:
    """How the agents of a name of `preferl.registry.OFFLINE_LEARNERS` take part in a run.

    Attributes:
        words: how they learn, for reports.
        settings: theirs, as a run's config has them.
        taught: whether rewards teach them; who only imitates is a control of the others as well.
        asked: whether they are asked for a return, and so learn one after the other.
        updates: of each agent, unless the config says otherwise.
    """

    words: str
    settings: "Callable[[OfflineConfig], Any]"
    taught: bool = True
    asked: bool = False
    updates: int = UPDATES


POLICIES: Final[dict[str, PolicyKind]] = {
    "iql": PolicyKind("implicit Q-learning", lambda config: config.agent),
    "bc": PolicyKind("cloning", lambda config: config.clone, taught=False),
    "dt": PolicyKind(
        "Decision Transformers",
        lambda config: replace(config.transformer, regulariser=None),
        asked=True,
        updates=SEQUENCE_UPDATES,
    ),
    "dtr": PolicyKind(
        "Decision Transformers with critics (DTR)",
        lambda config: replace(
            config.transformer, regulariser=config.transformer.regulariser or DTRConfig()
        ),
        asked=True,
        updates=SEQUENCE_UPDATES,
    ),
}
"""What `OfflineConfig.policy` can be."""


@final
@dataclass(frozen=True)
class OfflineConfig:
    """Settings of an offline run.

    Attributes:
        demonstrations: file or folder of recorded episodes: a pickle of demonstrations, D4RL or
            robomimic HDF5, `.npz` files, or a folder written by preferl.
        dataset: id of a Minari data set on this machine, in place of a file.
        labels: folder of Uni-RLHF or Preference Transformer labels, to which a reward is fitted.
        reward: run or folder of a fitted reward, in place of fitting one; labels then judge it.
        model: how the reward is fitted: `"mlp"` (ours), or as published `"mr"`, `"nmr"`, `"pt"`
            or `"pt-readme"`; `preferl.training.reward_preset` says what they are.
        members: networks of the ensemble, each normalised over the data before they are averaged
            (DTR measured that better than normalising the average). None takes the model's own,
            three for `"mlp"` and one for the published models.
        budget: optimiser updates of the fit. None makes the model's own number of epochs, which
            for `"pt"` takes a GPU.
        batch_size: pairs per update of the fit; None takes the model's own.
        noise: share of answers that the fit takes to be random; None takes the model's own.
        normalise: whether a reward's inputs are normalised; None takes the model's own.
        precision: of the products while a reward is fitted; None takes the model's own.
        length: steps per labelled segment, where the file names do not say.
        crossing: what becomes of pairs with a segment that runs across an episode's end; None
            does what suits the kind of label folder.
        policy: `"iql"` learns from rewards; `"dt"`, a Decision Transformer, which actions led to
            which returns; `"dtr"` also draws it towards actions of higher value (both take the
            extra `hub`); `"bc"` only imitates, and needs no reward.
        target_return: what a Decision Transformer is asked for: a number, or a quantile of the
            returns that the learned reward gives the recorded episodes, such as `q0.95`. None
            takes that of `dt`.
        task: row of `preferl.data.TASKS`, which says how scores are normalised and rewards
            scaled; found by `env` if None.
        env: id of the environment that policies are judged in; the task's if None.
        iql: settings of the agents; None takes those published for the task.
        dt: settings of Decision Transformers; None takes the published ones.
        steps: updates of each agent. None makes 100,000 of IQL and cloning, a tenth of what the
            papers make and enough for a few thousand recorded steps, and 10,000 of a Decision
            Transformer (its clones 100,000).
        episodes: judged per policy, once training is over; 0 trains without an environment.
        controls: whether agents are trained on true, zero, random and negated rewards and by
            cloning beside the learned one. They cost time and say what the result is worth.
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
            both = self.dataset is not None
            raise ConfigError.mismatch(
                "recorded episodes",
                expected="either demonstrations or a dataset",
                got="both" if both else "neither",
            )
        require_one_of("policy", self.policy, POLICIES)
        if self.kind.taught and self.labels is None and self.reward is None:
            raise ConfigError.mismatch(
                "a reward",
                expected="labels to fit one to, or the run of a fitted one",
                got="neither labels nor reward",
                fix="Set `labels` or `reward`; only cloning (policy bc) learns without.",
            )
        require_one_of("model", self.model, model_names())
        for name, low in (("members", 1), ("budget", 1), ("steps", 1), ("episodes", 0)):
            if getattr(self, name) is not None:
                require_in(name, getattr(self, name), low, float("inf"))
        if self.target_return is not None and not self.kind.asked:
            asked = [name for name, kind in POLICIES.items() if kind.asked]
            raise ConfigError.mismatch(
                "target_return",
                expected=f"a policy that is asked for one, {' or '.join(asked)}",
                got=self.policy,
            )
        if self.episodes and self.env_id is None:
            raise ConfigError.mismatch(
                "env",
                expected="the environment to judge policies in",
                got=f"none, and task {self.task!r} names none",
                fix="Set `env`, or `episodes` to 0 to train without judging.",
            )

    @property
    def source(self) -> str:
        """Where the episodes are, as `load_source` takes it."""
        return self.demonstrations or f"minari:{self.dataset}"

    @property
    def row(self) -> Task | None:
        """Of the table of tasks; None where neither `task` nor `env` has one."""
        if self.task is not None:
            return find_task(self.task)
        return TASKS.get(self.env or "")

    @property
    def env_id(self) -> str | None:
        """Where policies are judged; None if that is not known."""
        row = self.row
        return self.env or (row.env if row else None)

    @property
    def fitting(self) -> RewardSettings:
        """How the reward is fitted."""
        return RewardSettings(
            model=self.model,
            members=self.members,
            budget=self.budget,
            batch_size=self.batch_size,
            noise=self.noise,
            normalise=self.normalise,
            precision=self.precision,
        )

    @property
    def kind(self) -> PolicyKind:
        """How the agents learn and are used."""
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
    def clone_updates(self) -> int:
        """Of each clone."""
        return self.steps or UPDATES

    @property
    def transformer(self) -> DTConfig:
        """Settings of Decision Transformers: as given, or the published ones."""
        row, chosen = self.row, self.dt
        if chosen is None:
            chosen = DTConfig(horizon=row.max_episode_steps) if row else DTConfig()
        return chosen if self.target_return is None else replace(chosen, target=self.target_return)

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
    """All that decides what a run comes to; what a run folder remembers.

    Attributes:
        config: of the run.
        seeds: of its agents.
    """

    config: OfflineConfig
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        require_seeds(self.seeds)
