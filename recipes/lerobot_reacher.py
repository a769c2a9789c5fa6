"""A reward for a robot's episodes from pictures alone, by 300 answers about clips of 25 frames.

The data set `reacher_arm` of LeRobot: 40 episodes of an arm that reaches for a target, played by
agents of four skills. Only the pictures show the target. A scripted teacher answers by the true
reward, about clips of 28 episodes. What counts is the rank correlation of predicted and true
returns of the other 12. Beside the reward from pictures: one from states, which do not show the
target, one from actions and features of a frozen encoder of the size of DINOv2's smallest, whose
weights are random as no trained ones are at hand, one from actions alone, a random reward, and the
negated one. Rows that the table has are not made again.

Do ratings replace answers? Half of the answers alone, and half of them beside 28 ratings of whole
episodes from 1 to 5, by the fifth of the true returns in which an episode lies.

    PREFERL_SHARED=../shared python recipes/lerobot_reacher.py [--seeds 0 1 2 3 4] [--smoke]
        [--features observation.state] [--tables FOLDER]

`--tables` keeps the progress of all frames by each reward. `benchmarks/lerobot_weights.py` shows
how LeRobot weighs frames by it.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from result_tables import keep, read

from preferl.data import Episodes, Ratings, whole_episodes
from preferl.data.frame_tables import FrameRewards
from preferl.data.sources import open_lerobot
from preferl.evaluation import evaluate_reward
from preferl.feedback import ScriptedTeacher
from preferl.feedback.instant import sample_comparisons
from preferl.feedback.step_rewards import control_rewards
from preferl.models import CNNRewardConfig, FrozenEncoder, infer_spaces
from preferl.statistics import spearman
from preferl.training import RewardPreset, RewardTrainerConfig, agent_reward, relabel
from preferl.training.reward_presets import reward_preset

SHARED = Path(os.environ.get("PREFERL_SHARED", "../shared"))
RESULTS = Path(__file__).parent / "results" / "lerobot_reacher.csv"
CAMERA = "observation.images.top"
STATE = "observation.state"
FROZEN = "frozen, random weights"
ACTIONS = "actions alone"
CONDITIONS = {CAMERA: "pictures", STATE: "states", FROZEN: FROZEN, ACTIONS: ACTIONS}
"""What is observed: features of the data set, or of the encoder."""

SIDE = 98
"""Pixels of the square that the encoder sees, 7 patches a side: frames have 96."""

FIT = 28
"""Episodes whose clips are compared."""

ANSWERS = 300
HALF = ANSWERS // 2
CHUNK = 10  # frames of a policy's action chunk
FRAMES = 25
TABLE = np.s_[:, 24:76, 10:86]
"""Where the table is in the pictures. The target is a dot of one or two pixels there."""

CONTRAST = 4
"""Factor of the difference from the mean picture: the dot is hardly darker than the table."""

MODEL = CNNRewardConfig(kernels=(5, 3, 3), strides=(2, 2, 1), filters=16, members=1)
TRAINER = RewardTrainerConfig(epochs=12, noise=0.1, patience=None)
PRESETS = {
    CAMERA: RewardPreset(MODEL, TRAINER),
    STATE: reward_preset("mlp"),
    FROZEN: reward_preset("mlp"),
    ACTIONS: reward_preset("mlp"),
}
EPOCHS_OF_HALF = {CAMERA: 20, STATE: 100}
"""Passes over fewer answers: of pictures, as many updates as with all answers; of states, enough
for the loss on out-of-bag answers to choose one, as on seeds 100 to 105."""


def episodes_of(feature: str, layers: int = 12) -> Episodes:
    """Return the episodes with a feature as observations, and the true reward of each frame.

    `layers` are those of the frozen encoder.
    """
    folder = SHARED / "data" / "lerobot"
    read = {FROZEN: CAMERA, ACTIONS: STATE}.get(feature, feature)
    episodes = open_lerobot(folder / "reacher_arm").episodes([read])
    with np.load(folder / "reacher_arm_truth.npz") as truth:
        episodes = replace(episodes, rewards=truth["reward"].astype(np.float32))
    if feature == STATE:
        return episodes
    if feature in (FROZEN, ACTIONS):
        features = frozen_features(layers) if feature == FROZEN else np.zeros((episodes.steps, 1))
        last = features[episodes.ends - 1]
        return replace(episodes, observations=features, final_observations=last)
    background = np.asarray(episodes.observations)[TABLE].mean(axis=0)
    return replace(
        episodes,
        observations=_contrasted(episodes.observations, background),
        final_observations=_contrasted(episodes.final_observations, background),
    )


@cache
def frozen_features(layers: int) -> np.ndarray:
    """Encode all frames by a vision transformer with random weights: `[T, 384]`."""
    with TemporaryDirectory() as folder:
        encoder = random_encoder(Path(folder), SIDE, layers=layers)
        pictures = open_lerobot(SHARED / "data" / "lerobot" / "reacher_arm").pictures(CAMERA)
        return encoder(pictures)


def random_encoder(folder: Path, side: int, *, layers: int = 12) -> FrozenEncoder:
    """Save an encoder of the shape of DINOv2's smallest (ViT-S/14) with random weights."""
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    size = {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": layers}
    Dinov2Model(Dinov2Config(**size, image_size=side, patch_size=14)).save_pretrained(folder)
    preprocessing = {
        "image_processor_type": "BitImageProcessor",
        "size": {"height": side, "width": side},
        "do_center_crop": False,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessing))
    return FrozenEncoder.of(folder)


