"""What both sides learn offline from: sizes and arrays made from a seed, with numpy alone."""

from dataclasses import dataclass

import numpy as np

OBSERVATION = 11  # as Hopper
ACTION = 3
HIDDEN = (256, 256)
BATCH = 256
EPISODES = 100
LENGTH = 1_000
UPDATES = 200  # in one repetition
AGENTS = {"float32": (1, 5, 30), "bfloat16": (1, 5)}
"""At once, by precision; thirty are six conditions of five seeds."""


@dataclass(frozen=True)
class Steps:
    """Episodes of one length, end to end, float32.

    Attributes:
        observations: `[T, OBSERVATION]`
        actions: `[T, ACTION]` in (-1, 1).
        rewards: `[T]`
        terminals: `[T]` none.
        timeouts: `[T]` at the end of each episode.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminals: np.ndarray
    timeouts: np.ndarray


def steps() -> Steps:
    """Random numbers: what is learned from them does not change what it costs."""
    rng = np.random.default_rng(0)
    count = EPISODES * LENGTH
    timeouts = np.zeros(count, np.float32)
    timeouts[LENGTH - 1 :: LENGTH] = 1
    return Steps(
        observations=rng.normal(size=(count, OBSERVATION)).astype(np.float32),
        actions=rng.uniform(-0.99, 0.99, (count, ACTION)).astype(np.float32),
        rewards=rng.normal(size=count).astype(np.float32),
        terminals=np.zeros(count, np.float32),
        timeouts=timeouts,
    )
