"""Collect preferences only: an agent that does not learn is filmed, and people compare clips.

python examples/drlhp_collect.py [--smoke]

Leave it running, with `preferl annotate serve --store drlhp_logs` in another terminal. Every answer
is on disk before it is acknowledged, so there is nothing to save at the end.
"""

import argparse
import time

import gymnasium

from preferl import HumanPreferencesEnvWrapper, Store, StoredFeedback

LOGS = "drlhp_logs"
ENV = "Pendulum-v1"


def collect(answers: int, *, smoke: bool) -> None:
    """Act at random until so many answers are there."""
    with Store.open(LOGS) as store:
        frames = {"kind": "env", "env_id": ENV}
        store.projects.create("drlhp", exist_ok=True, fps=20, frames=frames)
        feedback = StoredFeedback(store, "drlhp")
        env = HumanPreferencesEnvWrapper(
            gymnasium.make(ENV),
            log_dir=LOGS,
            feedback=feedback,
            segment_length=25,
            max_queries=answers,
            synthetic_preferences=smoke,
        )
        env.action_space.seed(0)
        env.reset(seed=0)
        steps = 0
        while store.progress(feedback.project.id).answered < answers:
            for _ in range(200):
                *_, terminated, truncated, _ = env.step(env.action_space.sample())
                if terminated or truncated:
                    env.reset()
                steps += 1
            time.sleep(0.1 if smoke else 1.0)
        env.close()
        print(f"{len(feedback.comparisons())} comparisons of {steps:,} steps")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a script gives a few answers")
    smoke = parser.parse_args().smoke
    collect(20 if smoke else 200, smoke=smoke)
