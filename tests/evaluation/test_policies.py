"""Policies: random ones, those of normalised observations, and which protocols they meet."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from preferl.errors import SpaceError
from preferl.evaluation import RandomPolicy, on_raw_observations
from preferl.evaluation.policies import NormalisedPolicy
from preferl.testing import PointWorld


def test_random_policy_repeats_itself_and_leaves_the_space_alone():
    space = spaces.Box(-1, 1, (2,), np.float32, seed=5)
    expected = spaces.Box(-1, 1, (2,), np.float32, seed=5).sample()
    first, state = RandomPolicy(space, 1).predict(np.zeros((4, 3)), state="kept")
    again, _ = RandomPolicy(space, 1).predict({"a": np.zeros((4, 3))})
    assert first.shape == (4, 2)
    assert state == "kept"
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(space.sample(), expected)


def test_pictures_are_turned_as_they_were(rng):
    space = spaces.Box(-1, 1, (3, 6, 5))  # channels first

    class Painter(gymnasium.Env):
        observation_space = space
        action_space = spaces.Discrete(2)

    env = VecNormalize(DummyVecEnv([Painter]))
    agent = PPO("MlpPolicy", env, n_steps=8, batch_size=8)
    first = rng.normal(size=(4, 3, 6, 5)).astype(np.float32)
    acting = on_raw_observations(agent)
    np.testing.assert_array_equal(
        acting.predict(np.moveaxis(first, 1, -1), deterministic=True)[0],
        acting.predict(first, deterministic=True)[0],
    )


class Mirror:
    """Acts as it sees, as an algorithm of stable-baselines3 that has an environment."""

    observation_space = PointWorld.observation_space

    def __init__(self, env):
        self.env = env

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.asarray(observation), (state, episode_start, deterministic)

    def get_vec_normalize_env(self):
        return self.env


def normalising(**settings):
    env = VecNormalize(DummyVecEnv([PointWorld]), epsilon=0.0, **settings)
    if env.norm_obs:
        env.obs_rms.mean = np.array([1.0, -1.0])
        env.obs_rms.var = np.array([4.0, 0.25])
    return env


def test_observations_are_normalised_by_hand_and_all_else_is_passed_on():
    acting = on_raw_observations(Mirror(normalising(clip_obs=5.0)))
    assert isinstance(acting, NormalisedPolicy)
    seen, passed = acting.predict(np.array([[2.0, 0.0], [1.0, 9.0]]), "kept", deterministic=True)
    np.testing.assert_allclose(seen, [[0.5, 2.0], [0.0, 5.0]])  # 20, cut off at 5
    assert passed == ("kept", None, True)


def test_statistics_of_the_moment_are_read_and_none_is_changed():
    env = normalising()
    acting = on_raw_observations(Mirror(env))
    env.obs_rms.mean = np.array([0.0, 0.0])
    np.testing.assert_allclose(acting.predict(np.array([[2.0, 1.0]]))[0], [[1.0, 2.0]])
    np.testing.assert_array_equal(env.obs_rms.mean, [0, 0])


def test_policies_that_need_no_normalising_are_returned_themselves():
    without = (RandomPolicy(PointWorld.action_space, 0), Mirror(None))
    for policy in (*without, Mirror(normalising(norm_obs=False))):
        assert on_raw_observations(policy) is policy


def test_observations_and_statistics_of_other_shapes_are_refused():
    acting = on_raw_observations(Mirror(normalising()))
    with pytest.raises(SpaceError, match=r"shape \(2,\), which VecNormalize.*got \(1, 3\)"):
        acting.predict(np.zeros((1, 3)))
    other = Mirror(normalising())
    other.observation_space = spaces.Box(-1, 1, (4,))
    with pytest.raises(SpaceError, match="VecNormalize outermost"):
        on_raw_observations(other)
