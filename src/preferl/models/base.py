"""Reward models: they map windows to a reward per step and a score per segment.

A step's reward is that of the window of up to `H` steps which ends at the step. Models that share
work between windows override `trace`. For other models, each window is computed by itself. Both
ways give the same numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from preferl.functional.preference import pool
from preferl.models.encoders import VectorEncoder
from preferl.models.spaces import Space
from preferl.shapes import BoolArray, IntArray, take

ROWS = 4096
"""Steps computed at once: enough to keep the processor busy, and few enough for its cache."""


class RewardOutput(NamedTuple):
    """Rewards `[E, B, L]` per step, and scores `[E, B]` per segment.

    A policy gets the last reward. Differences of scores are preference logits.
    """

    rewards: Tensor
    scores: Tensor


class RewardModel(nn.Module, ABC):
    """Maps windows of observations and actions to rewards and scores, for all members at once.

    Features of a training set are encoded once and gathered by index for each minibatch. A single
    network is an ensemble of one: the member axis `E` is always present.

    Attributes:
        encoder: module without parameters that maps observations `[..., *obs]` and actions `[...,
            *act]` to features `[..., F]`, or a dictionary of such tensors. It has both spaces, and
            a method `observe(observations, actions)`. Once per fit, the trainer passes all steps of
            the training set to this method; no other data change input statistics. Features of an
            encoder with `late = True`, such as pictures, are as large as the observations. They are
            therefore made for each minibatch, so that a training set may be larger than memory.
        observation_space: observation space of the encoder.
        action_space: action space of the encoder.
        context: `H`, the number of steps that a reward may see; 1 means Markovian.
        members: `E`, the number of members.
        config: settings from which `build_reward_model` makes a model of the same shape, for kinds
            in `preferl.registry.REWARD_MODELS`; None for other models, which cannot be saved.
        recordable: whether a GPU may replay fits as a recorded graph. This needs a `judge` that
            copies no number from the device and draws only from torch's global stream.
        fitted_pairs: `[P]` numbers of the pairs whose answers the model was fitted to or chosen by,
            in rising order; `preferl.data.content.pair_numbers` numbers them. The trainer sets
            this.
        frozen_encoder: content id of the `FrozenEncoder` whose features the model observes; empty
            for other observations. Whoever fits the model sets it.
    """

    config: Any = None
    recordable: bool = False

    def __init__(self, encoder: nn.Module, *, context: int, members: int) -> None:
        super().__init__()
        self.encoder = cast("Any", encoder)
        self.observation_space: Space = self.encoder.observation_space
        self.action_space: Space = self.encoder.action_space
        self.context = context
        self.members = members
        self.fitted_pairs: IntArray = np.zeros(0, np.int64)
        self.frozen_encoder = ""

    @abstractmethod
    def judge(self, features: Any, mask: Tensor) -> RewardOutput:
        """Compute rewards and scores of encoded windows.

        Args:
            features: `[B, L, F]`, or a dictionary of such tensors, as the encoder makes them.
            mask: `[B, L]` true where a step is real; real steps come last. Features where the
                mask is false must not matter.
        """

    def scores_where(self, features: Any, mask: Tensor, asked: Tensor) -> Tensor:  # noqa: ARG002 (contract)
        """Compute scores `[E, B]` like `judge`, where `asked` `[E, B]` is true.

        Where `asked` is false, a score may be any number. Override this method if members can skip
        these windows.
        """
        return self.judge(features, mask).scores

    @abstractmethod
    def pool(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """Compute scores `[E, B]`, as `judge` does, from step rewards `[E, B, L]` only.

        This is called only if `context == 1`. Steps that several segments share are then computed
        once.
        """

    def trace(self, features: Any, lengths: Tensor) -> Tensor:
        """Compute the reward of each step, `[E, T]`: the last reward of the window that ends there.

        Call it in evaluation mode. In training mode, each window would draw its own dropout.
        Override this method if whole episodes need less work than a window per step.

        Args:
            features: `[T, F]` of episodes end to end, or a dictionary of such tensors.
            lengths: `[K]` steps of each episode; windows never cross from one episode to the next.
        """
        return trace_windows(self, features, lengths, torch.arange(int(lengths.sum())))

    def last_rewards(self) -> "LastRewards":
        """Return a function that computes the rewards of last steps as `judge` does.

        The function is prepared once for the current weights. Override this method if the last step
        of windows needs less work than all steps.
        """
        return partial(_judge_last, self)

    def forward(self, observations: Any, actions: Tensor, mask: Tensor) -> RewardOutput:
        """Compute rewards and scores of windows `[B, L, ...]` with their mask `[B, L]`."""
        return self.judge(self.encoder(observations, actions), mask)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device


class ConfiguredReward(RewardModel):
    """A reward model with a config; if registered in `REWARD_MODELS`, it can be saved and served.

    A subclass implements `build` and `judge`. `defaults` makes the config if none is given. Spaces
    are Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these. Initial weights are drawn with
    `seed`.

    Raises:
        SpaceError: a space has no encoding.
    """

    defaults: Callable[[], Any]

    def __init__(
        self, observation_space: Space, action_space: Space, config: Any = None, *, seed: int
    ) -> None:
        config = type(self).defaults() if config is None else config
        sizes = {name: getattr(config, name, 1) for name in ("context", "members")}
        super().__init__(self.encode(observation_space, action_space, config), **sizes)
        self.config = config
        self.build(torch.Generator().manual_seed(seed))

    @staticmethod
    def encode(observations: Space, actions: Space, config: Any) -> nn.Module:
        """Make the encoder: a `VectorEncoder`, unless a class overrides this."""
        settings = {name: getattr(config, name, True) for name in ("normalise", "use_actions")}
        return VectorEncoder(observations, actions, **settings)

    @abstractmethod
    def build(self, generator: torch.Generator) -> None:
        """Make the networks for `encoder` and `config`, with weights from `generator`."""

    def pool(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """Pool rewards `[E, B, L]` to scores `[E, B]` by the config's `pooling` and `discount`."""
        pooling: Any = getattr(self.config, "pooling", "sum")
        if pooling == "last":
            return torch.where(mask[:, -1], rewards[..., -1], 0.0)
        return pool(rewards, mask, pooling, getattr(self.config, "discount", 1.0))


