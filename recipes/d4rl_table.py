"""The published table of human-labelled D4RL and robomimic tasks, ours beside theirs.

For each data set that is found in a folder (`hopper-medium-replay-v2.hdf5`, `Lift_ph.hdf5`, ...) a
reward is fitted to the Preference Transformer's human labels and implicit Q-learning is trained
on it, with controls. Means of the last policies are printed beside those of Kim et al. 2023, as
Bai et al. quote them with deviations over seeds. Data sets that are absent are listed, and
those without a simulator that takes the same observations (robosuite) are not evaluated.

    python recipes/d4rl_table.py --files DIR --labels DIR [--models mr pt] [--seeds 0 1 2]

At the published settings (no --budget, a million steps) it takes a GPU and days. `--smoke` only
prints the published scores.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from preferl.data import TASKS
from preferl.offline import OfflineConfig, run_offline


@dataclass(frozen=True)
class Published:
    """Mean and deviation of a method, as published."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:6.2f} ± {self.std:5.2f}"


CONDITIONS = {"true": 0, "mr": 1, "pt": 2}
PUBLISHED = {  # task reward, MR, PT: mean, deviation
    "antmaze-medium-play-v2": (73.88, 4.49, 31.13, 16.96, 70.13, 3.76),
    "antmaze-medium-diverse-v2": (68.13, 10.15, 19.38, 9.24, 65.25, 3.59),
    "antmaze-large-play-v2": (48.75, 4.35, 24.25, 14.03, 42.38, 9.98),
    "antmaze-large-diverse-v2": (44.38, 4.47, 5.88, 6.94, 19.63, 3.70),
    "hopper-medium-replay-v2": (83.06, 15.80, 11.56, 30.27, 84.54, 4.07),
    "hopper-medium-expert-v2": (73.55, 41.47, 57.75, 23.70, 68.96, 33.86),
    "walker2d-medium-replay-v2": (73.11, 8.07, 72.07, 1.96, 71.27, 10.30),
    "walker2d-medium-expert-v2": (107.75, 2.02, 108.32, 3.87, 110.13, 0.21),
    "Lift_ph": (96.75, 1.83, 84.75, 6.23, 91.75, 5.90),
    "Lift_mh": (86.75, 2.82, 91.00, 4.00, 86.75, 5.95),
    "Can_ph": (74.50, 6.82, 68.00, 9.13, 69.67, 5.89),
    "Can_mh": (56.25, 8.78, 47.50, 3.51, 50.50, 6.48),
}


def published(task: str, condition: str) -> Published:
    """The score of a task for "true", "mr" or "pt"."""
    return Published(*PUBLISHED[task][2 * CONDITIONS[condition] : 2 * CONDITIONS[condition] + 2])


def ours(task: str, model: str, options: argparse.Namespace) -> dict[str, str]:
    """Scores of a run's learned and true conditions; in words where nothing can be measured."""
    config = OfflineConfig(
        demonstrations=str(options.files / f"{task}.hdf5"),
        labels=options.labels / task,
        model=model,
        budget=options.budget,
        task=task,
        steps=options.steps,
        episodes=options.episodes if TASKS[task].env else 0,
    )
    result = run_offline(config, options.out / f"{task}-{model}", seeds=options.seeds)
    scores = {
        condition: result["conditions"].get(condition, {}).get("normalised_score")
        for condition in ("learned", "true")
    }
    return {
        model if condition == "learned" else condition: "not evaluated: no simulator"
        if score is None
        else f"{score['mean']:6.2f} ± {score['std'] or 0:5.2f}"
        for condition, score in scores.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="print the published scores alone")
    parser.add_argument("--files", type=Path, default=Path("d4rl"), help="folder of HDF5 files")
    parser.add_argument("--labels", type=Path, default=Path("labels"), help="folder of label sets")
    parser.add_argument("--out", type=Path, default=Path("runs/d4rl_table"))
    parser.add_argument("--models", nargs="+", choices=("mr", "pt"), default=["mr", "pt"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--budget", type=int, help="updates of a reward; the published epochs else")
    parser.add_argument("--episodes", type=int, default=100)
    options = parser.parse_args()
    print(f"{'task':28} {'reward':6} {'published':>16}  ours")
    for task in PUBLISHED:
        measured: dict[str, str] = {}
        if not options.smoke and (options.files / f"{task}.hdf5").exists():
            for model in options.models:
                measured |= ours(task, model, options)
        for reward in CONDITIONS:
            print(
                f"{task:28} {reward:6} {published(task, reward)}  {measured.get(reward, 'no data')}"
            )


if __name__ == "__main__":
    main()
