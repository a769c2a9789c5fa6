"""EnvRunners of RLlib compute the published reward, and their episodes reach preferl's loop."""

import os
import re
import sys

import gymnasium
import numpy as np
import pytest

from helpers.waiting import wait_until
from preferl import MLPReward, MLPRewardConfig, RewardFunction
from preferl.errors import ConfigError
from preferl.training.publish import publish

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # theirs are not errors


class Numbered(gymnasium.Env):
    """Observations tell which episode of which environment this is, and its step."""

    observation_space = gymnasium.spaces.Box(0, 2**31, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.number = int(np.random.default_rng().integers(2**31))
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode = self.episode + 1
        self.time = 0
        return self.look(), {}

    def step(self, action):
        self.time += 1
        over = self.time == 5 + self.episode % 7
        return self.look(), float(self.time), over and self.episode % 2 == 0, over, {}

    def look(self):
        return np.array([self.number, self.episode, self.time], np.float64)


def ppo(example, runners):
    return (
        example.ppo(runners, seed=0)
        .env_runners(num_envs_per_env_runner=3)
        .training(train_batch_size_per_learner=120, minibatch_size=60, num_epochs=1)
    )


def reward_of(env, seed):
    spaces = env.observation_space, env.action_space
    return RewardFunction(MLPReward(*spaces, MLPRewardConfig(members=2), seed=seed))


@pytest.fixture(scope="module")
def cartpole(example, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cartpole")
    learner = example.RLlibLearner(ppo(example, 2), "CartPole-v1", folder / "rewards")
    yield learner
    learner.algorithm.stop()


def versions_in_use(example, learner):
    return learner.everywhere(lambda runner, envs=example.envs_of: envs(runner).reward_version)


def sampled(learner):
    """What EnvRunners hand to RLlib's learner: all steps of one sample of each."""
    pieces = learner.everywhere(lambda runner: runner.sample(num_timesteps=60))
    assert len(pieces) == 2
    assert all(sum(len(one) for one in piece) >= 60 for piece in pieces)
    return [one for piece in pieces for one in piece]


def test_rewards_are_those_of_the_published_version_in_all_env_runners(example, cartpole):
    env = gymnasium.make("CartPole-v1")
    assert versions_in_use(example, cartpole) == [0, 0]
    for seed, version in ((3, 1), (4, 2)):
        cartpole.set_reward(reward := reward_of(env, seed))
        cartpole.learn(1_000)
        assert versions_in_use(example, cartpole) == [version, version]
        for piece in sampled(cartpole):
            steps = piece.get_observations()[:-1], piece.get_actions()
            learned = reward(*(part[:, None] for part in steps), np.ones((len(piece), 1), bool))
            np.testing.assert_allclose(piece.get_rewards(), learned, atol=1e-5)
            infos = piece.get_infos()[1:]
            assert {info["reward_version"] for info in infos} == {version}
            assert {info["true_reward"] for info in infos} == {1.0}


def test_no_rollout_mixes_versions(example, cartpole):
    """A version that comes while EnvRunners act is read, and waits for the next batch."""
    cartpole.learn(1_000)
    before = versions_in_use(example, cartpole)
    cartpole.set_reward(reward_of(gymnasium.make("CartPole-v1"), 5))

    def read():  # in the background
        found = cartpole.everywhere(lambda runner: runner.env.env.core.computer.published.next)
        return [one.number for one in found if one] == [before[0] + 1] * 2

    wait_until(read, "the newer version in all EnvRunners")
    for piece in sampled(cartpole):
        assert {info["reward_version"] for info in piece.get_infos()[1:]} == set(before)
    assert versions_in_use(example, cartpole) == before
    cartpole.learn(1_000)
    assert versions_in_use(example, cartpole) == [before[0] + 1] * 2


def test_rewards_of_an_earlier_run_are_refused(example, tmp_path):
    publish(tmp_path, reward_of(gymnasium.make("CartPole-v1"), 3))
    with pytest.raises(ConfigError, match="a new folder"):
        example.RLlibLearner(ppo(example, 2), "CartPole-v1", tmp_path)


def test_each_episode_arrives_once_and_whole(example, tmp_path):
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    learner = example.RLlibLearner(ppo(example, 2), Numbered, tmp_path / "rewards")
    calls = [learner.explore(200), *(learner.learn(250) for _ in range(3))]
    running = sum(
        learner.everywhere(lambda runner: int(runner.env.env.core.recording.pending.sum()))
    )
    assert 950 - 120 < learner.steps <= 950 + 12
    assert learner.steps == sum(episodes.steps for episodes in calls) + running
    seen = {}
    for episode in (one for episodes in calls for one in episodes):
        number, k, _ = episode.observations[0]
        length = 5 + int(k) % 7
        times = np.arange(length + 1)
        together = np.vstack([episode.observations, episode.final_observations])
        np.testing.assert_array_equal(
            together, np.stack([0 * times + number, 0 * times + k, times], 1)
        )
        np.testing.assert_array_equal(episode.rewards, times[1:])  # the true ones
        assert episode.terminated[-1] == (k % 2 == 0)
        seen.setdefault(number, []).append(k)
    assert len(seen) == 6  # environments of two EnvRunners
    assert all(numbers == [*range(len(numbers))] for numbers in seen.values())

    learner.algorithm.stop()


def test_an_env_runner_that_is_lost_comes_back_with_the_newest_version(example, tmp_path):
    import ray

    learner = example.RLlibLearner(ppo(example, 2), "CartPole-v1", tmp_path / "rewards")
    learner.explore(400)
    before = set(learner.everywhere(lambda runner: os.getpid()))
    ray.kill(learner.algorithm.env_runner_group._worker_manager.actors()[1], no_restart=False)
    learner.set_reward(reward_of(gymnasium.make("CartPole-v1"), 3))

    def both():  # until then, the agent learns from what the other one does
        assert learner.learn(500).steps > 0
        return len(versions_in_use(example, learner)) == 2

    wait_until(both, "the EnvRunner that was lost")
    assert versions_in_use(example, learner) == [1, 1]
    assert len(before - set(learner.everywhere(lambda runner: os.getpid()))) == 1
    learner.algorithm.stop()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_policies_act_as_env_runners_do_without_exploring(example, env, tmp_path):
    learner = example.RLlibLearner(ppo(example, 0), env, tmp_path / "rewards")
    learner.explore(700)
    learner.learn(240)
    learner.everywhere(lambda runner: runner.env.env.take(unfinished="cut"))  # what explored
    settings = {"num_timesteps": 60, "explore": False, "force_reset": True}
    learner.everywhere(lambda runner: runner.sample(**settings))
    (acted,) = learner.everywhere(lambda runner: runner.env.env.take(unfinished="cut"))
    assert acted.steps >= 60
    np.testing.assert_allclose(learner.predict(acted.observations)[0], acted.actions, atol=1e-5)
    learner.algorithm.stop()


def test_the_example_learns_from_answers_with_two_env_runners(
    example, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    example.main(2, seed=0, steps=25_000, answers=100)
    shown = re.findall(r"^(.+): mean return (\d+)", capsys.readouterr().out, re.M)
    returns = {name: int(mean) for name, mean in shown}
    assert returns["random"] < 40
    assert returns["learned from 100 answers"] > 80
    assert returns["learned from the true reward"] > 80
