"""Whole episodes of a policy: every one that was begun counts, however long it takes."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

from helpers.clock_world import Clock
from preferl.online.acting import act, has_states, task_environments
from preferl.testing import MovingDot


class Counting:
    """Takes action 0, 1, 2, 0, ... everywhere, and remembers how it was asked."""

    def __init__(self):
        self.calls = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.calls.append((state, episode_start.tolist(), deterministic))
        number = len(self.calls) - 1
        return np.full((len(observation), 2), number % 3), number


def environments(*lengths):
    return DummyVecEnv([partial(Clock, length) for length in lengths])


@pytest.mark.parametrize(
    ("lengths", "wanted", "acted"),
    [
        ((1, 10), {"episodes": 4}, [1, 1, 1, 10]),
        ((2, 3, 4), {"episodes": 2}, [2, 3]),
        # After two vector steps four steps are recorded; the episode under way then ends.
        ((1, 10), {"steps": 3}, [1, 1, 10]),
    ],
)
def test_a_long_episode_counts_though_short_ones_end_before_it(lengths, wanted, acted):
    progress = []
    show = {"on_progress": lambda *now: progress.append(now)}
    episodes = act(Counting(), environments(*lengths), **wanted, **show)
    assert sorted(episodes.lengths.tolist()) == acted
    assert progress[-1] == 2 * tuple(wanted.values())


def test_what_is_kept_of_a_step():
    episodes = act(Counting(), environments(2), episodes=2, states=True)
    assert episodes.observations.tolist() == [[1, 0], [1, 1], [2, 0], [2, 1]]
    assert episodes.final_observations.tolist() == [[1, 2], [2, 2]]
    assert episodes.actions[:, 0].tolist() == [0, 1, 2, 0]
    assert episodes.rewards.tolist() == [1, 2, 1, 2]
    assert episodes.terminated.tolist() == [False, True, False, False]
    np.testing.assert_array_equal(episodes.states, episodes.observations)


def test_environments_of_a_task_begin_where_the_seed_determines():
    first, again, other = (
        task_environments("Pendulum-v1", 2, seed=seed, states=True).reset() for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[1], other[0])
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize(("env", "expected"), [("Pendulum-v1", True), (None, False)])
def test_pictures_need_no_states(env, expected):
    assert has_states(gymnasium.make(env) if env else MovingDot()) is expected
