"""Whole episodes of a policy: every one that was begun counts, however long it takes."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

from preferl.online.acting import act, has_states, task_environments
from preferl.testing import MovingDot


class Lasting(gymnasium.Env[Any, Any]):
    """Episodes of `length` steps that show how many steps are behind them; odd ones terminate."""

    observation_space = gymnasium.spaces.Box(0, 99, (1,))
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, length: int) -> None:
        self.length = length
        self.episode = -1

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        state = np.array([self.length, self.time])
        return np.array([self.time], np.float32), {"state": state}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        self.episode = self.episode + 1
        return self._seen()

    def step(self, action: int) -> Any:
        self.time += 1
        over = self.time == self.length
        observation, info = self._seen()
        odd = self.episode % 2 == 1
        return observation, float(action), over and odd, over and not odd, info


class Counting:
    """Takes action 0, 1, 2, 0, ... everywhere, and remembers how it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.calls.append((state, episode_start.tolist(), deterministic))
        number = len(self.calls) - 1
        return np.full(len(observation), number % 3), number


def environments(*lengths: int) -> DummyVecEnv:
    return DummyVecEnv([partial(Lasting, length) for length in lengths])


def test_a_long_episode_counts_though_short_ones_end_before_it():
    episodes = act(Counting(), environments(1, 10), episodes=4)
    assert sorted(episodes.lengths.tolist()) == [1, 1, 1, 10]


def test_fewer_episodes_than_environments():
    assert act(Counting(), environments(2, 3, 4), episodes=2).lengths.tolist() == [2, 3]


def test_enough_steps_and_no_more_begun():
    # After two vector steps four steps are recorded; the episode under way then ends.
    assert act(Counting(), environments(1, 10), steps=3).lengths.tolist() == [1, 1, 10]


def test_what_is_kept_of_a_step():
    episodes = act(Counting(), environments(2), episodes=2, states=True)
    assert episodes.observations[:, 0].tolist() == [0, 1, 0, 1]
    assert episodes.final_observations[:, 0].tolist() == [2, 2]
    assert episodes.actions.tolist() == [0, 1, 2, 0]
    assert episodes.rewards.tolist() == [0, 1, 2, 0]
    assert episodes.terminated.tolist() == [False, False, False, True]
    assert episodes.states.tolist() == [[2, 0], [2, 1], [2, 0], [2, 1]]


def test_the_policy_gets_its_last_state_and_where_episodes_begin():
    policy = Counting()
    act(policy, environments(2), episodes=2, deterministic=True)
    assert policy.calls == [
        (None, [True], True),
        (0, [False], True),
        (1, [True], True),
        (2, [False], True),
    ]


def test_progress_counts_what_was_asked_for():
    progress: list[tuple[int, int]] = []
    act(Counting(), environments(1, 2), episodes=3, on_progress=lambda *n: progress.append(n))
    assert progress[-1] == (3, 3)
    progress.clear()
    act(Counting(), environments(1, 2), steps=3, on_progress=lambda *n: progress.append(n))
    assert progress[-1] == (3, 3)


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
