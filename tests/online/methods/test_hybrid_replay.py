"""Half of each batch from the newest steps, whatever the buffer, the algorithm and the rewards."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv

from helpers.tiny_runs import tiny
from preferl.errors import ConfigError
from preferl.feedback import UniformPairs
from preferl.models import MLPRewardConfig
from preferl.online import PPOConfig, SACConfig, learn_from_preferences
from preferl.online.methods.hybrid_replay import (
    HybridDictReplayBuffer,
    HybridNStepReplayBuffer,
    HybridReplayBuffer,
    HybridSampling,
    use_hybrid_replay,
)
from preferl.online.wrappers.replay import relabel_replay
from preferl.testing import PointWorld
from preferl.training import RewardTrainerConfig

CLOCK = spaces.Box(0, 10_000, (1,), np.float32)
MOVE = spaces.Box(-1, 1, (1,), np.float32)
LABELLED = spaces.Dict({"at": PointWorld.observation_space})
KINDS = [
    (HybridReplayBuffer, lambda time: time),
    (HybridDictReplayBuffer, lambda time: {"clock": time}),
    (HybridNStepReplayBuffer, lambda time: time),
]


def filled(kind, shown, *, steps, rows=200):
    """A buffer of two environments whose observations are the time at which they were stored."""
    space = spaces.Dict({"clock": CLOCK}) if kind is HybridDictReplayBuffer else CLOCK
    buffer = kind(2 * rows, space, MOVE, "cpu", 2, recent_share=0.5, recent_steps=20)
    for time in range(steps):
        now = shown(np.full((2, 1), time, np.float32))
        later = shown(np.full((2, 1), time + 1, np.float32))
        zeros = np.zeros(2)
        buffer.add(now, later, np.zeros((2, 1)), zeros, zeros, [{}, {}])
    return buffer


def times(samples):
    observations = samples.observations
    observations = observations["clock"] if isinstance(observations, dict) else observations
    return observations.numpy()[:, 0]


@pytest.mark.parametrize(("kind", "shown"), KINDS)
@pytest.mark.parametrize("steps", [150, 330])
def test_half_of_each_batch_is_among_the_newest_steps(kind, shown, steps):
    set_random_seed(0)
    buffer = filled(kind, shown, steps=steps)
    drawn = np.stack([times(buffer.sample(64)) for _ in range(200)])
    newest = steps - 10  # 20 steps of two environments
    oldest = max(0, steps - 200)
    assert drawn[:, :32].min() == newest
    assert drawn[:, :32].max() == steps - 1
    assert set(drawn[:, 32:].ravel()) == set(range(oldest, steps))  # all that is stored
    counts = np.bincount(drawn[:, :32].ravel().astype(int))[newest:]
    expected = drawn[:, :32].size / 10
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize(
    ("algorithm", "world", "settings", "expected"),
    [
        (SAC, PointWorld, {}, HybridReplayBuffer),
        (TD3, PointWorld, {"n_steps": 3}, HybridNStepReplayBuffer),
        (
            DDPG,
            lambda: gym.wrappers.TransformObservation(
                PointWorld(), lambda seen: {"at": seen}, LABELLED
            ),
            {},
            HybridDictReplayBuffer,
        ),
        (DQN, lambda: gym.make("CartPole-v1"), {}, HybridReplayBuffer),
    ],
)
def test_algorithms_learn_from_it(algorithm, world, settings, expected, monkeypatch):
    sizes = []
    draw = HybridSampling.draw_rows

    def counted(buffer, batch_size):
        sizes.append(batch_size)
        return draw(buffer, batch_size)

    monkeypatch.setattr(HybridSampling, "draw_rows", counted)
    policy = "MultiInputPolicy" if algorithm is DDPG else "MlpPolicy"
    small = {"learning_starts": 10, "train_freq": 4, "buffer_size": 500, "batch_size": 16}
    network = {"policy_kwargs": {"net_arch": [8]}}
    agent = algorithm(policy, DummyVecEnv([world] * 2), **small, **network, **settings)
    use_hybrid_replay(agent, share=0.25, steps=12)
    buffer = agent.replay_buffer
    assert type(buffer) is expected
    assert (buffer.buffer_size, buffer.n_envs) == (250, 2)
    assert (buffer.recent_share, buffer.recent_steps) == (0.25, 12)
    assert getattr(buffer, "n_steps", None) == settings.get("n_steps")
    agent.learn(40)
    assert buffer.size() == 20
    assert set(sizes) == {16}


def test_others_are_refused():
    agent = PPO("MlpPolicy", DummyVecEnv([PointWorld]))
    with pytest.raises(ConfigError, match=r"recent_share: .*got PPO with none"):
        use_hybrid_replay(agent, share=0.5, steps=10)
    frugal = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    with pytest.raises(ConfigError, match="optimize_memory_usage=False, got True"):
        HybridReplayBuffer(10, CLOCK, MOVE, **frugal)
    with pytest.raises(ConfigError, match="recent_share: expected in"):
        HybridReplayBuffer(10, CLOCK, MOVE, recent_share=1.5)


def test_the_loop_draws_from_the_steps_that_queries_are_about():
    config = tiny(
        env=PointWorld,
        steps=400,
        initial_steps=100,
        segment_length=5,
        buffer_steps=60,
        recent_share=0.5,
        exploration_fraction=0,
        algorithm=SACConfig(learning_starts=10, batch_size=8, hidden=(4,), train_freq=8),
        model=MLPRewardConfig(hidden=(4,), members=2),
        trainer=RewardTrainerConfig(epochs=1),
    )
    shown = []
    choose = UniformPairs()

    def sampler(segments, count, rng):
        shown.append(segments.steps)
        return choose(segments, count, rng)

    report = learn_from_preferences(config, sampler=sampler)
    buffer = report.learner.algorithm.replay_buffer
    assert (buffer.recent_share, buffer.recent_steps) == (0.5, 60)
    assert shown == [60, 60]  # of 100 and of 250 steps: the newest three episodes
    rewards = buffer.rewards.copy()
    relabel_replay(buffer, report.reward)
    np.testing.assert_allclose(rewards, buffer.rewards, atol=1e-5)
    with pytest.raises(ConfigError, match="got PPO with none"):
        learn_from_preferences(replace(config, algorithm=PPOConfig()))
