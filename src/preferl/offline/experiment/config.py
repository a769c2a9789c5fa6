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

TRUE_REWARD: Final = "true"  # instead of the run of a fitted reward


@final
@dataclass(frozen=True)
class OfflineConfig(RewardSettings, EnvConfig):
    """Settings of an offline run, and of the reward that it fits.

    Members of a reward are normalised over the data before they are averaged. DTR found this better
    than normalising the average.

    Attributes:
        demonstrations: file or folder of recorded episodes: a pickle of demonstrations, D4RL or
            robomimic HDF5, `.npz` files, or a folder written by preferl.
        dataset: id of a Minari data set on this machine, instead of a file.
        labels: folder of Uni-RLHF or Preference Transformer labels, to which a reward is fitted.
        comparisons: folder of comparisons instead of labels. `preferl data label`, a project's
            export or a run of `preferl online run` writes it.
        reward: run or folder of a fitted reward, instead of fitting one; labels then evaluate it.
            `"true"` takes the recorded rewards, and needs no labels. A folder with that name is
            `"./true"`, or a `Path`.
        length: steps per labelled segment, if the file names do not have it.
        crossing: what happens to pairs with a segment that crosses an episode's end; None takes the
            default of the kind of label folder.
        policy: what agents learn. `"iql"` learns from rewards. `"cpl"` and `"ipl"` learn from the
            answers, without a reward model. `"dt"`, a Decision Transformer, learns which actions
            led to which returns. `"dtr"` also draws it towards actions of higher value. Both need
            the extra `hub`. `"bc"` only imitates, and needs no reward.
        target_return: target return of a Decision Transformer: a number, or a quantile such as
            `q0.95` of the returns that the learned reward gives the recorded episodes. None takes
            that of `dt`.
        task: row of `preferl.data.TASKS`, for normalising scores and scaling rewards; None finds it
            by `env`.
        env: the environment in which policies are evaluated; None takes the task's. It is an id,
            `module:Id`, `module:Class` or `module:function`, and in Python also the class or
            function itself.
        iql: settings of the agents; None takes those published for the task.
        cpl: settings of contrastive preference learning; None takes the paper's.
        ipl: settings of inverse preference learning; None takes those of `iql` for the task.
        dt: settings of Decision Transformers; None takes the published ones.
        steps: updates of each agent. None makes 100,000 updates of IQL and cloning, which is a
            tenth of the papers' number and enough for a few thousand recorded steps. It makes
            10,000 updates of a Decision Transformer, and 100,000 of its clones.
        episodes: number of episodes that evaluate each policy after training; 0 trains without an
            environment.
        pessimism: how many standard deviations over the members the fitted reward subtracts from
            their mean, at least 0. Agents then get less where members disagree.
        eval_every: updates between two evaluations of the learned reward's agents (or else of
            clones) while they learn; None makes about ten in all, 0 none. No policy is selected by
            them.
        eval_episodes: episodes of each agent in such an evaluation. 10 show a trend.
        controls: whether to also train agents on true, zero, random and negated rewards and by
            cloning. They cost time, but without them the result shows little.
        only_controls: names of the controls to train, such as `random`; if none is named, all are
            trained. An agent does not depend on the other agents. Seeds can therefore be added
            later to a comparison that is still open.
        device: where networks train: "cpu" or "cuda".

    Raises:
        ConfigError: there are no data, there is neither a label nor a reward, or a value is out of
            range.
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
        if isinstance(self.reward, Path):  # even a folder that is called "true"
            folder = "./true" if self.reward == Path(TRUE_REWARD) else f"{self.reward}"
            object.__setattr__(self, "reward", folder)
        self._require_signals()
        self._require_target()
        if self.only_controls and not self.controls:
            raise ConfigError(
                "only_controls: expected controls to choose from, but there are none. Leave out "
                "`--no-controls`."
            )
        if self.episodes and self.env_id is None and self.demonstrations is not None:
            from preferl.offline.robosuite import RECORDED, recorded_arguments

            if recorded_arguments(self.demonstrations) is not None:
                object.__setattr__(self, "env", RECORDED)
                arguments = {**self.env_kwargs, "demonstrations": self.demonstrations}
                object.__setattr__(self, "env_kwargs", arguments)
        if self.episodes and self.env_id is None:
            raise ConfigError(
                "env: expected the environment to evaluate policies in, got none, and task "
                f"{self.task!r} names none. Set `env`, or set `episodes` to 0 to train without "
                "evaluation."
            )

    def _require_signals(self) -> None:
        """Raise `ConfigError` unless the policy has what it learns from, and nothing else."""
        answers = self.labels or self.comparisons
        learns_from = self.kind.learns_from
        if self.labels is not None and self.comparisons is not None:
            raise ConfigError(
                "answers: expected either labels or comparisons, got both. Leave one out."
            )
        if answers is None and self.reward is None and learns_from != "actions":
            raise ConfigError(
                'a reward: expected labels to fit one to, the run of a fitted one, or "true" for '
                "the recorded rewards, got neither labels nor reward. Set `labels`, `comparisons` "
                "or `reward`. Only cloning (policy bc) needs none of them."
            )
        if learns_from == "answers" and (answers is None or self.reward is not None):
            raise ConfigError(
                f"policy {self.policy}: expected answers and no reward, since it learns without a "
                f"reward model, got {'no answers' if answers is None else 'a reward'}. Give labels "
                "or comparisons, and no reward."
            )
        if self.reward == TRUE_REWARD and answers is not None:
            raise ConfigError(
                f"labels or comparisons: expected none beside the true reward, got {answers}. "
                "Leave them out: agents of the true reward do not learn from answers."
            )

    def _require_target(self) -> None:
        """Raise `ConfigError` if there is a target return for a policy that has none."""
        if self.target_return is None:
            return
        parsed_target(self.target_return)
        if not self.kind.has_target:
            names = OFFLINE_LEARNERS.names()
            kinds = [name for name in names if OFFLINE_LEARNERS.config(name).has_target]
            raise ConfigError(
                f"target_return: expected a policy with a target return, {' or '.join(kinds)}, got "
                f"{self.policy}."
            )

    @property
    def fitted(self) -> Path | None:
        """The folder of a reward that was fitted before; None if there is none."""
        if self.reward is None or self.reward == TRUE_REWARD:
            return None
        return Path(self.reward)

    @property
    def uses_true_reward(self) -> bool:
        """Whether agents learn from the recorded rewards instead of a learned one."""
        return self.kind.learns_from == "rewards" and self.reward == TRUE_REWARD

    @property
    def source(self) -> str:
        """The place of the episodes, in the form that `load_source` takes."""
        return self.demonstrations or f"minari:{self.dataset}"

    @property
    def row(self) -> Task | None:
        """The task's row in the table; None if neither `task` nor `env` has one."""
        return TASKS.get(self.env_name) if self.task is None else find_task(self.task)

    @property
    def env_id(self) -> str | None:
        """Name of the environment for evaluation; None if it is not known."""
        return self.env_name or (self.row.env if self.row else None)

    @property
    def environment(self) -> EnvConfig:
        """The environment for evaluation: the task's, unless `env` names another one."""
        return replace(super().environment, env=self.env or self.env_id)

    @property
    def max_steps(self) -> int | None:
        """Largest number of steps in an episode of evaluation.

        None leaves it to the environment.
        """
        return self.row.max_episode_steps if self.row else None

    @property
    def kind(self) -> type[LearnerConfig]:
        """The class of the agents' settings, which tells how they take part in a run."""
        return OFFLINE_LEARNERS.config(self.policy)

    @property
    def settings(self) -> Any:
        """The settings of the agents of `policy`."""
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
    """Everything that determines the result of a run; it is kept in the run's folder."""

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
