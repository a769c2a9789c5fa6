"""Windows of recorded steps, with returns-to-go, for a Decision Transformer (Chen et al. 2021).

Numbers that depend only on the data are computed once, for all steps. A minibatch is then one
gather per array.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Any, Final, Self, final

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from preferl.data.episodes import Episodes
from preferl.data.on_disk import concatenate_rows
from preferl.errors import ConfigError, DataError, SpaceError, require_in
from preferl.offline.learner_configs import parsed_target
from preferl.offline.transitions import ActionScale, flat_observations
from preferl.shapes import Array, BoolArray, FloatArray, IntArray

PADDED_ACTION: Final = -10.0  # action of padding, as in the reference; outside every box
MOST_STEPS: Final = 2**53  # floats count steps exactly up to this number
QUANTILES: Final = 101  # number of quantiles of recorded returns: one per hundredth
DRAWN: Final = 65_536  # samples per generator; a sample is found by its block and its place in it


def returns_to_go(rewards: FloatArray, lengths: IntArray, discount: float = 1.0) -> FloatArray:
    """Sum rewards `[T]` from each step to the end of its episode, `[T]` in double precision.

    All `[K]` episodes are summed at once. Sums of 1, 2, 4, ... steps are added up, so the number of
    passes over the data is the number of bits in the longest episode's length.

    >>> returns_to_go(np.array([1.0, 2, 3, 4, 5]), np.array([3, 2]), 0.5).tolist()
    [2.75, 3.5, 3.0, 6.5, 5.0]
    """
    require_in("discount", discount, 0, 1)
    sums = np.array(rewards, np.float64)
    left = _steps_left(lengths)
    summed = 1
    longest = int(lengths.max(initial=0))
    while summed < longest:
        more = np.flatnonzero(left > summed)
        sums[more] += discount**summed * sums[more + summed]
        summed *= 2
    return sums


@final
@dataclass(frozen=True, eq=False)
class InputStatistics:
    """Statistics and limits from which a policy's inputs are made.

    With other ones it acts wrongly.
    """

    context: int  # `H`, steps of history of a policy
    horizon: int  # number of timesteps that have an embedding
    discount: float  # discount of returns, in (0, 1]
    scale: float  # divides returns
    longest: int  # steps of the longest recorded episode
    quantiles: tuple[float, ...]  # ascending recorded returns at each hundredth; empty if unknown
    mean: FloatArray  # `[O]`, subtracted from states
    deviation: FloatArray  # `[O]`, divides states

    def __post_init__(self) -> None:
        for name in ("context", "horizon", "longest"):
            require_in(name, index(getattr(self, name)), 1, MOST_STEPS)
        require_in("discount", self.discount, 0, 1)
        require_in("scale", self.scale, sys.float_info.min, sys.float_info.max)
        for recorded in self.quantiles:
            require_in("recorded returns", abs(recorded), 0, sys.float_info.max)

    def target_return(self, target: float | str) -> float:
        """Return a number unchanged; for `"q0.9"`, return that quantile of the recorded returns."""
        number, is_quantile = parsed_target(target)
        if not is_quantile:
            return number
        if not self.quantiles:
            raise ConfigError(
                "target return: expected a number, since recorded returns are not known, got "
                f"{target}."
            )
        shares = np.linspace(0, 1, len(self.quantiles))
        return float(np.interp(number, shares, self.quantiles))


@final
@dataclass(frozen=True, eq=False)
class Sequences:
    """Recorded steps end to end, ready to be gathered. The last of `T + 1` rows is the padding.

    Attributes:
        states: `[T + 1, O]` float32, normalised; or `[T + 1, *obs]` bytes of pictures, which stay
            on disk if they are there.
        actions: `[T + 1, A]` float32: in [-1, 1] if they are bounded, one-hot if they are discrete.
        rewards: `[T + 1, 1]` float32.
        returns_to_go: `[T + 1, 1]` float32, divided by `scale`.
        timesteps: `[T + 1]` steps since the episode began, at most `horizon - 1`.
        left: `[T]` steps to the episode's end, including this one.
        terminated: `[T + 1]` whether an episode terminated there.
        returns: `[K]` discounted returns of the episodes.
        statistics: statistics from which inputs are made; zeros and ones `[1]` for pictures.
    """

    states: Array
    actions: FloatArray
    rewards: FloatArray
    returns_to_go: FloatArray
    timesteps: IntArray
    left: IntArray
    terminated: BoolArray
    returns: FloatArray
    statistics: InputStatistics

    @classmethod
    def of(
        cls,
        episodes: Episodes,
        action_space: spaces.Space[Any],
        *,
        rewards: FloatArray | None = None,
        context: int = 20,
        discount: float = 1.0,
        scale: float | None = None,
        horizon: int = 1000,
    ) -> Self:
        """Compute returns-to-go and inputs of all steps of episodes.

        Args:
            episodes: observations are numbers (dictionaries are concatenated), or pictures.
            action_space: a Box of floats, or Discrete.
            rewards: `[T]`; None takes those of the episodes.
            context: `H`, steps of history that policies see.
            discount: discount of returns, in [0, 1].
            scale: number that divides returns; None takes the largest return-to-go, so that all are
                in [-1, 1]. The paper uses 1000 for locomotion.
            horizon: number of timesteps with their own embedding; later steps get the last one.

        Raises:
            DataError: there are no steps, or rewards have another length or are not finite.
            SpaceError: actions are of another space.
            ConfigError: a setting is out of range.
        """
        rewards = np.asarray(episodes.rewards if rewards is None else rewards)
        _require_rewards(rewards, episodes.steps)
        sums = returns_to_go(rewards, episodes.lengths, discount)
        scale = float(np.abs(sums).max()) or 1.0 if scale is None else scale
        require_in("scale", scale, 1e-12, math.inf)
        states, mean, deviation = _states(episodes)
        returns = sums[episodes.starts]
        since = np.arange(episodes.steps) - episodes.start_of_step
        return cls(
            states=states,
            actions=_padded(action_features(episodes.actions, action_space), PADDED_ACTION),
            rewards=_padded(rewards[:, None], 0),
            returns_to_go=_padded(sums[:, None] / scale, 0),
            timesteps=np.append(np.minimum(since, horizon - 1), 0),
            left=_steps_left(episodes.lengths),
            terminated=np.append(episodes.terminated, False),
            returns=returns,
            statistics=InputStatistics(
                context=context,
                horizon=horizon,
                discount=discount,
                scale=scale,
                longest=int(episodes.lengths.max()),
                quantiles=tuple(np.quantile(returns, np.linspace(0, 1, QUANTILES)).tolist()),
                mean=np.asarray(mean, np.float32),
                deviation=np.asarray(deviation, np.float32),
            ),
        )

    def __len__(self) -> int:
        return len(self.left)


@final
class SequenceCollator:
    """A data collator for Hugging Face's `Trainer`, which draws minibatches of windows.

    Windows begin at a step that is drawn uniformly. The beginning of sample `n` depends only on the
    seed and `n`. A run that is resumed, or split among processes, therefore draws the same windows.

    Args:
        sequences: the steps from which windows are cut.
        context: `H`, steps of a window. Windows are padded on the left if the episode's end is
            nearer.
        seed: seed of the draws.

    >>> from preferl.testing import make_episodes
    >>> episodes = make_episodes(np.random.default_rng(0), [30, 20])
    >>> collate = SequenceCollator(
    ...     Sequences.of(episodes, spaces.Box(-1, 1, (2,))), context=4, seed=0
    ... )
    >>> {name: tuple(tensor.shape) for name, tensor in collate([0, 1, 2]).items()}
    {'states': (3, 4, 2), 'actions': (3, 4, 2), 'rewards': (3, 4, 1), 'returns_to_go': (3, 4, 1),
     'timesteps': (3, 4), 'attention_mask': (3, 4), 'terminated': (3,)}
    """

    def __init__(self, sequences: Sequences, context: int, *, seed: int) -> None:
        require_in("context", context, 1, math.inf)
        self.sequences = sequences
        self.context = context
        self._draw = lru_cache(maxsize=2)(
            lambda block: np.random.default_rng([seed, block]).integers(len(sequences), size=DRAWN)
        )

    def __call__(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return the samples of these numbers, `[B]`, in any order."""
        blocks, place = np.divmod(np.asarray(numbers), DRAWN)
        first = np.empty(len(blocks), np.int64)
        for block in np.unique(blocks):
            rows = blocks == block
            first[rows] = self._draw(int(block))[place[rows]]
        return self.at(first)

    def at(self, first: IntArray) -> dict[str, Tensor]:
        """Return the windows that begin at these steps `[B]`, which are rows of all episodes."""
        data = self.sequences
        place = np.arange(self.context)
        pad = np.maximum(self.context - data.left[first], 0)[:, None]
        mask = place >= pad  # [B, H]
        rows = np.where(mask, first[:, None] + place - pad, len(data))
        names = ("states", "actions", "rewards", "returns_to_go", "timesteps")
        batch = {name: getattr(data, name)[rows] for name in names}
        batch["attention_mask"] = mask.astype(np.float32)
        batch["terminated"] = data.terminated[rows[:, -1]]  # [B] of the last steps
        return {name: torch.from_numpy(array) for name, array in batch.items()}


