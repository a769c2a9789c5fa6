"""Answers of a run as its next fit gets them, by the preparations of its settings."""

import logging
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.errors import DataError
from preferl.feedback.preparations import FitContext
from preferl.online.configs import OnlineConfig
from preferl.shapes import IntArray
from preferl.training.reward_function import RewardFunction
from preferl.training.reward_trainer import RewardTrainer

LOGGER = logging.getLogger(__name__)


@final
class PreparedAnswers:
    """Applies the preparations of a run in their order, before each of its fits."""

    def __init__(
        self, config: OnlineConfig, trainer: RewardTrainer, rng: np.random.Generator
    ) -> None:
        self._config, self._trainer, self._rng = config, trainer, rng
        self._known = 0  # answers of the last fit

    def __call__(
        self, answers: Comparisons, reward: RewardFunction | None, experience: Episodes | None
    ) -> tuple[Comparisons, IntArray | None]:
        """Answers to train on, and the place of each in the bootstrap, as `RewardTrainer.fit` has.

        Raises:
            DataError: a preparation that leaves out rows, in place of giving them weight 0.
        """
        config = self._config
        if not config.prepare or not answers.answered.any():
            return answers, None
        found = given = answers[answers.answered]
        votes = self._trainer.bootstrap(len(given)) == 0
        votes[:, self._known :] = True
        votes |= ~votes.any(0)
        self._known = len(given)
        for preparation in config.prepare:
            found = preparation(
                found,
                FitContext(
                    reward, votes, experience, config.segment_length, config.short, self._rng
                ),
            )
            expected = f"the {len(given)} answers first, whatever their weight"
            what = f"comparisons from {type(preparation).__name__}"
            same = np.array_equal(found.pairs[: len(given)], given.pairs)
            DataError.check(same, what, expected, f"{len(found)} others")
        row, preference = np.arange(len(found)), found.preference[: len(given)]
        LOGGER.info(
            "Before the fit: %d of %d answers left out, %d turned round, %d pseudo-labels.",
            *(int((found.weight[: len(given)] == 0).sum()), len(given)),
            *(int((preference != given.preference).sum()), len(found) - len(given)),
        )
        return found, np.where(row < len(given), row, -1)

    def snapshot(self) -> dict[str, Any]:
        """What later fits depend on, for `restore`."""
        return {"known": self._known, "rng": self._rng}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on as another run of the same settings would."""
        self._known, self._rng = int(snapshot["known"]), snapshot["rng"]
