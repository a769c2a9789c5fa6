"""Pendulums with short episodes, small rewards for them, and what their wrappers hand over."""

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from preferl.data.episodes import join
from preferl.models import (
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
from preferl.training import RewardFunction

STEPS = 20
MODELS = {
    "mlp": MLPRewardConfig(hidden=(8,), members=2),
    "nmr": LSTMRewardConfig(width=32, context=7),
    "pt": PreferenceTransformerConfig(width=16, heads=2, preference_width=8, context=7),
    "pt, longer than a rollout": PreferenceTransformerConfig(
        width=16, heads=2, preference_width=8, context=30
    ),
}


def pendulum(steps=STEPS):
    return gymnasium.make("Pendulum-v1", max_episode_steps=steps)


def pendulums(number=1, seed=0):
    """So many, for stable-baselines3."""
    return make_vec_env(pendulum, number, seed=seed)


def small_ppo(env):
    return PPO("MlpPolicy", env, n_steps=16, batch_size=8, n_epochs=1, seed=0, device="cpu")


def reward_of(kind="mlp", seed=0):
    env = pendulum()
    model = build_reward_model(MODELS[kind], env.observation_space, env.action_space, seed=seed)
    return RewardFunction(model)


class Sink:
    """Takes what a wrapper hands over."""

    def __init__(self, env):
        self.parts = []
        env.core.on_episodes = self.parts.append
        env.core.recording.collecting = True

    @property
    def steps(self):
        return sum(part.steps for part in self.parts)

    def episodes(self, env):
        env.core.hand_over()
        return join(self.parts)
