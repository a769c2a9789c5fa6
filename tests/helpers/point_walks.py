"""Points that are pushed about, as episodes of the world of points."""

import numpy as np

from preferl.data import Episodes
from preferl.testing import linear_reward


def point_walks(rng, push):
    """Episodes of pushes `[episodes, steps, 2]`, each from a place of its own."""
    count, steps, _ = push.shape
    path = np.zeros((count, steps + 1, 2), np.float32)
    path[:, 0] = rng.uniform(-1, 1, (count, 2))
    for t in range(steps):
        path[:, t + 1] = np.clip(path[:, t] + 0.2 * push[:, t], -2, 2)
    seen = path[:, :-1].reshape(-1, 2)
    done = push.reshape(-1, 2)
    return Episodes(
        observations=seen,
        actions=done,
        rewards=linear_reward(seen, done),
        terminated=np.zeros(len(seen), bool),
        final_observations=path[:, -1],
        lengths=np.full(count, steps),
    )
