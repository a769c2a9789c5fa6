"""Agents of stable-baselines3 as states: networks, optimisers, counters, replay, generators."""

import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr

from preferl.errors import CheckpointError
from preferl.models.folder import require_finite, require_state
from preferl.online.env_state import draw_on, drawing
from preferl.online.replay import require_relabelling
from preferl.shapes import Array, map_observations, take

LOGGER = logging.getLogger(__name__)

COUNTERS: Final = (
    *("num_timesteps", "_total_timesteps", "_num_timesteps_at_start"),
    *("_n_updates", "_episode_num", "_n_calls", "_current_progress_remaining", "exploration_rate"),
    *("_last_obs", "_last_episode_starts", "_last_original_obs"),
    *("ep_info_buffer", "ep_success_buffer"),
)
"""What algorithms keep from one rollout to the next; each has some of them."""

COLUMNS: Final = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
"""Of a replay buffer."""


def agent_state(algorithm: BaseAlgorithm) -> dict[str, Any]:
    """Where an algorithm stands between two rollouts.

    A rollout buffer is empty then and left out; so is what only the logger knows.

    Raises:
        ConfigError: a replay buffer that keeps too little to be paid again.
    """
    _, variables = algorithm._get_torch_save_params()
    return {
        "parameters": algorithm.get_parameters(),
        "variables": {name: recursive_getattr(algorithm, name) for name in variables},
        "counters": {name: vars(algorithm)[name] for name in COUNTERS if name in vars(algorithm)},
        "replay": _replay_state(algorithm),
        "drawing": drawing(algorithm.action_space),
    }


def put_agent_back(algorithm: BaseAlgorithm, state: Mapping[str, Any]) -> None:
    """Bring an algorithm that was built in the same way to where another one stood.

    Raises:
        CheckpointError: it was built otherwise; it is then neither the one nor the other.
    """
    try:
        _require_same(algorithm, state)
        algorithm.set_parameters(dict(state["parameters"]), device=algorithm.device)
        for name, value in state["variables"].items():
            recursive_getattr(algorithm, name).data.copy_(value)
        _put_replay_back(algorithm, state["replay"])
    except (ValueError, LookupError, RuntimeError, AttributeError, TypeError) as error:
        raise CheckpointError.mismatch(
            "agent",
            expected="one with the networks and buffers that were saved",
            got=error,
            fix="Build it as it was built when the run began.",
        ) from error
    vars(algorithm).update(state["counters"])
    draw_on(algorithm.action_space, state["drawing"])


def _require_same(algorithm: BaseAlgorithm, state: Mapping[str, Any]) -> None:
    """Refuse networks of other names, shapes or types, or with NaN; optimisers differ by step."""
    own = algorithm.get_parameters()
    for name, saved in state["parameters"].items():
        networks = all(isinstance(value, torch.Tensor) for value in own[name].values())
        if networks and own[name]:
            require_state(name, saved, own[name])
    require_finite("variables", state["variables"])


def lose_place(algorithm: BaseAlgorithm) -> None:
    """Let an algorithm begin with a reset, and no window of its buffer reach across it."""
    algorithm._last_obs = None
    end_replay(algorithm)


def end_replay(algorithm: BaseAlgorithm) -> None:
    """Let no window of an algorithm's replay buffer reach beyond the step stored last."""
    buffer = replay_of(algorithm)
    if buffer is not None and buffer.size():
        last = (buffer.pos - 1) % buffer.buffer_size
        # A time limit, not an end: values are still bootstrapped across it.
        buffer.timeouts[last] = np.where(buffer.dones[last] > 0, buffer.timeouts[last], 1)
        buffer.dones[last] = 1


def begin_anew(algorithm: BaseAlgorithm, problems: Sequence[str]) -> None:
    """Let episodes begin anew where there are problems with putting environments back."""
    if not problems:
        return
    LOGGER.warning("Episodes begin anew: what cannot be put back is %s.", ", ".join(problems))
    lose_place(algorithm)
    env = algorithm.get_env()
    if env is not None:
        env.seed(algorithm.num_timesteps)  # not the first episodes once more


def replay_of(algorithm: BaseAlgorithm) -> ReplayBuffer | None:
    """The replay buffer of an off-policy algorithm; None of others."""
    return algorithm.replay_buffer if isinstance(algorithm, OffPolicyAlgorithm) else None


def global_generators() -> dict[str, Any]:
    """The generators of whole programs, from which algorithms draw."""
    name, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002  # SB3 draws from it
    return {
        "numpy": (str(name), keys, int(position), int(has_gauss), float(gauss)),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
    }


def put_generators_back(state: Mapping[str, Any]) -> None:
    """Let the program draw what another one would have drawn next."""
    np.random.set_state(state["numpy"])  # noqa: NPY002  # as above
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == (torch.cuda.device_count() if torch.cuda.is_available() else 0):
        torch.cuda.set_rng_state_all(state["cuda"])
    random.setstate(state["python"])


def _replay_state(algorithm: BaseAlgorithm) -> dict[str, Any] | None:
    buffer = replay_of(algorithm)
    if buffer is None:
        return None
    require_relabelling(buffer)
    filled = slice(buffer.size())
    columns = {name: take(getattr(buffer, name), filled) for name in COLUMNS}
    return {"pos": buffer.pos, "full": buffer.full, "size": buffer.buffer_size, **columns}


def _put_replay_back(algorithm: BaseAlgorithm, state: Mapping[str, Any] | None) -> None:
    buffer = replay_of(algorithm)
    if (buffer is None) != (state is None):
        raise ValueError("a replay buffer where there was none, or the other way round")
    if buffer is None or state is None:
        return
    if state["size"] != buffer.buffer_size:
        raise ValueError(f"a replay buffer of {buffer.buffer_size} steps, not {state['size']}")

    def write(array: Array, value: Array) -> None:
        array[: len(value)] = value

    for name in COLUMNS:
        map_observations(write, getattr(buffer, name), state[name])
    buffer.pos, buffer.full = int(state["pos"]), bool(state["full"])
