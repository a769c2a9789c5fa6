"""Answers on a device, and minibatches of pairs for agents that learn without a reward."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.implied import with_implied
from preferl.errors import DataError
from preferl.offline.learner import OfflineLearner, Settings
from preferl.offline.transitions import (
    WIDEST,
    ActionScale,
    Batch,
    Minibatches,
    drawn_rows,
    flat_observations,
)
from preferl.shapes import Array, FloatArray
from preferl.training.batches import to_tensor


class PairBatch(NamedTuple):
    """A minibatch of `B` pairs of segments of `L` steps for each of `S` agents."""

    states: Tensor  # `[S, B * 2 * L, O]`
    following: Tensor  # `[S, B * 2 * L, O]` what came next within the segment
    actions: Tensor  # `[S, B * 2 * L, A]` in [-1, 1]
    mask: Tensor  # `[S, B, 2, L]` true where a step is real
    followed: Tensor  # `[S, B, 2, L]` true where what came next is known: not at the last step
    preference: Tensor  # `[S, B]`
    weight: Tensor  # `[S, B]` 1 in the mean over all answers of an agent

    def accuracy(self, first_leads: Tensor) -> Tensor:
        """Share of the decided answers, `[S]`, whose preferred segment leads, `[S, B]`."""
        right = first_leads == (self.preference > 0.5)
        decided = self.preference != 0.5
        return (right & decided).sum(1) / decided.sum(1)


@final
class PairBatches:
    """Draws uniform minibatches of answers with replacement, separately for each agent.

    As in `Minibatches`, an agent's minibatch depends only on its seed and the update. Weights are
    divided by their mean. Without this, a regulariser beside the loss of the answers would count
    more if answers have small weights, as implied ones have.

    Args:
        comparisons: answers and their segments; declined answers are left out.
        preferences: `[S, P]` each agent's own preferences, NaN where it has no answer; None takes
            the preferences of the comparisons.
        scale: scale of actions.
        seeds: seeds of the agents.
        size: `B`, number of pairs per minibatch.
        device: device on which agents learn.
        implied: whether each agent also learns from the answers that follow from its own.

    Raises:
        DataError: there are no answers, or preferences have another shape.
    """

    def __init__(
        self,
        comparisons: Comparisons,
        preferences: FloatArray | None,
        scale: ActionScale,
        seeds: tuple[int, ...],
        *,
        size: int,
        device: torch.device,
        implied: bool = False,
    ) -> None:
        answers = _answers_of_agents(comparisons, preferences, len(seeds))
        if implied:
            answers = [with_implied(given)[0] for given in answers]
        segments = comparisons.segments
        self._states = to_tensor(flat_observations(segments.observations), device)
        actions = np.asarray(segments.actions).reshape(segments.steps, -1)
        self._actions = scale.inward(to_tensor(actions, device)).clamp(-WIDEST, WIDEST)
        self._rows = to_tensor(segments.rows(), device)  # [N, L]
        self._mask = to_tensor(segments.mask(), device)
        self._pairs = _padded([given.pairs for given in answers], device)  # [S, P, 2]
        self._preference = _padded([given.preference for given in answers], device)  # [S, P]
        self._weight = _padded([_relative(given.weight) for given in answers], device)
        self._counts = [len(given) for given in answers]
        self._seeds = seeds
        self._size = size
        self._agents = torch.arange(len(seeds), device=device)[:, None]
        self._generator = torch.Generator(device)

    def __call__(self, update: int) -> PairBatch:
        """Return the minibatches of one update."""
        pick = self._agents, self._drawn(update)
        pairs = self._pairs[pick]  # [S, B, 2]
        rows = self._rows[pairs]  # [S, B, 2, L]
        mask = self._mask[pairs]
        followed = mask.clone()
        followed[..., -1] = False
        flat = rows.flatten(1)
        after = (rows + followed).flatten(1)
        return PairBatch(
            self._states[flat],
            self._states[after],
            self._actions[flat],
            mask,
            followed,
            self._preference[pick],
            self._weight[pick],
        )

    def _drawn(self, update: int) -> Tensor:
        """Draw row numbers `[S, B]` of answers, each below the agent's number of answers."""
        drawn = (
            drawn_rows((seed,), update, count, (self._size,), self._generator, stream=1)[0]
            for seed, count in zip(self._seeds, self._counts, strict=True)
        )
        return torch.cat(list(drawn))


def _answers_of_agents(
    comparisons: Comparisons, preferences: FloatArray | None, agents: int
) -> list[Comparisons]:
    """Return the answers of each agent, by `preferences` `[S, P]` if these are given."""
    if preferences is None:
        preferences = np.tile(comparisons.preference, (agents, 1))
    if preferences.shape != (agents, len(comparisons)):
        raise DataError(
            f"preferences of agents: expected shape [{agents}, {len(comparisons)}], got "
            f"{preferences.shape}."
        )
    answered = comparisons.answered & ~np.isnan(preferences)  # [S, P]
    if not answered.any(1).all():
        raise DataError(
            "answers: expected at least one for each agent, got none for some. Ask queries first, "
            "or check the label files."
        )
    return [
        replace(comparisons, preference=row)[rows]
        for row, rows in zip(preferences, answered, strict=True)
    ]


def _padded(columns: list[Array], device: torch.device) -> Tensor:
    """Pad columns of several agents to `[S, P, ...]`, as their numbers of answers may differ."""
    return pad_sequence([to_tensor(column, device) for column in columns], batch_first=True)


def _relative(weight: FloatArray) -> FloatArray:
    """Return weights in multiples of their mean."""
    return weight / (weight.mean() or 1.0)


class AnswerLearner(OfflineLearner[Settings]):
    """Agents that learn from answers to queries, without a reward model."""

    _pairs: PairBatches

    def learn(
        self,
        episodes: Episodes,
        rewards: FloatArray | None,
        state: Path,
        *,
        comparisons: Comparisons | None = None,
        implied: bool = False,
        **how: Any,
    ) -> None:
        """Learn as in `OfflineLearner.learn`, but from answers.

        For `comparisons` and preferences `[S, P]`, which replace rewards, see `set_answers`.

        Raises:
            DataError: there are no comparisons.
        """
        if comparisons is None:
            raise DataError(
                "answers to learn from: expected comparisons, got none. Pass comparisons=."
            )
        self.set_answers(comparisons, rewards, implied=implied)
        super().learn(episodes, None, state, **how)

    def set_answers(
        self,
        comparisons: Comparisons,
        preferences: FloatArray | None = None,
        *,
        implied: bool = False,
    ) -> None:
        """Set the answers to learn from; raise the same errors as `PairBatches`.

        Preferences `[S, P]` are each agent's own, NaN where it has no answer; None takes those of
        the comparisons. If `implied`, each agent also learns from the answers that follow from its
        own.
        """
        self._pairs = PairBatches(
            comparisons,
            preferences,
            self._scale,
            self.seeds,
            size=self.config.pairs,  # type: ignore[attr-defined]
            device=self.device,
            implied=implied,
        )

    def _batch(self, minibatches: Minibatches) -> Batch:
        return super()._batch(minibatches)._replace(compared=self._pairs(self.step))