def action_size(space: spaces.Space[Any]) -> int:
    """Return `A`, how many numbers encode an action; for Discrete, the number of choices."""
    match space:
        case spaces.Discrete():
            return int(space.n)
        case spaces.Box() if space.dtype is not None and space.dtype.kind == "f":
            return math.prod(space.shape)
    raise SpaceError(
        f"actions of a Decision Transformer: expected a Box of floats, or Discrete, got {space}."
    )


def action_features(actions: Array, space: spaces.Space[Any]) -> FloatArray:
    """Encode actions `[..., *act]` as `[..., A]` float32: one-hot, or scaled from a Box to [-1, 1].

    Recorded actions outside a Box are clipped, as the environment clipped them. A policy never acts
    outside the Box.

    >>> action_features(np.array([2, 1]), spaces.Discrete(2, start=1)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    if isinstance(space, spaces.Discrete):
        choices = np.asarray(actions).astype(np.int64) - int(space.start)
        if choices.size and not 0 <= choices.min() <= choices.max() < space.n:
            raise SpaceError(f"actions: expected within {space}, got up to {actions.max()}.")
        return np.eye(int(space.n), dtype=np.float32)[choices]
    within = np.clip(actions, space.low, space.high) if isinstance(space, spaces.Box) else actions
    rows = torch.from_numpy(np.array(within, np.float32))
    batch = rows.shape[: rows.ndim - len(space.shape or ())]
    return np.asarray(ActionScale.of(space).inward(rows.reshape(*batch, -1)))


def are_pictures(space: spaces.Space[Any]) -> bool:
    """Whether observations are bytes of pictures."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8


