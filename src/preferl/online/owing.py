"""Steps that are paid later, all of a rollout at once, as relabelling pays them."""

from typing import final

import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.windows import History
from preferl.shapes import Array, BoolArray, FloatArray, Observations, map_observations, take
from preferl.training.reward_function import RewardFunction, relabel


@final
class Owing:
    """What `V` environments did since the last payment, and what was paid by then.

    A reward judges a whole rollout in a few large products, where it would take as many small ones
    as there are steps; one that looks back encodes each step once, not once for every window.

    Args:
        environments: `V`.

    Attributes:
        steps: noted or skipped.

    >>> owing = Owing(2)
    >>> owing.skip()
    >>> owing.paid().tolist()
    [[0.0, 0.0]]
    """

    def __init__(self, environments: int) -> None:
        self._environments = environments
        self._observations: list[Observations] = []  # `[V, *obs]` of each step that is not paid
        self._actions: list[Array] = []
        self._begins: list[BoolArray] = []  # `[V]` where an episode begins with that step
        self._next = np.zeros(environments, bool)  # [V] where one begins with the next step
        self._paid: list[FloatArray] = []  # `[t, V]` in order
        self.steps = 0

    def __len__(self) -> int:
        return len(self._actions)

    def note(self, observations: Observations, actions: Array) -> None:
        """A step is to be paid: `[V, *obs]` seen, and `[V, *act]` done."""
        self._observations.append(map_observations(np.array, observations))
        self._actions.append(np.array(actions))
        self._begins.append(self._next.copy())
        self._next[:] = False
        self.steps += 1

    def begin(self, environments: BoolArray | slice) -> None:
        """Episodes begin here with the next step."""
        self._next[environments] = True

    def skip(self) -> None:
        """Nothing is owed for a step. All before it are paid."""
        self._paid.append(np.zeros((1, self._environments), np.float32))
        self.steps += 1

    def pay(self, reward: RewardFunction, history: History | None) -> None:
        """Pay what is owed, and let the history hold the last of these steps.

        Args:
            reward: pays.
            history: of the steps before them; None for a reward that judges single steps.
        """
        if not self._actions:
            return
        # Environments first, so that the steps of each of them follow one another: [V, t, ...]
        steps = map_observations(lambda *parts: np.stack(parts, axis=1), *self._observations)
        actions, begins = np.stack(self._actions, axis=1), np.stack(self._begins, axis=1)
        real = np.ones(begins.shape, bool)
        before = None if history is None else history.snapshot()
        seen = 0 if before is None else before[2].shape[1]  # columns before the first to be paid
        if before is not None:
            earlier, acted, mask = before
            steps = map_observations(_beside, earlier, steps)
            actions, real = _beside(acted, actions), _beside(mask, real)
            begins = _beside(np.zeros_like(mask), begins)
        starts = begins.copy()
        starts[np.arange(len(real)), real.argmax(axis=1)] = True
        rewards = np.zeros(real.shape, np.float32)
        rewards[real] = _paid(take(steps, real), actions[real], starts[real], reward)
        self._paid.append(rewards[:, seen:].T)
        if history is not None:
            _remember(history, steps, actions, real & _under_way(begins))
            history.forget(self._next)
        self._next[:] = False
        self._observations, self._actions, self._begins = [], [], []

    def paid(self) -> FloatArray:
        """`[T, V]` what was paid for each vector step so far."""
        nothing = np.zeros((0, self._environments), np.float32)
        return np.concatenate([nothing, *self._paid])


def _remember(history: History, steps: Observations, actions: Array, real: BoolArray) -> None:
    """Let the history hold the last of these steps, `[V, T, ...]`, as far as they are real."""
    missing = max(history.length - real.shape[1], 0)  # fewer than it holds, as it was new

    def last(array: Array) -> Array:
        padded = np.pad(array, ((0, 0), (missing, 0), *((0, 0),) * (array.ndim - 2)))
        return padded[:, -history.length :]

    history.fill(map_observations(last, steps), last(actions), last(real))


def _paid(
    observations: Observations, actions: Array, starts: BoolArray, reward: RewardFunction
) -> FloatArray:
    """`[T]` for steps of pieces of episodes, end to end, that begin where `starts` is true."""
    count = len(actions)
    lengths = np.diff(np.append(np.flatnonzero(starts), count))
    nothing = np.zeros(count, np.float32)
    last = np.cumsum(lengths) - 1
    pieces = Episodes(
        observations=observations,
        actions=actions,
        rewards=nothing,
        terminated=np.zeros(count, bool),
        final_observations=take(observations, last),
        lengths=lengths,
    )
    return np.asarray(relabel(pieces, reward).rewards)


def _under_way(begins: BoolArray) -> BoolArray:
    """`[V, T]` true from where the last episode began, everywhere if none did."""
    after = np.cumsum(begins[:, ::-1], axis=1)[:, ::-1]  # episodes that begin here or later
    return np.asarray((after - begins) == 0)


def _beside(first: Array, second: Array) -> Array:
    return np.concatenate([first, second], axis=1)
