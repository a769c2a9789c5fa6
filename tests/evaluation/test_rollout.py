"""The rollout that everything takes its steps from."""

import warnings
from importlib import import_module
from itertools import islice

import numpy as np
import pytest

from preferl.data import Episodes
from preferl.errors import ConfigError
from preferl.evaluation import (
    RandomPolicy,
    ReturnConditionedPolicy,
    SeededEpisodes,
    rollout,
    step_rewards,
)
from preferl.models import LSTMReward
from preferl.testing import FadingModel, PointWorld
from preferl.training import RewardFunction

SPACES = PointWorld.observation_space, PointWorld.action_space


class Worlds:
    """Three worlds of 2, 3 and 4 steps, as a vector environment; they show what has passed."""

    lengths = np.array([2, 3, 4])
    num_envs = 3

    def reset(self):
        self.time = np.zeros(3, int)
        self.resets = 0
        return self.time[:, None].astype(float)

    def step(self, actions):
        self.time += 1
        dones = self.time == self.lengths
        self.time[dones] = 0
        return self.time[:, None].astype(float), actions * 1.0, dones, [{}, {}, {}]


class Earning:
    """Acts by what it earned last, and by how often it was asked."""

    def __init__(self):
        self.earnings = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        state = {"asked": 0} if state is None else state
        state["asked"] += 1
        self.starts = episode_start
        return np.arange(3) + state["asked"], state

    def earned(self, state, rewards):
        self.earnings.append(np.array(rewards).tolist())


def test_what_a_step_holds():
    steps = list(islice(rollout(Earning(), Worlds()), 4))
    seen = [step.observations[:, 0].tolist() for step in steps]
    assert seen == [[0, 0, 0], [1, 1, 1], [0, 2, 2], [1, 0, 3]]
    assert [step.following[:, 0].tolist() for step in steps[:3]] == seen[1:]
    starts = [step.starts.tolist() for step in steps]
    assert starts == [[True] * 3, [False] * 3, [True, False, False], [False, True, False]]
    episodes = [step.episodes.tolist() for step in steps]
    assert episodes == [[0, 1, 2], [0, 1, 2], [3, 1, 2], [3, 4, 2]]
    assert steps[3].actions.tolist() == [4, 5, 6]
    assert steps[3].dones.tolist() == [True, False, True]
    assert steps[0].learned is None


def test_a_policy_that_goes_by_what_it_earns_learns_of_it():
    policy = Earning()
    assert isinstance(policy, ReturnConditionedPolicy)
    list(islice(rollout(policy, Worlds()), 2))
    assert policy.earnings == [[1, 2, 3], [2, 3, 4]]
    policy = Earning()
    list(islice(rollout(policy, Worlds(), reward=lambda seen, done: seen[:, 0] * 10), 2))
    assert policy.earnings == [[0, 0, 0], [10, 10, 10]]


def test_it_goes_on_from_what_is_seen_already():
    envs = Worlds()
    seen = envs.reset()
    seen, *_ = envs.step(np.zeros(3))
    first = next(rollout(Earning(), envs, observations=seen))
    assert first.observations[:, 0].tolist() == [1, 1, 1]
    assert first.starts.all()
    assert envs.time.tolist() == [0, 2, 2]


@pytest.mark.parametrize("model", [FadingModel(context=3), LSTMReward(*SPACES, seed=0)])
def test_learned_rewards_are_those_of_relabelling(model):
    reward = RewardFunction(model)
    envs = SeededEpisodes([PointWorld(length=5), PointWorld(length=7)], seed=0)
    policy = RandomPolicy(PointWorld.action_space, 0)
    steps = list(islice(rollout(policy, envs, reward=reward), 10))
    names = ("observations", "actions", "rewards")
    columns = [np.stack([getattr(step, name)[0] for step in steps]) for name in names]
    episodes = Episodes(*columns, np.zeros(10, bool), np.zeros((2, 2)), np.array([5, 5]))
    learned = [step.learned[0] for step in steps]
    np.testing.assert_allclose(learned, step_rewards(reward, episodes), atol=1e-5)


def test_there_are_no_more_environments_than_episodes():
    with pytest.raises(ConfigError, match="environments"):
        SeededEpisodes([PointWorld(), PointWorld()], seed=0, episodes=1)


def test_environments_rest_where_no_episode_is_left():
    envs = SeededEpisodes([PointWorld(length=2), PointWorld(length=5)], seed=3, episodes=3)
    steps = list(islice(rollout(RandomPolicy(PointWorld.action_space, 0), envs), 6))
    ends = [np.flatnonzero(step.dones).tolist() for step in steps]
    assert ends == [[], [0], [], [0], [1], []]
    assert steps[-1].rewards.tolist() == [0, 0]
    info = steps[1].infos[0]
    assert info["TimeLimit.truncated"]
    expected, _ = PointWorld().reset(seed=5)  # the third episode
    np.testing.assert_array_equal(steps[1].following[0], expected)
    assert not np.array_equal(info["terminal_observation"], expected)


def test_episodes_without_an_end_are_cut_off_and_warned_of_once(monkeypatch):
    monkeypatch.setattr(import_module("preferl.evaluation.rollout"), "LONGEST", 50)
    policy = RandomPolicy(PointWorld.action_space, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for seed in range(2):
            steps = rollout(policy, SeededEpisodes([PointWorld(length=10**9)], seed=seed))
            last = next(step for step in steps if step.dones[0])
            assert last.infos[0]["TimeLimit.truncated"]
            assert next(steps).starts[0]
    (warning,) = caught
    assert "did not end within 10000 steps" in str(warning.message)
