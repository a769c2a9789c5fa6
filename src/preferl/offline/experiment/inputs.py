"""What the stages of an offline run share: its data, its learned reward and its folder."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, cast, final

import numpy as np
from gymnasium import spaces

from preferl.data.arrays import content_id, load_arrays, load_comparisons, save_arrays
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.sources import LabelReport, load_labels, load_source
from preferl.errors import CheckpointError, DataError, SpaceError, StorageError
from preferl.evaluation.curve import Evaluation, Evaluator, evaluation_interval
from preferl.evaluation.policies import shape_of
from preferl.evaluation.reward_report import RewardReport, evaluate_reward
from preferl.evaluation.rollout import make_task_env, task_env
from preferl.feedback.step_rewards import Reward, control_rewards
from preferl.files import write_json
from preferl.models.spaces import check_spaces, infer_spaces
from preferl.offline.experiment.conditions import (
    CLONING,
    agent_name,
    main_condition,
    require_true_rewards,
    reward_of_condition,
)
from preferl.offline.experiment.config import OfflineConfig
from preferl.reading import read_object, reading
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import MetricSink
from preferl.runs import RunFolder
from preferl.runs.summary import Estimate
from preferl.shapes import FloatArray, leaves, map_observations
from preferl.statistics import spearman
from preferl.training.reward_function import (
    RewardFunction,
    agent_reward,
    load_reward,
    save_reward,
)
from preferl.training.reward_presets import RewardPreset
from preferl.training.scaling import RewardScaler

OnProgress = Callable[[int, int], None]  # done, total
FIRST_CURVE_EPISODE: Final = 30_000
"""Added to the run's seed for episodes while agents learn; final evaluations use other seeds."""

OnStage = Callable[[str, int, int], None]  # stage, done, total
OnEvaluation = Callable[[str, Evaluation], None]
"""Called with a name and an evaluation: the name of a condition or of a single agent."""

FIT = "fit.json"
REWARD = "reward"
RELABELLED = "relabelled"


@final
@dataclass(frozen=True, eq=False)
class Inputs:
    """Episodes, labels and perhaps a reward that was fitted before.

    They are checked to belong to each other. Spaces are those of the environment, or are inferred
    from the data.
    """

    episodes: Episodes
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    comparisons: Comparisons | None
    labels: LabelReport | None
    reward: RewardFunction | None

    @cached_property
    def description(self) -> dict[str, Any]:
        """Return counts, and an id of the content; other data have another id."""
        episodes = self.episodes
        arrays = (*leaves(episodes.observations), episodes.actions, episodes.rewards)
        return {
            "episodes": len(episodes),
            "steps": episodes.steps,
            "id": content_id(*arrays, episodes.lengths),
        }

    @property
    def clonable(self) -> bool:
        """Whether behaviour cloning can use the spaces: states of numbers, continuous actions."""
        observations: Any = self.episodes.observations
        has_pictures = not isinstance(observations, dict) and observations.dtype.kind != "f"
        return not has_pictures and isinstance(self.action_space, spaces.Box)

    def preset(self, config: OfflineConfig) -> RewardPreset | None:
        """Return the preset that fits a reward to the comparisons.

        None if no reward is to be fitted.
        """
        is_fitted_here = self.reward is None and config.kind.learns_from == "rewards"
        if self.comparisons is None or not is_fitted_here:
            return None
        answers = int(self.comparisons.answered.sum())
        return config.preset(length=self.comparisons.segments.length, answers=answers)


