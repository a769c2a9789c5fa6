"""A program that teaches an agent through a store and goes on where it was saved.

A published reward is there from the start; a script answers in people's place.
"""

import sys

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from helpers.moments import die_at_touch
from helpers.resumable_runs import agent_on, reward_for
from preferl.online import FeedbackCallback, FeedbackVecEnv, SaveRunCallback, resume_run
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.training import has_run
from preferl.training.publish import publish

ENV = "Pendulum-v1"


def prepare(folder):
    """A store with a project, and a reward."""
    with Store.open(folder / "store") as store:
        store.projects.create("pendulum", fps=10)
    publish(folder / "rewards", reward_for(ENV))


class Die(BaseCallback):
    """Ends the program at a touch of the folder of its checkpoints after so many steps."""

    def __init__(self, folder, at, touch):
        super().__init__()
        self.folder = folder
        self.at = at
        self.touch = touch

    def _on_step(self):
        if self.num_timesteps >= self.at:
            self.at = sys.maxsize
            die_at_touch(self.folder, self.touch)
        return True


def main(folder, algorithm, steps, *moment):
    """Train PPO or SAC for so many steps; with a moment `(AT, TOUCH)` end with -9 before.

    That is from step AT on, when it touches its checkpoints for the TOUCHth time (see
    `die_at_touch`).
    """
    torch.set_num_threads(1)
    callbacks = [FeedbackCallback(wait=True)]
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
        agent = agent_on(algorithm, env)
        if has_run(folder / "run"):
            resume_run(folder / "run", agent)
        agent.learn(steps - agent.num_timesteps, callback=callbacks, reset_num_timesteps=False)
        env.close()
        parameters = [value.detach().numpy().ravel() for value in agent.policy.parameters()]
        np.save(folder / "parameters.npy", np.concatenate(parameters))