def _contrasted(pictures: np.ndarray, background: np.ndarray) -> np.ndarray:
    difference = CONTRAST * (np.asarray(pictures)[TABLE] - background)
    return np.clip(128 + difference, 0, 255).round().astype(np.uint8)


def ratings_of(episodes: Episodes) -> Ratings:
    """Rate whole episodes by the fifth of the true returns in which each lies."""
    count = len(episodes)
    rank = episodes.returns.argsort().argsort()
    return Ratings(
        segments=whole_episodes(episodes),
        clip=np.arange(count),
        annotator=np.zeros(count, np.int64),
        value=1 + rank * 5 // count,
        is_outcome=np.zeros(count, bool),
    )


def rows_of(
    condition: str,
    feature: str,
    seed: int,
    preset: RewardPreset,
    answers: int,
    *,
    rated: bool = False,
    tables: Path | None = None,
    layers: int = 12,
) -> list[dict[str, object]]:
    """Fit a reward of one feature; return its row and those of the controls."""
    episodes = episodes_of(feature, layers)
    order = np.random.default_rng(seed).permutation(len(episodes))
    fitted, unseen = episodes[np.sort(order[:FIT])], episodes[np.sort(order[FIT:])]
    rng = np.random.default_rng([seed, 1])
    teacher = ScriptedTeacher.oracle()
    comparisons = sample_comparisons(fitted, ANSWERS, FRAMES, teacher, rng)[:answers]
    held_out = sample_comparisons(unseen, 500, FRAMES, teacher, rng)
    began = time.process_time()
    spaces = infer_spaces(episodes.observations, episodes.actions)
    ratings = ratings_of(fitted) if rated else None
    model, report = preset.fit(comparisons, *spaces, ratings=ratings, seed=seed)
    seconds = time.process_time() - began
    learned = agent_reward(model, report.likelihood, fitted)
    rewards = {condition: learned}
    if condition == CONDITIONS[CAMERA]:
        controls = control_rewards(learned, seed)
        rewards |= {name: controls[name] for name in ("random", "negated")}
    if tables is not None:
        folder = open_lerobot(SHARED / "data" / "lerobot" / "reacher_arm")
        for name, reward in rewards.items():
            given = relabel(episodes, reward).rewards
            frames = FrameRewards(folder, given - given.mean(), version=name, chunk=CHUNK)
            frames.write(tables / f"{name}-{seed}.parquet", "progress")
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


def conditions_of(features: list[str]) -> list[tuple[str, int, bool]]:
    """Return feature, number of answers and whether episodes are rated, of each fit."""
    fewer = [feature for feature in features if feature in EPOCHS_OF_HALF]
    return [
        *((feature, ANSWERS, False) for feature in features),
        *((feature, HALF, rated) for rated in (True, False) for feature in fewer),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--features", nargs="+", default=[*PRESETS], choices=[*PRESETS])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables", type=Path, help="folder for progress of all frames")
    parser.add_argument("--smoke", action="store_true", help="seconds; learns nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    presets = dict(PRESETS)
    if options.smoke:
        options.seeds = options.seeds[:1]
        short = replace(TRAINER, epochs=1)
        presets = {name: replace(preset, trainer=short) for name, preset in PRESETS.items()}
    layers = 1 if options.smoke else 12
    names = []
    for feature, answers, rated in conditions_of(options.features):
        name = CONDITIONS[feature]
        if answers < ANSWERS:
            name += f", {answers} answers" + (f" and {FIT} ratings" if rated else "")
        names.append(name)
        preset = presets[feature]
        if answers < ANSWERS and not options.smoke:
            trainer = replace(preset.trainer, epochs=EPOCHS_OF_HALF[feature])
            preset = replace(preset, trainer=trainer)
        for seed in options.seeds:
            there = {(row["condition"], row["seed"]) for row in read(options.out)}
            if (name, str(seed)) in there and not options.smoke:
                continue
            rows = rows_of(
                name,
                feature,
                seed,
                preset,
                4 if options.smoke else answers,
                rated=rated,
                tables=options.tables if answers == ANSWERS else None,
                layers=layers,
            )
            print(*rows, sep="\n", flush=True)
            if not options.smoke:
                keep(options.out, rows, ("condition", "seed"))
    for name in (*names, "random", "negated"):
        values = [float(r["spearman"]) for r in read(options.out) if r["condition"] == name]
        if values:
            deviation = np.std(values, ddof=min(1, len(values) - 1))
            print(f"{name}: {np.mean(values):.3f} ± {deviation:.3f} over {len(values)} seeds")


if __name__ == "__main__":
    main()
