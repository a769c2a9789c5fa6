"""Windows of recorded steps as a Decision Transformer is shown them (Chen et al. 2021).

Everything that depends on the data alone is computed once, for all steps; a minibatch is then one
gather per array.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self, final

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from preferl.data.episodes import Episodes
from preferl.data.on_disk import concatenate_rows
from preferl.errors import DataError, SpaceError, require_in
from preferl.offline.transitions import ActionScale, flat_observations
from preferl.shapes import Array, BoolArray, FloatArray, IntArray

PADDED_ACTION: Final = -10.0
"""What stands where no action is, as in the reference: no action of a box reaches it."""

DRAWN: Final = 65_536
"""Samples that are drawn from one generator, so that any of them can be drawn again."""


def returns_to_go(rewards: FloatArray, lengths: IntArray, discount: float = 1.0) -> FloatArray:
    """What is earned from each step to its episode's end, `[T]` in double precision.

    All episodes at once: sums of 1, 2, 4, ... steps are put together, so the passes over the data
    are as many as the longest episode's length has bits.

    Args:
        rewards: `[T]`
        lengths: `[K]` steps of each episode.
        discount: per step, in [0, 1]; 1 is the paper's.

    >>> returns_to_go(np.array([1.0, 2, 3, 4, 5]), np.array([3, 2]), 0.5).tolist()
    [2.75, 3.5, 3.0, 6.5, 5.0]
    """
    require_in("discount", discount, 0, 1)
    earned = np.array(rewards, np.float64)
    left = _steps_left(lengths)
    summed, longest = 1, int(lengths.max(initial=0))
    while summed < longest:
        more = np.flatnonzero(left > summed)
        earned[more] += discount**summed * earned[more + summed]
        summed *= 2
    return earned


@final
@dataclass(frozen=True, eq=False)
class Sequences:
    """Recorded steps end to end, ready to be gathered; one more row holds what padding is.

    Attributes:
        states: `[T + 1, O]` float32, normalised; or `[T + 1, *obs]` bytes of pictures, which stay
            on disk if they are there.
        actions: `[T + 1, A]` float32, in [-1, 1] where they are bounded, one-hot where discrete.
        rewards: `[T + 1, 1]` float32.
        returns_to_go: `[T + 1, 1]` float32, divided by `scale`.
        timesteps: `[T + 1]` steps since the episode began, at most `horizon - 1`.
        left: `[T]` steps to the episode's end, this one included.
        terminated: `[T + 1]` whether an episode ended there by the rules.
        returns: `[K]` discounted, of the episodes, as they are asked for.
        mean: `[O]` that was subtracted from states; zeros for pictures.
        deviation: `[O]` that states were divided by; ones for pictures.
        scale: that returns were divided by.
        horizon: timesteps that are told apart.
    """

    states: Array
    actions: FloatArray
    rewards: FloatArray
    returns_to_go: FloatArray
    timesteps: IntArray
    left: IntArray
    terminated: BoolArray
    returns: FloatArray
    mean: FloatArray
    deviation: FloatArray
    scale: float
    horizon: int

    @classmethod
    def of(
        cls,
        episodes: Episodes,
        action_space: spaces.Space[Any],
        *,
        rewards: FloatArray | None = None,
        discount: float = 1.0,
        scale: float | None = None,
        horizon: int = 1000,
    ) -> Self:
        """The steps of episodes.

        Args:
            episodes: observations are numbers (dictionaries are laid end to end), or pictures.
            action_space: a Box of floats, or Discrete.
            rewards: `[T]`; those of the episodes if None.
            discount: of returns, in [0, 1].
            scale: of returns; None takes the largest there is, so that they lie in [-1, 1]. The
                paper takes 1000 for locomotion.
            horizon: timesteps that are told apart; later steps count as its last.

        Raises:
            DataError: no steps, or rewards of another length or not finite.
            SpaceError: actions of another space.
            ConfigError: a setting out of range.
        """
        paid = np.asarray(episodes.rewards if rewards is None else rewards)
        if paid.shape != (episodes.steps,) or not len(paid) or not np.isfinite(paid).all():
            raise DataError.mismatch(
                "rewards of sequences",
                expected=f"{max(1, episodes.steps)} finite numbers, one per step",
                got=f"shape {paid.shape}",
            )
        require_in("horizon", horizon, 1, float("inf"))
        ahead = returns_to_go(paid, episodes.lengths, discount)
        scale = float(np.abs(ahead).max()) or 1.0 if scale is None else scale
        require_in("scale", scale, 1e-12, float("inf"))
        states, mean, deviation = _states(episodes)
        since = np.arange(episodes.steps) - episodes.start_of_step
        return cls(
            states=states,
            actions=_padded(action_features(episodes.actions, action_space), PADDED_ACTION),
            rewards=_padded(paid[:, None], 0),
            returns_to_go=_padded(ahead[:, None] / scale, 0),
            timesteps=np.append(np.minimum(since, horizon - 1), 0),
            left=_steps_left(episodes.lengths),
            terminated=np.append(episodes.terminated, False),
            returns=ahead[episodes.starts],
            mean=mean,
            deviation=deviation,
            scale=scale,
            horizon=horizon,
        )

    def __len__(self) -> int:
        return len(self.left)


@final
class SequenceCollator:
    """Minibatches of windows: a data collator for Hugging Face's `Trainer`.

    Each recorded step is as likely as any other to begin a window, which is an episode drawn by
    its length and a start drawn evenly within it. Which one sample number `n` begins with depends
    on the seed and `n` alone, so that a run that goes on, or is split among processes, sees what
    it would have seen.

    Args:
        sequences: what is gathered from.
        context: `H`, steps of a window. One that meets the episode's end is padded on the left.
        seed: of the draws.
        ends: whether minibatches also say, as `terminated` `[B]`, if a window's last step ended
            its episode by the rules.

    >>> from preferl.testing import make_episodes
    >>> episodes = make_episodes(np.random.default_rng(0), [30, 20])
    >>> collate = SequenceCollator(
    ...     Sequences.of(episodes, spaces.Box(-1, 1, (2,))), context=4, seed=0
    ... )
    >>> {name: tuple(tensor.shape) for name, tensor in collate([0, 1, 2]).items()}
    {'states': (3, 4, 2), 'actions': (3, 4, 2), 'rewards': (3, 4, 1), 'returns_to_go': (3, 4, 1),
     'timesteps': (3, 4), 'attention_mask': (3, 4)}
    """

    def __init__(
        self, sequences: Sequences, context: int, *, seed: int, ends: bool = False
    ) -> None:
        require_in("context", context, 1, float("inf"))
        self.sequences, self.context, self._ends = sequences, context, ends
        self._place = np.arange(context)
        self._draw = lru_cache(maxsize=2)(
            lambda block: np.random.default_rng([seed, block]).integers(len(sequences), size=DRAWN)
        )

    def __call__(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Samples `[B]` by number, in any order."""
        block, place = np.divmod(np.asarray(numbers), DRAWN)
        first = np.empty(len(block), np.int64)
        for one in np.unique(block):
            of = block == one
            first[of] = self._draw(int(one))[place[of]]
        return self.at(first)

    def at(self, first: IntArray) -> dict[str, Tensor]:
        """The windows that begin with these steps, `[B]` rows of all episodes end to end."""
        data = self.sequences
        pad = np.maximum(self.context - data.left[first], 0)[:, None]
        mask = self._place >= pad  # [B, H]
        rows = np.where(mask, first[:, None] + self._place - pad, len(data))
        ends = {"terminated": torch.from_numpy(data.terminated[rows[:, -1]])}
        return (ends if self._ends else {}) | {
            "states": torch.from_numpy(data.states[rows]),
            "actions": torch.from_numpy(data.actions[rows]),
            "rewards": torch.from_numpy(data.rewards[rows]),
            "returns_to_go": torch.from_numpy(data.returns_to_go[rows]),
            "timesteps": torch.from_numpy(data.timesteps[rows]),
            "attention_mask": torch.from_numpy(mask.astype(np.float32)),
        }


