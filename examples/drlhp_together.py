"""Collect preferences and train together: people answer in the browser while an agent learns.

python examples/drlhp_together.py [--smoke]

The agent explores until the reward has learned from the first 40 answers, not counting "can't
tell" and pairs that come back. Then it learns, slowly, so that people keep up with it: about a
quarter of an hour. Everything is in the folder `drlhp_logs`, the agent with its environments
included: stop it, or let it be killed, and start it again to go on. With --smoke a script answers.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from preferl import FeedbackCallback, FeedbackVecEnv, Store, StoredFeedback, launch
from preferl.online import SaveRunCallback, make_environments, resume_run
from preferl.training import has_run

LOGS = Path("drlhp_logs")
ENV = "Pendulum-v1"
EVERY = 5  # seconds between two lines in the terminal
PAUSE = 0.03  # seconds per step: at full speed the agent is done before people have answered twice


class Together(BaseCallback):
    """Lets the agent act slowly, and prints every few seconds what is new."""

    def __init__(self, feedback: StoredFeedback, pause: float) -> None:
        super().__init__()
        self.feedback = feedback
        self.pause = pause
        self.returns = []
        self.printed = time.monotonic()

    def _on_step(self) -> bool:
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if time.monotonic() - self.printed > EVERY:
            self.printed = time.monotonic()
            line = f"{self.num_timesteps:,} steps, {answers(self.feedback)} answers, "
            line += f"reward version {self.training_env.reward_version}"
            if self.returns:
                line += f"; {len(self.returns)} episodes since returned {np.mean(self.returns):.0f}"
            print(line)
            self.returns = []
        time.sleep(self.pause)
        return True


def answers(feedback: StoredFeedback) -> int:
    """How many prefer a clip, or find both as good."""
    return feedback.store.reports.decided(feedback.project.id)


def explore_until_there_is_a_reward(
    env: FeedbackVecEnv, feedback: StoredFeedback, first: int, seconds: float
) -> None:
    """Act at random, slowly, so that people have something to compare."""
    env.reset()
    steps = 0
    began = time.monotonic()
    printed = 0.0
    while env.reward_version == 0 and time.monotonic() - began < seconds:
        env.step(np.stack([env.action_space.sample() for _ in range(env.num_envs)]))
        env.refresh()
        steps += env.num_envs
        if time.monotonic() - printed > EVERY:
            printed = time.monotonic()
            given = answers(feedback)
            learns = "the reward learns from them" if given >= first else f"{first} are needed"
            print(f"explores: {steps:,} steps, {given} answers; {learns}")
        time.sleep(0.005)


def main(*, smoke: bool) -> None:
    torch.set_num_threads(1)  # the reward service and the page want to work, too
    first, steps = (10, 512) if smoke else (40, 100_000)
    options = ("--min-answers", str(first), "--members", "3")
    if smoke:
        options += ("--epochs", "2", "--initial-epochs", "2")
    with Store.open(LOGS) as store:
        store.projects.create(
            "pendulum",
            exist_ok=True,  # when the script is started again
            question="Which pendulum is better at standing upright?",
            fps=20,
            frames={"kind": "env", "env_id": ENV},
        )
        feedback = StoredFeedback(store, "pendulum")
        env = FeedbackVecEnv(
            make_environments(ENV, 4, seed=0),
            feedback,
            LOGS / "rewards",
            segment_length=25,
            max_pending=20,
            max_queries=15 if smoke else 700,
            buffer_steps=5_000,  # people see what the agent has done in the last minute
            sampler="informative",
            synthetic_preferences=smoke,
        )
        with launch(LOGS, "pendulum", LOGS / "rewards", page=not smoke, reward_options=options):
            agent = PPO("MlpPolicy", env, n_steps=128, gamma=0.9, learning_rate=1e-3, device="cpu")
            if has_run(LOGS / "agent"):
                resume_run(LOGS / "agent", agent)
                print(f"goes on after {agent.num_timesteps:,} of {steps:,} steps")
            elif env.reward_version == 0:
                print(f"explores until there are {first} answers and a reward; Ctrl-C stops")
                explore_until_there_is_a_reward(env, feedback, first, 120 if smoke else 3600)
            print(
                "learns; what episodes return is the environment's own reward, which it never sees"
            )
            agent.learn(
                steps - agent.num_timesteps,
                callback=[
                    FeedbackCallback(exploration_fraction=0.02),
                    SaveRunCallback(LOGS / "agent", every=steps // 50),
                    Together(feedback, 0 if smoke else PAUSE),
                ],
                reset_num_timesteps=False,
            )
            env.save()
        print(
            f"{agent.num_timesteps:,} steps, reward version {env.reward_version}, "
            f"{answers(feedback)} answers\n"
            f"the agent is in {LOGS / 'agent'}, its rewards are in {LOGS / 'rewards'}; answer what "
            f"is left with: preferl annotate serve --store {LOGS}"
        )
        env.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a script answers a few questions")
    try:
        main(smoke=parser.parse_args().smoke)
    except KeyboardInterrupt:
        print("stopped; start it again and it goes on from its last checkpoint")
