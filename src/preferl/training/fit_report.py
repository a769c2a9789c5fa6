"""What fitting a reward model to comparisons did, epoch by epoch."""

from dataclasses import asdict, dataclass, field
from typing import Any, final

import numpy as np

from preferl.feedback.likelihood import Likelihood
from preferl.shapes import FloatArray
from preferl.statistics import wilson_interval


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
        judged: decided answers behind that accuracy.
        penalty: strength of the weight penalty at the end.
        seconds: wall time.
        likelihood: noise and scale under which the model's probabilities fit answers that it was
            not trained on; what a `RewardFunction` of the model is to be given.
    """

    pairs: int
    members: int
    epochs: int
    best_epoch: int
    train_loss: FloatArray
    train_accuracy: FloatArray
    validation_loss: FloatArray
    validation_accuracy: FloatArray
    judged: int
    penalty: float
    seconds: float
    likelihood: Likelihood = field(default_factory=Likelihood)

    @property
    def left_out_accuracy(self) -> float | None:
        """Validation accuracy of the epoch whose state remains; None without any."""
        accuracy = float(self.validation_accuracy[self.best_epoch - 1])
        return accuracy if self.judged else None

    @property
    def left_out_interval(self) -> tuple[float, float] | None:
        """Its 95 % Wilson interval."""
        accuracy = self.left_out_accuracy
        if accuracy is None:
            return None
        right = round(2 * accuracy * self.judged) / 2  # an undecided reward is half right
        return wilson_interval(right, self.judged)

    def to_json(self) -> dict[str, Any]:
        """The same as numbers, lists and None, for files."""

        def plain(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return [round(float(v), 6) if np.isfinite(v) else None for v in value]
            return value

        return {name: plain(value) for name, value in asdict(self).items()}
