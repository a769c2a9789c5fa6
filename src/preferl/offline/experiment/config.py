"""Settings of an offline run: data, labels or a reward, agents, and their evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, final

from preferl.configs import require_fields
from preferl.data.sources.labels import Crossing
from preferl.data.tasks import TASKS, Task, find_task
from preferl.envs.config import EnvConfig, EnvSource
from preferl.errors import SEED_LIMIT, ConfigError, require_one_of
from preferl.offline.learner_configs import (
    CPLConfig,
    DTConfig,
    IPLConfig,
    IQLConfig,
    LearnerConfig,
    parsed_target,
)
from preferl.registry import OFFLINE_LEARNERS
from preferl.training.reward_presets import RewardSettings, model_names

TRUE_REWARD: Final = "true"  # in place of the run of a fitted one


@final
@dataclass(frozen=True)
class OfflineConfig(RewardSettings, EnvConfig):
    """Settings of an offline run, and those of the reward that it fits.

    Members of a reward are normalised over the data before they are averaged, which DTR measured
    better than normalising the average.

    Attributes:
        demonstrations: file or folder of recorded episodes: a pickle of demonstrations, D4RL or
            robomimic HDF5, `.npz` files, or a folder written by preferl.
        dataset: id of a Minari data set on this machine, in place of a file.
        labels: folder of Uni-RLHF or Preference Transformer labels, to which a reward is fitted.
        comparisons: folder of comparisons in place of labels: what `preferl data label` or a
            project's export wrote, or a run of `preferl online run`.
        reward: run or folder of a fitted reward, in place of fitting one; labels then evaluate it.
            `"true"` takes the recorded rewards, and no labels. A folder of that name is
            `"./true"`, or a `Path`.
        length: steps per labelled segment, where the file names do not have it.
        crossing: what becomes of pairs with a segment that crosses an episode's end; None takes
            the choice of the kind of label folder.
        policy: `"iql"` learns from rewards; `"cpl"` and `"ipl"` from the answers, without a reward
            model; `"dt"`, a Decision Transformer, which actions led to which returns; `"dtr"` also
            draws it towards actions of higher value (both take the extra `hub`); `"bc"` only
            imitates, and needs no reward.
        target_return: of a Decision Transformer: a number, or a quantile of the returns that the
            learned reward gives the recorded episodes, such as `q0.95`. None takes that of `dt`.
        task: row of `preferl.data.TASKS`, for normalising scores and scaling rewards; found by
            `env` if None.
        env: the environment that policies are evaluated in, the task's if None: an id, `module:Id`,
            `module:Class` or `module:function`. In Python also the class or function itself.
        iql: settings of the agents; None takes those published for the task.
        cpl: settings of contrastive preference learning; None takes the paper's.
        ipl: settings of inverse preference learning; None takes those of `iql` for the task.
        dt: settings of Decision Transformers; None takes the published ones.
        steps: updates of each agent. None makes 100,000 of IQL and cloning, a tenth of what the
            papers make and enough for a few thousand recorded steps, and 10,000 of a Decision
            Transformer (its clones 100,000).
        episodes: that evaluate each policy after training; 0 trains without an environment.
        pessimism: deviations over members that the fitted reward subtracts from their mean, at
            least 0: agents then get less where members disagree.
        eval_every: updates from one evaluation of the agents of the learned reward (else of clones)
            to the next, while they learn; None makes some ten in all, 0 none. It selects no policy.
        eval_episodes: of each agent in such an evaluation. 10 show a trend.
        controls: whether agents are trained on true, zero, random and negated rewards and by
            cloning beside the learned one. They cost time; without them the result shows little.
        only_controls: names of the controls to train, such as `random`; all of them if none is
            named. An agent is the same whichever others there are, so seeds can be added later to
            the comparison that is open still.
        device: where networks train: "cpu" or "cuda".

    Raises:
        ConfigError: no data, neither labels nor a reward, or a value out of range.
    """

    demonstrations: str | None = None
    dataset: str | None = None
    labels: Path | None = None
    comparisons: Path | None = None
    reward: str | Path | None = None
    length: int | None = None
    crossing: Crossing | None = None
    policy: Annotated[str, OFFLINE_LEARNERS] = "iql"
    target_return: str | None = None
    task: str | None = None
    env: EnvSource | None = None
    iql: IQLConfig | None = None
    cpl: CPLConfig | None = None
    ipl: IPLConfig | None = None
    dt: DTConfig | None = None
    steps: int | None = None
    episodes: int = 100
    pessimism: float = 0.0
    eval_every: int | None = None
    eval_episodes: int = 10
    controls: bool = True
    only_controls: tuple[str, ...] = ()
    device: str = "cpu"

    def __post_init__(self) -> None:
        EnvConfig.__post_init__(self)
        if (self.demonstrations is None) == (self.dataset is None):
            given = "neither" if self.dataset is None else "both"
            raise ConfigError(
                f"recorded episodes: expected either demonstrations or a dataset, got {given}."
            )
        require_one_of("model", self.model, model_names())
        require_fields(self, members=1, budget=1, steps=1, episodes=0)
        require_fields(self, eval_every=0, eval_episodes=1, pessimism=0)
        if isinstance(self.reward, Path):  # a folder, even one that is called "true"
            folder = "./true" if self.reward == Path(TRUE_REWARD) else f"{self.reward}"
            object.__setattr__(self, "reward", folder)
        self._require_signals()
        self._require_target()
        if self.only_controls and not self.controls:
            raise ConfigError(
                "only_controls: expected controls to choose from, got no controls at all. Leave "
                "out `--no-controls`."
            )
        if self.episodes and self.env_id is None:
            raise ConfigError(
                "env: expected the environment to evaluate policies in, got none, and task "
                f"{self.task!r} names none. Set `env`, or `episodes` to 0 to train without "
                "evaluation."
            )

    def _require_signals(self) -> None:
        """Raise `ConfigError` unless the policy has what it learns from, and nothing beside it."""
        answers = self.labels or self.comparisons
        learns_from = self.kind.learns_from
        if self.labels is not None and self.comparisons is not None:
            raise ConfigError(
                "answers: expected either labels or comparisons, got both. Leave one out."
            )
        if answers is None and self.reward is None and learns_from != "actions":
            raise ConfigError(
                'a reward: expected labels to fit one to, the run of a fitted one, or "true" '
                "for the recorded one, got neither labels nor reward. Set `labels`, "
                "`comparisons` or `reward`; only cloning (policy bc) learns without."
            )
        if learns_from == "answers" and (answers is None or self.reward is not None):
            raise ConfigError(
                f"policy {self.policy}: expected answers alone: it learns without a reward "
                f"model, got {'none' if answers is None else 'a reward'}. Give labels or "
                "comparisons, and no reward."
            )
        if self.reward == TRUE_REWARD and answers is not None:
            raise ConfigError(
                f"labels or comparisons: expected none beside the true reward, got {answers}. "
                "Leave them out: agents of the true reward learn from no answers."
            )

    def _require_target(self) -> None:
        """Raise `ConfigError` for a target return of a policy that has none, or for no number."""
        if self.target_return is None:
            return
        parsed_target(self.target_return)
        if not self.kind.has_target:
            names = OFFLINE_LEARNERS.names()
            kinds = [name for name in names if OFFLINE_LEARNERS.config(name).has_target]
            raise ConfigError(
                f"target_return: expected a policy with one, {' or '.join(kinds)}, got "
                f"{self.policy}."
            )

    @property
    def fitted(self) -> Path | None:
        """The folder of a reward that was fitted before, if there is one."""
        if self.reward is None or self.reward == TRUE_REWARD:
            return None
        return Path(self.reward)

    @property
    def uses_true_reward(self) -> bool:
        """Whether agents learn from the recorded rewards, in place of a learned one."""
        return self.kind.learns_from == "rewards" and self.reward == TRUE_REWARD

    @property
    def source(self) -> str:
        """The place of the episodes, as `load_source` takes it."""
        return self.demonstrations or f"minari:{self.dataset}"

    @property
    def row(self) -> Task | None:
        """The task's row in the table; None where neither `task` nor `env` has one."""
        return TASKS.get(self.env_name) if self.task is None else find_task(self.task)

    @property
    def env_id(self) -> str | None:
        """Name of the environment for evaluation; None if that is not known."""
        return self.env_name or (self.row.env if self.row else None)

    @property
    def environment(self) -> EnvConfig:
        """The environment for evaluation, the task's unless `env` names another one."""
        return replace(super().environment, env=self.env or self.env_id)

    @property
    def max_steps(self) -> int | None:
        """Steps of an episode of evaluation; None leaves them to the environment."""
        return self.row.max_episode_steps if self.row else None

    @property
    def kind(self) -> type[LearnerConfig]:
        """The class of the agents' settings, which says how they take part in a run."""
        return OFFLINE_LEARNERS.config(self.policy)

    @property
    def settings(self) -> Any:
        """The settings of the agents that `policy` names."""
        return self.kind.of_run(self)

    @property
    def updates(self) -> int:
        """Updates of each agent."""
        return self.steps or self.kind.updates

    @property
    def cloning(self) -> str:
        """The policy of agents that imitate the data."""
        return self.policy if self.kind.learns_from == "actions" else "bc"


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
    different = len(set(seeds)) == len(seeds) > 0
    if not different or not all(0 <= seed < SEED_LIMIT for seed in seeds):
        raise ConfigError(
            f"seeds: expected different whole numbers of at least 0, got {list(seeds)}."
        )
