"""What every reward model is: windows in, rewards per step and one score per segment out."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn


class RewardOutput(NamedTuple):
    """What a reward model says about windows.

    Attributes:
        rewards: `[E, B, L]` per step; the last may be paid to a policy.
        scores: `[E, B]` per segment; differences are preference logits.
    """

    rewards: Tensor
    scores: Tensor


class RewardModel(nn.Module, ABC):
    """Windows of observations and actions to rewards and scores, for every member at once.

    A single network is an ensemble of one: the member axis `E` is always present.

    Attributes:
        observation_space: what observations look like; checked when a policy is paid.
        action_space: what actions look like.
        context: `H`, how many steps a reward may see; 1 means Markovian.
        members: `E`.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    context: int = 1
    members: int = 1

    @abstractmethod
    def forward(self, observations: Any, actions: Tensor, mask: Tensor) -> RewardOutput:
        """Rewards and scores of windows.

        Args:
            observations: `[B, L, *obs]` tensor, or a dictionary of such.
            actions: `[B, L, *act]`
            mask: `[B, L]` true where a step is real; real steps come last. What stands where
                the mask is false must not matter.
        """

    @abstractmethod
    def pool(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """Scores `[E, B]` from step rewards `[E, B, L]` alone.

        A Markovian model's `forward` scores segments by exactly this, so each distinct step can
        be scored once however many segments share it. Models whose score is not a function of
        the step rewards have `context > 1` and are never asked.
        """

    def observe(self, observations: Any, actions: Tensor) -> None:
        """Set input statistics from all steps of a training set: `[T, *obs]` and `[T, *act]`.

        The trainer calls this once per fit with each distinct step once, so neither repeated
        epochs nor validation data nor queries can move them. Nothing by default.
        """

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device
