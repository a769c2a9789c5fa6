"""Plain functions of observations and actions are rewards wherever a reward is taken."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env

from helpers.wrapped_pendulums import pendulum
from preferl.data import Comparisons, Segments, sample_segments
from preferl.errors import ConfigError, ModelError
from preferl.evaluation import evaluate_reward, negated, oracle, random, rollout, step_rewards, zero
from preferl.feedback.step_rewards import as_reward
from preferl.models import MLPReward
from preferl.online import FeedbackVecEnv, FeedbackVectorEnv, HumanPreferencesEnvWrapper, SB3Learner
from preferl.online.wrappers.replay import relabel_replay
from preferl.testing import make_episodes
from preferl.training import RewardFunction, relabel

SPACES = spaces.Box(-2, 2, (2,)), spaces.Box(-1, 1, (2,))


def true_reward(observations, actions):
    return observations[:, 0] + 0.5 * actions[:, 1]


@pytest.fixture
def episodes():
    return make_episodes(np.random.default_rng(0), [20, 30], *SPACES)


@pytest.fixture
def answers(episodes):
    rng = np.random.default_rng(1)
    segments = sample_segments(episodes, 40, 5, rng)
    pairs = rng.permutation(40).reshape(20, 2)
    scores = oracle(true_reward).scores(segments)[0]
    return Comparisons.of(segments, pairs, (scores[pairs[:, 0]] > scores[pairs[:, 1]]) * 1.0)


@pytest.mark.parametrize("reward", [true_reward, oracle(true_reward)], ids=["function", "oracle"])
def test_reports_relabelling_and_controls(reward, episodes, answers):
    report = evaluate_reward(reward, answers, episodes=episodes, true_reward=true_reward)
    assert report.accuracy == 1
    assert report.epic == pytest.approx(0, abs=1e-6)
    assert evaluate_reward(negated(reward), answers, true_reward=oracle(true_reward)).accuracy == 0
    expected = true_reward(episodes.observations, episodes.actions)
    np.testing.assert_allclose(relabel(episodes, reward).rewards, expected, rtol=1e-6)
    np.testing.assert_allclose(step_rewards(reward, episodes), expected)
    np.testing.assert_allclose(step_rewards(negated(reward), episodes), -expected)


def torque(observations, actions):
    return observations[:, 2] - actions[:, 0]


@pytest.mark.parametrize("reward", [torque, oracle(torque)], ids=["function", "oracle"])
def test_environments_give_them_as_rewards(reward, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = FeedbackVecEnv(make_vec_env(pendulum, 2))
    plain.set_reward(reward)
    stacked = gymnasium.vector.SyncVectorEnv([pendulum] * 2)
    venvs = [
        plain,
        FeedbackVecEnv(make_vec_env(pendulum, 2), rewards=reward),
        FeedbackVectorEnv(stacked, rewards=reward),
    ]
    actions = np.array([[0.5], [-1.5]], np.float32)
    for env in venvs:
        first = env.reset()
        seen = first[0] if isinstance(first, tuple) else first
        np.testing.assert_allclose(env.step(actions)[1], torque(seen, actions), rtol=1e-6)
        env.close()
    single = HumanPreferencesEnvWrapper(pendulum(), collect_prefs=False, rewards=reward)
    seen, _ = single.reset(seed=0)
    assert single.step(actions[0])[1] == pytest.approx(torque(seen[None], actions[:1])[0])
    single.close()


@pytest.mark.parametrize("reward", [torque, oracle(torque)], ids=["function", "oracle"])
def test_learners_use_them_and_relabel_their_replay_buffer(rng, reward):
    agent = SAC("MlpPolicy", make_vec_env(pendulum, 1, seed=0), learning_starts=10_000)
    learner = SB3Learner(agent, total_steps=60, rng=rng)
    learner.learn(30)
    learner.set_reward(reward)
    buffer = agent.replay_buffer
    size = buffer.size()
    low = agent.action_space.low
    high = agent.action_space.high
    actions = low + (buffer.actions[:size, 0] + 1) / 2 * (high - low)
    expected = torque(buffer.observations[:size, 0], actions)
    np.testing.assert_allclose(buffer.rewards[:size, 0], expected, rtol=1e-4, atol=1e-5)
    relabel_replay(buffer, negated(reward))
    np.testing.assert_allclose(buffer.rewards[:size, 0], -expected, rtol=1e-4, atol=1e-5)
    env = FeedbackVecEnv(make_vec_env(pendulum, 1), rewards=reward)
    PPO("MlpPolicy", env, n_steps=8, batch_size=8).learn(8)


def test_what_is_no_reward(episodes):
    learned = RewardFunction(MLPReward(*SPACES, seed=0))
    assert as_reward(learned) is learned
    with pytest.raises(ModelError, match="RewardFunction, a control, or a function"):
        relabel(episodes, 3.0)
    with pytest.raises(ModelError, match="one number for each of"):
        relabel(episodes, lambda observations, actions: observations)


class RewardNet(torch.nn.Module):
    """A network of transitions, as imitation has them."""

    def forward(self, state, action, next_state, done):
        return state[:, 0]


@pytest.mark.parametrize(
    ("reward", "named"),
    [
        (lambda s, a, n, d: s[:, 0], r"\(s, a, n, d\)"),
        (lambda observations: observations[:, 0], r"\(observations\)"),
        (RewardNet(), r"a RewardNet .*next_state"),
        (RewardNet, r"a class"),
        (MLPReward(*SPACES, seed=0), r"MLPReward.*RewardFunction\(model\)"),
    ],
    ids=["transitions", "observations", "network", "class", "model"],
)
def test_what_takes_other_arguments_is_refused_by_name(reward, named, episodes, answers):
    agent = PPO("MlpPolicy", make_vec_env(pendulum, 1), n_steps=8, batch_size=8)
    learner = SB3Learner(agent, total_steps=8, rng=np.random.default_rng(0))
    stacked = gymnasium.vector.SyncVectorEnv([pendulum])
    takes = [
        FeedbackVecEnv(make_vec_env(pendulum, 1)).set_reward,
        learner.set_reward,
        lambda given: FeedbackVecEnv(make_vec_env(pendulum, 1), rewards=given),
        lambda given: FeedbackVectorEnv(stacked, rewards=given),
        lambda given: evaluate_reward(given, answers),
        lambda given: relabel(episodes, given),
        lambda given: next(rollout(agent, make_vec_env(pendulum, 1), reward=given)),
    ]
    for take in takes:
        with pytest.raises(ModelError, match=named):
            take(reward)


def first_feature(observations, actions):
    assert isinstance(observations, np.ndarray)
    return np.asarray(observations[:, 0])


@pytest.fixture
def segments(rng):
    observations = rng.normal(size=(10, 3))
    actions = rng.normal(size=(10, 2))
    return Segments(
        observations, actions, np.arange(10.0), np.array([0, 2, 7]), np.array([4, 4, 2]), 4
    )


def builds():
    return [zero(), random(3), negated(random(3)), oracle(first_feature)]


@pytest.mark.parametrize("reward", builds())
def test_scores_are_sums_over_real_steps(reward, segments):
    assert (reward.context, reward.members) == (1, 1)
    clips = segments[:]
    steps = clips.actions.reshape(12, 1, 2)
    each = reward(clips.observations.reshape(12, 1, 3), steps, np.ones((12, 1), bool))
    expected = (each.reshape(3, 4) * clips.mask).sum(-1)
    np.testing.assert_allclose(reward.scores(segments), expected[None], atol=1e-12)


def test_random_is_a_function_and_depends_on_its_seed(rng):
    observations = rng.normal(size=(500, 1, 3))
    actions = rng.normal(size=(500, 1, 2))
    mask = np.ones((500, 1), bool)
    first = random(0)(observations, actions, mask)
    np.testing.assert_array_equal(first, random(0)(observations, actions, mask))
    np.testing.assert_allclose(first[7:8], random(0)(observations[7:8], actions[7:8], mask[7:8]))
    assert abs(np.corrcoef(first, random(1)(observations, actions, mask))[0, 1]) < 0.9
    assert first.std() > 0.01


def test_random_sees_dictionaries_pixels_and_discrete_actions():
    observations = {"camera": np.zeros((2, 1, 4, 4, 3), np.uint8)}
    rewards = random()(observations, np.array([[0], [1]]), np.ones((2, 1), bool))
    assert rewards.shape == (2,)
    assert rewards[0] != rewards[1]


def test_recorded_oracle_scores_segments_alone(segments):
    recorded = oracle()
    assert recorded.scores(segments).tolist() == [[6.0, 14.0, 15.0]]
    assert (recorded.context, recorded.members) == (1, 1)
    with pytest.raises(ConfigError, match="as a function"):
        recorded(np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), np.ones((1, 1), bool))
