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
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from helpers.wrapped_pendulums import STEPS, Sink, pendulum, reward_of
from preferl.data.episodes import Episodes
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
from preferl.training import RewardFunction, relabel
from preferl.training.publish import PublishedReward, publish, read_spaces

# What is looked at here are episodes of every length; the warning has tests of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning"
)


def by_sb3(reward: RewardFunction) -> tuple[Episodes, list[float]]:
    env = FeedbackVecEnv(make_vec_env(pendulum, 1, seed=3), rewards=reward)
    sink = Sink(env)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=16, n_epochs=1, seed=3, device="cpu")
    env.seed(3)
    rewards: list[float] = []
    step_wait = env.step_wait

    def watched() -> Any:
        outcome = step_wait()
        rewards.extend(outcome[1].tolist())
        return outcome

    env.step_wait = watched  # type: ignore[method-assign]
    model.learn(96)
    return sink.episodes(env), rewards


def by_loop(reward: RewardFunction, actions: np.ndarray) -> tuple[Episodes, list[float]]:
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


def by_vector(
    reward: RewardFunction, actions: np.ndarray, mode: AutoresetMode
) -> tuple[Episodes, list[float]]:
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
def test_three_libraries_give_the_same_steps_and_rewards(kind: str) -> None:
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


def test_ppo_takes_a_reward_up_between_rollouts(published, monkeypatch) -> None:
    env = FeedbackVecEnv(make_vec_env(pendulum, 1, seed=0), rewards=published)
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=8, n_epochs=1, seed=0, device="cpu")
    versions: list[int] = []
    step_wait = env.step_wait

    def watched() -> Any:
        outcome = step_wait()
        versions.append(outcome[3][0]["reward_version"])
        if len(versions) in (5, 20):
            publish(published.folder, reward_of(seed=len(versions)))
        return outcome

    monkeypatch.setattr(env, "step_wait", watched)
    model.learn(48, callback=FeedbackCallback(wait=True))
    assert versions == [0] * 16 + [1] * 16 + [2] * 16
    env.close()


def test_sac_relabels_its_buffer(published, monkeypatch) -> None:
    inner = FeedbackVecEnv(make_vec_env(pendulum, 1, seed=0), rewards=published)
    env = VecNormalize(inner, norm_reward=False)
    model = SAC("MlpPolicy", env, learning_starts=50, buffer_size=100, seed=0, device="cpu")
    model.learn(30, callback=FeedbackCallback(wait=True))
    buffer = model.replay_buffer
    assert buffer is not None
    assert (buffer.rewards == 0).all()
    publish(published.folder, reward_of())
    model.learn(10, callback=FeedbackCallback(wait=True), reset_num_timesteps=False)
    seen = buffer.observations[:40, 0]
    actions = env.action_space.high * buffer.actions[:40, 0]
    expected = reward_of()(seen[:, None], actions[:, None], np.ones((40, 1), bool))
    np.testing.assert_allclose(buffer.rewards[:40, 0], expected, atol=1e-5)
    env.close()


@pytest.mark.parametrize("normalised", [False, True])
def test_it_explores_between_rollouts_and_learns_nothing_from_that(normalised) -> None:
    inner = FeedbackVecEnv(make_vec_env(pendulum, 2, seed=0), segment_length=5)
    handed = Sink(inner)
    env = VecNormalize(inner) if normalised else inner
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=8, n_epochs=1, seed=0, device="cpu")
    model.learn(512, callback=FeedbackCallback(exploration_fraction=0.25))
    # Stretches of 4 clips of 5 steps in 2; the next is a quarter of all steps after 520.
    assert inner.explored_steps == 120
    inner.save()
    assert handed.steps == 512 + 120
    assert model.num_timesteps == 512
    assert inner.snapshot()["explored_steps"] == 120


def test_sac_explores_and_keeps_no_window_across_it() -> None:
    env = FeedbackVecEnv(make_vec_env(pendulum, 1, seed=0), segment_length=5)
    Sink(env)
    model = SAC("MlpPolicy", env, learning_starts=500, buffer_size=200, seed=0, device="cpu")
    model.learn(100, callback=FeedbackCallback(exploration_fraction=0.3))
    assert env.explored_steps == 20
    buffer = model.replay_buffer
    assert buffer is not None
    joined = np.abs(buffer.observations[1:100] - buffer.next_observations[:99]).max((1, 2)) < 1e-6
    cut = buffer.dones[:99, 0] * buffer.timeouts[:99, 0]
    np.testing.assert_array_equal(joined, cut == 0)
    assert cut[66] == 1  # after as many steps 20 are three tenths


def test_a_callback_without_its_environment_is_refused() -> None:
    model = PPO("MlpPolicy", make_vec_env(pendulum, 1), n_steps=16, batch_size=8, device="cpu")
    with pytest.raises(ConfigError, match="no FeedbackVecEnv"):
        model.learn(16, callback=FeedbackCallback())


