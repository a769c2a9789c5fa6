"""A training script that may be killed at any time, as a user would write it, for `faults.py`.

    python benchmarks/faults_agent.py FOLDER --seed 0 --steps 45000

`FOLDER/store` holds the labels and `FOLDER/rewards` what was learned from them. It goes on from
its last checkpoint, notes each reward that it takes up, and ends with its true return.
"""

import argparse
import json
import logging
import time
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

from preferl.files import write_json
from preferl.online import FeedbackCallback, FeedbackVecEnv, has_run, resume_run, save_run
from preferl.store import Store, StoredFeedback
from preferl.testing.worlds import PointWorld

ENVIRONMENTS = 8
ROLLOUT = 64
SAVE_SECONDS = 1.0
"""Between two checkpoints: what a kill costs at most."""


def digest(model: torch.nn.Module) -> str:
    """Distinguishes one model's numbers from another's."""
    content = blake2b(digest_size=8)
    for name, value in sorted(model.state_dict().items()):
        content.update(name.encode() + np.ascontiguousarray(value.numpy()).tobytes())
    return content.hexdigest()


class Notes(BaseCallback):
    """Keeps the pace of a slower world, saves, and notes rewards that were taken up."""

    def __init__(self, folder: Path, steps_per_second: float) -> None:
        super().__init__()
        self._folder = folder
        self._seconds = ROLLOUT * ENVIRONMENTS / steps_per_second
        self._version = 0
        self._next = self._saved = time.monotonic()

    def _on_rollout_start(self) -> None:
        env = self.training_env
        if env.reward_version != self._version:
            self._version = env.reward_version
            taken = {
                "version": self._version,
                "digest": digest(env.learned_reward.model),
                "steps": self.num_timesteps,
            }
            with (self._folder / "taken.jsonl").open("a") as file:
                file.write(json.dumps(taken) + "\n")
        if time.monotonic() - self._saved > SAVE_SECONDS:
            save_run(self._folder / "agent", self.model, env)
            self._saved = time.monotonic()
        self._next = max(self._next + self._seconds, time.monotonic())
        time.sleep(max(self._next - self._seconds - time.monotonic(), 0.0))

    def _on_step(self) -> bool:
        return True


def worlds(seed: int) -> DummyVecEnv:
    """Points that are pushed about."""
    venv = DummyVecEnv([PointWorld] * ENVIRONMENTS)
    venv.seed(seed)
    return venv


def train(folder: Path, options: argparse.Namespace) -> None:
    with Store.open(folder / "store") as store:
        env = FeedbackVecEnv(
            worlds(options.seed),
            StoredFeedback(store),
            folder / "rewards",
            segment_length=10,
            max_pending=16,
            max_queries=options.queries,
            ask_every=options.steps // (3 * options.queries),
            episode_every=None,
            seed=options.seed,
        )
        settings = {"n_steps": ROLLOUT, "batch_size": 128, "n_epochs": 4, "gamma": 0.9}
        settings |= {"learning_rate": 2e-3, "seed": options.seed, "device": "cpu"}
        agent = PPO("MlpPolicy", env, policy_kwargs={"net_arch": [32, 32]}, **settings)
        run = folder / "agent"
        done = resume_run(run, agent).steps if has_run(run) else 0
        logging.info("Goes on at step %d of %d.", done, options.steps)
        notes = Notes(folder, options.pace)
        agent.learn(
            max(options.steps - done, 0), [FeedbackCallback(), notes], reset_num_timesteps=not done
        )
        unseen = worlds(10_000)
        mean, _ = evaluate_policy(agent, unseen, n_eval_episodes=200, warn=False)
        asked = env.counts.asked
        env.close()
    write_json(
        folder / "result.json",
        {"return": mean, "version": env.reward_version, "steps": agent.num_timesteps}
        | {"asked": asked},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=45_000)
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--pace", type=float, default=1000.0, help="steps per second at most")
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    options = parser.parse_args()
    train(options.folder, options)


if __name__ == "__main__":
    main()
