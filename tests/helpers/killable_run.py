"""A program that teaches an agent through a store and goes on where it was saved.

python killable_run.py FOLDER PPO|SAC STEPS

It says after how many steps it begins to learn.
Two published rewards are there from the start; a script answers in people's place.
"""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env

from preferl.models import MLPRewardConfig, build_reward_model
from preferl.online import (
    FeedbackCallback,
    FeedbackVecEnv,
    SaveRunCallback,
    has_run,
    resume_run,
    use_threads,
)
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.training import RewardFunction
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
        *("MlpPolicy", env),
        buffer_size=600,
        learning_starts=64,
        batch_size=16,
        policy_kwargs={"net_arch": [16]},
        seed=1,
        device="cpu",
    )


def main(folder: Path, algorithm: str, steps: int) -> None:
    use_threads(1)
    with Store.open(folder / "store") as store:
        env = FeedbackVecEnv(
            make_vec_env(ENV, 2, seed=1),
            StoredFeedback(store),
            folder / "rewards",
            segment_length=10,
            max_questions=40,
            synthetic_preferences=True,
        )
        agent = agent_in(env, algorithm)
        if has_run(folder / "run"):
            resume_run(folder / "run", agent)
        sys.stdout.write(f"after {agent.num_timesteps}\n")
        sys.stdout.flush()
        agent.learn(
            steps - agent.num_timesteps,
            callback=[FeedbackCallback(wait=True), SaveRunCallback(folder / "run", every=128)],
            reset_num_timesteps=False,
        )
        env.close()
        parameters = [value.detach().numpy().ravel() for value in agent.policy.parameters()]
        np.save(folder / "parameters.npy", np.concatenate(parameters))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
