"""What every reward model is: windows in, rewards per step and one score per segment out."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import torch
from gymnasium import spaces
from torch import Tensor, nn

from preferl.models.encoders import VectorEncoder
from preferl.shapes import BoolArray


class RewardOutput(NamedTuple):
    """What a reward model says about windows.

    Attributes:
        rewards: `[E, B, L]` per step; the last may be paid to a policy.
        scores: `[E, B]` per segment; differences are preference logits.
    """

    rewards: Tensor
    scores: Tensor


class Encoder(Protocol):
    """Observations and actions to features, without parameters; a `nn.Module` with buffers."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    def __call__(self, observations: Any, actions: Tensor) -> Any:
        """`[..., *obs]` and `[..., *act]` to features `[..., F]`, or a dictionary of such."""
        ...

    def observe(self, observations: Any, actions: Tensor) -> None:
        """Set input statistics from all steps of a training set, each step once.

        The trainer calls this once per fit, so neither repeated epochs nor validation data nor
        queries can move them.
        """
        ...


class RewardModel(nn.Module, ABC):
    """Windows of observations and actions to rewards and scores, for every member at once.

    A model is an encoder, which has no parameters, and a body that judges features. Features of
    a training set are made once and gathered by index for each minibatch. A single network is an
    ensemble of one: the member axis `E` is always present.

    Attributes:
        encoder: spaces, input statistics, and what a step becomes.
        context: `H`, how many steps a reward may see; 1 means Markovian.
        members: `E`.
        config: from which `build_reward_model` makes a model of the same shape, for kinds in
            `preferl.registry.REWARD_MODELS`; None for others, which are not saved.
    """

    config: Any = None

    def __init__(self, encoder: nn.Module, *, context: int, members: int) -> None:
        super().__init__()
        self.encoder = cast("Any", encoder)
        self.context = context
        self.members = members

    @abstractmethod
    def judge(self, features: Any, mask: Tensor) -> RewardOutput:
        """Rewards and scores of encoded windows.

        Args:
            features: `[B, L, F]`, or a dictionary of such, as the encoder makes them.
            mask: `[B, L]` true where a step is real; real steps come last. What stands where
                the mask is false must not matter.
        """

    @abstractmethod
    def pool(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """Scores `[E, B]` from step rewards `[E, B, L]` alone, as `judge` makes them.

        It lets each distinct step be scored once, however many segments share it. Only models
        with `context == 1` are asked.
        """

    def forward(self, observations: Any, actions: Tensor, mask: Tensor) -> RewardOutput:
        """Rewards and scores of windows `[B, L, ...]` with their mask `[B, L]`."""
        return self.judge(self.encoder(observations, actions), mask)

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """What observations look like."""
        return cast("spaces.Space[Any]", self.encoder.observation_space)

    @property
    def action_space(self) -> spaces.Space[Any]:
        """What actions look like."""
        return cast("spaces.Space[Any]", self.encoder.action_space)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


class ConfiguredReward(RewardModel):
    """A reward model that a config describes; registered in a table, it is saved and served.

    A subclass says which config is its default, builds its networks, judges and pools.

    Attributes:
        config: shape; the dataclass that is registered with the class.
        defaults: makes the config where none is given.
    """

    config: Any
    defaults: Callable[[], Any]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: Any = None,
        *,
        seed: int,
    ) -> None:
        """Build the networks.

        Args:
            observation_space: Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these.
            action_space: likewise.
            config: shape; the defaults if None.
            seed: of the initial weights.

        Raises:
            SpaceError: a space that has no encoding.
        """
        config = type(self).defaults() if config is None else config
        super().__init__(
            self.encode(observation_space, action_space, config),
            context=getattr(config, "context", 1),
            members=getattr(config, "members", 1),
        )
        self.config = config
        self.build(torch.Generator().manual_seed(seed))

    @staticmethod
    def encode(
        observations: spaces.Space[Any], actions: spaces.Space[Any], config: Any
    ) -> nn.Module:
        """What steps become; features of any common space as numbers, unless a class says else."""
        return VectorEncoder(
            observations,
            actions,
            normalise=getattr(config, "normalise", True),
            use_actions=getattr(config, "use_actions", True),
        )

    @abstractmethod
    def build(self, generator: torch.Generator) -> None:
        """Make the networks for `encoder` and `config`, with weights from `generator`."""


@runtime_checkable
class EncodesLate(Protocol):
    """An encoder without statistics, whose features are as large as what they are made of.

    They are made for each minibatch when it is gathered, so that a training set of pictures may
    be larger than memory.

    Attributes:
        late: says so.
    """

    late: Literal[True]


@runtime_checkable
class TracesEpisodes(Protocol):
    """A reward model that pays whole episodes with less work than a window per step."""

    def trace(self, features: Any, lengths: Tensor) -> Tensor:
        """Rewards of the last step of the window that ends at each step, `[E, T]`.

        Args:
            features: `[T, F]` of episodes end to end, or a dictionary of such.
            lengths: `[K]` steps of each episode; windows never cross from one to the next.
        """
        ...


LastRewards = Callable[[Any, BoolArray], Tensor]
"""Features `[B, H, F]` of windows and their mask `[B, H]` to the last step's rewards `[E, B]`.

The mask is an array, since what is to be computed depends on it."""


@runtime_checkable
class JudgesLast(Protocol):
    """A reward model that judges the last step of windows with less work than all steps."""

    def last_rewards(self) -> LastRewards:
        """Prepared once for weights as they are now; it gives what `judge` does."""
        ...


def last_rewards(model: RewardModel) -> LastRewards:
    """What a policy is paid by a model whose weights no longer change."""
    return model.last_rewards() if isinstance(model, JudgesLast) else partial(_judged, model)


@torch.no_grad()
def _judged(model: RewardModel, features: Any, mask: BoolArray) -> Tensor:
    seen = torch.tensor(mask, device=model.device)
    return model.judge(features, seen).rewards[..., -1]
