"""From recorded demonstrations and people's labels to a reward on disk, and back to numbers.

python examples/labels_to_reward.py --demonstrations demos.pickle --labels labels_folder
python examples/labels_to_reward.py --smoke
"""

import argparse
import pickle
import tempfile
from pathlib import Path

import numpy as np

from preferl.data import split
from preferl.data.sources import load_demonstrations, load_labels
from preferl.evaluation import evaluate_reward
from preferl.models import MLPReward, MLPRewardConfig, infer_spaces
from preferl.training import (
    RewardFunction,
    RewardTrainer,
    RewardTrainerConfig,
    load_reward,
    relabel,
    save_reward,
)


def fit(demonstrations: Path, labels: Path, out: Path) -> None:
    """Fit on four answers in five, validate on the fifth, save, and relabel the demonstrations."""
    episodes = load_demonstrations(demonstrations)
    labelled = load_labels(labels, episodes)  # pairs across an episode's end are left out
    train, test = split(labelled.comparisons, np.random.default_rng(0))
    spaces = infer_spaces(episodes.observations, episodes.actions)
    model = MLPReward(*spaces, MLPRewardConfig(members=3), seed=0)
    # People err: the likelihood takes a tenth of their answers to be random.
    trainer = RewardTrainer(model, RewardTrainerConfig(epochs=15, noise=0.1), seed=0)
    trainer.fit(train)
    save_reward(out, RewardFunction(trainer.model).scaled(episodes))

    reward = load_reward(out)
    report = evaluate_reward(reward, test, episodes=episodes)
    low, high = report.interval
    print(f"{len(train)} answers to learn from, {report.decided} decided ones to validate on")
    print(f"accuracy {report.accuracy:.1%} ({low:.1%} to {high:.1%})")
    print(f"learned returns: {relabel(episodes, reward).returns[:5].round(1).tolist()} ...")


def make_up(folder: Path) -> tuple[Path, Path]:
    """Demonstrations of moving at random and labels that prefer large first coordinates."""
    rng = np.random.default_rng(0)
    demonstrations = [
        {
            "observations": rng.normal(size=(60, 4)),
            "actions": rng.normal(size=(60, 2)),
            "rewards": np.zeros(60),
        }
        for _ in range(10)
    ]
    starts = rng.integers(0, 40, (2, 300)) + 59 * rng.integers(0, 10, (2, 300))
    rows = np.concatenate([one["observations"][:-1, 0] for one in demonstrations])
    returns = rows[starts[..., None] + np.arange(20)].sum(-1)  # [2, P]
    labels = folder / "labels"
    labels.mkdir()
    files = {
        folder / "demonstrations.pickle": demonstrations,
        labels / "indices_1_num_300_len_20.pickle": starts[0],
        labels / "indices_2_num_300_len_20.pickle": starts[1],
        labels / "human_label_num_300_len_20.pickle": (returns[1] > returns[0]).astype(int),
    }
    for path, content in files.items():
        path.write_bytes(pickle.dumps(content))
    return folder / "demonstrations.pickle", labels


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demonstrations", type=Path, help="a pickle of demonstrations")
    parser.add_argument("--labels", type=Path, help="a folder of labels for them")
    parser.add_argument("--out", type=Path, default=Path("reward"), help="folder for the reward")
    parser.add_argument("--smoke", action="store_true", help="use made-up files")
    options = parser.parse_args()
    if options.smoke:
        with tempfile.TemporaryDirectory() as made_up:
            fit(*make_up(Path(made_up)), Path(made_up) / "reward")
    elif options.demonstrations and options.labels:
        fit(options.demonstrations, options.labels, options.out)
        print(f"reward: {options.out}")
    else:
        parser.error("give --demonstrations and --labels, or --smoke")
