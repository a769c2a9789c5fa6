"""The reward that an offline run pays by: fitted to labels or loaded, judged, and kept."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

import numpy as np

from preferl.data.arrays import load_arrays, save_arrays
from preferl.errors import StorageError
from preferl.evaluation.reward_report import RewardReport, evaluate_reward
from preferl.feedback.step_rewards import Reward, control_rewards
from preferl.files import write_json
from preferl.models.spaces import infer_spaces
from preferl.offline.config import OfflineConfig
from preferl.offline.inputs import Inputs
from preferl.reading import read_object, reading
from preferl.runs import RunFolder
from preferl.shapes import FloatArray
from preferl.statistics import spearman
from preferl.training.reward_function import RewardFunction, load_reward, save_reward
from preferl.training.scaling import RewardScaler

OnEpoch = Callable[[int, int], None]
"""Told how many epochs of the fit are done, and of how many."""

FIT, REWARD, RELABELLED = "fit.json", "reward", "relabelled"


@final
@dataclass(frozen=True, eq=False)
class LearnedReward:
    """A reward, what it pays for each recorded step, and how good it is.

    Attributes:
        reward: scaled over the episodes.
        paid: `[T]` float32.
        fit: what the fit did; None where the reward was fitted before.
        judged: `learned` and controls on the labels, which are those it was fitted to unless it
            was fitted before; empty without labels.
        spearman: rank correlation of what it pays with the recorded rewards; NaN where either
            is the same at every step.
    """

    reward: RewardFunction
    paid: FloatArray
    fit: dict[str, Any] | None
    judged: dict[str, RewardReport]
    spearman: float

    def to_json(self) -> dict[str, Any]:
        """Numbers for `result.json`."""
        return {
            "fit": self.fit,
            "spearman": self.spearman,
            "on_labels": {name: report.to_json() for name, report in self.judged.items()},
        }


def learn_reward(
    config: OfflineConfig, inputs: Inputs, folder: RunFolder, seed: int, on_epoch: OnEpoch
) -> LearnedReward:
    """Fit or take over the reward and pay the episodes by it; what the folder has is not redone."""
    if not folder.path(FIT).is_file():
        reward, fit = _obtain(config, inputs, seed, on_epoch)
        rewards = reward.member_rewards(inputs.episodes)
        if fit is not None:  # as `scaled` does, without paying each step once more
            reward = reward.with_scaler(RewardScaler.fit(rewards))
        save_reward(folder.path(REWARD), reward)
        paid = reward.combine(rewards)
        save_arrays(folder.path(RELABELLED), {"rewards": paid}, {"kind": "rewards"})
        write_json(folder.path(FIT), {"fit": fit})  # last: what is here need not be made again
    reward = load_reward(folder.path(REWARD), device=config.device)
    arrays, _ = load_arrays(folder.path(RELABELLED), memory_map=False)
    paid = arrays["rewards"]
    return LearnedReward(
        reward=reward,
        paid=paid,
        fit=read_json(folder.path(FIT))["fit"],
        judged=_judge(reward, inputs, seed),
        spearman=spearman(paid, np.asarray(inputs.episodes.rewards)),
    )


def _obtain(
    config: OfflineConfig, inputs: Inputs, seed: int, on_epoch: OnEpoch
) -> tuple[RewardFunction, dict[str, Any] | None]:
    """The reward that was fitted before, or one fitted now (not yet scaled) and how that went."""
    if inputs.comparisons is None or inputs.reward is not None:
        return cast("RewardFunction", inputs.reward), None
    preset = config.fitting.preset(
        length=inputs.comparisons.segments.length, answers=int(inputs.comparisons.answered.sum())
    )
    epochs = preset.trainer.epochs
    model, report = preset.fit(
        inputs.comparisons,
        *infer_spaces(inputs.episodes.observations, inputs.episodes.actions),
        seed=seed,
        device=config.device,
        on_epoch=lambda epoch, _: on_epoch(epoch, epochs),
    )
    return RewardFunction(model, likelihood=report.likelihood), report.to_json()


def _judge(reward: RewardFunction, inputs: Inputs, seed: int) -> dict[str, RewardReport]:
    if inputs.comparisons is None:
        return {}
    rewards: dict[str, Reward] = {"learned": reward, **control_rewards(reward, seed)}
    return {name: evaluate_reward(one, inputs.comparisons) for name, one in rewards.items()}


def read_json(path: Path) -> dict[str, Any]:
    """A file that a run wrote.

    Raises:
        StorageError: it is missing or damaged.
    """
    with reading(path, expected="a file of a run", error=StorageError):
        return read_object(path)
