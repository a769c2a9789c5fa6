"""A reward model of one's own: linear in the features of a step and in their squares.

It is registered by name, so that settings, files, commands and the service know it. Twenty lines do
that, imports included: those of the two classes, of `register`, `save_reward` and `load_reward`,
and the second of these commands:

python examples/custom_reward_model.py [--smoke]
cd examples; preferl reward serve --model quadratic --trust custom_reward_model
"""

import sys
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np
import torch

from preferl.data import Comparisons, sample_segments, split
from preferl.evaluation import RandomPolicy, evaluate_reward
from preferl.feedback import ScriptedTeacher, UniformPairs
from preferl.models import ConfiguredReward, RewardOutput
from preferl.online import make_environments, record
from preferl.registry import REWARD_MODELS
from preferl.testing import check_reward_model
from preferl.training import (
    PublishedReward,
    RewardFunction,
    RewardSettings,
    load_reward,
    save_reward,
)
from preferl.training.publish import publish


@dataclass(frozen=True)
class QuadraticConfig:
    """Shape of a `QuadraticReward`: networks that differ by their bootstraps."""

    members: int = 1


class QuadraticReward(ConfiguredReward):
    """`r(o, a) = w · (x, x²)` for `E` members, with `x` the normalised features of a step."""

    defaults = QuadraticConfig

    def build(self, generator: torch.Generator) -> None:  # noqa: ARG002  # zeros need no numbers
        """Weights `[E, 2 * F]`, with `F` the features of a step."""
        self.weights = torch.nn.Parameter(torch.zeros(self.members, 2 * self.encoder.size))

    def judge(self, features: torch.Tensor, mask: torch.Tensor) -> RewardOutput:
        """Rewards `[E, B, L]` and scores `[E, B]` of features `[B, L, F]`."""
        terms = torch.cat([features, features.square()], dim=-1)  # [B, L, 2 * F]
        rewards = torch.einsum("blf,ef->ebl", terms, self.weights)
        return RewardOutput(rewards, self.pool(rewards, mask))


REWARD_MODELS.register("quadratic", QuadraticReward, QuadraticConfig)


def main(*, pairs: int) -> None:
    env = make_environments("Pendulum-v1", 1, seed=0)
    spaces = env.observation_space, env.action_space
    check_reward_model(QuadraticReward(*spaces, seed=0))

    rng = np.random.default_rng(0)
    episodes = record(RandomPolicy(env.action_space, seed=0), "Pendulum-v1", 8_000, seed=0)
    segments = sample_segments(episodes, 2 * pairs, 50, rng)
    asked = UniformPairs()(segments, pairs, rng)
    answers = ScriptedTeacher.mistake(0.1)(segments[asked], rng)  # one in ten is wrong
    train, test = split(Comparisons.of(segments, asked, answers), rng)

    preset = RewardSettings(model="quadratic", epochs=50).preset(length=50, answers=len(train))
    model, _ = preset.fit(train, *spaces, seed=0)
    reward = RewardFunction(model)
    report = evaluate_reward(reward, test, episodes=episodes)
    print(f"accuracy {report.accuracy:.1%} on {report.decided} answers of which a tenth is wrong")
    print(f"rank correlation with the true reward of steps {report.spearman:.2f}")

    with TemporaryDirectory() as folder:
        save_reward(f"{folder}/reward", reward)
        loaded = load_reward(f"{folder}/reward", trust=["custom_reward_model"])
        publish(f"{folder}/published", loaded)
        published = PublishedReward(f"{folder}/published")
        published.refresh()
        same = np.array_equal(published.reward.scores(segments), reward.scores(segments))
        print(f"version {published.version} scores {'as the first' if same else 'otherwise'}")


if __name__ == "__main__":
    main(pairs=100 if "--smoke" in sys.argv else 1_000)
