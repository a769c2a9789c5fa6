"""Answers of a run as its next fit gets them, by the preparations of its settings."""

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import torch

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.implied import with_implied
from preferl.errors import DataError
from preferl.feedback.preparations import FitContext
from preferl.online.configs import OnlineConfig
from preferl.printing import get_logger
from preferl.shapes import BoolArray, FloatArray, IntArray
from preferl.training.places import AnswerPlaces
from preferl.training.reward_function import RewardFunction
from preferl.training.reward_trainer import RewardTrainer
from preferl.training.trust import NOBODY, fit_trust

LOGGER = get_logger(__name__)


@final
class PreparedAnswers:
    """Applies the preparations of a run in their order, before each of its fits.

    Each query keeps its place in members' bootstraps from fit to fit, whichever answers go.
    """

    def __init__(
        self, config: OnlineConfig, trainer: RewardTrainer, rng: np.random.Generator
    ) -> None:
        self._config = config
        self._trainer = trainer
        self._rng = rng
        self._places = AnswerPlaces()

    def __call__(
        self,
        answers: Comparisons,
        queries: IntArray,
        reward: RewardFunction | None,
        experience: Episodes | None,
    ) -> tuple[Comparisons, IntArray]:
        """Answers to train on, and the place of each in the bootstrap, as `RewardTrainer.fit` has.

        Args:
            answers: that are not held out; declined ones go.
            queries: `[P]` numbers of their queries, which stay as other answers come and go.
            reward: of the last fit; None before the first.
            experience: recent episodes.

        Raises:
            DataError: a preparation that leaves out rows, in place of giving them weight 0.
        """
        config = self._config
        known = len(self._places)
        found = given = answers[answers.answered]
        places = self._places(queries[answers.answered])
        if not config.prepare or not len(given):
            return given, places
        trained = places
        if self._trainer.config.implied:  # members leave out all answers of linked clips, or none
            trained = places[with_implied(given)[1][: len(given)]]
        votes = self._trainer.bootstrap(len(self._places))[:, trained] == 0
        votes |= places >= known  # nobody has been trained on new ones
        votes |= ~votes.any(0)
        context = FitContext(
            *(reward, votes, experience, config.segment_length, config.short, self._rng),
            trust=self._trust(given, votes, reward),
        )
        for preparation in config.prepare:
            found = preparation(found, context)
            if not np.array_equal(found.pairs[: len(given)], given.pairs):
                raise DataError(
                    f"comparisons from {type(preparation).__name__}: expected the {len(given)} "
                    f"answers first, whatever their weight, got {len(found)} others."
                )
        more = len(found) - len(given)
        preference = found.preference[: len(given)]
        LOGGER.info(
            "Before the fit: %d of %d answers left out, %d turned round, %d pseudo-labels.",
            *(int((found.weight[: len(given)] == 0).sum()), len(given)),
            *(int((preference != given.preference).sum()), more),
        )
        return found, np.append(places, np.full(more, -1))

    def _trust(
        self, given: Comparisons, votes: BoolArray, reward: RewardFunction | None
    ) -> FloatArray:
        """`[P]` the trust in each answer's annotator, by what was answered and not yet prepared.

        The trainer's own numbers may be of answers that were turned round, and know nobody new.
        """
        trust = np.ones(len(given))
        annotator = given.annotator
        if reward is None or annotator is None or not self._trainer.config.trust:
            return trust
        if len(np.unique(annotator[annotator > NOBODY])) < 2:  # as `AnnotatorTrust` begins
            return trust
        logits = FitContext(reward).logits(given.segments, given.pairs)
        columns = logits, given.preference, np.broadcast_to(votes, logits.shape), annotator
        for one in fit_trust(*(torch.from_numpy(np.array(column)) for column in columns)):
            trust[annotator == one.annotator] = one.value
        return trust

    def snapshot(self) -> dict[str, Any]:
        """What later fits depend on, for `restore`."""
        return {"queries": self._places.queries, "rng": self._rng}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on as another run of the same settings would."""
        self._places = AnswerPlaces(snapshot["queries"])
        self._rng = snapshot["rng"]
