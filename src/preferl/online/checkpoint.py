"""A whole feedback run in a folder, so that a program that was killed goes on where it was saved.

Agent, replay, environments, experience that waits to be asked about, the reward in use and all
generators are written together, and only what is whole is ever read. Questions and answers are
not among them: they are in the store before anybody acknowledges them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from stable_baselines3.common.base_class import BaseAlgorithm

from preferl.errors import CheckpointError, ConfigError
from preferl.online.agent_state import (
    agent_state,
    begin_anew,
    global_generators,
    put_agent_back,
    put_generators_back,
    replay_of,
)
from preferl.online.env_state import env_state, layers, put_env_back
from preferl.online.feedback_env import FeedbackVecEnv
from preferl.training.checkpoint_folder import read_checkpoint, write_checkpoint

Agent = BaseAlgorithm | Mapping[str, Any]
"""An algorithm of stable-baselines3, or one's own networks and optimisers by name: whatever has
`state_dict` and `load_state_dict`."""


@final
@dataclass(frozen=True)
class Resumed:
    """What a run went on from.

    Attributes:
        steps: environment steps of the agent until then.
        problems: what of the environment could not be put back, so that its episodes begin anew
            (a loop of one's own resets it); empty where all goes on as if nothing had happened.
        notes: what was saved beside it.
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
    """Write down a whole run between two rollouts; the checkpoint before goes when this is whole.

    It waits for the disk: a replay buffer is written each time, as large as it is filled.

    Args:
        folder: of this run's checkpoints alone.
        agent: an algorithm of stable-baselines3, or networks and optimisers by name.
        env: what the agent acts in, with its wrappers; an algorithm's own by default.
        steps: that the agent has made; an algorithm counts for itself.
        notes: more to remember: whatever `preferl.training.checkpoint_folder.write_state` takes.

    Returns:
        The checkpoint's folder.

    Raises:
        CheckpointError: the folder's newest checkpoint is damaged.
        ConfigError: no environment, the folder's run has come further than this one, a replay
            buffer that cannot be paid again, or notes that cannot be written.
        StorageError: the folder cannot be written to, is full, or holds something else.
    """
    env = _environment(agent, env)
    state = {
        "agent": _agent_state(agent),
        "environment": env_state(env),
        "replay_version": _replay_version(agent, env),
        "notes": dict(notes or {}),
        "generators": global_generators(),
    }
    made = agent.num_timesteps if isinstance(agent, BaseAlgorithm) else int(steps or 0)
    return write_checkpoint(folder, state, steps=made, run=_described(agent, env))


def resume_run(folder: Path | str, agent: Agent, env: Any = None) -> Resumed:
    """Bring an agent and its environment to where the run in a folder was saved last.

    Both are built by the script as when the run began. The reward that was in use then is paid
    until a newer one is taken up. Generators of the whole program are put back as well, so call
    this last before `learn`, with `reset_num_timesteps=False` and the steps that are left.

    Args:
        folder: into which `save_run` or `SaveRunCallback` wrote.
        agent: as it was at the beginning of the run.
        env: what it acts in; an algorithm's own by default.

    Raises:
        CheckpointError: there is none, it is damaged, or it is of another agent or environment;
            the message says what differs. If only networks or buffers differ in size, the agent
            is half changed then: build it again.
        ConfigError: no environment.
    """
    env = _environment(agent, env)
    _, steps, state = read_checkpoint(folder, run=_described(agent, env))
    problems = tuple(state["environment"]["problems"])
    put_env_back(env, state["environment"])
    _put_agent_back(agent, state["agent"])
    if isinstance(agent, BaseAlgorithm):
        for layer in layers(env):
            if isinstance(layer, FeedbackVecEnv):
                layer.paid_replay = (replay_of(agent), int(state["replay_version"]))
        begin_anew(agent, problems)
    put_generators_back(state["generators"])
    return Resumed(steps, problems, state["notes"])


def _environment(agent: Agent, env: Any) -> Any:
    if env is None and isinstance(agent, BaseAlgorithm):
        env = agent.get_env()
    if env is None:
        raise ConfigError.mismatch(
            "env", expected="what the agent acts in", got="none", fix="Pass `env`."
        )
    return env


def _agent_state(agent: Agent) -> dict[str, Any]:
    if isinstance(agent, BaseAlgorithm):
        return agent_state(agent)
    return {name: part.state_dict() for name, part in agent.items()}


def _put_agent_back(agent: Agent, state: Mapping[str, Any]) -> None:
    if isinstance(agent, BaseAlgorithm):
        put_agent_back(agent, state)
        return
    for name, part in agent.items():
        try:
            part.load_state_dict(dict(state[name]))
        except (RuntimeError, ValueError, LookupError) as error:
            raise CheckpointError.mismatch(
                name, expected="what was saved under this name", got=error
            ) from error


def _replay_version(agent: Agent, env: Any) -> int:
    """The version by which the agent's replay buffer was paid; 0 where it was by none."""
    if isinstance(agent, BaseAlgorithm):
        for layer in layers(env):
            if isinstance(layer, FeedbackVecEnv) and layer.paid_replay[0] is replay_of(agent):
                return layer.paid_replay[1]
    return 0


def _described(agent: Agent, env: Any) -> dict[str, Any]:
    """What has to be the same for a run to go on."""
    return {
        "agent": type(agent).__name__ if isinstance(agent, BaseAlgorithm) else sorted(agent),
        "observations": repr(env.observation_space),
        "actions": repr(env.action_space),
        "environments": getattr(env, "num_envs", 1),
    }
