"""What steps are worth to a learned reward, for `V` environments at once, whoever steps them."""

from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from gymnasium import spaces

from preferl.data.windows import History
from preferl.errors import DataError, SpaceError
from preferl.feedback.step_rewards import AnyReward, as_reward
from preferl.online.owing import Owing
from preferl.shapes import Array, BoolArray, FloatArray, Observations, map_observations
from preferl.training.reward_function import RewardFunction


@runtime_checkable
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

    It pays at once, or after `defer` notes the steps and pays all of them at `settle`.

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
        self._owing: Owing | None = None

    def defer(self) -> None:
        """Pay nothing from now on, until `settle`."""
        self.settle()
        self._owing = Owing(self._environments)

    def settle(self) -> FloatArray:
        """`[T, V]` what the steps since `defer` are worth, zeros where that was paid at once.

        Raises:
            DataError: the reward gave NaN or infinite numbers.
        """
        paid = self.owed()
        self._owing = None
        return paid

    def owed(self) -> FloatArray:
        """As `settle`, and go on as before."""
        if self._owing is None:
            return np.zeros((0, self._environments), np.float32)
        self._catch_up()
        return self._owing.paid()

    @property
    def deferred(self) -> int:
        """Vector steps since `defer`."""
        return 0 if self._owing is None else self._owing.steps

    def skip(self) -> None:
        """A step is paid by somebody else, and not part of the history."""
        if self._owing is not None:
            self._catch_up()
            self._owing.skip()

    def pay(self, reward: Reward) -> bool:
        """Pay `reward` from now on; returns whether it looks back on a history that is not known.

        Histories are kept from the first reward with that context on.
        """
        self._catch_up()
        self.reward = reward
        if reward.context == 1:
            self._history = None
        elif self._history is None or self._history.length != reward.context:
            self._history = History(reward.context, self._environments)
            return True
        return False

    def snapshot(self) -> Any:
        """The history, for `restore`; None without one."""
        self._catch_up()
        return None if self._history is None else self._history.snapshot()

    def restore(self, snapshot: Any) -> None:
        """Look back on the history that there was, once a reward is there that looks as far."""
        if snapshot is not None and self._history is not None:
            _, _, mask = snapshot
            if mask.shape[1] == self._history.length:
                self._history.fill(*snapshot)

    def recall(self, observations: Observations, actions: Array, mask: BoolArray) -> None:
        """Set the history: windows `[V, H, ...]`, real steps last, of the steps before this."""
        self._catch_up()
        if self._history is not None:
            self._history.fill(observations, actions, mask)

    def forget(self, environments: BoolArray | slice = slice(None)) -> None:
        """Begin a new episode in these environments; all of them by default."""
        if self._owing is not None and len(self._owing):
            self._owing.begin(environments)
        elif self._history is not None:
            self._history.forget(environments)

    def worth(self, observations: Observations, actions: Array) -> FloatArray:
        """`[V]` rewards of taking `actions` at `observations`; zeros before the first reward.

        They are zeros where they are paid later, too. Only rewards that pay whole episodes are.

        Raises:
            DataError: the reward gave something else than one finite number per environment.
        """
        if self.reward is None:
            return np.zeros(self._environments, np.float32)
        if self._owing is not None:
            if isinstance(self.reward, RewardFunction):
                self._owing.note(observations, actions)
                return np.zeros(self._environments, np.float32)
            self._owing.skip()
        if self._history is None:
            windows = map_observations(lambda o: o[:, None], observations)  # [V, 1, *obs]
            rewards = self.reward(windows, actions[:, None], self._single)
        else:
            rewards = self.reward(*self._history.append(observations, actions))
        paid = np.array(rewards, np.float32)
        if paid.shape != (self._environments,) or not np.isfinite(paid).all():
            raise DataError.mismatch(
                "learned reward",
                expected=f"{self._environments} finite numbers, one per environment",
                got=rewards,
            )
        return paid

    def _catch_up(self) -> None:
        if self._owing is not None and isinstance(self.reward, RewardFunction):
            self._owing.pay(self.reward, self._history)


@final
class AnyEnvironments:
    """A reward that knows no spaces, such as a plain function, for those of an environment."""

    def __init__(
        self, reward: AnyReward, observations: spaces.Space[Any], actions: spaces.Space[Any]
    ) -> None:
        self._reward = as_reward(reward)
        self.context = self._reward.context
        self.observation_space, self.action_space = observations, actions

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Windows `[B, H, ...]` and mask `[B, H]` to rewards `[B]`."""
        return self._reward(observations, actions, mask)


def for_spaces(
    reward: Reward | AnyReward, observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> Reward:
    """A reward for these observations and actions.

    Args:
        reward: made for them, or one that knows no spaces: a control, or a plain function of
            observations and actions.
        observations: of the environment.
        actions: of the environment.

    Raises:
        ModelError: something that cannot be called.
        SpaceError: a reward that was made for others.
    """
    if not isinstance(reward, Reward):
        return AnyEnvironments(reward, observations, actions)
    require_spaces(reward, observations, actions)
    return reward


def require_spaces(
    reward: Reward, observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> None:
    """Raise `SpaceError` unless a reward was made for these observations and actions."""
    _require_space("observations", reward.observation_space, observations)
    _require_space("actions", reward.action_space, actions)


def _require_space(what: str, expected: spaces.Space[Any], got: spaces.Space[Any]) -> None:
    if expected != got:
        raise SpaceError.mismatch(
            f"{what} of the environment",
            expected=f"{expected}, which the reward was made for",
            got=got,
            fix="Build the reward for this environment's spaces, or wrap the environment.",
        )