def load_inputs(config: OfflineConfig) -> Inputs:
    """Read the data that a config names, and check that its parts belong to each other."""
    env_spaces = None
    if config.env_id is not None and config.episodes:
        env = make_task_env(config)
        env.close()
        env_spaces = (env.observation_space, env.action_space)
    reward = None if config.fitted is None else _load_fitted(config.fitted)
    episodes = load_source(config.source, task=config.row)
    if config.uses_true_reward:
        require_true_rewards(episodes)
    steps = (episodes.observations, episodes.actions)
    for name, space, arrays in zip(("observations", "actions"), env_spaces or (), steps):  # noqa: B905
        shape = map_observations(lambda a: a.shape[1:], arrays)
        if shape_of(space) != shape:
            raise SpaceError(
                f"{name} of {config.source}: expected {shape_of(space)} per step, as in "
                f"{config.env_id}, got {shape}. Name the environment that was recorded, or its "
                "task."
            )
    if reward is not None:
        try:
            check_spaces(reward.observation_space, reward.action_space, *steps)
        except SpaceError as error:
            fault = f"The reward {config.reward} was fitted to other data: {error}"
            raise SpaceError(fault) from error
    comparisons = None
    report = None
    if config.labels is not None:
        labels = load_labels(
            config.labels, episodes, length=config.length, crossing=config.crossing
        )
        comparisons = labels.comparisons
        report = labels.report
    if config.comparisons is not None:
        comparisons = load_comparisons(config.comparisons)
        clips = comparisons.segments
        check_spaces(*infer_spaces(*steps), clips.observations, clips.actions, what="clips")
        report = LabelReport.of_comparisons(comparisons)
    return Inputs(episodes, *(env_spaces or infer_spaces(*steps)), comparisons, report, reward)


def _load_fitted(folder: Path) -> RewardFunction:
    """Load the reward of a run, or one from the folder that `save_reward` wrote."""
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder}: expected a run with a reward, or a reward's folder, but there is no folder."
        )
    inside = folder / REWARD
    return load_reward(inside if inside.is_dir() else folder)


def load_shared_inputs(configs: Iterable[OfflineConfig]) -> list[Inputs]:
    """Load the inputs of several runs, with a single copy of their episodes.

    Raises:
        DataError: the runs have different episodes.
    """
    loaded: list[Inputs] = []
    for config in configs:
        inputs = load_inputs(config)
        first_inputs = loaded[0] if loaded else inputs
        if inputs.description["id"] != first_inputs.description["id"]:
            raise DataError(
                "episodes of the runs: expected the same for all runs, so that their agents can "
                f"learn side by side, got {first_inputs.description['id']} and "
                f"{inputs.description['id']}."
            )
        loaded.append(replace(inputs, episodes=first_inputs.episodes))
    return loaded


@final
@dataclass(frozen=True, eq=False)
class LearnedReward:
    """A learned reward, scaled on the episodes, with its reward of every step and its quality.

    The `reports` evaluate the reward and its controls on the labels. Without labels, there are
    none. If this run has fitted the reward, it has fitted it to these labels, so they are not
    unseen answers.
    """

    reward: RewardFunction
    rewards: FloatArray  # `[T]` float32
    fit: dict[str, Any] | None  # report of the fit; None if the reward was fitted before
    reports: dict[str, RewardReport]
    spearman: float  # rank correlation with the recorded rewards; NaN if one of the two is constant

    @property
    def estimate(self) -> Estimate | None:
        """The accuracy on answers outside of the fit; None if there are none."""
        if self.fit is None:
            report = self.reports.get("learned")
            return None if report is None else report.estimate
        accuracy = self.fit["validation_accuracy"][self.fit["best_epoch"] - 1]
        if accuracy is None:
            return None
        return Estimate.of_answers(accuracy, self.fit["decided"], self.fit["validated_on"])

    @property
    def numbers(self) -> dict[str, float]:
        """Return further numbers for the summary of a run."""
        reports = self.reports if self.fit is None else {}
        numbers = reports["learned"].numbers if reports else {}
        return numbers if np.isnan(self.spearman) else numbers | {"spearman": self.spearman}

    def to_json(self) -> dict[str, Any]:
        """Return the numbers for `result.json`."""
        return {
            "fit": self.fit,
            "spearman": self.spearman,
            "on_labels": {name: report.to_json() for name, report in self.reports.items()},
        }


