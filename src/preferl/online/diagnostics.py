"""stable-baselines3's own diagnostics, such as `train/approx_kl`, in every metric sink."""

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter

from preferl.online.wrappers.rollout_rewards import RolloutRewards
from preferl.reporting import MetricSink


@final
class SinkWriter(KVWriter):
    """An output of stable-baselines3's logger that hands its numbers to a metric sink.

    Names are those of stable-baselines3. What it keeps from TensorBoard, such as
    `time/total_timesteps`, is kept from the sink as well.

    Args:
        sink: takes the numbers.
        steps: the step that they belong to, now.
    """

    def __init__(self, sink: MetricSink, steps: Callable[[], int]) -> None:
        self._sink = sink
        self._steps = steps

    def write(
        self,
        key_values: Mapping[str, Any],
        key_excluded: Mapping[str, tuple[str, ...] | None],
        step: int = 0,  # noqa: ARG002  # without those of exploration
    ) -> None:
        """Log the numbers among the values."""
        numbers = {
            name: float(value)
            for name, value in key_values.items()
            if isinstance(value, int | float | np.number)
            and "tensorboard" not in (key_excluded.get(name) or ())
        }
        if numbers:
            self._sink.log(numbers, self._steps())

    def close(self) -> None:
        """Leave the sink to whoever opened it."""


@final
class RolloutHooks(BaseCallback):
    """Calls a function before each rollout, and gives the algorithm's logger one more output.

    Attributes:
        before_rollout: called between two rollouts; None calls nothing.
        writer: the output; None adds none.
        rewards: computed when a rollout is over; None computes them at each step.
    """

    before_rollout: Callable[[], None] | None = None
    writer: SinkWriter | None = None
    rewards: RolloutRewards | None = None

    def _on_training_start(self) -> None:
        outputs = self.logger.output_formats
        if self.writer is not None and self.writer not in outputs:
            outputs.append(self.writer)

    def _on_rollout_start(self) -> None:
        if self.before_rollout is not None:
            self.before_rollout()
        if self.rewards is not None:
            self.rewards.begin()

    def _on_rollout_end(self) -> None:
        if self.rewards is not None:
            self.rewards.add()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        # An algorithm logs an update with the rollout after it.
        if self.writer is not None and self.logger.name_to_value:
            self.logger.dump(self.num_timesteps)
        if self.writer in self.logger.output_formats:
            self.logger.output_formats.remove(self.writer)
