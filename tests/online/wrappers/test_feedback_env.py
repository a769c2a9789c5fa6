"""The same environment wrapped for three libraries: the same experience, the same rewards."""

import builtins
import re
import sqlite3
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from helpers.wrapped_pendulums import STEPS, Sink, pendulum, pendulums, reward_of, small_ppo
from preferl.errors import ConfigError
from preferl.online.callbacks import FeedbackCallback
from preferl.online.wrappers import query_worker as worker_module
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.online.wrappers.gymnasium_envs import (
    GONE,
    FeedbackVectorEnv,
    HumanPreferencesEnvWrapper,
)
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.training import relabel
from preferl.training.publish import PublishedReward, publish, read_spaces

# What is looked at here are episodes of every length; the warning has tests of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning"
)


def by_sb3(reward):
    env = FeedbackVecEnv(pendulums(seed=3), rewards=reward)
    sink = Sink(env)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=16, n_epochs=1, seed=3, device="cpu")
    env.seed(3)
    rewards = []
    step_wait = env.step_wait

    def watched():
        outcome = step_wait()
        rewards.extend(outcome[1].tolist())
        return outcome

    env.step_wait = watched
    model.learn(96)
    return sink.episodes(env), rewards


def by_loop(reward, actions):
    env = HumanPreferencesEnvWrapper(pendulum(), collect_prefs=False, rewards=reward)
    sink = Sink(env)
    env.reset(seed=3)
    rewards = []
    for action in actions:
        _, step_reward, terminated, truncated, info = env.step(action)
        rewards.append(step_reward)
        if terminated or truncated:
            assert info["learned_return"] == pytest.approx(sum(rewards[-STEPS:]), abs=1e-4)
            env.reset()
    return sink.episodes(env), rewards


def by_vector(reward, actions, mode):
    env = FeedbackVectorEnv(SyncVectorEnv([pendulum], autoreset_mode=mode), rewards=reward)
    sink = Sink(env)
    env.reset(seed=3)
    rewards = []
    for action in actions:
        _, step_rewards, terminated, truncated, infos = env.step(action[None])
        rewards.append(float(step_rewards[0]))
        assert infos["_true_reward"].all()
        over = terminated | truncated
        if over.any() and mode == AutoresetMode.NEXT_STEP:
            _, step_rewards, _, _, infos = env.step(np.full((1, 1), 9.0, np.float32))
            assert step_rewards[0] == 0.0
            assert not infos["_true_reward"].any()
        if over.any() and mode == AutoresetMode.DISABLED:
            env.reset(options={"reset_mask": over})
    return sink.episodes(env), rewards


@pytest.mark.parametrize("kind", ["mlp", "nmr"])
def test_three_libraries_give_the_same_steps_and_rewards(kind):
    reward = reward_of(kind)
    episodes, rewards = by_sb3(reward)
    assert episodes.lengths.tolist() == [20, 20, 20, 20, 16]
    assert np.ptp(rewards) > 1e-3
    np.testing.assert_allclose(relabel(episodes, reward).rewards, rewards, atol=1e-5)
    others = [by_loop(reward, episodes.actions)]
    others += [by_vector(reward, episodes.actions, mode) for mode in AutoresetMode]
    for other, other_rewards in others:
        for name in ("observations", "actions", "rewards", "terminated", "lengths"):
            np.testing.assert_array_equal(getattr(other, name), getattr(episodes, name), name)
        np.testing.assert_array_equal(other.final_observations, episodes.final_observations)
        np.testing.assert_array_equal(other_rewards, rewards)


@pytest.fixture
def published(tmp_path):
    with PublishedReward(tmp_path / "rewards") as reader:
        yield reader


def test_ppo_takes_a_reward_up_between_rollouts(published, monkeypatch):
    env = FeedbackVecEnv(pendulums(), rewards=published)
    model = small_ppo(env)
    versions = []
    step_wait = env.step_wait

    def watched():
        outcome = step_wait()
        versions.append(outcome[3][0]["reward_version"])
        if len(versions) in (5, 20):
            publish(published.folder, reward_of(seed=len(versions)))
        return outcome

    monkeypatch.setattr(env, "step_wait", watched)
    model.learn(48, callback=FeedbackCallback(wait=True))
    assert versions == [0] * 16 + [1] * 16 + [2] * 16
    env.close()


def test_it_explores_between_rollouts_and_learns_nothing_from_that():
    inner = FeedbackVecEnv(pendulums(2), segment_length=5)
    handed = Sink(inner)
    env = VecNormalize(inner)
    model = small_ppo(env)
    model.learn(512, callback=FeedbackCallback(exploration_fraction=0.25))
    # Stretches of 4 clips of 5 steps in 2; the next is a quarter of all steps after 520.
    assert inner.explored_steps == inner.snapshot()["explored_steps"] == 120
    inner.save()
    assert handed.steps == 512 + 120
    assert model.num_timesteps == 512


