"""One reward that is fitted again and again as answers arrive, across restarts of its program."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from gymnasium import spaces

from preferl.data.comparisons import Comparisons
from preferl.errors import CheckpointError, DataError, SpaceError
from preferl.feedback.likelihood import Likelihood
from preferl.functional.combine import lower_bound, mean
from preferl.models.build import build_reward_model, config_of
from preferl.models.spaces import check_spaces, infer_spaces
from preferl.online.service_config import ServiceConfig
from preferl.online.sides import JUDGE, NEITHER, TRAIN
from preferl.shapes import IntArray
from preferl.statistics import wilson_interval
from preferl.store.feedback import Answered
from preferl.store.status import FitMetrics
from preferl.training.publish import Version
from preferl.training.reward_function import RewardFunction
from preferl.training.reward_presets import RewardPreset
from preferl.training.reward_trainer import RewardTrainer, load_trainer, save_trainer

LOGGER = logging.getLogger(__name__)

MOST_EPOCHS = 50

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]


class Fitted(NamedTuple):
    """A reward and how good it is."""

    reward: RewardFunction
    metrics: FitMetrics


@final
class OngoingFit:
    """Fits a reward to all answers so far, each time from where the last fit ended.

    Training answers keep the place in which they were first seen, so that each member of an
    ensemble keeps its own resample of them. Answers that judge are never trained on, not even to
    choose an epoch, so that the accuracy on them is what it seems.

    Args:
        config: of the service.
        on_epoch: called as the work goes on; what it raises ends the fit.
    """

    def __init__(self, config: ServiceConfig, on_epoch: Callable[[], None]) -> None:
        self._config = config
        self._on_epoch = on_epoch
        self._trainer: RewardTrainer | None = None
        self._saved: tuple[Version, Path] | None = None
        self._place: dict[int, int] = {}

    def resume(self, version: Version, folder: Path) -> None:
        """Go on from a published version, where the settings still are those of its model."""
        self._saved = (version, folder)

    def save(self, folder: Path) -> None:
        """Write what `resume` needs beside the reward of the last fit."""
        if self._trainer is not None:
            save_trainer(folder, self._trainer, {"queries": list(self._place)})

    def fit(self, answered: Answered, side: IntArray, told: Spaces | None) -> Fitted:
        """Fit, judge and scale.

        Args:
            answered: all there is.
            side: `[P]` of each comparison.
            told: the agent's spaces, or None to infer them.

        Raises:
            DataError: no answer to train on, or a fit that came to no numbers; the next one then
                begins anew.
            ConfigError, SpaceError: settings or clips that do not go together.
        """
        comparisons = answered.comparisons
        length = self._config.context or comparisons.segments.length
        preset = self._config.reward.preset(length=length, answers=len(comparisons))
        trainer, first = self._trainer_for(preset, comparisons, told)
        train = comparisons[self._in_place(answered.queries, side == TRAIN)]
        epochs = self._epochs(preset, first)
        report = trainer.fit(train, epochs=epochs, on_epoch=lambda *_: self._on_epoch())
        try:
            reward = self._scaled(trainer, report.likelihood, comparisons)
        except DataError:
            self._trainer = None
            raise
        metrics = FitMetrics(
            answers=len(comparisons),
            trained_on=len(train),
            left_out=int((side == NEITHER).sum()),
            train_accuracy=_plain(report.train_accuracy[-1]),
            train_loss=_plain(report.train_loss[-1]),
            epochs=report.epochs,
            seconds=round(report.seconds, 3),
            noise=report.likelihood.noise,
            scale=report.likelihood.scale,
            **_judged(trainer, report.likelihood, comparisons[side == JUDGE]),
        )
        return Fitted(reward, metrics)

    def _epochs(self, preset: RewardPreset, first: bool) -> int:
        settings = self._config.reward
        epochs = preset.trainer.epochs
        if settings.epochs is None and settings.budget is None:
            epochs = min(epochs, MOST_EPOCHS)
        return max(epochs, self._config.initial_epochs) if first else epochs

    def _trainer_for(
        self, preset: RewardPreset, comparisons: Comparisons, told: Spaces | None
    ) -> tuple[RewardTrainer, bool]:
        """A trainer for these clips, and whether it has learned nothing yet."""
        if self._trainer is not None and self._suits(self._trainer, comparisons, told):
            return self._trainer, False
        if self._trainer is not None:
            LOGGER.warning("New clips do not suit the model; a new one learns from all answers.")
        saved, self._saved, self._place = self._saved, None, {}
        self._trainer = None
        if saved is not None and (known := self._resumed(preset, comparisons, told, *saved)):
            return known, False
        segments = comparisons.segments
        own = told or infer_spaces(segments.observations, segments.actions)
        self._trainer = self._fresh(preset, own)
        return self._trainer, True

    def _resumed(
        self,
        preset: RewardPreset,
        comparisons: Comparisons,
        told: Spaces | None,
        version: Version,
        folder: Path,
    ) -> RewardTrainer | None:
        """The trainer that was saved beside a version, if it suits settings and clips."""
        reward = version.reward
        own = (reward.observation_space, reward.action_space)
        if (told or own) == own and config_of(reward.model) == preset.model:
            trainer = self._fresh(preset, own)
            try:
                notes = load_trainer(folder, trainer, reward.model)
                queries = [int(query) for query in notes["queries"]]
            except (CheckpointError, LookupError, TypeError, ValueError) as error:
                LOGGER.warning("Fitting begins anew from all answers: %s", error)
                return None
            if self._suits(trainer, comparisons, told):
                self._trainer = trainer
                self._place = {query: place for place, query in enumerate(queries)}
                return trainer
        LOGGER.warning("The settings or clips have changed; a new model learns from all answers.")
        return None

    def _fresh(self, preset: RewardPreset, own: Spaces) -> RewardTrainer:
        model = build_reward_model(preset.model, *own, seed=self._config.seed)
        return RewardTrainer(
            model, preset.trainer, seed=self._config.seed, device=self._config.device
        )

    def _suits(self, trainer: RewardTrainer, comparisons: Comparisons, told: Spaces | None) -> bool:
        """Whether a model takes these clips; whole numbers may have outgrown what was inferred."""
        model, segments = trainer.model, comparisons.segments
        own = (model.observation_space, model.action_space)
        if told is not None and told != own:
            return False
        try:
            check_spaces(*own, segments.observations, segments.actions)
        except SpaceError:
            return False
        return not 1 < model.context < segments.length

    def _in_place(self, queries: IntArray, chosen: Any) -> IntArray:
        """Rows of the chosen queries, those that were seen before in the order of then."""
        rows = np.flatnonzero(chosen)
        for query in queries[rows].tolist():
            self._place.setdefault(query, len(self._place))
        places = np.array([self._place[query] for query in queries[rows].tolist()], np.int64)
        return np.asarray(rows[np.argsort(places, kind="stable")])

    def _scaled(
        self, trainer: RewardTrainer, likelihood: Likelihood, comparisons: Comparisons
    ) -> RewardFunction:
        pessimism = self._config.pessimism
        combine = lower_bound(pessimism) if pessimism else mean
        return RewardFunction(trainer.model, combine=combine, likelihood=likelihood).scaled(
            comparisons.segments.episodes(),
            target=self._config.reward_deviation,
            centre=self._config.centre,
        )


def _judged(trainer: RewardTrainer, likelihood: Likelihood, judging: Comparisons) -> dict[str, Any]:
    """Accuracy on held-out answers that are no ties, with its 95 % interval, if there are any."""
    decided = int(judging.decided.sum())
    found: dict[str, Any] = {"held_out": len(judging), "judged": decided}
    if not decided:
        return found
    loss, accuracy = trainer.evaluate(judging, likelihood)
    low, high = wilson_interval(accuracy * decided, decided)
    return found | {"accuracy": accuracy, "low": low, "high": high, "loss": _plain(loss)}


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
