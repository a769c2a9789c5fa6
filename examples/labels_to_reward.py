# %% [markdown]
# # From a label file to a reward
#
# You have recorded demonstrations, and labels that tell which of two clips people prefer. This
# tutorial fits a reward to the labels, evaluates it on answers that it did not learn from, and
# gives every recorded step its learned reward. No agent acts.

# %%
import os
import pickle
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from preferl import (
    MLPReward,
    MLPRewardConfig,
    RewardFunction,
    RewardTrainer,
    RewardTrainerConfig,
    evaluate_reward,
    load_labels,
    load_reward,
    relabel,
    save_reward,
    split,
)
from preferl.data.sources import load_demonstrations
from preferl.models import infer_spaces

# %% [markdown]
# ## The files
#
# The published files are the door-opening demonstrations of
# [hand_dapg](https://github.com/aravindr93/hand_dapg) and the labels of
# [Uni-RLHF](https://github.com/pickxiguapi/Clean-Offline-RLHF). If the environment variable
# `PREFERL_SHARED` names a folder that holds them, this tutorial takes them. Otherwise, it makes up
# small files of the same kind: random movements, and labels that prefer a large first coordinate.


# %%
def published(shared: Path) -> tuple[Path, Path]:
    """Demonstrations of opening a door, and labels by people."""
    door = shared / "data" / "adroit-door-human"
    return door / "door-v0_demos.pickle", door / "door-human-v1_human_labels"


def make_up(folder: Path) -> tuple[Path, Path]:
    """Demonstrations of moving at random, and labels that prefer large first coordinates."""
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


folder = Path(tempfile.mkdtemp())
shared = os.environ.get("PREFERL_SHARED")
demonstrations, labels = published(Path(shared)) if shared else make_up(folder)

# %% [markdown]
# ## Read and check
#
# The readers run nothing that is in a pickle. `load_labels` checks that the labels fit the
# demonstrations. It counts the pairs in which a clip runs across the end of an episode. Labels of
# Uni-RLHF have such pairs, and preferl keeps them there; `crossing="drop"` leaves them out.

# %%
episodes = load_demonstrations(demonstrations)
labelled = load_labels(labels, episodes)
print(f"{len(episodes)} demonstrations of {episodes.steps:,} steps")
print(labelled.report)

# %% [markdown]
# ## Fit
#
# The reward learns from four answers in five. The fifth validates it. The model is an ensemble of
# three perceptrons. People err, so the likelihood takes a tenth of their answers to be random.

# %%
train, test = split(labelled.comparisons, np.random.default_rng(0))
spaces = infer_spaces(episodes.observations, episodes.actions)


def fitted(comparisons, epochs=15):
    """A reward fitted to these answers, and what the fit came to."""
    model = MLPReward(*spaces, MLPRewardConfig(members=3), seed=0)
    trainer = RewardTrainer(model, RewardTrainerConfig(epochs=epochs, noise=0.1), seed=0)
    report = trainer.fit(comparisons)
    return RewardFunction(trainer.model, likelihood=report.likelihood), report


reward, fit = fitted(train)
figure, axes = plt.subplots(figsize=(5, 3.5))
axes.plot(1 + np.arange(fit.epochs), fit.train_loss, label="training answers")
axes.plot(1 + np.arange(fit.epochs), fit.validation_loss, label="out-of-bag answers")
axes.axhline(np.log(2), color="gray", linestyle=":", label="guessing")
axes.set(xlabel="epoch", ylabel="loss, nats per answer")
axes.legend()
figure.savefig("labels_fit.png", dpi=100, bbox_inches="tight")

# %% [markdown]
# ## Evaluate
#
# Accuracy counts decided answers: ties are left out. Look at the interval before you compare two
# accuracies. With few answers it is wide.

# %%
evaluation = evaluate_reward(reward, test, episodes=episodes)
low, high = evaluation.interval
print(f"{len(train)} answers to learn from, {evaluation.decided} decided ones to validate on")
print(f"accuracy {evaluation.accuracy:.1%} ({low:.1%} to {high:.1%})")
print(f"log loss {evaluation.log_loss:.3f}; guessing has 0.693")

# %% [markdown]
# ## How many answers were needed?
#
# Fit to fewer answers and compare. Where the curve is flat, more answers of the same kind change
# little.

# %%
counts = [count for count in (25, 50, 100, 200, 400, 800) if count < len(train)] + [len(train)]
shuffled = train[np.random.default_rng(1).permutation(len(train))]
reports = [evaluate_reward(fitted(shuffled[:count])[0], test) for count in counts]
middle = np.array([each.accuracy for each in reports])
interval = np.array([each.interval for each in reports]).T  # [2, fits]
figure, axes = plt.subplots(figsize=(5, 3.5))
axes.errorbar(counts, middle, np.abs(interval - middle), marker="o", capsize=3)
axes.axhline(0.5, color="gray", linestyle=":")
axes.set(xlabel="answers to learn from", ylabel="accuracy on held-out answers", xscale="log")
figure.savefig("labels_counts.png", dpi=100, bbox_inches="tight")
for count, each in zip(counts, reports, strict=True):
    print(f"{count:>5} answers: accuracy {each.accuracy:.1%}")

# %% [markdown]
# ## Save, load, relabel
#
# `scaled` brings the rewards to mean 0 and deviation 1 over the demonstrations. A loaded reward
# gives exactly the rewards that it gave when it was saved. `relabel` replaces the recorded rewards
# by learned ones. `preferl offline run` trains policies from such episodes.

# %%
save_reward(folder / "reward", reward.scaled(episodes))
relabelled = relabel(episodes, load_reward(folder / "reward"))
print(f"learned returns: {relabelled.returns[:5].round(1).tolist()} ...")
