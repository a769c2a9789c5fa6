"""A reward from four people, of whom one answers the opposite and one at random (Hosseini 2026).

Each of them answers 125 questions about clips of HalfCheetah. Three fits of each draw: one that
knows who is who, and so turns the opposite answers round and leaves the random ones out; one that
fits the trust in each of them; and one that takes all answers as they are. Their accuracy is that
on 2,000 pairs of clips of other episodes, against the true returns.

The experience is that of open-loop gaits, made here in half a minute, or the clips of a run of
`preferl online run`.

    python recipes/annotators_trust.py [--draws 10] [--run FOLDER] [--smoke]
"""

import argparse
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import torch
from result_tables import write

from preferl.data import Comparisons, Episodes
from preferl.data.arrays import load_comparisons
from preferl.data.episodes import join
from preferl.feedback import ScriptedTeacher
from preferl.feedback.instant import sample_comparisons
from preferl.models import infer_spaces
from preferl.models.build import build_reward_model
from preferl.shapes import IntArray
from preferl.training import RewardTrainer, reward_preset

RESULTS = Path(__file__).parent / "results" / "annotators_trust.csv"
LENGTH = 50
UNSEEN = 2_000
EACH = 125
PEOPLE = ("careful", "careful too", "opposite", "random")
CONDITIONS = ("who is who is known", "trust", "without")


def gaits(episodes: int, steps: int, rng: np.random.Generator) -> Episodes:
    """Episodes of a cheetah whose joints swing at random speeds, some well and most badly."""
    env = gymnasium.make("HalfCheetah-v5")
    parts = []
    joints = env.action_space.shape
    for number in range(episodes):
        observed = [env.reset(seed=number)[0]]
        acted = []
        rewards = []
        size = rng.uniform(0, 1, joints)
        speed = rng.uniform(0.1, 0.8)
        phase = rng.uniform(0, 2 * np.pi, joints)
        shift = rng.normal(0, 0.2, joints)
        noise = rng.choice([0.05, 0.2, 0.5])
        for step in range(steps):
            swing = size * np.sin(speed * step + phase) + shift + rng.normal(0, noise, joints)
            acted.append(np.clip(swing, -1, 1).astype(np.float32))
            observation, reward, *_ = env.step(acted[-1])
            observed.append(observation)
            rewards.append(reward)
        clip = np.asarray(observed, np.float32)
        ends = np.zeros(steps, bool)
        counts = np.array([steps])
        parts.append(
            Episodes(clip[:-1], np.array(acted), np.array(rewards), ends, clip[-1:], counts)
        )
    return join(parts)


def halves(options: argparse.Namespace, rng: np.random.Generator) -> tuple[Episodes, Episodes]:
    """Episodes to ask about and others to evaluate on."""
    if options.run is None:
        episodes = gaits(10 if options.smoke else 200, 200, rng)
    else:
        episodes = load_comparisons(options.run / "comparisons").segments.episodes()
    shuffled = rng.permutation(len(episodes))
    asked = len(episodes) // 2
    return episodes[np.sort(shuffled[:asked])], episodes[np.sort(shuffled[asked:])]


def answers(right: Comparisons, by: IntArray, rng: np.random.Generator) -> Comparisons:
    """What the four people answer where these are the right answers."""
    given = np.where(by == PEOPLE.index("opposite"), 1 - right.preference, right.preference)
    guesses = rng.integers(0, 2, len(right))
    given = np.where(by == PEOPLE.index("random"), guesses, given)
    return replace(right, preference=given, annotator=by)


def row(draw: int, condition: str, train: Comparisons, unseen: Comparisons) -> dict[str, object]:
    """One fit: its accuracy on unseen pairs, and its trust in each of the four."""
    preset = reward_preset("mlp")
    segments = train.segments
    spaces = infer_spaces(segments.observations, segments.actions)
    config = replace(preset.trainer, trust=condition == "trust")
    trainer = RewardTrainer(build_reward_model(preset.model, *spaces, seed=draw), config, seed=draw)
    report = trainer.fit(train)
    about: dict[str, object] = {
        "draw": draw,
        "condition": condition,
        "accuracy": round(trainer.evaluate(unseen)[1], 4),
        "answers": report.pairs,
        "seconds": round(report.seconds, 1),
    }
    fitted = dict(enumerate(trainer.trust.value))
    reported = {one.annotator: one for one in report.trust if condition == "trust"}
    for number, name in enumerate(PEOPLE):
        one = reported.get(number)
        about[f"{name}: fitted"] = round(fitted[number], 3) if number in fitted else ""
        for end in ("value", "low", "high"):
            about[f"{name}: {end}"] = "" if one is None else round(getattr(one, end), 3)
    return about


def rows_of(
    draw: int, episodes: tuple[Episodes, Episodes], each: int, unseen: int
) -> list[dict[str, object]]:
    """All conditions of one draw."""
    rng = np.random.default_rng([17, draw])
    oracle = ScriptedTeacher.oracle()
    right, test = (
        sample_comparisons(part, count, LENGTH, oracle, rng)
        for part, count in zip(episodes, (len(PEOPLE) * each, unseen), strict=True)
    )
    by = rng.permutation(np.arange(len(right)) % len(PEOPLE))
    given = answers(right, by, rng)
    train = {
        "who is who is known": replace(right[by != PEOPLE.index("random")], annotator=None),
        "trust": given,
        "without": replace(given, annotator=None),
    }
    return [row(draw, condition, train[condition].compact(), test) for condition in CONDITIONS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--run", type=Path, help="folder of a run, to ask about its clips")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--smoke", action="store_true", help="seconds; learns little")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.smoke:
        options.draws = 1
    episodes = halves(options, np.random.default_rng(17))
    counts = (5, 20) if options.smoke else (EACH, UNSEEN)
    rows = []
    for draw in range(options.draws):
        rows += rows_of(draw, episodes, *counts)
        print(draw, *(one["accuracy"] for one in rows[-len(CONDITIONS) :]), flush=True)
    for condition in CONDITIONS:
        found = np.array([one["accuracy"] for one in rows if one["condition"] == condition])
        print(f"{condition}: mean {found.mean():.3f}, {found.min():.3f} to {found.max():.3f}")
    if not options.smoke:
        write(options.out, rows)


if __name__ == "__main__":
    main()
