"""The presets taught by programs that meet in a store and a folder, beside the loop in one process.

The training script is this one: stable-baselines3 on a `FeedbackVecEnv`, whose queries a script
answers in the store as a person does on the page. `preferl reward serve` is a process of its own
that `launch` looks after. Agent, answers and numbers of queries are the preset's. As in the
loop, the preset's share of the queries is about a policy that acts at random, the rest are
spread over the training, and for the preset's share of the steps a random policy takes over now
and then. For the moving dot the distance from the middle is measured as well; an agent
keeps the dot in the middle if it is at most 0.10 of the picture's width.

    python recipes/presets_through_services.py [--presets moving_dot pendulum-ppo] [--seeds 0 1 2]
        [--ways services loop] [--smoke]
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from result_tables import keep

from preferl.configs import from_json
from preferl.evaluation import evaluate_policy
from preferl.online import (
    FeedbackCallback,
    FeedbackVecEnv,
    OnlineConfig,
    learn_from_preferences,
    make_environments,
    record,
)
from preferl.online.algorithms import algorithm_of, build_algorithm
from preferl.online.supervise import launch
from preferl.presets import load_preset
from preferl.store import Store, StoredFeedback

RESULTS = Path(__file__).parent / "results" / "presets_through_services.csv"
PRESETS = ("moving_dot", "pendulum-ppo")
LONGER: dict[str, dict[str, int]] = {"moving_dot": {"steps": 210_000, "buffer_steps": 210_000}}
"""What differs from the preset; the buffer still keeps all experience."""
SETTLED = 50
"""Steps after which a dot that is moved to the middle has arrived from anywhere."""


def wrapped(
    config: OnlineConfig, feedback: StoredFeedback, rewards: Path, questions: int, ask_every: int
) -> FeedbackVecEnv:
    """Environments that ask until the project has had so many questions."""
    return FeedbackVecEnv(
        make_environments(config.env, config.environments, seed=config.seed),
        feedback,
        rewards,
        segment_length=config.segment_length,
        max_queries=questions,
        ask_every=ask_every,
        buffer_steps=config.buffer_steps,
        synthetic_preferences=config.teacher,
        seed=config.seed,
    )


def explore(env: FeedbackVecEnv, seed: int, questions: int) -> None:
    """Act at random until so many questions are asked and there is a reward."""
    env.action_space.seed(seed)
    env.reset()
    while env.counts.asked < questions or env.reward_version == 0:
        env.step(np.stack([env.action_space.sample() for _ in range(env.num_envs)]))
        if env.counts.asked >= questions:
            time.sleep(0.05)
            env.refresh(wait=True)


def service_options(config: OnlineConfig, first: int) -> list[str]:
    """The preset's reward model and its fits, as `preferl reward serve` takes them."""
    pictures = config.env == "preferl/MovingDot-v0"
    few = config.comparisons // config.iterations // 2
    options = {"min-answers": first, "min-new-answers": few, "max-wait": 5, "seed": config.seed}
    options |= {"model": "cnn" if pictures else "mlp", "members": config.model.members}
    options |= {"epochs": config.trainer.epochs, "initial-epochs": config.initial_epochs}
    options |= {"batch-size": config.trainer.batch_size, "noise": config.trainer.noise}
    # As in the loop, all answers are learned from, and each member validates on those it left out.
    options |= {"use-actions": config.model.use_actions, "validation": 0}
    if not pictures:
        options["hidden"] = " ".join(map(str, config.model.hidden))
    return [word for name, value in options.items() for word in (f"--{name}", *str(value).split())]


def through_services(config: OnlineConfig) -> tuple[object, dict[str, object]]:
    first = round(config.initial_fraction * config.comparisons)
    later = config.comparisons - first
    with tempfile.TemporaryDirectory(prefix="preferl-services-") as name:
        labels = Path(name) / "labels"
        rewards = Path(name) / "rewards"
        store = Store.open(labels)
        project = store.projects.create("task", repeat_share=0.0, known_share=0.0)
        feedback = StoredFeedback(store, "task")
        options = service_options(config, first)
        with launch(labels, "task", rewards, page=False, reward_options=options):
            env = wrapped(config, feedback, rewards, first, config.initial_steps // first)
            explore(env, config.seed, first)
            env.close()
            later_steps = config.steps - config.initial_steps
            # Asked in the first eight tenths, so that the last answers are learned from.
            env = wrapped(
                config, feedback, rewards, config.comparisons, int(0.8 * later_steps / later)
            )
            agent = build_algorithm(algorithm_of(config, env), env, seed=config.seed)
            share = config.exploration_fraction
            agent.learn(
                round((1 - share) * later_steps),
                callback=FeedbackCallback(exploration_fraction=share, wait=True, seed=config.seed),
            )
            version = env.reward_version
            env.close()
        answers = store.progress(project.id).answered
        store.close()
    return agent, {"answers": answers, "versions": version}


def in_one_loop(config: OnlineConfig) -> tuple[object, dict[str, object]]:
    report = learn_from_preferences(config)
    return report.learner.algorithm, {
        "answers": len(report.comparisons),
        "versions": config.iterations,
    }


WAYS = {"services": through_services, "loop": in_one_loop}


def row(
    preset: str, way: str, config: OnlineConfig, episodes: int, steps: int
) -> dict[str, object]:
    """One agent: the true return of episodes, and the dot's distance in so many more steps."""
    began = time.perf_counter(), time.process_time()
    agent, measured = WAYS[way](config)
    seconds = time.perf_counter() - began[0]
    own = time.process_time() - began[1]
    report = evaluate_policy(agent, config.env, episodes=episodes, seed=10_000)
    distance = None
    if preset == "moving_dot":  # the reward is minus the distance
        settled = record(agent, config.env, steps, seed=10_000)
        rewards = settled.rewards.reshape(len(settled), -1)
        distance = round(float(abs(rewards[:, SETTLED:].mean())), 4)
    return {
        "preset": preset,
        "way": way,
        "seed": config.seed,
        "true_return": round(report.mean, 2),
        "worst_episode": round(float(report.returns.min()), 2),
        "distance": distance,
        **measured,
        "seconds": round(seconds, 1),
        "processor_seconds_of_script": round(own, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shorter = {"steps": 4_000, "initial_steps": 800, "iterations": 1, "comparisons": 20}
    shorter |= {"eval_every": 0}
    evaluated = (4, 400) if options.smoke else (100, 4_800)
    if options.smoke:
        options.seeds = options.seeds[:1]
    for preset in options.presets:
        config = from_json(OnlineConfig, load_preset(preset) | LONGER.get(preset, {}))
        if options.smoke:
            config = replace(config, **shorter, initial_epochs=1)
        for way in options.ways:
            for seed in options.seeds:
                made = row(preset, way, replace(config, seed=seed), *evaluated)
                print(made, flush=True)
                if not options.smoke:
                    keep(options.out, [made], ("preset", "way", "seed"))


if __name__ == "__main__":
    main()
