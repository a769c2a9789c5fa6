"""The learned reward of environments that step on a device, without a copy to the host.

`Pendulums` stands for a simulator on a GPU: its states, observations and actions are tensors, and
one call steps all environments. A reward is fitted to 200 scripted answers about random actions,
and computes the reward of each step where the tensors are.

    python examples/tensor_environment.py [--device cuda] [--environments 4096]
"""

import argparse
import math
import time

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from preferl import MLPRewardConfig, RewardTrainerConfig, ScriptedTeacher
from preferl.data.episodes import Episodes
from preferl.feedback.instant import sample_comparisons
from preferl.models import build_reward_model
from preferl.online.wrappers.tensor_rewards import TensorRewards
from preferl.training import RewardFunction, RewardTrainer

OBSERVATIONS = Box(-8, 8, (3,))
ACTIONS = Box(-1, 1, (1,))
LIMIT = 200  # steps of an episode


class Pendulums:
    """Pendulums that swing side by side, in steps of `substeps` parts, as simulators take them."""

    def __init__(
        self, count: int, device: str = "cpu", *, substeps: int = 10, seed: int = 0
    ) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)
        self.angle, self.speed = torch.zeros(2, count, device=device)
        self.time = torch.randint(LIMIT, (count,), device=device, generator=self.generator)
        self.substeps = substeps
        self._reset(torch.ones_like(self.time, dtype=torch.bool))

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Observations `[V, 3]`, true rewards `[V]`, and where a new episode begins `[V]`."""
        torque = 2 * actions[:, 0].clamp(-1, 1)
        off = torch.remainder(self.angle + math.pi, 2 * math.pi) - math.pi
        rewards = -(off**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        pause = 0.05 / self.substeps
        for _ in range(self.substeps):
            pull = 15 * torch.sin(self.angle) + 3 * torque
            self.speed = (self.speed + pull * pause).clamp(-8, 8)
            self.angle = self.angle + self.speed * pause
        self.time = self.time + 1
        begins = self.time >= LIMIT
        self._reset(begins)
        return self.observations(), rewards, begins

    def observations(self) -> Tensor:
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed], dim=1)

    def _reset(self, begins: Tensor) -> None:
        """Begin episodes anew where `begins` is true, without asking the device whether any is."""
        like = {"device": self.angle.device, "generator": self.generator}
        angle, speed = torch.rand(2, len(begins), **like) - 0.5
        self.angle = torch.where(begins, 2 * math.pi * angle, self.angle)
        self.speed = torch.where(begins, 2 * speed, self.speed)
        self.time = torch.where(begins, 0, self.time)


def fitted_reward(device: str, seed: int = 0) -> RewardFunction:
    """A reward fitted to 200 answers about pendulums that act at random."""
    pendulums = Pendulums(32, seed=seed)
    steps = []
    actions = torch.rand(LIMIT, 32, 1, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    for acted in actions:
        seen = pendulums.observations()
        steps.append((seen, pendulums.step(acted)[1]))
    seen, rewards = (np.stack([step[k].numpy() for step in steps], axis=1) for k in (0, 1))
    episodes = Episodes(
        seen.reshape(-1, 3), actions.numpy().swapaxes(0, 1).reshape(-1, 1), rewards.ravel(),
        np.zeros(rewards.size, bool), seen[:, -1], np.full(32, LIMIT),
    )  # fmt: skip
    answers = sample_comparisons(
        episodes, 200, 20, ScriptedTeacher.oracle(), np.random.default_rng(seed)
    )
    config = MLPRewardConfig(hidden=(64, 64), members=3)
    model = build_reward_model(config, OBSERVATIONS, ACTIONS, seed=seed)
    trainer = RewardTrainer(model, RewardTrainerConfig(epochs=30), seed=seed, device=device)
    trainer.fit(answers)
    return RewardFunction(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--environments", type=int, default=4_096)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--smoke", action="store_true", help="seconds; shows each step")
    options = parser.parse_args()
    if options.smoke:
        options.environments = 64
        options.steps = 20
    pendulums = Pendulums(options.environments, options.device)
    rewards = TensorRewards(fitted_reward(options.device))
    seen = pendulums.observations()
    begins = None
    learned = []
    true = []
    began = time.perf_counter()
    for _ in range(options.steps):
        actions = torch.rand(options.environments, 1, device=options.device) * 2 - 1
        learned.append(rewards(seen, actions, begins))
        seen, given, begins = pendulums.step(actions)
        true.append(given)
    columns = torch.stack([torch.cat(learned), torch.cat(true)])
    seconds = time.perf_counter() - began
    print(f"{options.steps * options.environments / seconds:,.0f} steps a second")
    print(f"learned and true rewards correlate by {torch.corrcoef(columns)[0, 1].item():.2f}")


if __name__ == "__main__":
    main()
