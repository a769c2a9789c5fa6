"""What the agents of one experiment are paid: the learned reward, and what it is held against."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.tasks import Task
from preferl.errors import ConfigError, DataError
from preferl.feedback.step_rewards import random, step_rewards
from preferl.shapes import FloatArray
from preferl.training.scaling import scale_by_return_range

LEARNED, TRUE, ZERO, RANDOM, NEGATED = "learned", "true", "zero", "random", "negated"

CLONING = "cloning"
"""The arm of agents that imitate the data, whatever its rewards."""

MEANING: Final = {
    LEARNED: "learned reward",
    TRUE: "true reward",
    ZERO: "no reward",
    RANDOM: "random reward",
    NEGATED: "negated reward",
    CLONING: "cloning the data",
}
"""Arms in words."""

SEED_LIMIT = 2**32
"""Seeds stay below; the agents of arm `k` are seeded this many times `k` higher."""


@final
@dataclass(frozen=True, eq=False)
class Arms:
    """Rewards `[A, S, T]` for agents that learn side by side, an arm's seeds next to each other.

    Attributes:
        names: of the `A` arms.
        seeds: `S`, as they were asked for; each arm has all of them.
        rewards: `[A, S, T]` float32, scaled as agents like them.
    """

    names: tuple[str, ...]
    seeds: tuple[int, ...]
    rewards: FloatArray

    def __post_init__(self) -> None:
        wanted = (len(self.names), len(self.seeds))
        if self.rewards.shape[:2] != wanted:
            raise DataError.mismatch(
                "Arms.rewards", expected=f"[{wanted}, T]", got=self.rewards.shape
            )

    @property
    def agents(self) -> tuple[str, ...]:
        """`A * S` names such as `learned-0`, in the order of `flat_rewards`."""
        return tuple(agent_name(arm, seed) for arm in self.names for seed in self.seeds)

    @property
    def agent_seeds(self) -> list[int]:
        """`A * S` different seeds; those of the first arm are the ones asked for."""
        return [k * SEED_LIMIT + seed for k in range(len(self.names)) for seed in self.seeds]

    @property
    def flat_rewards(self) -> FloatArray:
        """`[A * S, T]`, a row for each agent."""
        return self.rewards.reshape(-1, self.rewards.shape[-1])


def agent_name(arm: str, seed: int) -> str:
    """What an agent is called in files and tables."""
    return f"{arm}-{seed}"


def build_arms(
    episodes: Episodes,
    learned: FloatArray,
    *,
    seeds: Sequence[int],
    task: str | Task | None = None,
    controls: bool = True,
    scaled: bool = True,
) -> Arms:
    """The rewards of each arm, scaled by the range of returns as the learned ones are.

    The learned reward is worth something where its agents beat those that were paid nothing
    (`zero`), a smooth function without meaning (`random`, another one for each seed), or the
    opposite (`negated`). What the true reward teaches (`true`) is the ceiling; it is left out
    where the recorded rewards are all the same, as they are where nobody knows them.

    Args:
        episodes: what was recorded, with the environment's rewards.
        learned: `[T]` the learned reward of each step.
        seeds: one per agent of an arm.
        task: how rewards are scaled; by the longest episode if None.
        controls: whether there are other arms than the learned one.
        scaled: whether rewards are scaled at all. A Decision Transformer scales returns itself,
            and is paid the same rewards as it acts.

    Raises:
        ConfigError: no seeds, or seeds that are equal, negative or too large.
        DataError: rewards of another number of steps.
    """
    require_seeds(seeds)
    if learned.shape != (episodes.steps,):
        raise DataError.mismatch("learned", expected=(episodes.steps,), got=learned.shape)

    def scale(rewards: FloatArray, *, learned: bool = True) -> FloatArray:
        if not scaled:
            return rewards
        paid = replace(episodes, rewards=rewards)
        return np.asarray(scale_by_return_range(paid, task, learned=learned).rewards)

    once = {LEARNED: scale(learned)}
    if controls:
        if np.ptp(episodes.rewards) > 0:
            once[TRUE] = scale(np.asarray(episodes.rewards), learned=False)
        once |= {ZERO: np.zeros_like(learned), NEGATED: scale(-learned)}
    rewards = {name: np.stack([row] * len(seeds)) for name, row in once.items()}
    if controls:
        waves = [step_rewards(random(seed), episodes) for seed in seeds]
        rewards[RANDOM] = np.stack([scale(row) for row in waves])
    stacked = np.stack(list(rewards.values())).astype(np.float32)
    return Arms(tuple(rewards), tuple(seeds), stacked)


def require_seeds(seeds: Sequence[int]) -> None:
    """Raise `ConfigError` unless seeds are different numbers from 0 to `SEED_LIMIT`."""
    fine = all(0 <= seed < SEED_LIMIT for seed in seeds) and len(set(seeds)) == len(seeds)
    if not seeds or not fine:
        raise ConfigError.mismatch(
            "seeds", expected="different whole numbers of at least 0", got=list(seeds)
        )
