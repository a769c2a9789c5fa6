"""A reward for a robot's episodes from pictures alone, by 300 answers about clips of 25 frames.

The data set `reacher_arm` of LeRobot: 40 episodes of an arm that reaches for a target, played by
agents of four skills. Only the pictures show the target. A scripted teacher answers by the true
reward, about clips of 28 episodes. What counts is the rank correlation of predicted and true
returns of the other 12. Beside the reward from pictures: one from states, which do not show the
target, a random one, and the negated one. Rows that the table has are not made again.

    PREFERL_SHARED=../shared python recipes/lerobot_reacher.py [--seeds 0 1 2 3 4] [--smoke]
"""

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from result_tables import keep, read

from preferl.data import Comparisons, Episodes, concatenate
from preferl.data.sources import open_lerobot
from preferl.evaluation import evaluate_reward
from preferl.feedback import ScriptedTeacher
from preferl.feedback.instant import sample_comparisons
from preferl.feedback.step_rewards import control_rewards
from preferl.models import CNNRewardConfig, infer_spaces
from preferl.statistics import spearman
from preferl.training import RewardFunction, RewardPreset, RewardTrainerConfig, relabel
from preferl.training.reward_presets import reward_preset

SHARED = Path(os.environ.get("PREFERL_SHARED", "../shared"))
RESULTS = Path(__file__).parent / "results" / "lerobot_reacher.csv"
CAMERA = "observation.images.top"
STATE = "observation.state"
FIT = 28
"""Episodes whose clips are compared."""

ANSWERS = 300
FRAMES = 25
SIDE = 32
"""Pixels of a picture's side: means of 3 x 3 pixels of the recorded ones."""

MODEL = CNNRewardConfig(kernels=(5, 3, 3), strides=(2, 2, 1), filters=16, members=1)
TRAINER = RewardTrainerConfig(epochs=3, noise=0.1, patience=None)
PRESETS = {CAMERA: RewardPreset(MODEL, TRAINER), STATE: reward_preset("mlp")}


def episodes_of(feature: str) -> Episodes:
    """Return the episodes with a feature as observations, and the true reward of each frame."""
    folder = SHARED / "data" / "lerobot"
    episodes = open_lerobot(folder / "reacher_arm").episodes([feature])
    with np.load(folder / "reacher_arm_truth.npz") as truth:
        episodes = replace(episodes, rewards=truth["reward"].astype(np.float32))
    return episodes if feature == STATE else replace(
        episodes,
        observations=_smaller(episodes.observations),
        final_observations=_smaller(episodes.final_observations),
    )  # fmt: skip


def _smaller(pictures: np.ndarray) -> np.ndarray:
    rows, side = len(pictures), pictures.shape[1]
    factor = side // SIDE
    blocks = np.asarray(pictures).reshape(rows, SIDE, factor, SIDE, factor, 3)
    return blocks.mean(axis=(2, 4)).round().astype(np.uint8)


def turned(comparisons: Comparisons) -> Comparisons:
    """Return the answers once for each way to turn and mirror the pictures.

    Seen from above, a distance does not depend on the direction; 28 targets are few.
    """
    parts = []
    for quarter in range(4):
        pictures = np.rot90(comparisons.segments.observations, quarter, axes=(1, 2))
        for view in (pictures, pictures[:, :, ::-1]):
            segments = replace(comparisons.segments, observations=np.ascontiguousarray(view))
            parts.append(replace(comparisons, segments=segments))
    return concatenate(parts)


def rows_of(feature: str, seed: int, preset: RewardPreset, answers: int) -> list[dict[str, object]]:
    """Fit a reward of one feature; return its row and those of the controls."""
    episodes = episodes_of(feature)
    order = np.random.default_rng(seed).permutation(len(episodes))
    fitted, unseen = episodes[np.sort(order[:FIT])], episodes[np.sort(order[FIT:])]
    rng = np.random.default_rng([seed, 1])
    teacher = ScriptedTeacher.oracle()
    comparisons = sample_comparisons(fitted, answers, FRAMES, teacher, rng)
    held_out = sample_comparisons(unseen, 500, FRAMES, teacher, rng)
    began = time.process_time()
    spaces = infer_spaces(episodes.observations, episodes.actions)
    seen = comparisons if feature == STATE else turned(comparisons)
    model, report = preset.fit(seen, *spaces, seed=seed)
    seconds = time.process_time() - began
    learned = RewardFunction(model, likelihood=report.likelihood)
    rewards = {"pictures" if feature == CAMERA else "states": learned}
    if feature == CAMERA:
        controls = control_rewards(learned, seed)
        rewards |= {name: controls[name] for name in ("random", "negated")}
    return [
        {
            "condition": name,
            "seed": seed,
            "answers": answers,
            "spearman": round(spearman(relabel(unseen, reward).returns, unseen.returns), 4),
            "accuracy": round(evaluate_reward(reward, held_out).accuracy or 0, 4),
            "processor_seconds": round(seconds, 1),
        }
        for name, reward in rewards.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    presets = dict(PRESETS)
    answers = ANSWERS
    if options.smoke:
        options.seeds = options.seeds[:1]
        answers = 4
        short = replace(TRAINER, epochs=1)
        presets = {name: replace(preset, trainer=short) for name, preset in PRESETS.items()}
    for seed in options.seeds:
        for feature, preset in presets.items():
            name = "pictures" if feature == CAMERA else "states"
            there = {(row["condition"], row["seed"]) for row in read(options.out)}
            if (name, str(seed)) in there and not options.smoke:
                continue
            rows = rows_of(feature, seed, preset, answers)
            print(*rows, sep="\n", flush=True)
            if not options.smoke:
                keep(options.out, rows, ("condition", "seed"))
    for name in ("pictures", "states", "random", "negated"):
        values = [float(r["spearman"]) for r in read(options.out) if r["condition"] == name]
        if values:
            deviation = np.std(values, ddof=min(1, len(values) - 1))
            print(f"{name}: {np.mean(values):.3f} ± {deviation:.3f} over {len(values)} seeds")


if __name__ == "__main__":
    main()
