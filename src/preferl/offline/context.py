"""What a Decision Transformer goes by as it acts: the last steps, and the return to be earned."""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import index
from typing import Any, Final, Self, final

import numpy as np

from preferl.data.windows import History
from preferl.errors import ConfigError, SpaceError, require_in
from preferl.offline.dt_config import Spending
from preferl.offline.sequences import PADDED_ACTION, Sequences
from preferl.shapes import Array, BoolArray, FloatArray, IntArray

MOST_STEPS: Final = 2**53
"""Beyond these, a step more is the same number where they are divided."""

STEPS_OF_QUANTILES: Final = 101
"""Recorded returns are remembered at each hundredth."""


@final
@dataclass(frozen=True, eq=False)
class Conditions:
    """What belongs to a policy's parameters as much as they do: how its inputs were made.

    Attributes:
        context: `H`, steps that are looked at.
        horizon: timesteps that are told apart.
        discount: of returns, in (0, 1].
        scale: that returns are divided by.
        longest: steps of the longest recorded episode.
        quantiles: recorded returns at each hundredth, ascending; empty where they are not known.
        mean: `[O]` that is subtracted from states.
        deviation: `[O]` that states are divided by.
    """

    context: int
    horizon: int
    discount: float
    scale: float
    longest: int
    quantiles: tuple[float, ...]
    mean: FloatArray
    deviation: FloatArray

    def __post_init__(self) -> None:
        for name in ("context", "horizon", "longest"):
            require_in(name, index(getattr(self, name)), 1, MOST_STEPS)
        require_in("discount", self.discount, 0, 1)
        require_in("scale", self.scale, sys.float_info.min, sys.float_info.max)
        for recorded in self.quantiles:
            require_in("recorded returns", abs(recorded), 0, sys.float_info.max)

    @classmethod
    def of(cls, data: Sequences, *, context: int, discount: float) -> Self:
        """Those of the data that were learned from."""
        shares = np.linspace(0, 1, STEPS_OF_QUANTILES)
        return cls(
            context=context,
            horizon=data.horizon,
            discount=discount,
            scale=data.scale,
            longest=int(data.left.max()),
            quantiles=tuple(np.quantile(data.returns, shares).tolist()),
            mean=np.asarray(data.mean, np.float32),
            deviation=np.asarray(data.deviation, np.float32),
        )

    def target(self, asked: float | str) -> float:
        """A return: a number as it is, `"q0.9"` that quantile of the recorded ones.

        Raises:
            ConfigError: neither a finite number nor a quantile.
        """
        text = str(asked)
        try:
            number = float(text.removeprefix("q"))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ConfigError.mismatch(
                "target return", expected="a number, or a quantile such as q0.95", got=asked
            )
        if not text.startswith("q"):
            return number
        require_in(f"quantile {text}", number, 0, 1)
        if not self.quantiles:
            expected = "a number, since recorded returns are not known"
            raise ConfigError.mismatch("target return", expected=expected, got=asked)
        return float(np.interp(number, np.linspace(0, 1, len(self.quantiles)), self.quantiles))

    def to_json(self) -> dict[str, Any]:
        """All but the arrays."""
        return {k: v for k, v in asdict(self).items() if k not in ("mean", "deviation")}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], mean: Array, deviation: Array) -> Self:
        """What `to_json` wrote, with the arrays."""
        known = dict(values) | {"quantiles": tuple(values["quantiles"])}
        return cls(**known, mean=mean, deviation=deviation)


@final
class Context:
    """The last `H` steps of `V` environments, as a Decision Transformer sees them.

    It is what `predict` hands back as state; pass it on, and do not look into it.

    Attributes:
        states: `[V, H, *state]`
        actions: `[V, H, A]`
        asked: `[V, C, H]` scaled returns-to-go, for each of `C` candidates.
        timesteps: `[V, H]`
        real: `[V, H]` false where nothing has happened yet.
        paid: `[V]` what the last actions earned; None until that is known.
        history: what a reward with memory has seen, if one pays.
    """

    def __init__(self, conditions: Conditions, states: Array, actions: int, targets: FloatArray):
        count, steps = len(states), conditions.context
        self._conditions = conditions
        self._begun = np.zeros(count, bool)
        self._targets = targets / conditions.scale  # [C]
        self.states = np.zeros((count, steps, *states.shape[1:]), states.dtype)
        self.actions = np.full((count, steps, actions), PADDED_ACTION, np.float32)
        self.asked = np.zeros((count, len(targets), steps), np.float32)
        self.timesteps: IntArray = np.zeros((count, steps), np.int64)
        self.real: BoolArray = np.zeros((count, steps), bool)
        self.paid: FloatArray | None = None
        self.history: History | None = None
        self._time = np.zeros(count, np.int64)

    def see(self, states: Array, starts: BoolArray | None, spending: Spending) -> None:
        """A new step of every environment, its action not known yet.

        Args:
            states: `[V, *state]` normalised.
            starts: `[V]` which environments begin an episode; None leaves that to those that
                have not begun.
            spending: how what is asked for goes down.

        Raises:
            SpaceError: another number of environments.
            ConfigError: what the last actions earned is needed and was not told.
        """
        if len(states) != len(self.states) or (starts is not None and len(starts) != len(states)):
            raise SpaceError.mismatch(
                "observations", expected=f"{len(self.states)} rows", got=len(states)
            )
        begin = ~self._begun if starts is None else ~self._begun | np.asarray(starts, bool)
        self._time = np.where(begin, 0, self._time + 1)
        asked = self._ask(begin, spending)
        self._forget(begin)
        for buffer, step in (
            (self.states, states),
            (self.actions, PADDED_ACTION),
            (self.timesteps, np.minimum(self._time, self._conditions.horizon - 1)),
            (self.real, True),
        ):
            buffer[:, :-1] = buffer[:, 1:]
            buffer[:, -1] = step
        self.asked[:, :, :-1] = self.asked[:, :, 1:]
        self.asked[:, :, -1] = asked
        self.paid = None
        self._begun[:] = True

    def act(self, actions: FloatArray) -> None:
        """What was done at the step that was seen last, `[V, A]`."""
        self.actions[:, -1] = actions

    def _ask(self, begin: BoolArray, spending: Spending) -> FloatArray:
        """`[V, C]` what is asked for now."""
        if spending == "even":
            left = np.maximum(1 - self._time / self._conditions.longest, 0)
            return np.asarray(self._targets * left[:, None])
        if begin.all():
            return np.broadcast_to(self._targets, self.asked.shape[:2])
        if self.paid is None:
            raise ConfigError.mismatch(
                "reward of the last actions",
                expected="policy.earned(state, rewards) before the next predict",
                got="nothing",
                fix='Call it, or let the policy spend evenly: spending="even".',
            )
        spent = self.paid[:, None] / self._conditions.scale
        left = (self.asked[:, :, -1] - spent) / self._conditions.discount
        return np.where(begin[:, None], self._targets, left)

    def _forget(self, begin: BoolArray) -> None:
        self.real[begin] = False
        self.states[begin] = 0
        self.actions[begin] = PADDED_ACTION
        self.asked[begin] = 0
        self.timesteps[begin] = 0
        if self.history is not None:
            self.history.forget(begin)