def action_size(space: spaces.Space[Any]) -> int:
    """`A`, numbers of an action; of a discrete one, one each.

    Raises:
        SpaceError: another kind of space.
    """
    match space:
        case spaces.Discrete():
            return int(space.n)
        case spaces.Box() if space.dtype is not None and space.dtype.kind == "f":
            return math.prod(space.shape)
    raise SpaceError.mismatch(
        "actions of a Decision Transformer", expected="a Box of floats, or Discrete", got=space
    )


def action_features(actions: Array, space: spaces.Space[Any]) -> FloatArray:
    """`[..., *act]` to `[..., A]` float32: one-hot where discrete, scaled to [-1, 1] by a box.

    What was recorded beyond a box is cut off, as the environment cut it off: nothing that a policy
    does and then remembers is out there.

    Raises:
        SpaceError: another space, or actions outside of a discrete one.

    >>> action_features(np.array([2, 1]), spaces.Discrete(2, start=1)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    if isinstance(space, spaces.Discrete):
        chosen = np.asarray(actions).astype(np.int64) - int(space.start)
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < space.n:
            raise SpaceError.mismatch(
                "actions", expected=f"within {space}", got=f"up to {actions.max()}"
            )
        return np.eye(int(space.n), dtype=np.float32)[chosen]
    within = np.clip(actions, space.low, space.high) if isinstance(space, spaces.Box) else actions
    rows = torch.from_numpy(np.array(within, np.float32))
    batch = rows.shape[: rows.ndim - len(space.shape or ())]
    return np.asarray(ActionScale.of(space).inward(rows.reshape(*batch, -1)))


def are_pictures(space: spaces.Space[Any]) -> bool:
    """Whether observations are bytes of pictures."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8


def _states(episodes: Episodes) -> tuple[Array, FloatArray, FloatArray]:
    """States with the row of padding, and what they were normalised by."""
    seen: Any = episodes.observations
    if not isinstance(seen, dict) and seen.dtype == np.uint8:
        return concatenate_rows([seen, np.zeros_like(seen[:1])]), np.zeros(1), np.ones(1)
    raw = flat_observations(seen).astype(np.float64)
    mean, deviation = raw.mean(0), raw.std(0) + 1e-6
    # The reference normalises its padding, too.
    padded = np.concatenate([raw, np.zeros_like(raw[:1])])
    return ((padded - mean) / deviation).astype(np.float32), mean, deviation


def _padded(rows: Array, fill: float) -> FloatArray:
    last = np.full_like(rows[:1], fill, dtype=np.float32)
    return np.concatenate([rows.astype(np.float32), last])


def _steps_left(lengths: IntArray) -> IntArray:
    ends = np.repeat(np.cumsum(lengths), lengths)
    return np.asarray(ends - np.arange(len(ends)))
