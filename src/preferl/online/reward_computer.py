"""Rewards of steps while agents act, for `V` environments at once, whoever steps them."""

from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from gymnasium import spaces

from preferl.data.episodes import Episodes
from preferl.data.windows import History
from preferl.errors import DataError
from preferl.shapes import Array, BoolArray, FloatArray, Observations, map_observations, take
from preferl.training.reward_function import relabel
from preferl.training.reward_function import RewardFunction


@runtime_checkable
class Reward(Protocol):
    """A reward of the last step of each window; `RewardFunction` is one."""

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
class RewardComputer:
    """Computes the reward of each step with the history that the step had.

    It does so at once, or after `defer` notes the steps and computes all of them at `settle`.

    Attributes:
        reward: the one in use; None before the first.

    Args:
        environments: `V`.
    """

    def __init__(self, environments: int) -> None:
        self.reward: Reward | None = None
        self._environments = environments
        self._single = np.ones((environments, 1), bool)  # the mask of windows of one step
        self._history: History | None = None
        self._later: DeferredRewards | None = None

    def set_reward(self, reward: Reward) -> bool:
        """Use `reward` from now on; returns whether it looks back on a history that is not known.

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

    def compute(self, observations: Observations, actions: Array) -> FloatArray:
        """`[V]` rewards of taking `actions` at `observations`; zeros before the first reward.

        They are zeros where they are deferred, too. Only rewards of whole episodes are.

        Raises:
            DataError: the reward gave something else than one finite number per environment.
        """
        if self.reward is None:
            return np.zeros(self._environments, np.float32)
        if self._later is not None:
            if isinstance(self.reward, RewardFunction):
                self._later.note(observations, actions)
                return np.zeros(self._environments, np.float32)
            self._later.skip()
        if self._history is None:
            windows = map_observations(lambda o: o[:, None], observations)  # [V, 1, *obs]
            rewards = self.reward(windows, actions[:, None], self._single)
        else:
            rewards = self.reward(*self._history.append(observations, actions))
        computed = np.array(rewards, np.float32)
        if computed.shape != (self._environments,) or not np.isfinite(computed).all():
            raise DataError.mismatch(
                "learned reward",
                expected=f"{self._environments} finite numbers, one per environment",
                got=rewards,
            )
        return computed

    def skip(self) -> None:
        """A step gets its reward from somewhere else, and is not part of the history."""
        if self._later is not None:
            self._catch_up()
            self._later.skip()

    def forget(self, environments: BoolArray | slice = slice(None)) -> None:
        """Begin a new episode in these environments; all of them by default."""
        if self._later is not None and len(self._later):
            self._later.begin(environments)
        elif self._history is not None:
            self._history.forget(environments)

    def recall(self, observations: Observations, actions: Array, mask: BoolArray) -> None:
        """Set the history: windows `[V, H, ...]`, real steps last, of the steps before this."""
        self._catch_up()
        if self._history is not None:
            self._history.fill(observations, actions, mask)

    def defer(self) -> None:
        """Compute nothing from now on, until `settle`."""
        self.settle()
        self._later = DeferredRewards(self._environments)

    def settle(self) -> FloatArray:
        """`[T, V]` rewards of the steps since `defer`, zeros where they were computed at once.

        Raises:
            DataError: the reward gave NaN or infinite numbers.
        """
        rewards = self.deferred()
        self._later = None
        return rewards

    def deferred(self) -> FloatArray:
        """As `settle`, and go on as before."""
        if self._later is None:
            return np.zeros((0, self._environments), np.float32)
        self._catch_up()
        return self._later.rewards()

    @property
    def steps_deferred(self) -> int:
        """Vector steps since `defer`."""
        return 0 if self._later is None else self._later.steps

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

    def _catch_up(self) -> None:
        if self._later is not None and isinstance(self.reward, RewardFunction):
            self._later.compute(self.reward, self._history)


@final
class DeferredRewards:
    """Steps of `V` environments whose rewards are computed later, as relabelling computes them.

    A reward computes a whole rollout in a few large products, where it would take as many small
    ones as there are steps; one that looks back encodes each step once, not once for every window.

    Args:
        environments: `V`.

    Attributes:
        steps: noted or skipped.

    >>> later = DeferredRewards(2)
    >>> later.skip()
    >>> later.rewards().tolist()
    [[0.0, 0.0]]
    """

    def __init__(self, environments: int) -> None:
        self._environments = environments
        self._observations: list[Observations] = []  # `[V, *obs]` of each step without its reward
        self._actions: list[Array] = []
        self._begins: list[BoolArray] = []  # `[V]` where an episode begins with that step
        self._next = np.zeros(environments, bool)  # [V] where one begins with the next step
        self._rewards: list[FloatArray] = []  # `[t, V]` in order
        self.steps = 0

    def __len__(self) -> int:
        return len(self._actions)

    def note(self, observations: Observations, actions: Array) -> None:
        """A step needs its reward: `[V, *obs]` seen, and `[V, *act]` done."""
        self._observations.append(map_observations(np.array, observations))
        self._actions.append(np.array(actions))
        self._begins.append(self._next.copy())
        self._next[:] = False
        self.steps += 1

    def begin(self, environments: BoolArray | slice) -> None:
        """Episodes begin here with the next step."""
        self._next[environments] = True

    def skip(self) -> None:
        """A step needs no reward. All before it have theirs."""
        self._rewards.append(np.zeros((1, self._environments), np.float32))
        self.steps += 1

    def compute(self, reward: RewardFunction, history: History | None) -> None:
        """Compute the rewards of all noted steps, and let the history hold the last of them.

        Args:
            reward: of them.
            history: of the steps before them; None for a reward of single steps.
        """
        if not self._actions:
            return
        # Environments first, so that the steps of each of them follow one another: [V, t, ...]
        steps = map_observations(lambda *parts: np.stack(parts, axis=1), *self._observations)
        actions, begins = np.stack(self._actions, axis=1), np.stack(self._begins, axis=1)
        real = np.ones(begins.shape, bool)
        before = None if history is None else history.snapshot()
        seen = 0 if before is None else before[2].shape[1]  # columns before the first noted step
        if before is not None:
            earlier, acted, mask = before
            steps = map_observations(_beside, earlier, steps)
            actions, real = _beside(acted, actions), _beside(mask, real)
            begins = _beside(np.zeros_like(mask), begins)
        starts = begins.copy()
        starts[np.arange(len(real)), real.argmax(axis=1)] = True
        rewards = np.zeros(real.shape, np.float32)
        rewards[real] = _of_pieces(take(steps, real), actions[real], starts[real], reward)
        self._rewards.append(rewards[:, seen:].T)
        if history is not None:
            _remember(history, steps, actions, real & _under_way(begins))
            history.forget(self._next)
        self._next[:] = False
        self._observations, self._actions, self._begins = [], [], []

    def rewards(self) -> FloatArray:
        """`[T, V]` what was computed for each vector step so far."""
        nothing = np.zeros((0, self._environments), np.float32)
        return np.concatenate([nothing, *self._rewards])


def _remember(history: History, steps: Observations, actions: Array, real: BoolArray) -> None:
    """Let the history hold the last of these steps, `[V, T, ...]`, as far as they are real."""
    missing = max(history.length - real.shape[1], 0)  # fewer than it holds, as it was new

    def last(array: Array) -> Array:
        padded = np.pad(array, ((0, 0), (missing, 0), *((0, 0),) * (array.ndim - 2)))
        return padded[:, -history.length :]

    history.fill(map_observations(last, steps), last(actions), last(real))


def _of_pieces(
    observations: Observations, actions: Array, starts: BoolArray, reward: RewardFunction
) -> FloatArray:
    """`[T]` for steps of pieces of episodes, end to end, that begin where `starts` is true."""
    count = len(actions)
    lengths = np.diff(np.append(np.flatnonzero(starts), count))
    pieces = Episodes(
        observations=observations,
        actions=actions,
        rewards=np.zeros(count, np.float32),
        terminated=np.zeros(count, bool),
        final_observations=take(observations, np.cumsum(lengths) - 1),
        lengths=lengths,
    )
    return np.asarray(relabel(pieces, reward).rewards)


def _under_way(begins: BoolArray) -> BoolArray:
    """`[V, T]` true from where the last episode began, everywhere if none did."""
    after = np.cumsum(begins[:, ::-1], axis=1)[:, ::-1]  # episodes that begin here or later
    return np.asarray((after - begins) == 0)


def _beside(first: Array, second: Array) -> Array:
    return np.concatenate([first, second], axis=1)