def learn_reward(
    config: OfflineConfig, inputs: Inputs, folder: RunFolder, seed: int, on_epoch: OnProgress
) -> LearnedReward:
    """Fit or load the reward and relabel the episodes, unless the folder has both already."""
    comparisons = inputs.comparisons
    if not folder.path(FIT).is_file():
        reward, members, fit = _fitted_reward(config, inputs, seed, on_epoch)
        save_reward(folder.path(REWARD), reward)
        arrays = {"rewards": reward.combine(members)}
        save_arrays(folder.path(RELABELLED), arrays, {"kind": "rewards"})
        # written last: the other files are then complete
        write_json(folder.path(FIT), {"fit": fit})
    reward = load_reward(folder.path(REWARD), device=config.device)
    rewards = load_arrays(folder.path(RELABELLED), memory_map=False)[0]["rewards"]
    reports = {}
    if comparisons is not None:
        rewards_by_name: dict[str, Reward] = {"learned": reward, **control_rewards(reward, seed)}
        reports = {
            name: evaluate_reward(compared_reward, comparisons)
            for name, compared_reward in rewards_by_name.items()
        }
    return LearnedReward(
        reward=reward,
        rewards=rewards,
        fit=read_json(folder.path(FIT))["fit"],
        reports=reports,
        spearman=spearman(rewards, np.asarray(inputs.episodes.rewards)),
    )


def _fitted_reward(
    config: OfflineConfig, inputs: Inputs, seed: int, on_epoch: OnProgress
) -> tuple[RewardFunction, FloatArray, dict[str, Any] | None]:
    """Return a reward, its members' rewards of all steps, and the report of its fit if it is new.

    The reward is fitted to the comparisons, unless the inputs have one that was fitted before.
    """
    episodes = inputs.episodes
    preset = inputs.preset(config)
    if preset is None or inputs.comparisons is None:
        earlier_reward = cast("RewardFunction", inputs.reward)  # a config has labels or a reward
        return earlier_reward, earlier_reward.member_rewards(episodes), None
    epochs = preset.trainer.epochs
    model, report = preset.fit(
        inputs.comparisons,
        *infer_spaces(episodes.observations, episodes.actions),
        seed=seed,
        device=config.device,
        on_epoch=lambda epoch, _: on_epoch(epoch, epochs),
    )
    members = RewardFunction(model).member_rewards(episodes)
    scaler = RewardScaler.fit(members)
    reward = agent_reward(model, report.likelihood, scaler, pessimism=config.pessimism)
    return reward, members, report.to_json()


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that a run wrote."""
    with reading(path, expected="a file of a run", error=StorageError):
        return read_object(path)


@final
@dataclass(eq=False)
class OpenRun:
    """A run that is open in its folder, with everything that its stages share."""

    config: OfflineConfig
    seeds: tuple[int, ...]
    inputs: Inputs
    folder: RunFolder
    sink: MetricSink
    on_stage: OnStage
    on_evaluation: OnEvaluation | None = None
    stage: str = ""
    learned: LearnedReward | None = None

    def begin(self, stage: str) -> OnProgress:
        """Report a new stage, and return a function that reports its progress."""
        self.stage = stage
        self.on_stage(stage, 0, 1)
        return partial(self.on_stage, stage)

    def acting_reward(self, condition: str, seed: int) -> Reward | None:
        """Return the reward that lowers a target return while a policy acts; None: the true one."""
        learned = None if self.learned is None else self.learned.reward
        return reward_of_condition(condition, seed, learned)

    def load_policy(self, condition: str, seed: int) -> Any:
        """Return the saved policy of an agent."""
        name = self.config.cloning if condition == CLONING else self.config.policy
        path = self.folder.path(f"policies/{agent_name(condition, seed)}")
        learner = OFFLINE_LEARNERS.load(name)
        return learner.load_policy(path, self.acting_reward(condition, seed))

    @property
    def evaluator(self) -> Evaluator:
        """Return the evaluator of agents while they learn."""
        config = self.config
        return Evaluator(
            task_env(config),
            every=evaluation_interval(config.eval_every, config.updates) if config.episodes else 0,
            episodes=config.eval_episodes,
            seed=self.seeds[0] + FIRST_CURVE_EPISODE,
            max_steps=config.max_steps,
        )

    def evaluations(self) -> dict[str, list[Evaluation]]:
        """Return evaluations so far of each agent of the main condition, from the folder."""
        curves = {}
        for seed in self.seeds:
            name = agent_name(main_condition(self.config), seed)
            file = self.folder.folder / f"curves/{name}.json"
            saved = read_json(file)["evaluations"] if file.is_file() else []
            curves[name] = [Evaluation.from_json(evaluation) for evaluation in saved]
        return curves
