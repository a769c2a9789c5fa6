"""Rewards of a rollout that are computed at its end equal those computed at each step."""

from contextlib import suppress

import numpy as np
import pytest
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from helpers.wrapped_pendulums import MODELS, pendulum, reward_of
from preferl.errors import ConfigError
from preferl.online.callbacks import FeedbackCallback
from preferl.online.learner import SB3Learner
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.online.wrappers.rollout_rewards import add_rewards, rewards_reach
from preferl.training.publish import PublishedReward, publish

ENVIRONMENTS = 3
ROLLOUT = 16


def pendulums():
    return make_vec_env(pendulum, ENVIRONMENTS, seed=3)  # episodes end within rollouts


class Recorder(BaseCallback):
    """Keeps rewards of steps, rollouts and infos, and calls a function at each step."""

    def __init__(self, does=None):
        super().__init__()
        self.rollouts = []
        self.infos = []
        self.given = []
        self.does = does

    def _on_step(self):
        self.given.append(self.locals["rewards"].copy())
        self.infos += [info for info in self.locals["infos"] if "learned_return" in info]
        if self.does is not None:
            self.does(self.n_calls, self.training_env)
        return True

    def _on_rollout_end(self):
        buffer = self.locals["rollout_buffer"]
        names = "rewards", "advantages", "returns"
        self.rollouts.append({name: getattr(buffer, name).copy() for name in names})


def ppo(env):
    """Learns nothing, so that all rollouts act alike."""
    how = {"n_steps": ROLLOUT, "batch_size": 16, "n_epochs": 1, "learning_rate": 0.0, "seed": 3}
    return PPO("MlpPolicy", env, **how, device="cpu")


def a2c(env):
    return A2C("MlpPolicy", env, n_steps=ROLLOUT, learning_rate=0.0, seed=3, device="cpu")


def trained(when, rewards, *, algorithm=ppo, does=None, **settings):
    """Three rollouts of an agent, its environments and it."""
    env = FeedbackVecEnv(pendulums(), rewards=rewards, **settings)
    agent = algorithm(env)
    callback = FeedbackCallback(compute_rewards=when)
    recorder = Recorder(does)
    agent.learn(3 * ROLLOUT * ENVIRONMENTS, callback=[callback, recorder])
    return recorder, env, agent


def require_equal(together, singly):
    assert len(together.rollouts) == len(singly.rollouts) == 3
    assert all(np.ptp(rollout["rewards"]) > 1e-3 for rollout in singly.rollouts)
    for one, other in zip(together.rollouts, singly.rollouts, strict=True):
        for name, values in one.items():
            np.testing.assert_allclose(values, other[name], rtol=1e-5, atol=2e-5)
    returns = [[info["learned_return"] for info in w.infos] for w in (together, singly)]
    assert len(returns[0]) == 6
    np.testing.assert_allclose(*returns, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("kind", "algorithm"), [("mlp", a2c), *((kind, ppo) for kind in MODELS if kind != "mlp")]
)
def test_rewards_at_the_end_equal_those_at_each_step(kind, algorithm):
    together, later, _ = trained("rollout", reward_of(kind), algorithm=algorithm)
    singly, at_once, _ = trained("step", reward_of(kind), algorithm=algorithm)
    require_equal(together, singly)
    assert not np.any(together.given)
    assert np.any(singly.given)
    np.testing.assert_allclose(later.core.returns, at_once.core.returns, atol=2e-5)


def test_the_learner_of_the_loop_computes_rewards_at_the_end_of_a_rollout(monkeypatch):
    settled = []
    settle = FeedbackVecEnv.settle_rewards

    def counted(env):
        settled.append(len(rewards := settle(env)))
        return rewards

    monkeypatch.setattr(FeedbackVecEnv, "settle_rewards", counted)

    def learned(callback):
        agent = ppo(pendulums())
        how = {"total_steps": 144, "exploration_fraction": 0.0, "rng": np.random.default_rng(0)}
        learner = SB3Learner(agent, callback=callback, **how)
        learner.set_reward(reward_of("pt"))
        learner.learn(3 * ROLLOUT * ENVIRONMENTS)
        assert settled.count(ROLLOUT) == 3
        buffer = agent.rollout_buffer
        return buffer.rewards, buffer.advantages, buffer.returns

    recorder = Recorder()
    together = learned(None)
    singly = learned(recorder)
    assert np.all(recorder.given)  # a callback sees the reward of each step
    assert np.abs(singly[0]).min() > 0.0
    for one, other in zip(together, singly, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-5)


