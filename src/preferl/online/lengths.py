"""Whether episodes differ in length, which tells an agent about its reward what no answer did.

Kreutzer et al. and imitation's documentation call it a variable horizon: where learned rewards are
positive, staying alive pays, and where they are negative, ending early does.
"""

import warnings
from collections.abc import Mapping
from typing import Any, Literal, final

import numpy as np

from preferl.errors import DataError
from preferl.shapes import BoolArray

VariableLength = Literal["allow", "refuse"]
"""What becomes of episodes of different length: a warning, once, or an error."""


class VariableLengthWarning(UserWarning):
    """Episodes differ in length, so that their ends may tell an agent about its reward."""


@final
class EpisodeClock:
    """Counts the steps of `V` environments' episodes, from their first to their last.

    What ended an episode does not matter, the rules or a limit of time. One that is given up by
    whoever acts, by a reset for instance, has not ended.

    Attributes:
        shortest: steps of the shortest episode that an environment ended; None before the first.
        longest: steps of the longest one, also of those under way or given up.

    Args:
        environments: `V`.

    >>> clock = EpisodeClock(2)
    >>> clock.step(np.array([False, False])); clock.step(np.array([True, False]))
    >>> clock.step(np.array([False, True]))
    >>> clock.shortest, clock.longest
    (2, 3)
    """

    def __init__(self, environments: int) -> None:
        self.shortest: int | None = None
        self.longest = 0
        self._steps = np.zeros(environments, np.int64)

    def begin(self, which: BoolArray | slice = slice(None)) -> None:
        """Episodes begin in these environments; those under way there are given up."""
        self._steps[which] = 0

    def step(self, ended: BoolArray, acting: BoolArray | None = None) -> None:
        """A step of all environments.

        Args:
            ended: `[V]` where it was an episode's last.
            acting: `[V]` where an episode was under way; everywhere by default.
        """
        self._steps += 1 if acting is None else acting
        self.longest = max(self.longest, int(self._steps.max()))
        if ended.any():
            shortest = int(self._steps[ended].min())
            self.shortest = shortest if self.shortest is None else min(self.shortest, shortest)
            self._steps[ended] = 0

    def snapshot(self) -> dict[str, Any]:
        """What was counted, for `restore`."""
        return {"shortest": self.shortest, "longest": self.longest, "steps": self._steps}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Count on from there."""
        self.shortest, self.longest = snapshot["shortest"], int(snapshot["longest"])
        self._steps[:] = snapshot["steps"]


@final
class LengthGuard:
    """Warns once, or refuses, where an episode ended sooner than another one went on.

    Args:
        variable: what becomes of such; None leaves that to others.
    """

    def __init__(self, variable: VariableLength | None) -> None:
        self._variable = variable
        self.warned = False

    def check(self, shortest: int | None, longest: int, more: str = "") -> None:
        """See whether lengths differ.

        Args:
            shortest: steps of the shortest episode that ended; None where none did.
            longest: steps of the longest one, ended or not.
            more: to be added to the message.

        Raises:
            DataError: they do, and are refused.
        """
        if self._variable is None or shortest is None or shortest >= longest:
            return
        text = (
            f"Episodes differ in length ({shortest} to {longest} steps). Where an "
            "episode ends may tell the agent what its reward should: survival pays if learned "
            f"rewards are positive, and ending early pays if they are negative.{more}"
        )
        if self._variable == "refuse":
            raise DataError(
                f'{text} Pass variable_length="allow", or an environment of fixed length.'
            )
        if not self.warned:
            self.warned = True
            warnings.warn(text, VariableLengthWarning, stacklevel=2)
