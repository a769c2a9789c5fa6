"""How files record the end of a step and what followed it, if their layout reads it differently.

Layouts agree on observations, actions and rewards, but hardly on the rest. `dones` are terminations
in some and time limits in others. What followed a step is the next row, or a separate array.
"""

import warnings
from collections.abc import Collection, Iterable
from typing import Final

import numpy as np

from preferl.data.columns import require_shape
from preferl.errors import DataError
from preferl.shapes import Array, BoolArray

NEXT: Final = "next_observations"
"""Name of the array of next observations."""

MOST_CONTRADICTED: Final = 0.01
"""Share of steps whose next observation may differ from the next row's.

These are ends of episodes that nobody marked. If there are more, rows are not in the order of time.
"""

_ENDINGS: Final = frozenset(
    (
        *("dones", "done", "terminals", "terminal", "terminations", "terminated", "terminateds"),
        *("timeouts", "timeout", "truncations", "truncated", "truncateds"),
        *(NEXT, "next_observation", "next_obs", "next_states", "next_state"),
    )
)
"""Names under which projects store ends of episodes and next observations."""


def warn_of_unread(what: object, names: Iterable[str], read: Collection[str], rule: str) -> None:
    """Warn about arrays on ends of steps that a layout does not read.

    `rule` is what it does instead.
    """
    unread = sorted(_ENDINGS.intersection(names).difference(read))
    if unread:
        warnings.warn(f"{what}: {', '.join(unread)} is not read: {rule}.", stacklevel=2)


def check_next(what: str, observations: Array, following: Array, inside: BoolArray) -> None:
    """Compare recorded next observations `[T, *obs]` with the observations of the next rows.

    Only rows `inside` `[T - 1]` an episode count. If a few differ, there is a warning.

    Raises:
        DataError: shapes differ, or more than 1 % of the rows: they are not in the order of time.
    """
    require_shape(f"{what}, {NEXT}", following, observations.shape)
    if observations.dtype.kind == "f":
        differs = ~np.isclose(following[:-1], observations[1:], rtol=1e-3, atol=1e-4)
    else:
        differs = following[:-1] != observations[1:]
    contradicted = inside & differs.reshape(len(inside), -1).any(axis=1)
    count = int(contradicted.sum())
    if not count:
        return
    message = (
        f"{what}, {NEXT}: expected the observation of the next row inside episodes, got another "
        f"one in {count} of {int(inside.sum())} rows, first in row {int(contradicted.argmax())}"
    )
    if count > MOST_CONTRADICTED * inside.sum():
        raise DataError(
            f"{message}. Put the rows in the order of time, and mark the last of each episode."
        )
    warnings.warn(
        f"{message}. The next row is taken; mark the last row of each episode.", stacklevel=2
    )
