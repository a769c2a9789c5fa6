"""Pendulums with short episodes, small rewards for them, and what their wrappers hand over."""

from typing import Any

import gymnasium

from preferl.data.episodes import Episodes, join
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


def pendulum(steps: int = STEPS) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1", max_episode_steps=steps)


def reward_of(kind: str = "mlp", seed: int = 0) -> RewardFunction:
    env = pendulum()
    model = build_reward_model(MODELS[kind], env.observation_space, env.action_space, seed=seed)
    return RewardFunction(model)


class Sink:
    """Takes what a wrapper hands over."""

    def __init__(self, env: Any) -> None:
        self.parts: list[Episodes] = []
        env.core.on_episodes = self.parts.append
        env.core.recording.collecting = True

    @property
    def steps(self) -> int:
        return sum(part.steps for part in self.parts)

    def episodes(self, env: Any) -> Episodes:
        env.core.hand_over()
        return join(self.parts)
