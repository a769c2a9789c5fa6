"""History windows by index arithmetic, and a rolling buffer for acting."""

from typing import final

import numpy as np

from preferl.shapes import Array, BoolArray, IntArray, Observations, map_observations


def window_indices(
    start_of_step: IntArray, length: int, steps: IntArray | None = None
) -> tuple[IntArray, BoolArray]:
    """Return the rows of the last `length` steps up to and including each step.

    Args:
        start_of_step: `[T]` row at which the episode of each step begins.
        length: `H`, number of steps in a window.
        steps: `[B]` rows of steps whose windows are returned; by default all steps.

    Returns:
        `(rows, mask)`, both `[B, H]`. The last column is the step itself. Before the episode began,
        `mask` is false and `rows` repeats the step, so gathering never goes out of range.

    >>> rows, mask = window_indices(np.array([0, 0, 2]), 2)
    >>> rows.tolist(), mask.tolist()
    ([[0, 0], [0, 1], [2, 2]], [[False, True], [True, True], [False, True]])
    """
    steps = np.arange(len(start_of_step)) if steps is None else steps
    rows = steps[:, None] + np.arange(1 - length, 1)
    mask = rows >= start_of_step[steps, None]
    return np.where(mask, rows, steps[:, None]), mask


@final
class History:
    """The last `H` steps (`length`) of `V` environments while they act.

    The returned arrays are buffers that are used again: read them before the next `append`.

    >>> history = History(length=2, environments=1)
    >>> _ = history.append(np.array([[1.0]]), np.array([[0.0]]))
    >>> observations, actions, mask = history.append(np.array([[2.0]]), np.array([[0.0]]))
    >>> observations.tolist(), mask.tolist()
    ([[[1.0], [2.0]]], [[True, True]])
    """

    def __init__(self, length: int, environments: int) -> None:
        self.length = length
        self._mask = np.zeros((environments, length), bool)
        self._steps: tuple[Observations, Array] | None = None

    def append(
        self, observations: Observations, actions: Array
    ) -> tuple[Observations, Array, BoolArray]:
        """Append a step of every environment; return windows `[V, H, ...]` and mask `[V, H]`."""
        if self._steps is None:
            self._steps = map_observations(self._empty, observations), self._empty(actions)
        map_observations(_push, self._steps[0], observations)
        _push(self._steps[1], actions)
        self._mask[:, :-1] = self._mask[:, 1:]
        self._mask[:, -1] = True
        return *self._steps, self._mask

    def forget(self, environments: BoolArray | slice = slice(None)) -> None:
        """Begin a new episode in these environments; by default in all."""
        self._mask[environments] = False

    def _empty(self, step: Array) -> Array:
        return np.zeros((len(step), self.length, *step.shape[1:]), step.dtype)


def _push(buffer: Array, step: Array) -> None:
    buffer[:, :-1] = buffer[:, 1:]
    buffer[:, -1] = step
