"""Training of an expert on disk: networks and optimisers as tensors, experience as episodes.

What the agent lived through is kept for the data set, so that a replay buffer needs no file of its
own: it is filled from there again.
"""

from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy

from preferl.data.episodes import Episodes
from preferl.errors import CheckpointError
from preferl.files import writing
from preferl.shapes import Array, map_observations
from preferl.training.state_files import read_state, write_state


def save_training(path: Path, algorithm: BaseAlgorithm) -> None:
    """Write networks, optimisers and the number of steps into a folder; whole or not there.

    Raises:
        StorageError: the folder cannot be written.
    """
    _, variables = algorithm._get_torch_save_params()
    state = {
        "step": algorithm.num_timesteps,
        "parameters": algorithm.get_parameters(),
        "variables": {name: getattr(algorithm, name).detach() for name in variables},
    }
    with writing(path) as draft:
        draft.mkdir()
        write_state(draft, state)


def read_training(path: Path) -> dict[str, Any]:
    """What `save_training` wrote.

    Raises:
        CheckpointError: a damaged folder.
    """
    try:
        state = read_state(path)
        return {"step": int(state["step"]), **{n: state[n] for n in ("parameters", "variables")}}
    except (CheckpointError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError.mismatch(
            f"training state {path}",
            expected="a whole folder of a recording",
            got=error,
            fix="Remove it to train from the beginning.",
        ) from error


def restore_training(algorithm: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Bring a fresh algorithm of the same settings to where another one was saved.

    Raises:
        CheckpointError: the state of other networks.
    """
    try:
        algorithm.set_parameters(state["parameters"])
        for name, value in state["variables"].items():
            getattr(algorithm, name).data.copy_(value)
    except (AttributeError, KeyError, RuntimeError, ValueError) as error:
        raise CheckpointError.mismatch(
            "training state", expected="one of the same networks", got=error
        ) from error
    algorithm.num_timesteps = state["step"]


def refill(algorithm: BaseAlgorithm, episodes: Episodes) -> None:
    """Give an off-policy algorithm what it lived through, the latest steps if not all fit.

    Time limits are not ends: values are bootstrapped across them, as while training.

    Args:
        algorithm: with an empty buffer; one without a buffer is left alone.
        episodes: in the order in which they were lived through.
    """
    if not isinstance(algorithm, OffPolicyAlgorithm) or algorithm.replay_buffer is None:
        return
    buffer, places = algorithm.replay_buffer, algorithm.replay_buffer.n_envs
    rows = min(episodes.steps // places, buffer.buffer_size)
    first = episodes.steps - rows * places

    def lay(held: Array, values: Array) -> None:
        kept = np.asarray(values[first:])
        if kept.shape[1:] != held.shape[2:] and kept.ndim == held.ndim - 1 == 4:
            kept = np.moveaxis(kept, -1, 1)  # stable-baselines3 puts channels first
        held[:rows] = kept.reshape(rows, places, *held.shape[2:])

    held: Any = buffer
    map_observations(lay, held.observations, episodes.observations)
    map_observations(lay, held.next_observations, episodes.next_observations)
    lay(buffer.actions, _scaled(algorithm.policy, episodes.actions))
    lay(buffer.rewards, episodes.rewards)
    lay(buffer.dones, episodes.terminated | episodes.truncated)
    lay(buffer.timeouts, episodes.truncated)
    _set_position(buffer, rows)


def _scaled(policy: BasePolicy, actions: Array) -> Array:
    return policy.scale_action(np.asarray(actions))


def _set_position(buffer: ReplayBuffer, rows: int) -> None:
    buffer.full = rows == buffer.buffer_size
    buffer.pos = rows % buffer.buffer_size
