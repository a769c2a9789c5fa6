"""Learning of stable-baselines3 within a budget of steps, and hooks between its rollouts.

stable-baselines3 ends no rollout early: with rollouts of 4,096 steps, `learn(6_000)` of PPO takes
8,192 steps. Here the last rollout shrinks to fit, so no more steps are taken than requested.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback
from stable_baselines3.common.logger import KVWriter
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import MaybeCallback, TrainFreq, TrainFrequencyUnit

from preferl.errors import DivergenceError
from preferl.models.folder import require_converged
from preferl.online.wrappers.exploration import require_reset
from preferl.online.wrappers.rollout_rewards import RolloutRewards
from preferl.reporting import MetricSink
from preferl.threads import is_small, threads_for


def learn_within(
    algorithm: BaseAlgorithm,
    steps: int,
    *,
    last: bool = True,
    callback: MaybeCallback = None,
    progress_bar: bool = False,
) -> bool:
    """Let an algorithm learn for at most `steps` more environment steps.

    PPO and A2C make whole rollouts while these fit. Then they make a shorter one, after which fewer
    than `least_steps` are left. Agents learn worse from rollouts of changing lengths. A call that
    is not the `last` therefore makes a shorter rollout only if no whole one fits. It leaves the
    other steps to the next call. Other algorithms make whole rollouts only; rollouts of an
    off-policy algorithm have `train_freq` steps. An algorithm that learns after whole episodes is
    stopped within the last of them.

    `callback` and `progress_bar` are those of `algorithm.learn`, which is called for the whole
    rollouts, and again for the shorter one. A small policy learns on one processor thread.

    Returns:
        False if the callback stopped the algorithm within a rollout; otherwise True.

    Raises:
        DivergenceError: the weights of the networks, or the actions, became NaN or infinite.
    """
    count = algorithm.n_envs
    length = _rollout(algorithm)
    watch = _Watch(listed(callback))
    with threads_for(small=is_small(algorithm.policy)), _watching_for_divergence(algorithm):
        if length is None:
            if steps >= count:
                until = _Until(algorithm.num_timesteps + steps - count)
                both = CallbackList([watch, until])
                algorithm.learn(steps, both, reset_num_timesteps=False, progress_bar=progress_bar)
                require_reset(algorithm)  # the last step is not in any buffer
            return not watch.stopped
        whole, rest = divmod(steps // count, length)
        shorter = _shorter(algorithm, rest) if last or not whole else 0
        for vector_steps, size in ((whole * length, length), (shorter, shorter)):
            if vector_steps and not watch.stopped:
                taken = vector_steps * count
                with _rollouts_of(algorithm, size):
                    algorithm.learn(
                        taken, watch, reset_num_timesteps=False, progress_bar=progress_bar
                    )
    return not watch.stopped


@contextmanager
def _watching_for_divergence(algorithm: BaseAlgorithm) -> Iterator[None]:
    """Raise `DivergenceError` if weights are NaN after the block, or NaN makes the block fail."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith("Expected parameter"):  # torch's error for a distribution
            raise DivergenceError.of("the agent's distribution of actions") from error
        raise
    require_converged("the agent's weights", algorithm.policy.parameters())