LastRewards = Callable[[Any, Any], Tensor]
"""Maps features `[B, H, F]` and mask `[B, H]` of windows to the last step's rewards `[E, B]`.

For models that look back, the mask is an array, since it decides what has to be computed."""


@torch.no_grad()
def _judge_last(model: RewardModel, features: Any, mask: BoolArray | Tensor) -> Tensor:
    real = mask if isinstance(mask, Tensor) else torch.tensor(mask, device=model.device)
    return model.judge(features, real).rewards[..., -1]


@torch.no_grad()
def trace_windows(model: RewardModel, features: Any, lengths: Tensor, steps: Tensor) -> Tensor:
    """Compute `trace` for rows `steps` `[B]` only, as `[E, B]`; each window by itself."""
    position = positions(lengths)
    back = torch.arange(1 - model.context, 1)
    parts = []
    for some in steps.split(max(1, ROWS // model.context)):
        mask = position[some, None] + back >= 0  # [B, H]
        rows = torch.where(mask, some[:, None] + back, some[:, None]).to(model.device)
        parts.append(_judge_last(model, take(features, rows), mask.numpy()))
    return torch.cat(parts, dim=1)


@torch.no_grad()
def trace_causal(
    model: RewardModel, features: Any, lengths: Tensor, span: int, late: Callable[..., Any] | None
) -> Tensor:
    """Compute `trace` with one pass over the first `H` steps of each episode.

    It is for causal models: if two windows begin together, a step has the same reward in both,
    however many steps follow. `late`, by default `trace_windows`, computes rewards, `[B]` or `[E,
    B]`, of full windows. It gets the steps `[B]` at which these end, which lie within `span` rows.
    """
    late = late or partial(trace_windows, model, features, lengths)
    rewards = torch.zeros(model.members, int(lengths.sum()), device=model.device)
    starts = lengths.cumsum(0) - lengths
    seen = lengths.clamp(max=model.context)
    for some in torch.arange(len(lengths)).split(max(1, ROWS // model.context)):
        longest = int(seen[some].max())
        ahead = torch.arange(longest) - (longest - seen[some, None])  # [k, longest]
        mask = (ahead >= 0).to(model.device)
        rows = (starts[some, None] + ahead.clamp(min=0)).to(model.device)
        rewards[:, rows[mask]] = model.judge(take(features, rows), mask).rewards[:, mask]
    for steps in full_windows(lengths, model.context, span):
        rewards[:, steps.to(model.device)] = late(steps)
    return rewards


def full_windows(lengths: Tensor, context: int, span: int) -> Iterator[Tensor]:
    """Yield the steps after the first `H` of their episode, in parts within `span` rows."""
    late = (positions(lengths) >= context).nonzero()[:, 0]
    _, counts = torch.unique_consecutive(late // span, return_counts=True)
    return iter(late.split(counts.tolist()))


def positions(lengths: Tensor) -> Tensor:
    """Count how many steps of its episode come before each step: `[T]`."""
    starts = lengths.cumsum(0) - lengths
    return torch.arange(int(lengths.sum())) - starts.repeat_interleave(lengths)
