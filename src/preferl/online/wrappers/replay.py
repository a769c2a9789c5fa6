"""Replay buffers of stable-baselines3: relabel their rewards, and save their state."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from preferl.data.windows import window_indices
from preferl.errors import ConfigError, SpaceError, require_in
from preferl.feedback.step_rewards import AnyReward
from preferl.online.wrappers.reward_computer import WindowReward, for_spaces
from preferl.shapes import Array, IntArray, Observations, map_observations, take

COLUMNS: Final = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def replay_of(algorithm: BaseAlgorithm) -> ReplayBuffer | None:
    """Return the replay buffer of an off-policy algorithm; None for other algorithms."""
    return algorithm.replay_buffer if isinstance(algorithm, OffPolicyAlgorithm) else None


def end_replay(algorithm: BaseAlgorithm) -> None:
    """Mark the newest step of a replay buffer as a cut, so that no window crosses it."""
    buffer = replay_of(algorithm)
    if buffer is not None and buffer.size():
        last = (buffer.pos - 1) % buffer.buffer_size
        # A time limit, not a termination, so that values are still bootstrapped.
        buffer.timeouts[last] = np.where(buffer.dones[last] > 0, buffer.timeouts[last], 1)
        buffer.dones[last] = 1


def replay_state(algorithm: BaseAlgorithm) -> dict[str, Any] | None:
    """Return the filled part of a replay buffer; refuse a buffer that cannot be relabelled."""
    buffer = replay_of(algorithm)
    if buffer is None:
        return None
    require_relabelling(buffer)
    filled = slice(buffer.size())
    columns = {name: take(getattr(buffer, name), filled) for name in COLUMNS}
    return {"pos": buffer.pos, "full": buffer.full, "size": buffer.buffer_size, **columns}


def restore_replay(algorithm: BaseAlgorithm, state: Mapping[str, Any] | None) -> None:
    """Fill an algorithm's replay buffer with what `replay_state` gave, or raise `ValueError`."""
    buffer = replay_of(algorithm)
    if buffer is None or state is None:
        if (buffer is None) != (state is None):
            raise ValueError("one of the two programs has a replay buffer, the other has none")
        return
    if state["size"] != buffer.buffer_size:
        raise ValueError(f"a replay buffer of {buffer.buffer_size} steps, not {state['size']}")

    def write(array: Array, value: Array) -> None:
        array[: len(value)] = value

    for name in COLUMNS:
        map_observations(write, getattr(buffer, name), state[name])
    buffer.pos = int(state["pos"])
    buffer.full = bool(state["full"])


def require_relabelling(buffer: ReplayBuffer) -> None:
    """Raise `ConfigError` if this buffer cannot be relabelled."""
    if buffer.optimize_memory_usage:
        raise ConfigError(
            "replay buffer: with optimize_memory_usage=True the observations that end episodes "
            "overwrite those that rewards are computed from, so old experience cannot be "
            "relabelled. Build the algorithm with optimize_memory_usage=False."
        )
    if isinstance(buffer, HerReplayBuffer):
        raise ConfigError(
            "replay buffer: HerReplayBuffer asks the environment for the rewards of its made-up "
            "goals, and a learned reward cannot replace these. Use DictReplayBuffer."
        )


