"""What steps are worth to a learned reward, for `V` environments at once, whoever steps them."""

from typing import Any, Protocol, final

import numpy as np
from gymnasium import spaces

from preferl.data.windows import History
from preferl.errors import DataError, SpaceError, mismatch
from preferl.shapes import Array, BoolArray, FloatArray, Observations, map_observations


class Reward(Protocol):
    """Pays the last step of each window; `RewardFunction` is one."""

    @property
    def context(self) -> int:
        """`H`, the steps a window holds; 1 looks at single steps."""
        ...

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Of the observations it understands."""
        ...

    @property
    def action_space(self) -> spaces.Space[Any]:
        """Of the actions it understands."""
        ...

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Windows `[B, H, ...]`, false in `mask [B, H]` where padded, to rewards `[B]`."""
        ...


@final
class Payer:
    """Pays each step what a reward thinks of it, with the history it had.

    Attributes:
        reward: what pays; None before the first.

    Args:
        environments: `V`.
    """

    def __init__(self, environments: int) -> None:
        self.reward: Reward | None = None
        self._environments = environments
        self._single = np.ones((environments, 1), bool)  # the mask of windows of one step
        self._history: History | None = None

    def pay(self, reward: Reward) -> bool:
        """Pay `reward` from now on; returns whether it looks back on a history that is not known.

        Histories are kept from the first reward with that context on.
        """
        self.reward = reward
        if reward.context == 1:
            self._history = None
        elif self._history is None or self._history.length != reward.context:
            self._history = History(reward.context, self._environments)
            return True
        return False

    def snapshot(self) -> Any:
        """The history, for `restore`; None without one."""
        return None if self._history is None else self._history.snapshot()

    def restore(self, snapshot: Any) -> None:
        """Look back on the history that there was, once a reward is there that looks as far."""
        if snapshot is not None and self._history is not None:
            _, _, mask = snapshot
            if mask.shape[1] == self._history.length:
                self._history.fill(*snapshot)

    def recall(self, observations: Observations, actions: Array, mask: BoolArray) -> None:
        """Set the history: windows `[V, H, ...]`, real steps last, of the steps before this."""
        if self._history is not None:
            self._history.fill(observations, actions, mask)

    def forget(self, environments: BoolArray | slice = slice(None)) -> None:
        """Begin a new episode in these environments; all of them by default."""
        if self._history is not None:
            self._history.forget(environments)

    def worth(self, observations: Observations, actions: Array) -> FloatArray:
        """`[V]` rewards of taking `actions` at `observations`; zeros before the first reward.

        Raises:
            DataError: the reward gave something else than one finite number per environment.
        """
        if self.reward is None:
            return np.zeros(self._environments, np.float32)
        if self._history is None:
            windows = map_observations(lambda o: o[:, None], observations)  # [V, 1, *obs]
            rewards = self.reward(windows, actions[:, None], self._single)
        else:
            rewards = self.reward(*self._history.append(observations, actions))
        paid = np.array(rewards, np.float32)
        if paid.shape != (self._environments,) or not np.isfinite(paid).all():
            raise DataError(
                mismatch(
                    "learned reward",
                    expected=f"{self._environments} finite numbers, one per environment",
                    got=rewards,
                )
            )
        return paid


def require_spaces(
    reward: Reward, observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> None:
    """Raise `SpaceError` unless a reward was made for these observations and actions."""
    _require_space("observations", reward.observation_space, observations)
    _require_space("actions", reward.action_space, actions)


def _require_space(what: str, expected: spaces.Space[Any], got: spaces.Space[Any]) -> None:
    if expected != got:
        raise SpaceError(
            mismatch(
                f"{what} of the environment",
                expected=f"{expected}, which the reward was made for",
                got=got,
                fix="Build the reward for this environment's spaces, or wrap the environment.",
            )
        )
