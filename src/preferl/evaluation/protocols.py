"""What evaluation asks of a reward and of a policy: no more than it calls."""

from typing import Any, Protocol, runtime_checkable

from preferl.feedback.step_rewards import Reward as Reward
from preferl.shapes import FloatArray


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
