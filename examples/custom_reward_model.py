"""A reward model of one's own: linear in the features of a step and in their squares.

python examples/custom_reward_model.py [--smoke]
"""

import sys

import numpy as np
import torch
from torch import Tensor

from preferl.data import Comparisons, sample_segments, split
from preferl.evaluation import RandomPolicy, evaluate_reward
from preferl.feedback import ScriptedTeacher, UniformPairs
from preferl.functional import pool
from preferl.models import RewardModel, RewardOutput, VectorEncoder
from preferl.online import make_environments, record
from preferl.testing import check_reward_model
from preferl.training import RewardFunction, RewardTrainer


class QuadraticReward(RewardModel):
    """`r(o, a) = w · (x, x²)` for `E` members, with `x` the normalised features of a step."""

    def __init__(self, encoder: VectorEncoder, *, members: int) -> None:
        super().__init__(encoder, context=1, members=members)
        self.weights = torch.nn.Parameter(torch.zeros(members, 2 * encoder.size))

    def judge(self, features: Tensor, mask: Tensor) -> RewardOutput:
        """Rewards `[E, B, L]` and scores `[E, B]` of features `[B, L, F]`."""
        terms = torch.cat([features, features.square()], dim=-1)  # [B, L, 2 * F]
        rewards = torch.einsum("blf,ef->ebl", terms, self.weights)
        return RewardOutput(rewards, self.pool(rewards, mask))

    def pool(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """A segment's score is the sum of its rewards."""
        return pool(rewards, mask)


def main(*, pairs: int) -> None:
    env = make_environments("Pendulum-v1", 1, seed=0)
    model = QuadraticReward(VectorEncoder(env.observation_space, env.action_space), members=3)
    check_reward_model(model)

    rng = np.random.default_rng(0)
    episodes = record(RandomPolicy(env.action_space, seed=0), "Pendulum-v1", 8_000, seed=0)
    segments = sample_segments(episodes, 2 * pairs, 50, rng)
    asked = UniformPairs()(segments, pairs, rng)
    answers = ScriptedTeacher.mistake(0.1)(segments[asked], rng)  # one in ten is wrong
    train, test = split(Comparisons.of(segments, asked, answers), rng)

    RewardTrainer(model, seed=0).fit(train)
    report = evaluate_reward(RewardFunction(model), test, episodes=episodes)
    print(f"accuracy {report.accuracy:.1%} on {report.decided} answers of which a tenth is wrong")
    print(f"rank correlation with the true reward of steps {report.spearman:.2f}")


if __name__ == "__main__":
    main(pairs=100 if "--smoke" in sys.argv else 1_000)
