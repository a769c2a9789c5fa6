"""A reward that is fitted again and again as answers arrive, even if its program restarts."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from gymnasium import spaces

from preferl.configs import plain
from preferl.data.comparisons import Comparisons
from preferl.data.validation import TRAIN, UNUSED, VALIDATION
from preferl.errors import CheckpointError, DataError, DivergenceError, SpaceError
from preferl.models.base import RewardModel
from preferl.models.build import build_reward_model, config_of
from preferl.models.spaces import check_spaces, infer_spaces
from preferl.online.service.service_config import ServiceConfig
from preferl.printing import get_logger
from preferl.shapes import IntArray
from preferl.store.feedback import Answered
from preferl.store.status import FitMetrics
from preferl.training.annotator_trust import trust_by_name
from preferl.training.fit_report import FitReport, Validation
from preferl.training.places import AnswerPlaces
from preferl.training.reward_function import RewardFunction, agent_reward
from preferl.training.reward_presets import RewardPreset
from preferl.training.reward_trainer import RewardTrainer, load_trainer, save_trainer

LOGGER = get_logger(__name__)

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]

Fitted = tuple[RewardFunction, FitMetrics]


@final
class OngoingFit:
    """Fits a reward to all answers so far. Each fit starts from where the last one ended.

    Each training answer keeps its column of the bootstrap (`AnswerPlaces`), so that every member of
    an ensemble keeps its own resample. The validation set is used neither for training nor for
    choosing an epoch. An exception in `on_epoch` ends a fit.
    """

    def __init__(self, config: ServiceConfig, on_epoch: Callable[[], None]) -> None:
        self._config = config
        self._on_epoch = on_epoch
        self._trainer: RewardTrainer | None = None
        # the last one published, and its folder
        self.saved: tuple[RewardFunction, Path] | None = None
        self._places = AnswerPlaces()  # places of training queries

    def save(self, folder: Path) -> None:
        """Write the trainer's state beside the published reward of the last fit."""
        if self._trainer is not None:
            save_trainer(folder, self._trainer, {"queries": self._places.queries.tolist()})

    def fit(self, answered: Answered, split: IntArray, agent: Spaces | None) -> Fitted:
        """Fit to all answers, validate and scale.

        `split [P]` is that of `validation_split`. If `agent` is None, the agent's spaces are
        inferred. If a fit diverges, `DataError` or `DivergenceError` is raised, and the next fit
        starts from a new model.
        """
        config = self._config
        comparisons = answered.comparisons
        length = config.context or comparisons.segments.length
        preset = config.reward.preset(length=length, answers=len(comparisons))
        trainer, is_first = self._trainer_for(preset, comparisons, agent)
        train = comparisons[split == TRAIN]
        places = self._places(answered.queries[split == TRAIN])
        epochs = preset.trainer.epochs
        if config.reward.epochs is None and config.reward.budget is None:
            epochs = min(epochs, 50)  # `ServiceConfig.reward` promises this
        epochs = max(epochs, config.initial_epochs) if is_first else epochs
        try:
            report = trainer.fit(
                train, places=places, epochs=epochs, on_epoch=lambda *_: self._on_epoch()
            )
            reward = agent_reward(
                trainer.model,
                report.likelihood,
                comparisons.segments.episodes(),
                pessimism=config.pessimism,
                deviation=config.reward_deviation,
                centre=config.centre,
            )
        except (DataError, DivergenceError):
            self._trainer = None
            raise
        held_out = trainer.validate(comparisons[split == VALIDATION], report.likelihood)
        return reward, _metrics(answered, split, report, held_out)

    def _trainer_for(
        self, preset: RewardPreset, comparisons: Comparisons, agent: Spaces | None
    ) -> tuple[RewardTrainer, bool]:
        """Return a trainer for these clips, and whether it is untrained."""
        self._trainer = self._trainer or self._resumed(preset)
        if self._trainer is not None:
            if _suits(self._trainer, comparisons, agent):
                return self._trainer, False
            LOGGER.warning("New clips do not fit the model; a new model learns from all answers.")
        segments = comparisons.segments
        spaces_of_trainer = agent or infer_spaces(segments.observations, segments.actions)
        self._trainer = self._new_trainer(preset, spaces_of_trainer)
        self._places = AnswerPlaces()
        return self._trainer, True

    def _resumed(self, preset: RewardPreset) -> RewardTrainer | None:
        """Load the trainer saved beside a reward; return None if the settings have changed."""
        if self.saved is None:
            return None
        reward, folder = self.saved
        self.saved = None
        if config_of(reward.model) != preset.model:
            LOGGER.warning("The settings have changed; a new model learns from all answers.")
            return None
        trainer = self._new_trainer(preset, spaces_of(reward))
        try:
            self._places = AnswerPlaces(load_trainer(folder, trainer, reward.model)["queries"])
        except (CheckpointError, LookupError, OverflowError, TypeError, ValueError) as error:
            LOGGER.warning("A new model learns from all answers: %s", error)
            return None
        return trainer

    def _new_trainer(self, preset: RewardPreset, trainer_spaces: Spaces) -> RewardTrainer:
        config = self._config
        model = build_reward_model(preset.model, *trainer_spaces, seed=config.seed)
        return RewardTrainer(model, preset.trainer, seed=config.seed, device=config.device)


def spaces_of(learned: RewardFunction | RewardModel) -> Spaces:
    """Return the spaces of observations and of actions."""
    return learned.observation_space, learned.action_space


def _suits(trainer: RewardTrainer, comparisons: Comparisons, agent: Spaces | None) -> bool:
    """Whether the trainer's model takes these clips and has the agent's spaces."""
    model = trainer.model
    segments = comparisons.segments
    model_spaces = spaces_of(model)
    if agent is not None and agent != model_spaces:
        return False
    with suppress(SpaceError):
        check_spaces(*model_spaces, segments.observations, segments.actions)
        return not 1 < model.context < segments.length
    return False


def _metrics(
    answered: Answered, split: IntArray, report: FitReport, held_out: Validation
) -> FitMetrics:
    """Gather the numbers of a fit that are published with its reward."""
    low, high = held_out.interval or (None, None)
    numbers = {
        "answers": len(answered.comparisons),
        "trained_on": (split == TRAIN).sum(),
        "left_out": (split == UNUSED).sum(),
        "train_accuracy": report.train_accuracy[-1],
        "train_loss": report.train_loss[-1],
        "epochs": report.epochs,
        "seconds": round(report.seconds, 3),
        **vars(report.likelihood),
        "held_out": held_out.answers,
        "decided": held_out.decided,
        "accuracy": held_out.accuracy,
        "low": low,
        "high": high,
        "loss": held_out.loss,
        "trust": trust_by_name(report.trust, answered.names),
    }
    return FitMetrics(**plain(numbers))