def test_a_callback_without_its_environment_is_refused():
    model = small_ppo(pendulums())
    with pytest.raises(ConfigError, match="no FeedbackVecEnv"):
        model.learn(16, callback=FeedbackCallback())


def test_collecting_through_a_store_touches_no_disk_while_acting(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_module, "LOOK_SECONDS", 0.01)
    with Store.open(tmp_path) as store:
        store.projects.create("pendulum")
        feedback = StoredFeedback(store)
        settings = {"segment_length": 5, "max_pending": 10, "synthetic_preferences": True}
        venv = pendulums(2)
        env = FeedbackVecEnv(venv, feedback, tmp_path / "rewards", **settings)
        env.reset()
        here = threading.current_thread()

        def elsewhere(does):
            def checked(*args, **kwargs):
                assert threading.current_thread() is not here, f"a step opens {args}"
                return does(*args, **kwargs)

            return checked

        engine = store.database.engine
        with monkeypatch.context() as guarded:
            for owner, name in ((builtins, "open"), (sqlite3, "connect"), (engine, "connect")):
                guarded.setattr(owner, name, elsewhere(getattr(owner, name)))
            for _ in range(160):
                env.step(env.action_space.sample()[None].repeat(2, axis=0))
        assert env.save()
        assert read_spaces(tmp_path / "rewards") == (env.observation_space, env.action_space)
        assert env.counts.asked >= 10
        env.close()
        answered = feedback.comparisons()
        returns = answered.segments.returns(answered.pairs)
        np.testing.assert_array_equal(answered.preference, returns[:, 0] > returns[:, 1])


class Rooms(gymnasium.Env[Any, Any]):
    observation_space = spaces.Dict(
        {"where": spaces.Box(-9, 9, (2,), np.float32), "room": spaces.Discrete(9)}
    )
    action_space = spaces.Discrete(3)
    time = -1

    def look(self):
        self.time += 1
        seen = {"where": np.full(2, self.time, np.float32), "room": self.time}
        return seen, {"state": np.array([self.time, 0.5])}

    def reset(self, **_):
        self.time = -1
        return self.look()

    def step(self, action):
        seen, info = self.look()
        return seen, 0.5, self.time == 3, False, info


def wrapped(kind, transform, **more):
    match kind:
        case "sb3":
            return FeedbackVecEnv(DummyVecEnv([Rooms] * 2), transform=transform, **more)
        case "single":
            more |= {"collect_prefs": False, "obs_transform_func": transform}
            return HumanPreferencesEnvWrapper(Rooms(), **more)
    return FeedbackVectorEnv(SyncVectorEnv([Rooms] * 2), transform=transform, **more)


@pytest.mark.parametrize("kind", ["sb3", "single", "next"])
def test_dictionaries_states_and_transforms(kind):
    half = spaces.Box(-1, 1, (2,), np.float32)
    env = wrapped(kind, lambda o: o["where"] / 9, transformed_space=half, states=True)
    sink = Sink(env)
    env.reset()
    for _ in range(4):
        outcome = env.step(1 if kind == "single" else np.array([1, 2]))
        if kind == "single" and outcome[2]:
            env.reset()
    episodes = sink.episodes(env)
    first = episodes[:1]
    np.testing.assert_allclose(first.observations[:, 0], np.arange(3) / 9, rtol=1e-6)
    np.testing.assert_allclose(first.final_observations[:, 0], [3 / 9], rtol=1e-6)
    time = np.rint(9 * episodes.observations[:, 0])
    np.testing.assert_array_equal(episodes.states, np.stack([time, np.full_like(time, 0.5)], 1))
    assert first.terminated.tolist() == [False, False, True]


def test_old_names_say_what_takes_their_place(tmp_path):
    for name in GONE:
        with pytest.raises(ConfigError, match=f"{name}: not an argument any more"):
            HumanPreferencesEnvWrapper(pendulum(), log_dir=tmp_path, **{name: 1})
    both = {"synthetic_prefs": True, "synthetic_preferences": True}
    with pytest.raises(ConfigError, match="one of the two names"):
        HumanPreferencesEnvWrapper(pendulum(), log_dir=tmp_path, **both)
    env = HumanPreferencesEnvWrapper(pendulum(), collect_prefs=False)
    for name in ("save_prefs", "switch_to_predicted_reward", "last_true_reward", "pref_db_size"):
        with pytest.raises(AttributeError, match=f"{name}'. In its place: .+"):
            getattr(env, name)
        assert not hasattr(env, name)
        named = re.findall(r"`(\w+)", GONE[name])
        assert all(hasattr(env, one) for one in named if one not in ("info", "preferl"))
    with pytest.raises(AttributeError, match=r"no attribute 'save_pref'$"):
        env.save_pref  # noqa: B018
    env.close()
