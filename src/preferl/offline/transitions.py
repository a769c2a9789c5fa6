"""Recorded steps on a device, and the minibatches that agents draw from them there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, final

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import DTypeLike
from torch import Tensor

from preferl.data.episodes import Episodes
from preferl.errors import DataError, SpaceError
from preferl.shapes import Array, FloatArray, Observations

WIDEST = 1 - 1e-5  # agents learn actions up to this size, which a tanh can reach, as in D4RL
BLOCK = 32  # minibatches drawn at once; this needs few calls, and the block fits into a cache


@final
@dataclass(frozen=True, eq=False)
class Transitions:
    """Single steps and the observations after them, float32 on one device.

    Attributes:
        observations: `[T, O]`
        actions: `[T, A]` as recorded.
        rewards: `[T]`, or `[S, T]` with a row for each agent.
        next_observations: `[T, O]`
        continues: `[T]` 0 where the episode terminated, else 1. At a time limit it is 1, since the
            value of the next state is not 0 there.

    Raises:
        DataError: the shapes do not agree.
    """

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    next_observations: Tensor
    continues: Tensor

    def __post_init__(self) -> None:
        steps = len(self.observations)
        for name in ("actions", "next_observations", "continues"):
            column = getattr(self, name)
            if len(column) != steps:
                raise DataError(f"Transitions.{name}: expected {steps} rows, got {len(column)}.")
        shape = list(self.rewards.shape)
        if len(shape) not in (1, 2) or shape[-1] != steps:
            raise DataError(
                f"Transitions.rewards: expected shape [{steps}], or [agents, {steps}], got {shape}."
            )
        if not steps:
            raise DataError("Transitions: expected at least one step, got none.")

    @classmethod
    def of(
        cls,
        episodes: Episodes,
        *,
        rewards: FloatArray | None = None,
        device: torch.device | str = "cpu",
    ) -> Self:
        """Return the steps of episodes, including their last ones, on the device of the agents.

        Dictionaries of observations are joined in the order of their keys. If `rewards` is None,
        the rewards are those of the episodes.

        Raises:
            DataError: rewards have another length or are not finite, or actions are not floats.
        """
        kind = episodes.actions.dtype
        if kind.kind != "f":
            raise DataError(f"actions of offline learning: expected floats, got {kind}.")
        rewards = np.asarray(episodes.rewards if rewards is None else rewards)
        if not np.isfinite(rewards).all():
            raise DataError("rewards: expected finite numbers, got NaN or infinity.")
        arrays = (
            flat_observations(episodes.observations),
            episodes.actions.reshape(len(episodes.actions), -1),
            rewards,
            flat_observations(episodes.next_observations),
            ~episodes.terminated,
        )
        copies = (np.array(array, np.float32, order="C") for array in arrays)
        return cls(*(torch.from_numpy(array).to(device) for array in copies))

    def __len__(self) -> int:
        return len(self.observations)


def flat_observations(observations: Observations, dtype: DTypeLike = np.float32) -> Array:
    """Return observations `[T, *obs]` as numbers `[T, O]`; a dictionary's arrays are joined by key.

    Use float64 before subtracting a mean: in float32, clocks and coordinates lose the part that
    varies.

    >>> flat_observations({"b": np.ones((2, 1)), "a": np.zeros((2, 1, 2))}).tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    """
    parts = [np.asarray(part, dtype) for _, part in sorted(_leaves(observations))]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _leaves(observations: Any, name: str = "") -> Iterator[tuple[str, Array]]:
    """Yield arrays and their keys; nested keys are joined by `/`."""
    if not isinstance(observations, Mapping):
        yield name, observations
        return
    for key, part in observations.items():
        yield from _leaves(part, f"{name}/{key}" if name else key)


def observation_size(space: spaces.Space[Any]) -> int:
    """Return `O`, how many numbers an observation has."""
    match space:
        case spaces.Box() if space.dtype != np.uint8:
            return int(np.prod(space.shape))
        case spaces.Dict():
            return sum(observation_size(part) for part in space.values())
    raise SpaceError(
        "observations of offline learning: expected a Box of floats, or a Dict of these, got "
        f"{space}. Turn them into features with a gymnasium wrapper."
    )


@final
@dataclass(frozen=True, eq=False)
class ActionScale:
    """Maps a box of actions to and from [-1, 1], the range of a tanh; unbounded ones do not change.

    >>> scale = ActionScale.of(spaces.Box(0, 4, (1,)))
    >>> scale.inward(torch.tensor([[4.0]])).tolist(), scale.outward(torch.tensor([[-1.0]])).tolist()
    ([[1.0]], [[0.0]])
    """

    centre: Tensor  # `[A]`
    half: Tensor  # `[A]` half the width of the box
    bounded: Tensor  # `[A]` whether the box limits this number of an action

    @classmethod
    def of(cls, space: spaces.Space[Any], device: torch.device | str = "cpu") -> Self:
        """Make the scale of an action space."""
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            raise SpaceError(
                f"actions of offline learning: expected a Box of floats, got {space}. Choose a "
                "learner for discrete actions."
            )
        bounded = space.bounded_below & space.bounded_above
        low = np.where(bounded, space.low, -1).ravel().astype(np.float64)
        high = np.where(bounded, space.high, 1).ravel().astype(np.float64)
        centre = (high + low) / 2
        half = (high - low) / 2
        half[half == 0] = 1  # this number of an action cannot change
        columns = (centre.astype(np.float32), half.astype(np.float32), bounded.ravel())
        return cls(*(torch.tensor(column, device=device) for column in columns))

    def beyond(self, actions: Tensor) -> float:
        """Return the largest number in unbounded places of actions, or 0 if a tanh reaches it."""
        sizes = actions[..., ~self.bounded].abs()
        widest = sizes.max().item() if sizes.numel() else 0.0
        return widest if widest > 1 else 0.0

    def inward(self, actions: Tensor) -> Tensor:
        """Map actions `[..., A]` of the space to [-1, 1]."""
        return (actions - self.centre) / self.half

    def outward(self, actions: Tensor) -> Tensor:
        """Map actions `[..., A]` in [-1, 1] to the space."""
        return actions * self.half + self.centre


class Batch(NamedTuple):
    """A minibatch for each agent, in the layout in which it is used."""

    states: Tensor  # `[S, 2, B, O]` observations, and the next observations
    pairs: Tensor  # `[2, S, B, O + A]` observations and actions, for each of two critics
    actions: Tensor  # `[S, A, B]` in [-1, 1]
    rewards: Tensor  # `[S, B]`
    continues: Tensor  # `[S, B]`
    dropout_seeds: Sequence[int]  # `[S]` one per agent, for the dropout of an update
    factors: tuple[Tensor, ...] | None = None  # `[S, rows, units]` dropout's factors for each layer
    compared: Any = None  # a `PairBatch`, for agents that learn from answers


@final
class Minibatches:
    """Draws uniform minibatches with replacement, separately for each agent.

    An agent's minibatch depends only on its seed and the number of the update. Other agents or
    interruptions do not change it, and there is no random state to save.
    """

    def __init__(
        self, data: Transitions, scale: ActionScale, seeds: Sequence[int], batch_size: int
    ) -> None:
        """Store each step as a row, which is one block of memory to copy."""
        actions = scale.inward(data.actions).clamp(-WIDEST, WIDEST)
        # Numbers that are used together are stored together, in the order of their use.
        self._states = torch.cat([data.observations, data.next_observations])  # [2 T, O]
        self._pairs = torch.cat([data.observations, actions], dim=1)
        self._actions = actions
        self._continues = data.continues
        self._rewards = data.rewards.expand(len(seeds), len(data))
        self._seeds = seeds
        self._batch_size = batch_size
        self._generator = torch.Generator(data.rewards.device)
        self._block = -1

    def __call__(self, update: int) -> Batch:
        """Return the minibatches of one update; they are valid until the next call."""
        block, row = divmod(update, BLOCK)
        if block != self._block:
            self._draw(block)
        return Batch(*(part[row] for part in self._drawn))

    def _draw(self, block: int) -> None:
        """Draw and gather a block: `[BLOCK, S, B, ...]`."""
        steps = len(self._actions)
        shape = (BLOCK, self._batch_size)
        rows, dropout = drawn_rows(self._seeds, block, steps, shape, self._generator)
        rows = rows.transpose(0, 1)  # [BLOCK, S, B]
        self._drawn: tuple[Any, ...] = (
            _gathered(self._states, torch.stack([rows, rows + steps], dim=2)),
            _gathered(self._pairs, torch.stack([rows, rows], dim=1)),
            _gathered(self._actions, rows).mT.contiguous(),
            self._rewards.expand(len(rows), -1, -1).gather(2, rows),
            self._continues[rows],
            list(zip(*dropout, strict=True)),
        )
        self._block = block


def drawn_rows(
    seeds: Sequence[int],
    number: int,
    rows: int,
    shape: tuple[int, ...],
    generator: torch.Generator,
    *,
    stream: int = 0,
) -> tuple[Tensor, list[list[int]]]:
    """Draw uniform row numbers `[S, *shape]` below `rows`, and seeds `[S, BLOCK]` for other draws.

    Both depend only on each agent's seed, the number of the draw, and the stream.
    """
    rows_drawn = []
    other_rows = []
    for seed in seeds:
        entropy = [seed, number, stream] if stream else [seed, number]
        words = np.random.SeedSequence(entropy).generate_state(BLOCK + 1, np.uint64)
        first, *more_words = (int(word >> np.uint64(1)) for word in words)
        generator.manual_seed(first)
        rows_drawn.append(torch.randint(rows, shape, generator=generator, device=generator.device))
        other_rows.append(more_words)
    return torch.stack(rows_drawn), other_rows


def _gathered(source: Tensor, rows: Tensor) -> Tensor:
    """Gather rows `[...]` of a source `[R, D]` as `[..., D]`."""
    return source.index_select(0, rows.flatten()).view(*rows.shape, -1)
