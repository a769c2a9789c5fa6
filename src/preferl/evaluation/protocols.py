"""What evaluation asks of a reward and of a policy: no more than it calls."""

from typing import Any, Protocol, runtime_checkable

from preferl.data.segments import Segments
from preferl.shapes import Array, BoolArray, FloatArray, Observations


class Reward(Protocol):
    """A learned reward or a control in its place; `RewardFunction` is one."""

    @property
    def context(self) -> int:
        """`H`, how many steps a reward may see; 1 means Markovian."""
        ...

    @property
    def members(self) -> int:
        """`E`, how many opinions `scores` holds."""
        ...

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """`[B, H, ...]` windows, left-padded where `mask` is false, to `[B]` rewards."""
        ...

    def scores(self, segments: Segments) -> FloatArray:
        """`[E, N]` scores; differences are preference logits, per member."""
        ...


class Policy(Protocol):
    """Anything with stable-baselines3's `predict`."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """`[V, *obs]` observations to `[V, *act]` actions, and what to pass as `state` next."""
        ...


@runtime_checkable
class PaidPolicy(Policy, Protocol):
    """A policy that goes by what its actions earn, as a Decision Transformer does."""

    def earned(self, state: Any, rewards: FloatArray) -> None:
        """Told, between two calls of `predict`, what the environments paid, `[V]`."""
        ...
