import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv

from helpers.clock_world import Clock
from preferl.errors import ConfigError
from preferl.online.methods.pretraining import fill_replay, reset_critic
from preferl.online.wrappers.exploration import ExplorationPolicy


def agent(env, kind=SAC, **settings):
    given = {"learning_starts": 0, "buffer_size": 400, "batch_size": 16, "seed": 0}
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    network = {"net_arch": [8], **settings.pop("policy_kwargs", {})}
    return kind(policy, env, policy_kwargs=network, **(given | settings), device="cpu")


def filled(env, vector_steps, **settings):
    subject = agent(env, **settings)
    random = ExplorationPolicy(subject, subject.action_space, np.random.default_rng(0), 0.5)
    fill_replay(subject, subject.get_env(), random, vector_steps)
    return subject


def test_steps_reach_the_buffer_as_they_were():
    env = DummyVecEnv([Clock] * 4)
    subject = filled(env, 10)
    buffer = subject.replay_buffer
    assert (buffer.size(), buffer.pos, subject.num_timesteps) == (10, 10, 40)
    seen = buffer.observations[:10]
    after = buffer.next_observations[:10]
    np.testing.assert_array_equal(seen[:, 0, 1], [0, 1, 2, 3, 4, 5, 6, 0, 1, 2])
    # The last observation of an episode, not the first one of the next.
    np.testing.assert_array_equal(after, seen + np.float32([0, 1]))
    np.testing.assert_array_equal(buffer.rewards[:10], after[..., 1])
    over = np.zeros((10, 4))
    over[6] = 1
    over[9] = 1  # the agent begins with a reset
    np.testing.assert_array_equal(buffer.dones[:10], over)
    over[6] = 0  # the first episodes terminated
    np.testing.assert_array_equal(buffer.timeouts[:10], over)
    made = np.array([one.actions for one in env.envs]).swapaxes(0, 1)  # [T, V, A]
    stored = [subject.policy.unscale_action(row) for row in buffer.actions[:10]]
    np.testing.assert_allclose(stored, made, atol=1e-5)


def test_it_goes_on_where_the_agent_was():
    subject = agent(DummyVecEnv([Clock]))
    subject.learn(4)
    random = ExplorationPolicy(subject, subject.action_space, np.random.default_rng(0))
    fill_replay(subject, subject.get_env(), random, 2)
    assert subject.replay_buffer.observations[:6, 0, 1].tolist() == [0, 1, 2, 3, 4, 5]
    assert subject.replay_buffer.dones[:6, 0].tolist() == [0, 0, 0, 0, 0, 1]
    subject.learn(3, reset_num_timesteps=False)
    assert subject.replay_buffer.observations[6:9, 0].tolist() == [[2, 0], [2, 1], [2, 2]]


def weights(network):
    return [part.detach().clone() for part in network.parameters()]


def same(network, before):
    return all(map(torch.equal, network.parameters(), before))


@pytest.mark.parametrize("kind", [SAC, TD3])
def test_the_critic_alone_is_reset(kind):
    subject = agent(DummyVecEnv([Clock] * 2), kind)
    subject.learn(60)
    actor = weights(subject.actor)
    critic = weights(subject.critic)
    reset_critic(subject, updates=0)
    assert same(subject.actor, actor)
    assert not any(
        torch.equal(new, old) for new, old in zip(subject.critic.parameters(), critic, strict=True)
    )
    assert same(subject.critic_target, weights(subject.critic))
    assert not subject.critic.optimizer.state


@pytest.mark.parametrize("kind", [SAC, TD3])
def test_updates_teach_the_critic_the_rewards_of_the_buffer(kind):
    subject = filled(DummyVecEnv([Clock]), 50, kind=kind, gamma=0.0, learning_rate=0.02)
    subject.replay_buffer.rewards[:] = 5.0
    actor = weights(subject.actor)
    updates = subject._n_updates
    reset_critic(subject, updates=200)
    assert same(subject.actor, actor)
    assert subject._n_updates == updates + 200
    sample = subject.replay_buffer.sample(50)
    for values in subject.critic(sample.observations, sample.actions):
        assert (values - 5).abs().mean() < 0.5
    subject.learn(20, reset_num_timesteps=False)
    assert not same(subject.actor, actor), "it learns again"


def test_algorithms_without_a_critic_are_refused():
    with pytest.raises(ConfigError, match=r"off-policy one with an actor and a critic.*got PPO"):
        reset_critic(PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8, device="cpu"))
    with pytest.raises(ConfigError, match="got DQN"):
        reset_critic(DQN("MlpPolicy", "CartPole-v1", buffer_size=8, device="cpu"))
