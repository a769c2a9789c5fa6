"""The parts of an online run, built from its settings."""

import logging
from typing import Any

import numpy as np

from preferl.errors import ConfigError
from preferl.models.build import build_reward_model
from preferl.online.algorithm_configs import PPOConfig
from preferl.online.algorithms import build_algorithm, make_environments
from preferl.online.config import OnlineConfig
from preferl.online.learner import SB3Learner
from preferl.online.states import RecordsStates
from preferl.training.reward_trainer import RewardTrainer

LOGGER = logging.getLogger(__name__)


def build_learner(config: OnlineConfig, rng: np.random.Generator) -> SB3Learner:
    """The agent that a config describes, in its environments."""
    _warn_of_long_rollouts(config)
    wrap = RecordsStates if config.states else None
    env = make_environments(config.env, config.environments, seed=config.seed, wrap=wrap)
    return SB3Learner(
        build_algorithm(config.algorithm, env, seed=config.seed, device=config.device),
        total_steps=config.steps,
        exploration_fraction=config.exploration_fraction,
        random_probability=config.random_probability,
        switch_probability=config.switch_probability,
        rng=rng,
        states=config.states,
    )


def _warn_of_long_rollouts(config: OnlineConfig) -> None:
    """A turn shorter than a rollout passes without learning where an earlier one ran ahead."""
    if not isinstance(config.algorithm, PPOConfig):
        return
    rollout = config.algorithm.n_steps * config.environments
    turn = (1 - config.exploration_fraction) * (config.steps - config.initial_steps) / config.turns
    if turn < rollout:
        LOGGER.warning(
            "A turn has %d steps to learn from and a rollout takes %d (n_steps * environments), "
            "so some turns will not learn. Take more steps, fewer turns or shorter rollouts.",
            turn,
            rollout,
        )


def build_trainer(config: OnlineConfig, learner: Any) -> RewardTrainer:
    """The reward model and trainer that a config describes, for the learner's spaces.

    Raises:
        ConfigError: a learner of one's own, whose spaces are unknown.
    """
    if not isinstance(learner, SB3Learner):
        raise ConfigError.mismatch(
            "trainer",
            expected="a RewardTrainer beside a learner of your own",
            got=f"none beside a {type(learner).__name__}",
            fix="Build its model for the learner's spaces and pass trainer=.",
        )
    env = learner.reward_env
    model = build_reward_model(
        config.model, env.observation_space, env.action_space, seed=config.seed
    )
    return RewardTrainer(model, config.trainer, seed=config.seed, device=config.device)