def require_spaces_held(
    buffer: ReplayBuffer, observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> None:
    """Raise `SpaceError` unless the buffer holds observations and actions of these spaces."""
    held = buffer.observation_space
    pairs = [("actions", actions, buffer.action_space)]
    parts = observations.spaces if isinstance(observations, spaces.Dict) else {"": observations}
    stored = held.spaces if isinstance(held, spaces.Dict) else {"": held}
    if parts.keys() == stored.keys():
        pairs += [("observations", part, stored[key]) for key, part in parts.items()]
    else:
        pairs += [("observations", observations, held)]
    fix = "Put wrappers that change the spaces, such as VecFrameStack, inside FeedbackVecEnv."
    for what, space, present in pairs:
        alike = space == present or (what != "actions" and _is_transposed(space, present))
        if not alike:
            raise SpaceError(
                f"{what} in the replay buffer: expected {space}, which the reward was made for, "
                f"got {present}. {fix}"
            )


def relabel_replay(
    buffer: ReplayBuffer, reward: WindowReward | AnyReward, *, chunk: int = 4096
) -> None:
    """Relabel an SB3 buffer in place.

    If a reward looks back, its windows follow time, not positions in the ring buffer. They do not
    cross the beginning of an episode, or the place where the oldest step follows the newest. A
    reward that does not look back needs no windows. SB3 scales Box actions to [-1, 1] when it
    stores steps, and puts channels of images first. These changes are undone before the reward is
    computed.

    Args:
        buffer: a plain replay buffer or one of dictionaries, full or not.
        reward: the new reward. A plain function gets observations as the buffer holds them.
        chunk: windows per call. 4096 keeps windows of 100 steps of 30 numbers below 50 MB.

    Raises:
        ConfigError: the buffer cannot be relabelled (`optimize_memory_usage`, hindsight goals), or
            `chunk` is below 1.
        SpaceError: the reward was made for other observations or actions.
    """
    require_relabelling(buffer)
    require_in("chunk", chunk, 1, float("inf"))
    size = buffer.size()
    if not size:
        return
    if not isinstance(reward, WindowReward):
        reward = for_spaces(reward, buffer.observation_space, buffer.action_space)
    require_spaces_held(buffer, reward.observation_space, reward.action_space)
    ring = (np.arange(size) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size
    total = size * buffer.n_envs  # all steps of one environment, then all of the next
    starts = _starts(buffer.dones[ring] > 0) if reward.context > 1 else None  # [V * size]
    for first in range(0, total, chunk):
        steps: IntArray = np.arange(first, min(first + chunk, total))
        windows = steps[:, None]  # [B, 1]
        mask = np.ones((len(steps), 1), bool)
        if starts is not None:
            windows, mask = window_indices(starts, reward.context, steps)  # [B, H]
        where = ring[windows % size], windows // size
        buffer.rewards[ring[steps % size], steps // size] = reward(
            _observations(buffer, reward.observation_space, where),
            _actions(buffer.actions[where], reward.action_space),
            mask,
        )


def _starts(dones: Array) -> IntArray:
    """Return the row at which each step's episode begins, `[V * t]`, from dones `[t, V]`."""
    size, environments = dones.shape
    begins = np.concatenate([np.ones((1, environments), bool), dones[:-1]])
    start = np.maximum.accumulate(np.where(begins, np.arange(size)[:, None], 0), axis=0)
    return np.asarray((start + size * np.arange(environments)).T.reshape(-1))  # [V, t] to [V * t]


def _observations(
    buffer: ReplayBuffer, space: spaces.Space[Any], where: tuple[IntArray, IntArray]
) -> Observations:
    """Return observations `[B, H, *obs]` in the layout of the reward's space."""

    def restored(values: Array, part: spaces.Space[Any], held: spaces.Space[Any]) -> Array:
        if part == held:
            return values[where].reshape(*where[0].shape, *(part.shape or ()))
        return np.moveaxis(values[where], 2, -1)  # channels first, as was checked before

    stored: Any = buffer.observations
    observations: Observations = map_observations(restored, stored, space, buffer.observation_space)
    return observations


def _actions(actions: Array, space: spaces.Space[Any]) -> Array:
    """Return actions `[B, H, *act]` as the environment got them."""
    actions = actions.reshape(*actions.shape[:2], *(space.shape or ()))
    if not isinstance(space, spaces.Box):
        return actions
    return np.asarray(space.low + 0.5 * (actions + 1.0) * (space.high - space.low))


def _is_transposed(space: spaces.Space[Any], held: spaces.Space[Any]) -> bool:
    """Whether SB3 has put the channels of this image first, as it does outside of the reward."""
    shape = space.shape if isinstance(space, spaces.Box) else ()
    return len(shape) == 3 and (held.shape, held.dtype) == ((shape[2], *shape[:2]), space.dtype)
