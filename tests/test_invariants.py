"""Promises that span packages: one meaning of a reward online and offline, and that it learns."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv

from preferl.data import Comparisons, sample_segments
from preferl.feedback import InstantFeedback, ScriptedTeacher, UniformPairs
from preferl.models import Ensemble, MLPReward, MLPRewardConfig
from preferl.online import SB3Learner
from preferl.online.wrappers.feedback_env import episode_recorder
from preferl.testing import (
    FadingModel,
    PointWorld,
    check_reward_model,
    linear_reward,
    make_comparisons,
    make_episodes,
    sample_steps,
)
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import RewardFunction, RewardTrainer, RewardTrainerConfig, relabel

SMALL = MLPRewardConfig(hidden=(16,), members=3)


def mlp(seed=0, spaces_=(POINT_SPACE, PUSH_SPACE), **changes):
    config = MLPRewardConfig(**({"hidden": (16,), "members": 3} | changes))
    return MLPReward(*spaces_, config, seed=seed)


MODELS = {
    "mlp": mlp,
    "one network": lambda: mlp(members=1),
    "alike members": lambda: Ensemble([mlp(0), mlp(1)]),
    "mixed members": lambda: Ensemble([mlp(0), mlp(1, pooling="mean", hidden=())]),
    "with history": FadingModel,
    "history and none": lambda: Ensemble([FadingModel(), mlp()]),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


def test_every_model_keeps_the_contract(model):
    check_reward_model(model)


def test_every_model_keeps_the_contract_in_other_spaces():
    images = spaces.Box(0, 255, (4, 4, 3), np.uint8)
    mixed = spaces.Dict({"see": images, "feel": spaces.Box(-np.inf, np.inf, (2,))})
    for observations, actions in (
        (mixed, spaces.Discrete(3, start=1)),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)),
    ):
        check_reward_model(mlp(spaces_=(observations, actions)))
        check_reward_model(FadingModel(observations, actions))


def algorithm(kind):
    env = DummyVecEnv([lambda: PointWorld(length=7)] * 3)
    settings = {"n_steps": 25, "batch_size": 25, "n_epochs": 1}
    if kind is SAC:
        settings = {"learning_starts": 10, "buffer_size": 500, "batch_size": 8}
    return kind("MlpPolicy", env, seed=0, policy_kwargs={"net_arch": [8]}, device="cpu", **settings)


@pytest.mark.parametrize("kind", [PPO, SAC])
def test_rewards_online_are_those_of_relabelling_what_was_recorded(model, kind):
    learner = SB3Learner(
        algorithm(kind), total_steps=300, exploration_fraction=0.2, rng=np.random.default_rng(0)
    )
    outside = episode_recorder(learner.env)  # sees the rewards, through resets
    learner.algorithm.set_env(outside)
    for version in range(2):
        reward = RewardFunction(model)
        reward = reward.scaled(make_episodes(np.random.default_rng(version), [50]))
        learner.set_reward(reward)
        rollout = learner.learn(150)
        seen = outside.take()
        assert seen is not None
        np.testing.assert_array_equal(rollout.observations, seen.observations)
        np.testing.assert_array_equal(rollout.lengths, seen.lengths)
        assert len(rollout) > 5
        np.testing.assert_allclose(relabel(rollout, reward).rewards, seen.rewards, atol=1e-5)
        np.testing.assert_allclose(
            rollout.rewards, linear_reward(rollout.observations, rollout.actions), atol=1e-5
        )
        outside.reset()  # so that no episode has rewards of two versions
        outside.take()
        learner.env.take()
        learner.algorithm.set_env(learner.algorithm.get_env())  # which it resets


def test_swapping_sides_and_answers_learns_the_same(model, rng):
    episodes = make_episodes(rng, [30, 30])
    comparisons = make_comparisons(rng, length=4, episodes=episodes)
    segments = sample_segments(episodes, 20, 4, rng)
    config = RewardTrainerConfig(epochs=2, batch_size=8)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    learned = []
    for answers in (comparisons, comparisons.swapped()):
        model.load_state_dict(before)
        RewardTrainer(model, config, seed=0).fit(answers)
        scores = RewardFunction(model).scores(segments)
        learned.append(scores - scores[:, :1])  # comparisons do not tell a constant
    np.testing.assert_allclose(learned[0], learned[1], atol=1e-4)


def test_the_point_world_is_a_proper_environment():
    check_env(PointWorld(), skip_render_check=True)


@pytest.fixture(scope="module")
def experience():
    recorder = episode_recorder(DummyVecEnv([PointWorld] * 4))
    recorder.seed(0)
    recorder.reset()
    rng = np.random.default_rng(0)
    for _ in range(500):
        recorder.step(sample_steps(PUSH_SPACE, 4, rng))
    episodes = recorder.take()
    assert episodes is not None
    assert len(episodes) == 100
    return episodes


@pytest.fixture(scope="module")
def answers(experience):
    rng = np.random.default_rng(1)
    feedback = InstantFeedback(ScriptedTeacher(), 1)
    segments = sample_segments(experience, 800, 10, rng)
    feedback.ask(segments, UniformPairs()(segments, 600, rng))
    comparisons = feedback.comparisons()
    assert len(comparisons) == 600
    return comparisons


def correlation(comparisons):
    """Of the reward learned from these answers with the true one, over steps of their own."""
    model = mlp(hidden=(32,))
    config = RewardTrainerConfig(epochs=20, learning_rate=3e-3)
    RewardTrainer(model, config, seed=0).fit(comparisons)
    fresh = make_episodes(np.random.default_rng(7), [500])
    learned = relabel(fresh, RewardFunction(model)).rewards
    return float(np.corrcoef(learned, fresh.rewards)[0, 1])


def with_preference(comparisons, preference):
    return Comparisons(comparisons.segments, comparisons.pairs, preference, comparisons.weight)


def test_600_answers_recover_a_known_linear_reward(answers):
    assert correlation(answers) > 0.8


def test_shuffled_answers_recover_nothing(answers, rng):
    shuffled = rng.permutation(answers.preference)
    assert abs(correlation(with_preference(answers, shuffled))) < 0.5


def test_negated_answers_recover_the_opposite(answers):
    assert correlation(with_preference(answers, 1 - answers.preference)) < -0.8
