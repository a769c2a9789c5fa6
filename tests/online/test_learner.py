import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

from helpers.curious_reward import Curious
from helpers.resumable_runs import counted_resets
from preferl.errors import ConfigError
from preferl.online import SB3Learner

TINY = {"net_arch": [8]}


def ppo(env=None, **settings):
    env = make_vec_env("CartPole-v1", 2, seed=0) if env is None else env
    given = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "policy_kwargs": dict(TINY)}
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    return PPO(policy, env, **(given | settings), device="cpu")


def sac(env=None, kind=SAC, **settings):
    env = make_vec_env("Pendulum-v1", 2, seed=0) if env is None else env
    given = {"learning_starts": 20, "buffer_size": 400, "batch_size": 16, "seed": 0}
    given |= {"policy_kwargs": dict(TINY)}
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    return kind(policy, env, **(given | settings), device="cpu")


def dqn(**settings):
    return sac(make_vec_env("CartPole-v1", 2, seed=0), DQN, **settings)


def learner(algorithm, **settings):
    given = {"total_steps": 1000, "rng": np.random.default_rng(0)}
    return SB3Learner(algorithm, **(given | settings))


@pytest.mark.parametrize("fraction", [0.0, 0.3])
@pytest.mark.parametrize("make", [ppo, sac, dqn])
def test_steps_are_at_most_those_asked_for(make, fraction, rng):
    subject = learner(make(), exploration_fraction=fraction)
    left = 32 if make is ppo else 8  # less than a rollout
    asked = recorded = 0
    for steps in rng.integers(1, 45, size=14).tolist():
        asked += steps
        recorded += subject.learn(steps).steps
        assert asked - left < subject.steps <= asked
    explored = subject.steps - subject.algorithm.num_timesteps
    if make is ppo:  # of what a replay buffer keeps, none is lost
        assert fraction * asked - left < explored <= fraction * asked
    else:
        assert explored == 0
    under_way = subject.env.take(unfinished="cut")
    assert recorded + (under_way.steps if under_way else 0) == subject.steps


@pytest.mark.parametrize("context", [1, 3])
@pytest.mark.parametrize("kind", [SAC, TD3])
def test_relabelling_with_the_same_reward_changes_nothing(context, kind):
    """What was computed online, through resets and a full ring, is what relabelling computes."""
    algorithm = sac(kind=kind, buffer_size=300)
    subject = learner(algorithm, exploration_fraction=0.1)
    reward = Curious.of(subject.env, context)
    subject.set_reward(reward)
    for _ in range(5):
        subject.learn(100)
    buffer = algorithm.replay_buffer
    assert buffer.full
    online = buffer.rewards.copy()
    subject.set_reward(reward)
    # The oldest steps have lost what came before them; scaling actions rounds.
    same = np.isclose(online, buffer.rewards, rtol=0, atol=1e-3)
    oldest = (buffer.pos + np.arange(context - 1)) % buffer.buffer_size
    same[oldest] = True
    assert same.all()


def test_exploring_learns_nothing():
    algorithm = ppo()
    subject = learner(algorithm)
    before = [p.clone() for p in algorithm.policy.parameters()]
    episodes = subject.explore(25)
    assert episodes.steps == subject.steps == 24, "whole steps of two environments"
    assert subject.explore(1).steps == 2, "with the one that was left"
    assert algorithm.num_timesteps == 0
    assert all(map(torch.equal, before, algorithm.policy.parameters()))
    subject.learn(30)
    assert subject.steps == 26 + 30


def test_a_bonus_for_new_states_comes_before_the_first_reward():
    """As in PEBBLE: the agent learns on it, and keeps its actor when the critic begins again."""
    algorithm = sac()
    subject = learner(algorithm, before="entropy", exploration_fraction=0.0)
    assert subject.explore(100).steps == subject.steps == 100
    buffer = algorithm.replay_buffer
    assert algorithm._n_updates > 30
    assert (buffer.rewards[5:50] > 0).all()
    actor = frozen(algorithm.actor)
    critic = frozen(algorithm.critic)
    updates = algorithm._n_updates
    subject.set_reward(Curious.of(subject.env))
    assert (np.abs(buffer.rewards[:50]) <= 1).all()
    online = buffer.rewards.copy()
    assert algorithm._n_updates == updates + 100
    assert all(map(torch.equal, algorithm.actor.parameters(), actor))
    assert not any(map(torch.equal, algorithm.critic.parameters(), critic))
    subject.set_reward(Curious.of(subject.env, 3))
    assert algorithm._n_updates == updates + 100, "only the first reward resets the critic"
    assert not np.array_equal(online, buffer.rewards)
    before = algorithm._n_updates
    subject.explore(20)
    assert algorithm._n_updates == before, "with a learned reward it explores as ever"
    assert subject.steps == 120


def frozen(network):
    return [part.detach().clone() for part in network.parameters()]


@pytest.mark.parametrize("make", [ppo, dqn])
def test_a_bonus_needs_a_critic_to_reset(make):
    with pytest.raises(ConfigError, match=r"algorithm: expected an off-policy one.*before=.zero"):
        learner(make(), before="entropy")


class Stop(BaseCallback):
    """Ends a rollout after some steps, politely or not."""

    def __init__(self, after, error=None):
        super().__init__()
        self.after = after
        self.error = error

    def _on_step(self):
        if self.n_calls != self.after:
            return True
        if self.error is not None:
            raise self.error
        return False


@pytest.mark.parametrize("make", [ppo, sac])
@pytest.mark.parametrize("after", [3, 16])
def test_a_callback_may_stop_a_rollout(make, after):
    algorithm = make(None)
    subject = learner(algorithm, exploration_fraction=0.0, callback=[Stop(after)])
    resets = counted_resets(algorithm.get_env())
    subject.learn(32)
    assert (subject.steps, len(resets)) == (2 * after, 1)
    subject.learn(32)
    assert (subject.steps, len(resets)) == (2 * after + 32, 2), "after half a rollout it resets"
    subject.learn(32)
    assert len(resets) == 2, "after a whole one it goes on"


@pytest.mark.parametrize("make", [ppo, sac])
def test_an_interrupt_leaves_everything_usable(make):
    algorithm = make(None)
    subject = learner(algorithm, exploration_fraction=0.2, callback=Stop(3, KeyboardInterrupt()))
    resets = counted_resets(algorithm.get_env())
    with pytest.raises(KeyboardInterrupt):
        subject.learn(32)
    assert subject.steps == 6 + 6
    before = len(resets)
    assert subject.learn(32).steps > 0
    assert len(resets) == before + 2, "it explores from new episodes, and acts in new ones after"
    assert subject.steps == 12 + 32
    subject.set_reward(Curious.of(subject.env, 2))


def test_unfit_algorithms_are_refused():
    with pytest.raises(ConfigError, match="optimize_memory_usage"):
        learner(
            sac(
                optimize_memory_usage=True,
                replay_buffer_kwargs={"handle_timeout_termination": False},
            )
        )
    algorithm = ppo()
    learner(algorithm)
    with pytest.raises(ConfigError, match="already"):
        learner(algorithm)
    stacked = VecFrameStack(VecNormalize(make_vec_env("CartPole-v1", 2)), 2)
    with pytest.raises(ConfigError, match="VecNormalize outermost"):
        learner(ppo(stacked))
    without = ppo()
    without.env = None
    with pytest.raises(ConfigError, match="no environment"):
        learner(without)
