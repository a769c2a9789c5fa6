"""A weight penalty whose strength holds the validation/training loss ratio in a band.

Christiano et al. (2017), section 2.2.3: "chosen to keep the validation loss between 1.1 and 1.5
times the training loss" is their rule; both losses here are means per answer, so that the ratio
does not depend on the sizes of the two sets.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self, final

import torch
from torch import Tensor

from preferl.errors import ConfigError, require_in


@final
@dataclass(frozen=True)
class AdaptivePenalty:
    """Penalty `strength * Σ|w|^p` on all weights, and the rule that changes its strength.

    Attributes:
        strength: of the penalty; 0 has none and stays 0.
        norm: 1 or 2, the `p` of the penalty.
        band: the ratio of validation to training loss below which the strength shrinks and
            above which it grows; None keeps it as it is.
        factor: by which it shrinks or grows at most once per epoch, in (0, 1).
    """

    strength: float = 0.0
    norm: Literal[1, 2] = 2
    band: tuple[float, float] | None = None
    factor: float = 0.2

    def __post_init__(self) -> None:
        require_in("penalty strength", self.strength, 0, float("inf"))
        if self.norm not in (1, 2):
            raise ConfigError.mismatch("penalty norm", expected="1 or 2", got=self.norm)
        if not 0 < self.factor < 1:
            raise ConfigError.mismatch("penalty factor", expected="in (0, 1)", got=self.factor)
        if self.band is not None and not 0 <= self.band[0] < self.band[1]:
            raise ConfigError.mismatch("penalty band", expected="0 <= low < high", got=self.band)
        if self.band is not None and self.strength == 0:
            raise ConfigError.mismatch(
                "penalty strength",
                expected="more than 0 with a band",
                got=0,
                fix="A strength of 0 cannot grow; begin with 1e-4.",
            )

    def of(self, parameters: Iterable[Tensor]) -> Tensor | float:
        """The penalty on these parameters, to be added to a loss once per optimiser step."""
        if self.strength == 0:
            return 0.0
        return (
            self.strength
            * torch.stack(
                [(p.abs() if self.norm == 1 else p.square()).sum() for p in parameters]
            ).sum()
        )

    def after(self, training_loss: float, validation_loss: float) -> Self:
        """The penalty for the next epoch.

        >>> AdaptivePenalty(1.0, band=(1.1, 1.5)).after(0.1, 0.2).strength
        1.2
        >>> AdaptivePenalty(1.0, band=(1.1, 1.5)).after(0.1, 0.1).strength
        0.8
        """
        if self.band is None or not training_loss > 0:
            return self
        ratio = validation_loss / training_loss
        low, high = self.band
        change = 1 + self.factor if ratio > high else 1 - self.factor if ratio < low else 1.0
        return replace(self, strength=self.strength * change)
