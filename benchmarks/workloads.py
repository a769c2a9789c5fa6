"""What both sides work on: sizes and arrays made from seeds, with numpy alone."""

from dataclasses import dataclass

import numpy as np

OBSERVATION = 17  # as HalfCheetah
ACTION = 6
LENGTH = 100  # steps per segment
BATCH = 32  # pairs per optimiser step
HIDDEN = (32, 32)
MEMBERS = 5
EPOCHS = 3
FIT_PAIRS = 1_000
QUESTIONS = 200  # 2,000 candidates out of 200 questions' worth of experience
OVERSAMPLING = 10
DRAWN_PAIRS = 10_000

# The tutorial's whole job.
TUTORIAL = {
    "env": "Pendulum-v1",
    "environments": 8,
    "comparisons": 200,
    "turns": 5,
    "steps": 5_000,
    "length": 100,
    "initial_fraction": 0.1,
    "initial_epochs": 12,
    "exploration": 0.05,
    "rollout": 256,
    "ppo": {
        "batch_size": 64,
        "ent_coef": 0.01,
        "learning_rate": 2e-3,
        "clip_range": 0.1,
        "gae_lambda": 0.95,
        "gamma": 0.97,
        "n_epochs": 10,
    },
}


@dataclass(frozen=True)
class Experience:
    """Episodes of one length, float32.

    Attributes:
        observations: `[K, steps + 1, OBSERVATION]`, the last one after the episode's last step.
        actions: `[K, steps, ACTION]`
        rewards: `[K, steps]`
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray


def experience(episodes: int, steps: int, seed: int = 0) -> Experience:
    """Random walks and their rewards by a fixed linear function."""
    rng = np.random.default_rng(seed)
    observations = rng.normal(0, 0.1, (episodes, steps + 1, OBSERVATION)).cumsum(1)
    actions = rng.uniform(-1, 1, (episodes, steps, ACTION))
    taste = rng.normal(size=OBSERVATION)
    rewards = observations[:, :-1] @ taste / np.sqrt(OBSERVATION)
    return Experience(*(a.astype(np.float32) for a in (observations, actions, rewards)))


@dataclass(frozen=True)
class Questions:
    """Answered pairs of windows.

    Attributes:
        episode: `[P, 2]` of each window.
        start: `[P, 2]` its first step.
        preference: `[P]` 1 where the first has the higher return.
    """

    episode: np.ndarray
    start: np.ndarray
    preference: np.ndarray


def questions(data: Experience, count: int, seed: int = 1) -> Questions:
    """Uniform windows, answered without error."""
    rng = np.random.default_rng(seed)
    episodes, steps = data.rewards.shape
    episode = rng.integers(episodes, size=(count, 2))
    start = rng.integers(steps - LENGTH + 1, size=(count, 2))
    rows = start[..., None] + np.arange(LENGTH)
    returns = data.rewards[episode[..., None], rows].sum(-1, dtype=np.float64)
    return Questions(episode, start, (returns[:, 0] > returns[:, 1]).astype(np.float32))


def fitting() -> tuple[Experience, Questions]:
    """1,000 answered pairs, cut from as many steps as they hold: 200 episodes of 1,000."""
    data = experience(200, 1_000)
    return data, questions(data, FIT_PAIRS)


def selecting() -> Experience:
    """The experience of one round: 200 questions hold 40,000 steps."""
    return experience(40, 1_000)


def drawing() -> Experience:
    """1,000 episodes of 200 steps."""
    return experience(1_000, 200)