def least_steps(algorithm: BaseAlgorithm) -> int:
    """Return the fewest environment steps that an algorithm learns from, over all environments.

    If rollouts can be shorter, this is a minibatch of at least two steps, since the advantage of a
    single step cannot be normalised. The last minibatch needs two steps as well. If rollouts cannot
    be shorter, it is a whole rollout.
    """
    count = algorithm.n_envs
    length = _rollout(algorithm) or 1
    if not _shrinks(algorithm):
        return length * count
    minibatch = int(getattr(algorithm, "batch_size", max(count, 2)))  # A2C takes all steps at once
    one_alone = count > minibatch and count % minibatch == 1
    return min(length, 2 if one_alone else -(-minibatch // count)) * count


def _rollout(algorithm: BaseAlgorithm) -> int | None:
    """Return the steps of each environment in a rollout; None if rollouts are whole episodes."""
    if isinstance(algorithm, OnPolicyAlgorithm):
        return algorithm.n_steps
    every: Any = getattr(algorithm, "train_freq", None)  # off-policy algorithms have it
    in_steps = isinstance(every, TrainFreq) and every.unit == TrainFrequencyUnit.STEP
    return every.frequency if in_steps else None


def _shrinks(algorithm: BaseAlgorithm) -> bool:
    """Return whether rollouts can be shorter, which needs stable-baselines3's own buffer."""
    buffers = (RolloutBuffer, DictRolloutBuffer)
    return isinstance(algorithm, OnPolicyAlgorithm) and type(algorithm.rollout_buffer) in buffers


def _shorter(algorithm: BaseAlgorithm, rest: int) -> int:
    """Return the steps per environment of a rollout of at most `rest`; 0 if that is too short."""
    taken = rest * algorithm.n_envs
    if not _shrinks(algorithm) or taken < least_steps(algorithm):
        return 0
    one_alone = (
        taken % int(getattr(algorithm, "batch_size", taken)) == 1
    )  # step in the last minibatch
    return rest - one_alone


@contextmanager
def _rollouts_of(algorithm: BaseAlgorithm, length: int) -> Iterator[None]:
    """Let rollouts have `length` steps of each environment inside the block."""
    if not isinstance(algorithm, OnPolicyAlgorithm) or length == algorithm.n_steps:
        yield
        return
    whole = algorithm.n_steps
    buffer = algorithm.rollout_buffer
    algorithm.n_steps = buffer.buffer_size = length  # each rollout allocates its arrays anew
    try:
        yield
    finally:
        algorithm.n_steps = buffer.buffer_size = whole


@final
class SinkWriter(KVWriter):
    """An output of stable-baselines3's logger that passes its numbers to a metric sink.

    Names are those of stable-baselines3. Numbers that stable-baselines3 does not write to
    TensorBoard, such as `time/total_timesteps`, are not passed on either.

    Args:
        sink: takes the numbers.
        steps: returns the environment step that the numbers belong to.
    """

    def __init__(self, sink: MetricSink, steps: Callable[[], int]) -> None:
        self._sink = sink
        self._steps = steps

    def write(
        self,
        key_values: Mapping[str, Any],
        key_excluded: Mapping[str, tuple[str, ...] | None],
        step: int = 0,  # noqa: ARG002  # does not count exploration
    ) -> None:
        """Log all values that are numbers."""
        numbers = {
            name: float(value)
            for name, value in key_values.items()
            if isinstance(value, int | float | np.number)
            and "tensorboard" not in (key_excluded.get(name) or ())
        }
        if numbers:
            self._sink.log(numbers, self._steps())

    def close(self) -> None:
        """Do nothing: whoever opened the sink closes it."""


@final
class RolloutHooks(BaseCallback):
    """Calls a function before each rollout, and adds an output to the algorithm's logger.

    Attributes:
        before_rollout: called between two rollouts, unless it is None.
        writer: output to add, unless it is None.
        rewards: computes rewards at the end of a rollout; None computes them at each step.
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


@final
class _Watch(CallbackList):
    """The user's callbacks, and whether one of them stopped a rollout."""

    stopped = False

    def _on_step(self) -> bool:
        going_on = super()._on_step()
        self.stopped = not going_on
        return going_on


@final
class _Until(BaseCallback):
    """Stops learning when another step of all environments would exceed the budget."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps

    def _on_step(self) -> bool:
        return self.num_timesteps <= self._steps


def listed(callback: MaybeCallback) -> list[BaseCallback]:
    """Return callbacks as a list; functions as `ConvertCallback`s."""
    if callback is None or isinstance(callback, list):
        return callback or []
    return [callback if isinstance(callback, BaseCallback) else ConvertCallback(callback)]
