"""What a replay buffer holds is what the newest reward computes, whatever was done to it."""

import numpy as np
import pytest
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack

from helpers.wrapped_pendulums import pendulum, pendulums, reward_of
from preferl.errors import SpaceError
from preferl.online.callbacks import FeedbackCallback
from preferl.online.wrappers.feedback_config import BeforeFirstReward
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.online.wrappers.replay import relabel_replay
from preferl.training.publish import publish


def agent_in(env, **more):
    return SAC("MlpPolicy", env, buffer_size=400, learning_starts=10**6, seed=0, **more)


def test_no_window_reaches_across_the_reset_of_a_second_learn():
    reward = reward_of("pt")
    longer = make_vec_env(lambda: pendulum(50), 2, seed=0)
    agent = agent_in(FeedbackVecEnv(longer, rewards=reward))
    agent.learn(40, callback=FeedbackCallback())
    agent.learn(40, callback=FeedbackCallback())  # begins with a reset
    agent.learn(20, callback=FeedbackCallback(), reset_num_timesteps=False)  # goes on
    buffer = agent.replay_buffer
    cut = np.zeros((50, 2))
    cut[19] = 1
    np.testing.assert_array_equal(buffer.dones[:50], cut)
    np.testing.assert_array_equal(buffer.timeouts[:50], cut)  # values reach across it as before
    rewards = buffer.rewards[:50].copy()
    assert np.ptp(rewards) > 0
    relabel_replay(buffer, reward)
    np.testing.assert_allclose(buffer.rewards[:50], rewards, atol=1e-5)


def test_rewards_between_two_switches_of_one_rollout_are_relabelled():
    env = FeedbackVecEnv(pendulums(), rewards=reward_of())

    class Switches(BaseCallback):
        def _on_step(self):
            if self.n_calls == 5:
                env.switch_to_true_reward()
            if self.n_calls == 10:
                env.switch_to_learned_reward()
            return True

    agent = agent_in(env, train_freq=(1, "episode"))
    agent.learn(40, callback=[FeedbackCallback(), Switches()])
    buffer = agent.replay_buffer
    rewards = buffer.rewards[:40].copy()
    assert np.ptp(rewards) > 0
    relabel_replay(buffer, reward_of())
    np.testing.assert_allclose(buffer.rewards[:40], rewards, atol=1e-5)


@pytest.mark.parametrize(("before", "extra"), [("entropy", 100), ("zero", 0)])
def test_the_first_reward_resets_a_critic_that_has_learned_on_the_bonus(tmp_path, before, extra):
    inner = pendulums()
    env = FeedbackVecEnv(inner, rewards=tmp_path, before=BeforeFirstReward(before))
    agent = SAC("MlpPolicy", env, buffer_size=400, learning_starts=10, seed=0)
    callback = FeedbackCallback(wait=True)
    agent.learn(30, callback=callback)
    made = agent._n_updates
    for _ in range(2):  # a second reward resets nothing
        publish(tmp_path, reward_of())
        agent.learn(10, callback=callback, reset_num_timesteps=False)
    assert agent._n_updates == made + 20 + extra
    env.close()


def test_observations_that_rewards_cannot_be_computed_from_are_refused_at_once(tmp_path):
    def stacked(rewards):
        inner = FeedbackVecEnv(pendulums(), rewards=rewards)
        return agent_in(VecFrameStack(inner, 3))

    agent = stacked(tmp_path)
    with pytest.raises(SpaceError, match="such as VecFrameStack, inside"):
        agent.learn(20, callback=FeedbackCallback())
    assert agent.num_timesteps == 0
    agent.get_env().close()
    for rewards in (None, reward_of()):  # nothing is ever relabelled
        stacked(rewards).learn(20, callback=FeedbackCallback())
    inside = FeedbackVecEnv(VecFrameStack(pendulums(), 3), rewards=tmp_path)
    agent_in(inside).learn(20, callback=FeedbackCallback())
    inside.close()
