"""What an agent with a replay buffer does before its first learned reward, and at that reward.

Lee et al., "PEBBLE: Feedback-Efficient Interactive RL" (2021), section 4.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from preferl.errors import ConfigError
from preferl.evaluation.policies import Policy
from preferl.evaluation.rollout import rollout
from preferl.online.wrappers.exploration import require_reset


def fill_replay(
    algorithm: OffPolicyAlgorithm,
    env: VecEnv,
    policy: Policy,
    vector_steps: int,
    *,
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """Let a policy act instead of an agent, and store its steps in the agent's replay buffer.

    The agent does not learn from the steps now. They count as its own (`num_timesteps`), so that it
    does not make random steps again before it learns (`learning_starts`). The rewards are the
    environments' own; `relabel_replay` replaces them later, like all others.

    Args:
        algorithm: the agent. The policy starts from the agent's last observation, or from a reset
            if there is none. Afterwards, the agent begins with a reset.
        env: the algorithm's own environment, `algorithm.get_env()`.
        policy: acts on the observations of `env`, as the agent does.
        vector_steps: number of steps; in each of them, all environments make one step.
        on_step: called after each vector step.
    """
    agent: Any = algorithm  # annotations there are narrower than the values
    if agent._last_obs is None:
        agent._last_obs = env.reset()
        if agent._vec_normalize_env is not None:
            agent._last_original_obs = agent._vec_normalize_env.get_original_obs()
    scaled = isinstance(agent.action_space, spaces.Box)
    try:
        for step in islice(rollout(policy, env, observations=agent._last_obs), vector_steps):
            stored_actions = agent.policy.scale_action(step.actions) if scaled else step.actions
            transition = step.following, step.rewards, step.dones, step.infos
            agent._store_transition(agent.replay_buffer, stored_actions, *transition)
            agent.num_timesteps += env.num_envs
            on_step()
    finally:
        require_reset(agent)


def reset_critic(algorithm: BaseAlgorithm, *, updates: int = 100) -> None:
    """Make an agent forget the values of a former reward, and learn those of its replay buffer.

    The critic gets new initial weights, its target becomes a copy of it, and its optimiser starts
    again. Then `updates` updates train the critic, and the temperature if it is learned. PEBBLE
    also trains the actor here. This function does not, since the actor would follow values that are
    noise at first. Relabel the buffer before the call. From an empty buffer, nothing is learned.

    Raises:
        ConfigError: the algorithm is not off-policy, or has no critic beside an actor.
    """
    agent: Any = require_critic(algorithm)
    actor_modules = set(agent.actor.modules())  # actor and critic may share a feature extractor
    for layer in agent.critic.modules():
        if layer not in actor_modules and callable(
            reset_parameters := getattr(layer, "reset_parameters", None)
        ):
            reset_parameters()
    agent.critic_target.load_state_dict(agent.critic.state_dict())
    agent.critic.optimizer.state.clear()
    if not (updates and agent.replay_buffer.size()):
        return
    if not vars(agent).get("_logger"):  # `learn` was never called
        agent._logger = Logger(folder=None, output_formats=[])
    actor_parameters = [
        parameter for parameter in agent.actor.parameters() if parameter.requires_grad
    ]
    try:
        for parameter in actor_parameters:
            parameter.requires_grad = False
        agent.actor.optimizer.zero_grad()  # without gradients, the optimiser's steps change nothing
        agent.train(gradient_steps=updates, batch_size=agent.batch_size)
    finally:
        for parameter in actor_parameters:
            parameter.requires_grad = True


def require_critic(algorithm: BaseAlgorithm) -> BaseAlgorithm:
    """Return an algorithm whose critic can be reset, or raise `ConfigError`."""
    if not has_critic(algorithm):
        raise ConfigError(
            "algorithm: expected an off-policy one with an actor and a critic, such as SAC or "
            f'TD3, got {type(algorithm).__name__}. Take one of those, or before="zero".'
        )
    return algorithm


def has_critic(algorithm: BaseAlgorithm) -> bool:
    """Return whether an algorithm has a critic that `reset_critic` can reset."""
    parts = (getattr(algorithm, name, None) for name in ("actor", "critic", "critic_target"))
    return isinstance(algorithm, OffPolicyAlgorithm) and all(
        isinstance(part, nn.Module) for part in parts
    )