def test_collecting_through_a_store_touches_no_disk_while_acting(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "LOOK_SECONDS", 0.01)
    with Store.open(tmp_path) as store:
        store.projects.create("pendulum")
        feedback = StoredFeedback(store)
        env = FeedbackVecEnv(
            make_vec_env(pendulum, 2, seed=0),
            feedback,
            tmp_path / "rewards",
            segment_length=5,
            max_pending=10,
            synthetic_preferences=True,
        )
        env.reset()
        here = threading.current_thread()

        def refuse(what: Any) -> Any:
            def refused(*args: Any, **kwargs: Any) -> Any:
                assert threading.current_thread() is not here, f"a step opens {args}"
                return what(*args, **kwargs)

            return refused

        with monkeypatch.context() as guarded:
            guarded.setattr(builtins, "open", refuse(builtins.open))
            guarded.setattr(sqlite3, "connect", refuse(sqlite3.connect))
            guarded.setattr(store.database.engine, "connect", refuse(store.database.engine.connect))
            for _ in range(160):
                env.step(env.action_space.sample()[None].repeat(2, axis=0))
        assert env.save()
        assert read_spaces(tmp_path / "rewards") == (env.observation_space, env.action_space)
        counts = env.counts
        env.close()
        assert counts is not None
        assert counts.asked >= 10
        answered = feedback.comparisons()
        returns = answered.segments.returns(answered.pairs)
        np.testing.assert_array_equal(answered.preference, returns[:, 0] > returns[:, 1])


class Rooms(gymnasium.Env[dict[str, Any], Any]):
    observation_space = spaces.Dict(
        {"where": spaces.Box(-9, 9, (2,), np.float32), "room": spaces.Discrete(9)}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {"state": np.array([self.time, 0.5])}

    def step(self, action: Any) -> Any:
        self.time += 1
        info = {"state": np.array([self.time, 0.5])}
        return self._look(), 0.5, self.time == 3, False, info

    def _look(self) -> dict[str, Any]:
        return {"where": np.full(2, self.time, np.float32), "room": self.time}


def wrapped(kind: str, **more: Any) -> Any:
    if kind == "sb3":
        return FeedbackVecEnv(DummyVecEnv([Rooms] * 2), **more)
    if kind == "single":
        return HumanPreferencesEnvWrapper(
            Rooms(),
            collect_prefs=False,
            obs_transform_func=more.pop("transform", None),
            **more,
        )
    return FeedbackVectorEnv(SyncVectorEnv([Rooms] * 2), **more)


@pytest.mark.parametrize("kind", ["sb3", "single", "next"])
def test_dictionaries_states_and_transforms(kind: str) -> None:
    env = wrapped(
        kind,
        states=True,
        transform=lambda o: o["where"] / 9,
        transformed_space=spaces.Box(-1, 1, (2,), np.float32),
    )
    sink = Sink(env)
    env.reset()
    for _ in range(4):
        if kind == "single":
            if env.step(1)[2]:
                env.reset()
        else:
            env.step(np.array([1, 2]))
    episodes = sink.episodes(env)
    assert episodes.states is not None
    first = episodes[:1]
    np.testing.assert_allclose(first.observations[:, 0], np.arange(3) / 9, rtol=1e-6)
    np.testing.assert_allclose(first.final_observations[:, 0], [3 / 9], rtol=1e-6)
    time = np.rint(9 * episodes.observations[:, 0])
    np.testing.assert_array_equal(episodes.states, np.stack([time, np.full_like(time, 0.5)], 1))
    assert first.terminated.tolist() == [False, False, True]


def test_old_arguments_say_what_takes_their_place(tmp_path) -> None:
    for name in GONE:
        with pytest.raises(ConfigError, match=f"{name}: not an argument any more"):
            HumanPreferencesEnvWrapper(pendulum(), log_dir=tmp_path, **{name: 1})
    with pytest.raises(
        ConfigError, match=r"settings: expected .*'segment_length'.* got \['zoom'\]"
    ):
        HumanPreferencesEnvWrapper(pendulum(), log_dir=tmp_path, zoom=4)
    with pytest.raises(ConfigError, match="one of the two names"):
        HumanPreferencesEnvWrapper(
            pendulum(), log_dir=tmp_path, synthetic_prefs=True, synthetic_preferences=True
        )


def test_old_methods_and_attributes_name_what_takes_their_place() -> None:
    env = HumanPreferencesEnvWrapper(pendulum(), collect_prefs=False)
    members = ("save_prefs", "save_reward_predictor", "start_segment_collection")
    members += ("stop_segment_collection", "switch_to_predicted_reward", "last_true_reward")
    members += ("using_reward_from_predictor", "force_return_true_reward", "pref_db_size")
    members += ("segments_collected", "collecting_segments", "reward_training_steps")
    for name in members:
        with pytest.raises(AttributeError, match=f"{name}'. In its place: .+"):
            getattr(env, name)
        assert not hasattr(env, name)
        named = re.findall(r"`(\w+)", GONE[name])
        assert all(hasattr(env, one) for one in named if one not in ("info", "preferl"))
    with pytest.raises(AttributeError, match=r"no attribute 'save_pref'$"):
        env.save_pref  # noqa: B018
    env.close()


def test_one_line_collects_and_computes_rewards(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(worker_module, "LOOK_SECONDS", 0.01)
    publish(tmp_path / "pretrained", reward_of(), version=7)
    env = HumanPreferencesEnvWrapper(
        pendulum(),
        log_dir=tmp_path / "logs",
        segment_length=5,
        max_pref_interface_segs=25,
        pretrained_reward_predictor_dir=tmp_path / "pretrained",
        synthetic_prefs=True,
    )
    env.reset(seed=0)
    for _ in range(8 * STEPS):
        _, _, _, truncated, info = env.step(env.action_space.sample())
        if truncated:
            env.reset()
    assert info["reward_version"] == 7
    assert env.queries is not None
    assert env.core.config.buffer_steps == 125
    assert env.save()
    env.close()
    with Store.open(tmp_path / "logs") as store:
        assert len(StoredFeedback(store).comparisons()) > 0
        project = store.projects.get("drlhp")
        assert project.frames == {"kind": "env", "env_id": "Pendulum-v1"}
        assert project.fps == 30
