"""EPIC, a distance between rewards that no policy has to be trained for (Gleave et al. 2021).

Rewards that differ by a positive factor, a constant or potential shaping have the same optimal
policies, and distance 0. The distance is `sqrt((1 - r) / 2)`, where `r` is the correlation of the
two *canonically shaped* rewards over transitions:

    C(R)(s, a, s') = R(s, a, s') + E[g R(s', A, S') - R(s, A, S') - g R(S, A, S')]

with discount `g` and `S`, `A`, `S'` drawn independently of each other. Opposite rewards have
distance 1, unrelated ones about 0.71.

A learned reward sees `(s, a)` and not `s'`. Its canonical form
`R(s, a) + g E[R(s', A)] - E[R(s, A)]`, up to a constant, compares an action with the average action
in the same state. Such a reward cannot express `g F(s') - F(s)` except through the dynamics, so a
distance above 0 to a true reward that depends on `s'` may come from its inputs, not its training.
"""

import inspect
import math
from collections.abc import Callable
from typing import cast

import numpy as np

from preferl.data.episodes import Episodes
from preferl.errors import ConfigError, require_in
from preferl.feedback.step_rewards import AnyReward, Reward, as_reward
from preferl.shapes import Array, FloatArray, IntArray, Observations, leaves, map_observations, take
from preferl.statistics import pearson

TransitionReward = Callable[[Observations, Array, Observations], FloatArray]
"""`[B, *obs]`, `[B, *act]` and the `[B, *obs]` that followed, to `[B]` rewards."""

CHUNK = 4096
"""Rows per call, so that memory does not grow with the data."""


def epic_distance(
    first: TransitionReward | AnyReward,
    second: TransitionReward | AnyReward,
    episodes: Episodes,
    *,
    discount: float = 0.99,
    transitions: int = 512,
    shaping: int = 128,
    rng: np.random.Generator,
) -> float:
    """Distance in [0, 1] of two rewards over the transitions of `episodes`.

    Args:
        first: one reward: learned, a control, or a function of observations and actions, and
            perhaps of the observations that followed.
        second: the other.
        episodes: transitions to compare on, and the states and actions of the expectations.
        discount: `g`, that of the policies in mind.
        transitions: how many are compared; drawn without replacement while there are enough.
        shaping: how many `(A, S')` stand for the expectations. All transitions meet the same
            ones, so shaping cancels exactly however few there are.
        rng: where these draws come from.

    Returns:
        The distance, or NaN where one of the rewards is constant up to shaping.

    Raises:
        ConfigError: a discount outside [0, 1].

    >>> blocks = np.arange(8.0)[:, None]
    >>> episodes = Episodes(blocks, blocks % 3, np.zeros(8), np.zeros(8, bool), blocks[:1],
    ...                     np.array([8]))
    >>> reward = lambda s, a, following: (s * a)[:, 0]
    >>> shaped = lambda s, a, following: (2 * s * a + 0.99 * following - s)[:, 0] + 5
    >>> round(epic_distance(reward, shaped, episodes, rng=np.random.default_rng(0)), 6)
    0.0
    """
    require_in("discount", discount, 0, 1)
    rows = rng.choice(episodes.steps, min(transitions, episodes.steps), replace=False)
    actions = episodes.actions[rng.integers(episodes.steps, size=shaping)]
    follow = _following(episodes, rng.integers(episodes.steps, size=shaping))
    batch = take(episodes.observations, rows), episodes.actions[rows], _following(episodes, rows)

    def canonical(reward: TransitionReward) -> FloatArray:
        now = _expected(reward, batch[0], actions, follow)
        later = _expected(reward, batch[2], actions, follow)
        return np.asarray(reward(*batch) + discount * later - now)

    correlation = pearson(*(canonical(of_transitions(reward)) for reward in (first, second)))
    return math.sqrt(max(0.0, (1 - correlation) / 2)) if correlation == correlation else math.nan


def of_transitions(reward: TransitionReward | AnyReward) -> TransitionReward:
    """Any reward as a function of transitions; plain functions of three arguments stay as they are.

    Raises:
        ConfigError: a reward that needs a history, which a lone transition does not have.
        ModelError: something that cannot be called.
    """
    if not isinstance(reward, Reward) and callable(reward):
        try:
            inspect.signature(reward).bind(None, None, None)
        except (TypeError, ValueError):
            pass  # it does not take the observations that followed
        else:
            return cast("TransitionReward", reward)
    return markovian(cast("AnyReward", reward))


def markovian(reward: AnyReward) -> TransitionReward:
    """A learned reward as a function of transitions, which uses observation and action only.

    Raises:
        ConfigError: a reward that needs a history, which a lone transition does not have.
    """
    reward = as_reward(reward)
    if reward.context != 1:
        raise ConfigError.mismatch("context of a reward for EPIC", expected=1, got=reward.context)

    def of_lone_steps(observations: Observations, actions: Array, _: Observations) -> FloatArray:
        windows = map_observations(lambda o: o[:, None], observations)
        return reward(windows, actions[:, None], np.ones((len(actions), 1), bool))

    return of_lone_steps


def _expected(
    reward: TransitionReward, states: Observations, actions: Array, following: Observations
) -> FloatArray:
    """`[B]` means of `reward(s, A, S')` over the same `(A, S')` for each state."""
    count, draws = len(leaves(states)[0]), len(actions)
    means, size = np.empty(count), max(1, CHUNK // draws)
    for begin in range(0, count, size):
        rows = np.arange(begin, min(begin + size, count))
        draw = np.tile(np.arange(draws), len(rows))
        values = reward(take(states, np.repeat(rows, draws)), actions[draw], take(following, draw))
        means[rows] = np.asarray(values).reshape(len(rows), draws).mean(1)  # [rows, draws]
    return means


def _following(episodes: Episodes, rows: IntArray) -> Observations:
    """Observations after the steps `rows`, without a copy of the whole block."""
    episode = np.searchsorted(episodes.ends, rows, side="right")
    last = rows == episodes.ends[episode] - 1

    def pick(observations: Array, final: Array) -> Array:
        following = np.array(observations[np.minimum(rows + 1, len(observations) - 1)])
        following[last] = final[episode[last]]
        return following

    return map_observations(pick, episodes.observations, episodes.final_observations)
