"""preferl at the same work."""

import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import workloads as w
from gymnasium import spaces
from worker import grown, serve

from preferl.data import Comparisons, Episodes, Segments, sample_segments, save_comparisons
from preferl.feedback import InformativePairs, ScriptedTeacher, UniformPairs
from preferl.models import MLPReward, MLPRewardConfig
from preferl.online import OnlineConfig, PPOConfig, learn_from_preferences
from preferl.training import RewardFunction, RewardTrainer, RewardTrainerConfig

torch.set_num_threads(1)
OFTEN = 10  # a repetition of what takes milliseconds does it this often, long enough to time
SPACES = (
    spaces.Box(-np.inf, np.inf, (w.OBSERVATION,), np.float32),
    spaces.Box(-1, 1, (w.ACTION,), np.float32),
)


def about() -> dict[str, str]:
    names = ("preferl", "torch", "numpy", "gymnasium", "stable-baselines3")
    return {name: version(name) for name in names}


def episodes(data: w.Experience) -> Episodes:
    count, steps = data.rewards.shape
    return Episodes(
        observations=data.observations[:, :-1].reshape(-1, w.OBSERVATION),
        actions=data.actions.reshape(-1, w.ACTION),
        rewards=data.rewards.reshape(-1),
        terminated=np.zeros(count * steps, bool),
        final_observations=data.observations[:, -1],
        lengths=np.full(count, steps),
    )


def comparisons(data: w.Experience, asked: w.Questions) -> Comparisons:
    block = episodes(data)
    start = (asked.episode * data.rewards.shape[1] + asked.start).ravel()
    windows = Segments(
        block.observations,
        block.actions,
        block.rewards,
        start,
        np.full(len(start), w.LENGTH),
        w.LENGTH,
    )
    return Comparisons.of(windows, np.arange(len(start)).reshape(-1, 2), asked.preference)


def model(members: int) -> MLPReward:
    config = MLPRewardConfig(hidden=w.HIDDEN, members=members, activation="relu")
    return MLPReward(*SPACES, config, seed=0)


def fit(members: int, *, compiled: bool = False) -> Callable[[], dict[str, Any]]:
    answers = comparisons(*w.fitting())
    config = RewardTrainerConfig(epochs=w.EPOCHS, batch_size=w.BATCH, noise=0.0, compile=compiled)

    def repetition() -> dict[str, Any]:
        RewardTrainer(model(members), config, seed=0).fit(answers)
        return {"units": w.EPOCHS * w.FIT_PAIRS}

    repetition()
    return repetition


def select() -> Callable[[], dict[str, Any]]:
    """Drawing the candidates included."""
    rng = np.random.default_rng(0)
    candidates = w.QUESTIONS * w.OVERSAMPLING
    block = episodes(w.selecting())
    sampler = InformativePairs(RewardFunction(model(w.MEMBERS)).scores, oversampling=w.OVERSAMPLING)

    def repetition() -> dict[str, Any]:
        for _ in range(OFTEN):
            segments = sample_segments(block, 2 * candidates, w.LENGTH, rng)
            chosen = sampler(segments, w.QUESTIONS, rng)
        return {"units": OFTEN * candidates, "chosen": len(chosen)}

    repetition()
    return repetition


def draw(*, laid_out: bool = False) -> Callable[[], dict[str, Any]]:
    rng = np.random.default_rng(0)
    block = episodes(w.drawing())

    def repetition() -> dict[str, Any]:
        for _ in range(OFTEN):
            segments = sample_segments(block, 2 * w.DRAWN_PAIRS, w.LENGTH, rng)
            pairs = UniformPairs()(segments, w.DRAWN_PAIRS, rng)
            if laid_out:
                segments[pairs]
        return {"units": OFTEN * w.DRAWN_PAIRS}

    repetition()
    return repetition


def job() -> Callable[[], dict[str, Any]]:
    t = w.TUTORIAL
    # imitation makes one rollout more than it has turns, and collects what it asks about first.
    rollouts = t["turns"] + 1
    learned = rollouts * t["rollout"] * t["environments"]
    first = int(2 * t["length"] * t["initial_fraction"] * t["comparisons"])
    config = OnlineConfig(
        env=t["env"],
        environments=t["environments"],
        steps=first + int(learned / (1 - t["exploration"])),
        initial_steps=first,
        comparisons=t["comparisons"],
        iterations=rollouts,
        segment_length=t["length"],
        initial_fraction=t["initial_fraction"],
        initial_epochs=t["initial_epochs"],
        exploration_fraction=t["exploration"],
        algorithm=PPOConfig(n_steps=t["rollout"], hidden=w.HIDDEN, **t["ppo"]),
        model=MLPRewardConfig(hidden=w.HIDDEN, members=1, activation="relu"),
        trainer=RewardTrainerConfig(epochs=w.EPOCHS, batch_size=w.BATCH, noise=0.0),
        teacher=ScriptedTeacher(scale=None),
        eval_every=0,  # imitation's script does not evaluate while it learns
        seed=0,
    )

    def repetition() -> dict[str, Any]:
        report = learn_from_preferences(config)
        last = next(one.fit for one in reversed(report.iterations) if one.fit)
        return {
            "units": 1,
            "agent_steps": report.learner.algorithm.num_timesteps,
            "env_steps": report.env_steps,
            "comparisons": len(report.comparisons or ()),
            "accuracy": float(last.train_accuracy[-1]),
        }

    return repetition


def storage() -> dict[str, float]:
    rng = np.random.default_rng(0)
    makings: dict[str, Any] = {}
    data = w.drawing()

    def build() -> Comparisons:
        makings["episodes"] = episodes(data)
        segments = sample_segments(makings["episodes"], 2 * w.DRAWN_PAIRS, w.LENGTH, rng)
        pairs = UniformPairs()(segments, w.DRAWN_PAIRS, rng)
        preference = rng.integers(2, size=w.DRAWN_PAIRS).astype(np.float64)
        return Comparisons.of(segments, pairs, preference)

    answers, traced, resident = grown(build, makings.clear)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "comparisons"
        save_comparisons(path, answers)
        file = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    return {"file_bytes": file, "traced_bytes": traced, "resident_bytes": resident}


if __name__ == "__main__":
    serve(
        about,
        {
            "fit": lambda: fit(1),
            "fit_compiled": lambda: fit(1, compiled=True),
            "fit_ensemble": lambda: fit(w.MEMBERS),
            "fit_ensemble_compiled": lambda: fit(w.MEMBERS, compiled=True),
            "select": select,
            "draw": draw,
            "draw_laid_out": lambda: draw(laid_out=True),
            "job": job,
        },
        {"storage": storage, "storage_recorded": storage},
    )
