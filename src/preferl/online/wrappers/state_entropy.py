"""A bonus for new states, which agents get before the first learned reward."""

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from preferl.errors import require_in
from preferl.shapes import (
    FloatArray,
    leaves,
)

WIDEST = 64
"""How many numbers of each state are compared.

Longer states, such as pictures, are projected to so many numbers. This changes distances only a
little (Johnson and Lindenstrauss 1984).
"""


@final
class StateEntropyBonus:
    """`log(1 + d / mean d)` for the distance `d` to the k-th nearest recent state.

    It rewards exploration before the first learned reward: Lee et al., "PEBBLE: Feedback-Efficient
    Interactive RL" (2021), section 4.1, after Liu and Abbeel, "Behavior From the Void" (2021).
    PEBBLE takes log d and divides by a running deviation. This bonus divides d by the mean distance
    so far, so that it does not depend on the units of the states. It adds 1, so that it is finite
    where a state was seen before.

    Args:
        nearest: `k`; 5 as in PEBBLE. A single neighbour follows noise.
        remembered: how many of the latest states are kept; PEBBLE keeps all. 2,000 take 0.1 ms per
            step.
        seed: seed of the projection of long states.

    >>> bonus = StateEntropyBonus(nearest=1)
    >>> bonus(np.array([[0.0], [1.0]])).tolist()
    [0.0, 0.0]
    >>> near, far = bonus(np.array([[0.1], [9.0]]))
    >>> bool(near < far)
    True
    """

    def __init__(self, nearest: int = 5, remembered: int = 2_000, *, seed: int = 0) -> None:
        require_in("nearest", nearest, 1, float("inf"))
        require_in("remembered", remembered, nearest, float("inf"))
        self._nearest = nearest
        self._remembered = remembered
        self._seed = seed
        # [remembered, F]; the next state overwrites the oldest
        self._ring: FloatArray | None = None
        self._projection: FloatArray | None = None
        self._next = 0
        self._total = 0.0  # sum of all distances so far
        self._count = 0

    def __call__(self, observations: Any) -> FloatArray:
        """Return bonuses `[V]`, float32, of observations `[V, *obs]`, and remember these."""
        states = self._flat(observations)
        if self._ring is None:
            self._ring = np.zeros((self._remembered, states.shape[1]))
        earlier = self._ring[: min(self._next, self._remembered)]
        bonus = np.zeros(len(states), np.float32)
        if len(earlier) >= self._nearest:
            squares = (states**2).sum(1)[:, None] + (earlier**2).sum(1) - 2 * states @ earlier.T
            kth = np.partition(squares, self._nearest - 1, axis=1)[:, self._nearest - 1]
            distance = np.sqrt(np.maximum(kth, 0.0))  # [V]
            self._total += float(distance.sum())
            self._count += len(distance)
            bonus[:] = np.log1p(distance / max(self._total / self._count, 1e-12))
        self._ring[(self._next + np.arange(len(states))) % self._remembered] = states
        self._next += len(states)
        return bonus

    def snapshot(self) -> dict[str, Any]:
        """Return the remembered states and the mean distance, for `restore`."""
        ring = None if self._ring is None else self._ring[: min(self._next, self._remembered)]
        return {"ring": ring, "next": self._next, "total": self._total, "count": self._count}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take over the remembered states of another bonus of the same settings."""
        self._next = int(snapshot["next"])
        self._count = int(snapshot["count"])
        self._total = float(snapshot["total"])
        ring = snapshot["ring"]
        self._ring = None
        if ring is not None:
            self._ring = np.zeros((self._remembered, ring.shape[1]))
            self._ring[: len(ring)] = ring

    def _flat(self, observations: Any) -> FloatArray:
        parts = [np.asarray(leaf, np.float64) for leaf in leaves(observations)]
        flat = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)  # [V, F]
        if flat.shape[1] <= WIDEST:
            return flat
        if self._projection is None:
            rng = np.random.default_rng(self._seed)
            self._projection = rng.normal(size=(flat.shape[1], WIDEST)) / np.sqrt(WIDEST)
        return np.asarray(flat @ self._projection)
