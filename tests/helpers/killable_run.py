"""A program that teaches an agent through a store and goes on where it was saved.

A published reward is there from the start; a script answers in people's place.
"""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from helpers.moments import die_at_touch
from preferl.models import MLPRewardConfig, build_reward_model
from preferl.online import (
    FeedbackCallback,
    FeedbackVecEnv,
    SaveRunCallback,
    resume_run,
)
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.training import RewardFunction, has_run
from preferl.training.publish import publish

ENV = "Pendulum-v1"


def prepare(folder: Path) -> None:
    """A store with a project, and a reward."""
    with Store.open(folder / "store") as store:
        store.projects.create("pendulum", fps=10)
    env = gymnasium.make(ENV)
    config = MLPRewardConfig(hidden=(8,), members=2)
    model = build_reward_model(config, env.observation_space, env.action_space, seed=0)
    publish(folder / "rewards", RewardFunction(model))


def agent_in(env: FeedbackVecEnv, algorithm: str) -> Any:
    if algorithm == "PPO":
        return PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=2, seed=1, device="cpu")
    return SAC(
        "MlpPolicy",
        env,
        buffer_size=600,
        learning_starts=64,
        batch_size=16,
        policy_kwargs={"net_arch": [16]},
        seed=1,
        device="cpu",
    )


class Die(BaseCallback):
    """Ends the program at a touch of the folder of its checkpoints after so many steps."""

    def __init__(self, folder: Path, at: int, touch: int) -> None:
        super().__init__()
        self.folder = folder
        self.at = at
        self.touch = touch

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.at:
            self.at = sys.maxsize
            die_at_touch(self.folder, self.touch)
        return True


def main(folder: Path, algorithm: str, steps: int, *moment: int) -> None:
    """Train PPO or SAC for so many steps; with a moment `(AT, TOUCH)` end with -9 before.

    That is from step AT on, when it touches its checkpoints for the TOUCHth time (see
    `die_at_touch`).
    """
    torch.set_num_threads(1)
    callbacks: list[BaseCallback] = [FeedbackCallback(wait=True)]
    callbacks.append(SaveRunCallback(folder / "run", every=128))
    if moment:
        callbacks.append(Die(folder / "run", *moment))
    with Store.open(folder / "store") as store:
        env = FeedbackVecEnv(
            make_vec_env(ENV, 2, seed=1),
            StoredFeedback(store),
            folder / "rewards",
            segment_length=10,
            max_queries=40,
            synthetic_preferences=True,
        )
        agent = agent_in(env, algorithm)
        if has_run(folder / "run"):
            resume_run(folder / "run", agent)
        agent.learn(steps - agent.num_timesteps, callback=callbacks, reset_num_timesteps=False)
        env.close()
        parameters = [value.detach().numpy().ravel() for value in agent.policy.parameters()]
        np.save(folder / "parameters.npy", np.concatenate(parameters))
