"""What fitting a reward model to comparisons did, epoch by epoch."""

from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from preferl.shapes import FloatArray


@final
@dataclass(frozen=True, eq=False)
class FitReport:
    """What a fit did; means per answer, natural logarithms.

    Attributes:
        pairs: comparisons trained on.
        members: `E`.
        epochs: passes made.
        best_epoch: the epoch whose state remains, from 1.
        train_loss: `[epochs]` mean over members, on their own bootstraps.
        train_accuracy: `[epochs]` on decided answers.
        validation_loss: `[epochs]` mean over members on held-out comparisons, or else on the
            answers each member's bootstrap left out; NaN where there are neither.
        validation_accuracy: `[epochs]` of the same.
        penalty: strength of the weight penalty at the end.
        seconds: wall time.
    """

    pairs: int
    members: int
    epochs: int
    best_epoch: int
    train_loss: FloatArray
    train_accuracy: FloatArray
    validation_loss: FloatArray
    validation_accuracy: FloatArray
    penalty: float
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The same as numbers, lists and None, for files."""

        def plain(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return [round(float(v), 6) if np.isfinite(v) else None for v in value]
            return value

        return {name: plain(value) for name, value in asdict(self).items()}
