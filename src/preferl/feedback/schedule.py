"""Plans of how many queries to ask and when. Steps and queries add up exactly to the totals.

`constant`, `hyperbolic` and `inverse_quadratic` are those of imitation's preference comparisons.
The hyperbola follows Christiano et al., "Deep RL from human preferences" (2017), appendix A.
`linear_decay` and `increase` are B-Pref's (Lee et al. 2021).
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isfinite
from typing import Final, Literal, final

import numpy as np

from preferl.errors import ConfigError, require_in
from preferl.feedback.pair_sampling import MOST_OVERSAMPLING, segments_wanted
from preferl.feedback.protocols import PairSampler
from preferl.shapes import FloatArray, IntArray

Schedule = Callable[[float], float]
"""Maps the elapsed share of training, in [0, 1], to a weight of at least 0: how often to ask."""

ScheduleName = Literal["constant", "hyperbolic", "inverse_quadratic", "linear_decay", "increase"]


def constant(_: float) -> float:
    """Ask equally often at all times."""
    return 1.0


def hyperbolic(elapsed: float) -> float:
    """Ask half as often at the end as at the beginning."""
    return 1 / (1 + elapsed)


def inverse_quadratic(elapsed: float) -> float:
    """Ask half as often at the end as at the beginning, and slow down later than `hyperbolic`."""
    return 1 / (1 + elapsed**2)


def linear_decay(elapsed: float) -> float:
    """Ask less and less often, and not at all at the end."""
    return 1 - elapsed


def increase(elapsed: float) -> float:
    """Ask more and more often: twice as often half-way, a hundred times as often at the end."""
    return 1 / (1.01 - elapsed)


SCHEDULES: Final[Mapping[str, Schedule]] = {
    each.__name__: each
    for each in (constant, hyperbolic, inverse_quadratic, linear_decay, increase)
}


@final
@dataclass(frozen=True)
class PlannedIteration:
    """A round of act, ask and fit in a plan.

    Attributes:
        steps: environment steps to take, over all parallel environments.
        queries: number of pairs to ask about afterwards; 0 asks nothing.
        candidates: number of segments to cut for choosing these pairs; 0 if nothing is asked.
    """

    steps: int
    queries: int
    candidates: int


def plan(
    *,
    steps: int,
    queries: int,
    iterations: int,
    schedule: ScheduleName | Schedule = "hyperbolic",
    initial_fraction: float = 0.1,
    initial_steps: int = 0,
    final_queries: bool = False,
    oversampling: float = 1.0,
    sampler: PairSampler | None = None,
) -> list[PlannedIteration]:
    """Spread steps and queries over `1 + iterations` iterations; both add up exactly.

    The first iteration takes `initial_steps` without learning and asks the initial share of the
    queries. In each later iteration the policy learns, and then a part of the other queries is
    asked. The last iteration asks nothing unless `final_queries` is set, so that the policy learns
    from every answer.

    Args:
        steps: environment steps in total, including the initial ones.
        queries: queries in total. All of them are asked initially if no later iteration asks, or if
            all later iterations have weight 0.
        iterations: number of iterations in which the policy learns, at least 1. Their numbers of
            steps differ by at most one.
        schedule: a name, or a function of the share of learning that has elapsed when queries are
            asked.
        initial_fraction: share of the queries asked before the policy learns, in [0, 1]; 0.1 as in
            imitation, 0.25 in the DRLHP paper's MuJoCo runs.
        initial_steps: steps of the untrained policy, which the initial queries are about; 0 if
            there is experience already.
        final_queries: whether the last iteration also asks, about what the final policy does. The
            schedule then reaches to the end of learning.
        oversampling: number of pairs drawn for each query, at least 1. Two segments are cut for
            each of these pairs, unless the sampler wants another number.
        sampler: sampler that chooses the pairs; None means one that wants no particular number.

    Raises:
        ConfigError: a number is out of its range, the schedule is unknown, or a weight is below 0.

    >>> for planned in plan(steps=1000, queries=20, iterations=2, initial_steps=100):
    ...     planned
    PlannedIteration(steps=100, queries=2, candidates=4)
    PlannedIteration(steps=450, queries=18, candidates=36)
    PlannedIteration(steps=450, queries=0, candidates=0)
    """
    steps = _count("steps", steps)
    queries = _count("queries", queries)
    iterations = _count("iterations", iterations, 1)
    initial_steps = _count("initial_steps", initial_steps)
    require_in("initial_steps", initial_steps, 0, steps, fix="They are part of `steps`.")
    require_in("initial_fraction", initial_fraction, 0, 1)
    require_in("oversampling", oversampling, 1, MOST_OVERSAMPLING)
    rounds = iterations - 1 + bool(final_queries)  # rounds of queries after the initial ones
    weights = _weights(schedule, rounds, iterations)
    initial = round(initial_fraction * queries) if weights.any() else queries
    later = apportion(weights, queries - initial) if rounds else ()
    asked = [initial, *later, *([] if final_queries else [0])]
    taken = [initial_steps, *apportion(np.ones(iterations), steps - initial_steps)]
    return [
        PlannedIteration(
            int(s), int(q), segments_wanted(sampler, int(q), oversampling=oversampling)
        )
        for s, q in zip(taken, asked, strict=True)
    ]


def apportion(weights: FloatArray | Sequence[float], total: int) -> IntArray:
    """Return whole numbers in proportion to `weights` that sum to `total`, by largest remainder.

    Each number is its share, rounded up or down. If remainders are equal, the earlier number is
    rounded up. Shares are exact fractions, so no rounding error can shift the sum. Weights and
    total must not be negative. Weights may all be 0 only if the total is 0.

    Raises:
        ConfigError: the weights or the total are out of range.
    """
    total = _count("total", total)
    numbers = [float(weight) for weight in weights]
    if not all(isfinite(number) and number >= 0 for number in numbers):
        raise ConfigError(f"weights: expected numbers of at least 0, got {numbers}.")
    exact = [Fraction(number) for number in numbers]
    whole = sum(exact, Fraction(0))
    if not whole and (total or not exact):
        raise ConfigError(f"weights: expected at least one above 0, got {numbers}.")
    shares = [total * weight / (whole or 1) for weight in exact]
    counts = np.array([int(share) for share in shares], np.int64)
    order = sorted(range(len(shares)), key=lambda i: int(counts[i]) - shares[i])
    counts[order[: total - counts.sum()]] += 1
    return counts


def _weights(schedule: ScheduleName | Schedule, rounds: int, iterations: int) -> FloatArray:
    """Compute weights `[rounds]`, one for the end of each of the first `rounds` of `iterations`."""
    if isinstance(schedule, str):
        if schedule not in SCHEDULES:
            raise ConfigError(
                f"schedule: expected one of {', '.join(SCHEDULES)}, or a function, got "
                f"{schedule!r}."
            )
        schedule = SCHEDULES[schedule]
    moments = np.arange(1, rounds + 1) / iterations
    weights = np.array([schedule(float(moment)) for moment in moments], np.float64)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ConfigError(
            f"schedule: expected weights of at least 0, got {weights[wrong][0]} at elapsed = "
            f"{moments[wrong][0]:g}."
        )
    return weights


def _count(name: str, value: int, low: int = 0) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ConfigError(f"{name}: expected a whole number, got {value!r}.") from error
    require_in(name, number, low, inf)
    return number
