"""Rewards of steps that are tensors, computed on the tensors' device."""

from typing import Any, cast, final

import torch
from torch import Tensor

from preferl.errors import DataError, ModelError
from preferl.models.spaces import check_spaces
from preferl.shapes import map_observations
from preferl.training.reward_function import RewardFunction


@final
class TensorRewards:
    """The learned reward of each step of `V` environments that step on a device.

    Simulators such as Isaac Lab, MJX or Brax keep thousands of environments on a GPU. Steps and
    rewards are tensors, and nothing is copied to the host. A reward that looks back gets the last
    `H` steps of each episode, which are kept on the device.

    Args:
        reward: a reward on the device of the tensors: `load_reward(folder, device="cuda")`.

    Raises:
        ModelError: the reward does not compute with tensors. A reward model alone does not.

    >>> from gymnasium.spaces import Box
    >>> from preferl.models import MLPReward
    >>> model = MLPReward(Box(-1, 1, (3,)), Box(-1, 1, (1,)), seed=0)
    >>> rewards = TensorRewards(RewardFunction(model))
    >>> rewards(torch.zeros(4096, 3), torch.zeros(4096, 1)).shape
    torch.Size([4096])
    """

    def __init__(self, reward: RewardFunction) -> None:
        _require_reward_function(reward)
        self.reward = reward
        self._observations: Any = None  # `[V, H, *obs]`, the current step last
        self._actions = self._mask = torch.zeros(0, 0)

    def set_reward(self, reward: RewardFunction) -> None:
        """Use `reward` from the next step on. If its context differs, its history begins there."""
        _require_reward_function(reward)
        if reward.context != self.reward.context:
            self._observations = None
        self.reward = reward

    def __call__(self, observations: Any, actions: Tensor, begins: Tensor | None = None) -> Tensor:
        """Compute the rewards of taking `actions` where environments are now.

        Args:
            observations: `[V, *obs]` before the step, or a dictionary of such tensors.
            actions: `[V, *act]`
            begins: `[V]` true where this is the first step of an episode. None means that no
                episode begins; at the first call, all begin.

        Returns:
            `[V]` float32 on the device.

        Raises:
            DataError: the number of environments differs from that of the last call.
            SpaceError: steps have another shape than the reward was made for.
        """
        if self._observations is None:
            self._begin(observations, actions)
        if len(actions) != len(self._mask):
            raise DataError(
                f"steps: expected {len(self._mask)} environments, as before, got {len(actions)}. "
                "Make one TensorRewards for each number."
            )
        if self.reward.context > 1:
            return self.reward.of_tensors(*self._windows(observations, actions, begins))
        windows = map_observations(lambda o: o[:, None], observations)
        return self.reward.of_tensors(windows, actions[:, None], self._mask)

    @torch.inference_mode()
    def _windows(self, observations: Any, actions: Tensor, begins: Tensor | None) -> Any:
        """Return the last steps of each episode up to the current one, and which are real."""
        if begins is not None:
            self._mask &= ~begins[:, None]
        self._observations = map_observations(_appended, self._observations, observations)
        self._actions = _appended(self._actions, actions)
        self._mask = _appended(self._mask, torch.ones_like(self._mask[:, 0]))
        return self._observations, self._actions, self._mask

    @torch.inference_mode()
    def _begin(self, observations: Any, actions: Tensor) -> None:
        """Allocate the history that the reward sees, without a real step."""
        count = len(actions)
        context = self.reward.context
        spaces = self.reward.observation_space, self.reward.action_space
        check_spaces(*spaces, observations, cast("Any", actions), what="environments")
        if actions.device != self.reward.device:
            raise DataError(
                f"steps: expected tensors on {self.reward.device}, the reward's device, got "
                f"{actions.device}. Move the reward or the tensors."
            )

        def room(steps: Tensor) -> Tensor:
            return steps.new_zeros((count, context, *steps.shape[1:]))

        self._observations = map_observations(room, observations)
        self._actions = room(actions)
        self._mask = torch.full((count, context), context == 1, device=actions.device)


def _appended(kept: Tensor, step: Tensor) -> Tensor:
    """Drop the oldest of the kept steps `[V, H, ...]`, and append the current one `[V, ...]`."""
    return torch.cat([kept[:, 1:], step[:, None].to(kept.dtype)], dim=1)


def _require_reward_function(reward: object) -> None:
    if not isinstance(reward, RewardFunction):
        raise ModelError(
            f"reward: expected a RewardFunction, got {type(reward).__name__}. For a reward model, "
            "pass `RewardFunction(model)`."
        )
