"""Old experience, new reward: a replay buffer's rewards computed again."""

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from preferl.data.windows import windows_at
from preferl.errors import ConfigError, SpaceError, require_in
from preferl.feedback.step_rewards import AnyReward
from preferl.online.reward_computer import Reward
from preferl.online.reward_source import for_spaces
from preferl.shapes import Array, IntArray, Observations


def require_relabelling(buffer: ReplayBuffer) -> None:
    """Raise `ConfigError` if rewards of this buffer cannot be computed again."""
    if buffer.optimize_memory_usage:
        raise ConfigError(
            "replay buffer: with optimize_memory_usage=True the observations that end episodes "
            "overwrite those that rewards are computed from, so old experience cannot be "
            "relabelled. Build the algorithm with optimize_memory_usage=False."
        )
    if isinstance(buffer, HerReplayBuffer):
        raise ConfigError(
            "replay buffer: HerReplayBuffer asks the environment for the rewards of its made-up "
            "goals, which a learned reward cannot replace. Use DictReplayBuffer."
        )


def require_spaces_held(
    buffer: ReplayBuffer, observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> None:
    """Raise `SpaceError` if rewards of these spaces cannot be computed from what it holds."""
    if actions != buffer.action_space:
        raise _other_space("actions", actions, buffer.action_space)
    held = buffer.observation_space
    pairs = [(observations, held)]
    if isinstance(observations, spaces.Dict):
        if not isinstance(held, spaces.Dict) or set(held.spaces) != set(observations.spaces):
            raise _other_space("observations", observations, held)
        pairs = [(part, held.spaces[key]) for key, part in observations.spaces.items()]
    for space, stored in pairs:
        if space != stored and not _is_transposed(space, stored):
            raise _other_space("observations", space, stored)


def relabel_replay(buffer: ReplayBuffer, reward: Reward | AnyReward, *, chunk: int = 4096) -> None:
    """Compute all rewards of an SB3 buffer again, in place.

    Windows of a reward with context follow time, not the position in the ring: they end where
    episodes begin and where the oldest step meets the newest. What SB3 changes on the way in is
    undone first: Box actions are stored in [-1, 1], images with channels first.

    Args:
        buffer: plain or of dictionaries, full or not.
        reward: the new one; a plain function gets observations as the buffer holds them.
        chunk: windows per call. 4096 keeps a window of 100 steps of 30 numbers below 50 MB.

    Raises:
        ConfigError: a buffer that keeps too little (`optimize_memory_usage`, hindsight goals),
            or a chunk below 1.
        SpaceError: the reward was made for other observations or actions.
    """
    require_relabelling(buffer)
    require_in("chunk", chunk, 1, float("inf"))
    size = buffer.size()
    if not size:
        return
    if not isinstance(reward, Reward):
        reward = for_spaces(reward, buffer.observation_space, buffer.action_space)
    require_spaces_held(buffer, reward.observation_space, reward.action_space)
    ring = (np.arange(size) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size
    starts = _starts(buffer.dones[ring] > 0)  # [V * size], one environment after another
    for first in range(0, len(starts), chunk):
        steps = np.arange(first, min(first + chunk, len(starts)))
        windows, mask = windows_at(steps, starts[steps], reward.context)  # [B, H]
        rows, environments = ring[windows % size], windows // size
        buffer.rewards[ring[steps % size], steps // size] = reward(
            _gather(buffer, reward.observation_space, rows, environments),
            _unscaled(buffer.actions[rows, environments], reward.action_space),
            mask,
        )


def _starts(dones: Array) -> IntArray:
    """Where each step's episode begins, with environments laid end to end: `[t, V]` to `[V*t]`."""
    size, environments = dones.shape
    time = np.arange(size)[:, None]
    begins = np.zeros_like(dones, dtype=bool)
    begins[:1] = True
    begins[1:] = dones[:-1]
    start = np.maximum.accumulate(np.where(begins, time, 0), axis=0)
    return np.asarray((start + size * np.arange(environments)).T.reshape(-1))  # [V, t] to [V * t]


def _gather(
    buffer: ReplayBuffer, space: spaces.Space[Any], rows: IntArray, environments: IntArray
) -> Observations:
    """Observations `[B, H, *obs]` as the reward's space has them."""
    stored: Any = buffer.observations
    if not isinstance(space, spaces.Dict):
        return _restored(stored[rows, environments], space, buffer.observation_space)
    held: Any = buffer.observation_space
    return {
        key: _restored(stored[key][rows, environments], part, held[key])
        for key, part in space.spaces.items()
    }


def _restored(values: Array, space: spaces.Space[Any], held: spaces.Space[Any]) -> Array:
    """Stored values `[B, H, ...]` in the shape that `space` has."""
    if space == held:
        return values.reshape(*values.shape[:2], *(space.shape or ()))
    return np.moveaxis(values, 2, -1)  # channels first, and nothing else: it was looked at before


def _is_transposed(space: spaces.Space[Any], held: spaces.Space[Any]) -> bool:
    """Whether SB3 put the channels of this image first, as it does outside of the reward."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return False
    height, width, channels = space.shape
    return held.shape == (channels, height, width) and held.dtype == space.dtype


def _unscaled(actions: Array, space: spaces.Space[Any]) -> Array:
    """Actions `[B, H, *act]` as the environment got them."""
    actions = actions.reshape(*actions.shape[:2], *(space.shape or ()))
    if not isinstance(space, spaces.Box):
        return actions
    return np.asarray(space.low + 0.5 * (actions + 1.0) * (space.high - space.low))


def _other_space(what: str, space: spaces.Space[Any], held: spaces.Space[Any]) -> SpaceError:
    return SpaceError.mismatch(
        f"{what} in the replay buffer",
        expected=f"{space}, which the reward is of",
        got=held,
        fix="Wrappers that change them, as VecFrameStack does, go inside the one that pays.",
    )