def _require_rewards(rewards: FloatArray, steps: int) -> None:
    """Raise `DataError` unless there is at least one step, and a finite reward for each."""
    if rewards.shape != (steps,) or not steps or not np.isfinite(rewards).all():
        raise DataError(
            f"rewards of sequences: expected {max(1, steps)} finite numbers, one per step, got "
            f"shape {rewards.shape}."
        )


def _states(episodes: Episodes) -> tuple[Array, FloatArray, FloatArray]:
    """Return normalised states with a row of padding, and the mean and deviation used for it."""
    seen: Any = episodes.observations
    if not isinstance(seen, dict) and seen.dtype == np.uint8:
        return concatenate_rows([seen, np.zeros_like(seen[:1])]), np.zeros(1), np.ones(1)
    raw = flat_observations(seen, np.float64)
    mean = raw.mean(0)
    deviation = raw.std(0) + 1e-6
    # The reference normalises its padding, too.
    padded = np.concatenate([raw, np.zeros_like(raw[:1])])
    return ((padded - mean) / deviation).astype(np.float32), mean, deviation


def _padded(rows: Array, fill: float) -> FloatArray:
    return np.append(rows.astype(np.float32), np.full_like(rows[:1], fill, np.float32), axis=0)


def _steps_left(lengths: IntArray) -> IntArray:
    ends = np.repeat(np.cumsum(lengths), lengths)
    return np.asarray(ends - np.arange(len(ends)))
