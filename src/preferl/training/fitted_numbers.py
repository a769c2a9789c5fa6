"""Numbers that a fit learns beside a model's weights, with a separate optimiser."""

from collections.abc import Mapping
from typing import Any, Final, final

import torch
from torch import Tensor

LEARNING_RATE: Final = 3e-2
"""Adam's learning rate for these numbers.

With 1e-2, fits of 15 epochs end before the trust in somebody who answers the opposite is negative.
Accuracy on unseen pairs is then 0.87, and 0.93 with this rate (`recipes/annotators_trust.py`).
"""


@final
class FittedNumbers:
    """A tensor of numbers, and the moments of its optimiser, Adam."""

    def __init__(self, value: Tensor) -> None:
        self.assign(value)

    def assign(self, value: Tensor) -> None:
        """Set the numbers, which may change their shape, and forget the moments."""
        self.value = value.detach().clone().requires_grad_()
        self._optimiser = torch.optim.Adam([self.value], lr=LEARNING_RATE)

    def step(self) -> None:
        """Make a step along the gradients, if there are any, and clear them."""
        self._optimiser.step()
        self.value.grad = None

    def snapshot(self) -> dict[str, Any]:
        """Return the numbers and the optimiser's moments, from which a fit continues."""
        moments = self._optimiser.state_dict()["state"]
        return {"value": self.value.detach().clone(), "moments": moments}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore a snapshot."""
        self.assign(snapshot["value"].to(self.value.device))
        state = self._optimiser.state_dict() | {"state": snapshot["moments"]}
        self._optimiser.load_state_dict(state)
