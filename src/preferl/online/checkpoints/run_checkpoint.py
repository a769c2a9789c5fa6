"""A whole feedback run in a folder, so that a killed program can continue from there.

Only complete checkpoints are read. Queries and answers are not part of them: these are in the store
before they are acknowledged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.common.vec_env import VecEnv

from preferl.errors import CheckpointError, ConfigError, in_words
from preferl.models.folder import require_finite, require_state
from preferl.online.algorithms import require_torch
from preferl.online.checkpoints.env_state import (
    env_state,
    layers,
    restore_env,
    restore_sampling,
    sampling,
)
from preferl.online.wrappers.exploration import require_reset
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.online.wrappers.replay import replay_of, replay_state, restore_replay
from preferl.printing import get_logger
from preferl.reading import reading
from preferl.training.checkpoint_folder import read_checkpoint, write_checkpoint
from preferl.training.generators import global_generators, restore_generators

LOGGER = get_logger(__name__)

COUNTERS: Final = (
    *("num_timesteps", "_total_timesteps", "_num_timesteps_at_start"),
    *("_n_updates", "_episode_num", "_n_calls", "_current_progress_remaining", "exploration_rate"),
    *("_last_obs", "_last_episode_starts", "_last_original_obs"),
    *("ep_info_buffer", "ep_success_buffer"),
)
"""Attributes that algorithms keep between rollouts; each algorithm has some of them."""

Agent = BaseAlgorithm | Mapping[str, Any]
"""An algorithm of stable-baselines3, or networks and optimisers by name.

Networks and optimisers are any objects with `state_dict` and `load_state_dict`.
"""


@final
@dataclass(frozen=True)
class Resumed:
    """The checkpoint from which a run continues.

    Attributes:
        steps: environment steps of the agent up to the checkpoint.
        problems: parts of the environment that could not be restored. If there are any, new
            episodes begin, and a loop of your own has to reset the environment.
        notes: the notes that were saved.
    """

    steps: int
    problems: tuple[str, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)


def save_run(
    folder: Path | str,
    agent: Agent,
    env: Any = None,
    *,
    steps: int | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Save a whole run between two rollouts, replacing the previous checkpoint.

    The previous checkpoint is removed when the new one is on disk, and the call waits for that. All
    steps in a replay buffer are written each time.

    Args:
        folder: folder that holds only this run's checkpoints.
        agent: an algorithm of stable-baselines3, or networks and optimisers by name.
        env: the agent's environment with its wrappers; by default that of the algorithm.
        steps: number of steps that the agent has made; an algorithm counts them itself.
        notes: further values that `preferl.training.checkpoint_folder.write_state` takes.

    Returns:
        The checkpoint's folder.

    Raises:
        CheckpointError: the folder's newest checkpoint is damaged.
        ConfigError: there is no environment, the folder's run has made more steps than this one, or
            the replay buffer cannot be relabelled, or the notes cannot be written.
        StorageError: the folder cannot be written to, is full, or holds something else.
    """
    env, run = _described(agent, env)
    version = 0
    if isinstance(agent, BaseAlgorithm):
        steps = agent.num_timesteps
        saved_agent = agent_state(agent)
        relabelled = (layer.relabelled for layer in _wrappers(env))
        version = next((by for buffer, by in relabelled if buffer is replay_of(agent)), 0)
    else:
        saved_agent = {name: part.state_dict() for name, part in agent.items()}
    state = {
        "agent": saved_agent,
        "environment": env_state(env),
        "replay_version": version,
        "notes": dict(notes or {}),
        "generators": global_generators(),
    }
    return write_checkpoint(folder, state, steps=int(steps or 0), run=run)


def resume_run(folder: Path | str, agent: Agent, env: Any = None) -> Resumed:
    """Restore an agent and its environment from the newest checkpoint in a folder.

    Build both in the same way as when the run began. The agent has the reward of the checkpoint
    until it switches to a newer one. The program's global random generators are restored, too.
    Therefore call this right before `learn`, and pass `reset_num_timesteps=False` and the number of
    remaining steps.

    Args:
        folder: folder into which `save_run` or `SaveRunCallback` wrote.
        agent: the agent, built as at the beginning of the run.
        env: the agent's environment; by default that of the algorithm.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or it is of another agent or
            environment; the message names what differs. If sizes of networks or buffers differ,
            part of the agent may already be restored: build the agent again.
        ConfigError: there is no environment.
    """
    env, run = _described(agent, env)
    _, steps, state = read_checkpoint(folder, run=run)
    if isinstance(agent, BaseAlgorithm):
        restore_agent(agent, env, state)
        for layer in _wrappers(env):
            layer.relabelled = (replay_of(agent), int(state["replay_version"]))
    else:
        restore_env(env, state["environment"])
        for name, part in agent.items():
            with reading(name, expected="what was saved under this name"):
                part.load_state_dict(dict(state["agent"][name]))
    restore_generators(state["generators"])
    return Resumed(steps, tuple(state["environment"]["problems"]), state["notes"])


