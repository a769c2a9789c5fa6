"""How the learning rate moves over a fit: a warm-up, then half a cosine.

Loshchilov and Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts", section 3.
"""

import math
from dataclasses import dataclass
from typing import final

from preferl.errors import require_in


@final
@dataclass(frozen=True)
class CosineSchedule:
    """A learning rate that rises in a line and falls along half a cosine, as shares of its peak.

    The peak is the trainer's `learning_rate`. The shape stretches over however many updates a fit
    makes, so a shorter fit is the same schedule in fewer steps.

    Attributes:
        warmup: share of the updates over which the rate rises; 0 begins at the peak.
        start: share of the peak at the first update.
        end: share of the peak after the last.

    >>> schedule = CosineSchedule(warmup=0.5, start=0.0, end=0.2)
    >>> [round(schedule.at(update, 4), 3) for update in range(5)]
    [0.0, 0.5, 1.0, 0.6, 0.2]
    """

    warmup: float = 0.1
    start: float = 0.1
    end: float = 0.1

    def __post_init__(self) -> None:
        require_in("warmup", self.warmup, 0, 1)
        require_in("start", self.start, 0, 1)
        require_in("end", self.end, 0, 1)

    def at(self, update: int, updates: int) -> float:
        """The share of the peak for update number `update`, from 0, of `updates` in all."""
        rising = int(self.warmup * updates)
        if update < rising:
            return self.start + (1 - self.start) * update / rising
        progress = min(1.0, (update - rising) / max(1, updates - rising))
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * progress)) / 2
