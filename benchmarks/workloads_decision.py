"""What both sides train a Decision Transformer on: sizes of the tutorial, arrays from a seed."""

from dataclasses import dataclass

import numpy as np

STATE = 17  # as HalfCheetah
ACTION = 6
EPISODES = 1_000
LENGTH = 1_000
BATCH = 64
CONTEXT = 20
SCALE = 1_000.0
BATCHES = {"ours": 2_000, "peer": 10}  # in one repetition; either takes a second or so
UPDATES = 15  # in one repetition
CURVE = 60  # updates whose losses are compared
LEARNING_RATE = 1e-4
WEIGHT_DECAY = 1e-4
WARMUP = 0.1
MAX_NORM = 0.25


@dataclass(frozen=True)
class Trajectories:
    """Episodes of one length, float32.

    Attributes:
        states: `[EPISODES, LENGTH, STATE]`
        actions: `[EPISODES, LENGTH, ACTION]` in (-1, 1), a function of the state and some noise.
        rewards: `[EPISODES, LENGTH]`
    """

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray


def trajectories() -> Trajectories:
    """States that drift, and actions that can be learned from them."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(EPISODES, LENGTH, STATE)).astype(np.float32)
    states[:, 1:] += states[:, :-1]  # neighbours are alike
    weights = rng.normal(size=(STATE, ACTION)).astype(np.float32) / np.sqrt(STATE)
    noise = rng.normal(0, 0.1, (EPISODES, LENGTH, ACTION)).astype(np.float32)
    actions = np.tanh(states @ weights + noise)
    rewards = rng.normal(5, 1, (EPISODES, LENGTH)).astype(np.float32)
    return Trajectories(states, actions, rewards)
