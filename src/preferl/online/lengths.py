"""Whether episodes differ in length, which tells an agent about its reward what no answer did.

Kreutzer et al. and imitation's documentation call it a variable horizon: where learned rewards are
positive, staying alive pays, and where they are negative, ending early does.
"""

import warnings
from typing import Literal, final

from preferl.errors import DataError

VariableLength = Literal["allow", "refuse"]
"""What becomes of episodes of different length: a warning, once, or an error."""


class VariableLengthWarning(UserWarning):
    """Episodes differ in length, so that their ends may tell an agent about its reward."""


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
