"""Replay buffers that draw part of each batch from the agent's latest steps.

Hu et al., "Query-Policy Misalignment in Preference-Based Reinforcement Learning" (QPA, 2024),
section 4.2, "hybrid experience replay".
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import VecNormalize

from preferl.errors import ConfigError, require_in
from preferl.online.wrappers.replay import replay_of
from preferl.shapes import IntArray


class HybridSampling:
    """Draws a share of each batch from the newest steps, and the rest from the whole buffer.

    In a class, put it before a replay buffer of stable-baselines3 among the bases. That buffer
    stores steps and gathers batches as before. Draws use numpy's global generator, as in
    stable-baselines3.

    Args:
        args: positional arguments of the buffer.
        recent_share: share of each batch, in [0, 1]; 0.5 as in QPA.
        recent_steps: how many environment steps, over all environments, count as the newest; 10,000
            are QPA's ten episodes.
        kwargs: keyword arguments of the buffer.

    Raises:
        ConfigError: a number is out of its range, or `optimize_memory_usage` is true; some rows
            then hold no step.
    """

    buffer_size: int
    n_envs: int
    pos: int
    size: Callable[[], int]
    _get_samples: Callable[..., Any]

    def __init__(
        self, *args: Any, recent_share: float = 0.5, recent_steps: int = 10_000, **kwargs: Any
    ) -> None:
        require_in("recent_share", recent_share, 0, 1)
        require_in("recent_steps", recent_steps, 1, float("inf"))
        super().__init__(*args, **kwargs)
        if kwargs.get("optimize_memory_usage"):
            raise ConfigError(
                "replay buffer: expected optimize_memory_usage=False, got True. Build the "
                "algorithm without it."
            )
        self.recent_share = recent_share
        self.recent_steps = recent_steps

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Return a batch of steps, the recent ones first; `env` normalises them."""
        return self._get_samples(self.draw_rows(batch_size), env=env)

    def draw_rows(self, batch_size: int) -> IntArray:
        """Draw the rows of a batch, `[B]`; a row holds a step of each environment."""
        size = self.size()
        newest = min(max(1, self.recent_steps // self.n_envs), size)
        reach = np.full(batch_size, size)
        reach[: round(self.recent_share * batch_size)] = newest
        age = np.random.randint(reach)  # noqa: NPY002  # as stable-baselines3 draws
        return np.asarray((self.pos - 1 - age) % self.buffer_size)


@final
class HybridReplayBuffer(HybridSampling, ReplayBuffer):
    """Replay buffer of arrays, see `HybridSampling`."""


@final
class HybridDictReplayBuffer(HybridSampling, DictReplayBuffer):
    """Replay buffer of dictionaries, see `HybridSampling`."""


@final
class HybridNStepReplayBuffer(HybridSampling, NStepReplayBuffer):
    """Replay buffer of sums of rewards over several steps, see `HybridSampling`."""


KINDS: Final[Mapping[type[ReplayBuffer], type[ReplayBuffer]]] = {
    ReplayBuffer: HybridReplayBuffer,
    DictReplayBuffer: HybridDictReplayBuffer,
    NStepReplayBuffer: HybridNStepReplayBuffer,
}
"""For each replay buffer that stable-baselines3 chooses, the one that draws hybrid batches."""


def use_hybrid_replay(algorithm: BaseAlgorithm, *, share: float, steps: int) -> None:
    """Replace the replay buffer of an algorithm by one with `HybridSampling`.

    The algorithm must not have stored any step yet.

    Args:
        algorithm: any off-policy algorithm of stable-baselines3.
        share: `recent_share` of the buffer.
        steps: `recent_steps` of the buffer.

    Raises:
        ConfigError: the algorithm has no replay buffer, or one of another class.
    """
    buffer = replay_of(algorithm)
    kind: Any = KINDS.get(type(buffer)) if buffer is not None else None
    if kind is None or buffer is None:
        raise ConfigError(
            "recent_share: expected an algorithm with a replay buffer of stable-baselines3, such "
            f"as SAC or TD3, got {type(algorithm).__name__} with "
            f"{'none' if buffer is None else type(buffer).__name__}. Set recent_share to 0."
        )
    sums = {}
    if isinstance(buffer, NStepReplayBuffer):
        sums = {"n_steps": buffer.n_steps, "gamma": buffer.gamma}
    agent: Any = algorithm
    agent.replay_buffer = kind(
        buffer.buffer_size * buffer.n_envs,
        buffer.observation_space,
        buffer.action_space,
        device=buffer.device,
        n_envs=buffer.n_envs,
        handle_timeout_termination=buffer.handle_timeout_termination,
        recent_share=share,
        recent_steps=steps,
        **sums,
    )
