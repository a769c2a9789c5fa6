import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from preferl.errors import ConfigError
from preferl.evaluation import PolicyReport, evaluate_policy


class Countdown(gymnasium.Env):
    """Episodes of `seed % 5 + 1` steps; the reward is the action."""

    action_space = spaces.Discrete(3)
    closed = 0

    def __init__(self, *, nested=False, endless=False):
        number = spaces.Box(0, 100, (1,), np.float32)
        self.observation_space = spaces.Dict({"left": number}) if nested else number
        self.nested = nested
        self.endless = endless
        self.left = 0

    def _observe(self):
        number = np.array([self.left], np.float32)
        return {"left": number} if self.nested else number

    def reset(self, *, seed=None, options=None):
        assert seed is not None
        self.left = seed % 5 + 1
        return self._observe(), {}

    def step(self, action):
        assert self.left > 0, "stepped after the end"
        self.left -= 0 if self.endless else 1
        return self._observe(), float(action), self.left == 0, False, {}

    def close(self):
        Countdown.closed += 1


class Twos:
    """Acts 2, and writes down what it was called with."""

    def __init__(self):
        self.starts = []
        self.batches = []

    def predict(self, observation, state=None, episode_start=None, deterministic=0):
        self.starts.append(episode_start.tolist())
        self.batches.append(observation)
        count = 0 if state is None else state
        return np.full(len(episode_start), 2), count + 1


@pytest.mark.parametrize(("parallel", "nested"), [(1, False), (3, True), (50, False)])
def test_each_episode_counts_once_however_many_run_at_once(parallel, nested):
    report = evaluate_policy(
        Twos(), lambda: Countdown(nested=nested), episodes=7, seed=3, parallel=parallel
    )
    assert report.lengths.tolist() == [4, 5, 1, 2, 3, 4, 5]
    assert report.returns.tolist() == [8, 10, 2, 4, 6, 8, 10]


def test_the_policy_is_called_with_the_starts_of_episodes():
    policy = Twos()
    evaluate_policy(policy, Countdown, episodes=3, seed=0, parallel=2)
    # lengths 1, 2, 3: the first environment goes on to the third episode
    assert policy.starts == [[True, True], [True, False], [False, True], [False, False]]


def test_endless_episodes_are_cut_and_environments_closed():
    Countdown.closed = 0
    report = evaluate_policy(
        Twos(), lambda: Countdown(endless=True), episodes=3, seed=0, parallel=2, max_steps=6
    )
    assert report.lengths.tolist() == [6, 6, 6]
    assert Countdown.closed == 2


@pytest.mark.parametrize("wrong", [{"episodes": 0}, {"parallel": 0}, {"max_steps": -1}])
def test_settings_are_checked(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        evaluate_policy(Twos(), Countdown, seed=0, **wrong)


def test_summary_by_hand():
    report = PolicyReport(np.array([1.0, 2.0, 6.0]), np.array([3, 3, 3]))
    assert (report.episodes, report.mean, report.median) == (3, 3.0, 2.0)
    assert report.std == pytest.approx(np.sqrt((4 + 1 + 9) / 2))
    assert report.interval[0] < 3 < report.interval[1]
    assert json.loads(json.dumps(report.to_json())) == report.to_json()
    assert PolicyReport(np.array([1.0]), np.array([3])).std == 0


class Lucky(Countdown):
    """Reports whether the goal is reached, at the second step only."""

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"success": np.array([self.left == 2])}


def test_success_at_any_step_counts():
    report = evaluate_policy(Twos(), Lucky, episodes=5, seed=0, parallel=2)
    # of episodes with 1, 2, 3, 4 and 5 steps, the last three have two steps to go at some time
    assert report.success is not None
    assert report.success.tolist() == [False, False, True, True, True]
    assert report.success_rate == 0.6
    assert evaluate_policy(Twos(), Countdown, episodes=2, seed=0).success is None