def agent_state(algorithm: BaseAlgorithm) -> dict[str, Any]:
    """Return networks, optimisers, counters, noise and replay buffer, between two rollouts.

    A rollout buffer is left out, since it is empty between rollouts. The logger's numbers are left
    out, too. Networks that are not torch's raise `ConfigError`.
    """
    require_torch(algorithm)
    _, variables = algorithm._get_torch_save_params()
    return {
        "parameters": algorithm.get_parameters(),
        "variables": {name: recursive_getattr(algorithm, name) for name in variables},
        "counters": {name: vars(algorithm)[name] for name in COUNTERS if name in vars(algorithm)},
        "replay": replay_state(algorithm),
        "drawing": sampling(algorithm.action_space),
        "noise": [
            (noise.exploration_mat.detach(), noise.exploration_matrices.detach())
            for noise in _state_dependent_noise(algorithm)
        ],
    }


def restore_agent(algorithm: BaseAlgorithm, env: VecEnv, snapshot: Mapping[str, Any]) -> None:
    """Restore an algorithm and its environment, which were built in the same way.

    If the environment's episodes cannot be restored, new ones begin. If the algorithm was built in
    another way, `CheckpointError` is raised; part of it may already be restored.
    """
    state = snapshot["agent"]
    problems = snapshot["environment"]["problems"]
    restore_env(env, snapshot["environment"])
    try:
        parameters = algorithm.get_parameters()
        # Only networks are compared, since optimisers change at every step.
        for name, saved in state["parameters"].items():
            present = parameters[name]
            if present and all(isinstance(value, torch.Tensor) for value in present.values()):
                require_state(name, saved, present)
        require_finite("variables", state["variables"])
        algorithm.set_parameters(dict(state["parameters"]), device=algorithm.device)
        for name, value in state["variables"].items():
            recursive_getattr(algorithm, name).data.copy_(value)
        restore_replay(algorithm, state["replay"])
        for noise, saved in zip(_state_dependent_noise(algorithm), state["noise"], strict=False):
            matrix, matrices = saved
            noise.exploration_mat = matrix.to(algorithm.device)
            noise.exploration_matrices = matrices.to(algorithm.device)
    except (ValueError, LookupError, RuntimeError, AttributeError, TypeError) as error:
        raise CheckpointError(
            "agent: expected an agent with the networks and buffers that were saved, got "
            f"{in_words(error)}. Build it in the same way as when the run began."
        ) from error
    vars(algorithm).update(state["counters"])
    restore_sampling(algorithm.action_space, state["drawing"])
    if problems:
        LOGGER.warning("New episodes begin: what cannot be restored is %s.", ", ".join(problems))
        require_reset(algorithm)
        if (envs := algorithm.get_env()) is not None:
            # otherwise the run's first episodes would come again
            envs.seed(algorithm.num_timesteps)


def _state_dependent_noise(algorithm: BaseAlgorithm) -> list[StateDependentNoiseDistribution]:
    """Return distributions that keep the last rollout's matrices until the next rollout begins."""
    distributions = (getattr(part, "action_dist", None) for part in algorithm.policy.modules())
    return [noise for noise in distributions if isinstance(noise, StateDependentNoiseDistribution)]


def _wrappers(env: Any) -> list[FeedbackVecEnv]:
    return [layer for layer in layers(env) if isinstance(layer, FeedbackVecEnv)]


def _described(agent: Agent, env: Any) -> tuple[Any, dict[str, Any]]:
    """Return the environment, and a description that must be the same for a run to resume."""
    if env is None and isinstance(agent, BaseAlgorithm):
        env = agent.get_env()
    if env is None:
        raise ConfigError("env: expected the agent's environment, got none. Pass `env`.")
    return env, {
        "agent": type(agent).__name__ if isinstance(agent, BaseAlgorithm) else sorted(agent),
        "observations": repr(env.observation_space),
        "actions": repr(env.action_space),
        "environments": getattr(env, "num_envs", 1),
    }