def test_the_source_of_rewards_may_change_within_a_rollout():
    snapshots = []

    def switch(step, env):
        if step in (5, 30):
            env.switch_to_true_reward()
        if step in (9, 36):
            env.switch_to_learned_reward()
        if step == 29:
            snapshots.append(np.array(env.snapshot()["returns"]))  # which changes nothing

    hidden = {"hide_true_reward": True, "does": switch}
    runs = [trained(when, reward_of("pt"), **hidden) for when in ("rollout", "step")]
    require_equal(*(recorder for recorder, *_ in runs))
    returns = [[info["r"] for info in agent.ep_info_buffer] for *_, agent in runs]
    assert np.abs(returns[1]).min() > 0.0
    np.testing.assert_allclose(*returns, rtol=1e-5, atol=2e-5)
    assert np.abs(snapshots[1]).min() > 0.0
    np.testing.assert_allclose(*snapshots, atol=2e-5)


def test_a_newer_reward_counts_from_the_step_of_its_refresh(tmp_path):
    runs = []
    for when in ("rollout", "step"):
        folder = tmp_path / when
        publish(folder, reward_of("pt"))
        rewards = PublishedReward(folder)
        rewards.refresh()  # whatever else the machine does

        def publish_more(step, env, folder=folder):
            if step in (6, 25):
                publish(folder, reward_of("pt", seed=step))
                env.refresh(wait=True)

        recorder, env, _ = trained(when, rewards, does=publish_more)
        assert env.reward_version == 3
        runs.append(recorder)
        env.close()
    require_equal(*runs)


class Ends(BaseCallback):
    """Ends a rollout in its middle, politely or not."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def _on_step(self):
        if self.n_calls == 5 and self.error:
            raise self.error
        return self.n_calls != 5


@pytest.mark.parametrize("error", [None, RuntimeError("unplugged")])
def test_a_rollout_that_was_stopped_leaves_nothing_to_the_next(error):
    env = FeedbackVecEnv(pendulums(), rewards=reward_of("pt"))
    agent = ppo(env)
    with suppress(RuntimeError):
        agent.learn(3 * ROLLOUT * ENVIRONMENTS, callback=[FeedbackCallback(), Ends(error)])
    idle = np.zeros((ENVIRONMENTS, 1), np.float32)
    if error:
        assert not np.any(env.step(idle)[1])
        env.reset()
    assert np.any(env.step(idle)[1])  # no longer deferred
    recorder = Recorder()
    more = {"callback": [FeedbackCallback(), recorder], "reset_num_timesteps": False}
    agent.learn(ROLLOUT * ENVIRONMENTS, **more)
    (rollout,) = recorder.rollouts
    assert np.abs(rollout["rewards"]).min() > 0.0


def test_each_step_has_its_reward_where_a_wrapper_looks_at_it():
    plain = DummyVecEnv([pendulum])
    env = FeedbackVecEnv(plain, rewards=reward_of())
    assert rewards_reach(env)
    assert rewards_reach(VecNormalize(env, norm_reward=False))
    assert not rewards_reach(VecNormalize(env))
    assert not rewards_reach(VecMonitor(env))
    watched = VecMonitor(env)
    agent = ppo(watched)
    agent.learn(2 * ROLLOUT, callback=FeedbackCallback())
    (returns,) = {info["r"] != 0.0 for info in agent.ep_info_buffer or []}
    assert returns


def test_a_replay_buffer_needs_rewards_at_once():
    env = FeedbackVecEnv(pendulums(), rewards=reward_of())
    agent = SAC("MlpPolicy", env, learning_starts=1_000, seed=0, device="cpu")
    agent.learn(60, callback=FeedbackCallback(compute_rewards="rollout"))
    assert agent.replay_buffer is not None
    assert np.abs(agent.replay_buffer.rewards[:20]).min() > 0.0


def test_advantages_after_the_last_step_need_no_values():
    """By hand: one environment, three steps, discount 0.5, lambda 0.5, a new episode at step 1."""
    _, _, agent = trained("rollout", reward_of())
    buffer = agent.rollout_buffer
    buffer.buffer_size = 3
    buffer.n_envs = 1
    buffer.reset()
    buffer.gamma = buffer.gae_lambda = 0.5
    buffer.episode_starts[:] = [[1.0], [1.0], [0.0]]
    buffer.full = True
    add_rewards(agent, np.array([[1.0], [2.0], [4.0]], np.float32))
    assert buffer.rewards.ravel().tolist() == [1.0, 2.0, 4.0]
    assert buffer.advantages.ravel().tolist() == [1.0, 3.0, 4.0]
    assert buffer.returns.ravel().tolist() == [1.0, 3.0, 4.0]
    with pytest.raises(ConfigError, match=r"\(2, 1\) steps"):
        add_rewards(agent, np.zeros((2, 1), np.float32))
