"""Environments go on from where others stood, to the last bit."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack, VecNormalize

from preferl.errors import CheckpointError
from preferl.online.checkpoints.env_state import env_state, restore_env
from preferl.online.wrappers.feedback_env import RecordsStates
from preferl.training.checkpoint_folder import read_state, write_state

SIMULATORS = ("CartPole-v1", "Acrobot-v1", "HalfCheetah-v5", "Reacher-v5")


def through_files(state, folder):
    write_state(folder, state)
    return read_state(folder)


def walk(env, actions):
    """What happens after these actions, beginning again where an episode ends."""
    seen = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append((observation, reward, terminated, truncated))
        if terminated or truncated:
            seen.append(env.reset()[0])
    return seen


def assert_goes_on(make, tmp_path):
    env = make()
    other = make()
    env.reset(seed=1)
    env.action_space.seed(2)
    walk(env, [env.action_space.sample() for _ in range(37)])
    state = env_state(env)
    assert state["problems"] == []
    state = through_files(state, tmp_path)
    actions = [env.action_space.sample() for _ in range(60)]
    restore_env(other, state)
    np.testing.assert_array_equal([other.action_space.sample() for _ in range(60)], actions)
    with np.printoptions(floatmode="unique", threshold=10_000):
        assert repr(walk(other, actions)) == repr(walk(env, actions))


@pytest.mark.parametrize("env_id", SIMULATORS)
def test_simulators_go_on(tmp_path, env_id):
    if env_id.endswith("v5"):
        pytest.importorskip("mujoco")
    assert_goes_on(lambda: gymnasium.make(env_id, max_episode_steps=25), tmp_path)


def test_wrappers_go_on(tmp_path):
    def make():
        env = gymnasium.make("Pendulum-v1", max_episode_steps=25)
        env = gymnasium.wrappers.RecordEpisodeStatistics(RecordsStates(env), stats_key="stats")
        env = Monitor(env)
        env = gymnasium.wrappers.NormalizeObservation(env)
        return gymnasium.wrappers.FrameStackObservation(env, 3)

    assert_goes_on(make, tmp_path)


def of_stable_baselines3():
    venv = make_vec_env("CartPole-v1", 2, seed=3, env_kwargs={"max_episode_steps": 9})
    return VecNormalize(VecFrameStack(venv, 2))


def of_gymnasium():
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1", max_episode_steps=9)] * 2)


@pytest.mark.parametrize("make", [of_stable_baselines3, of_gymnasium])
def test_vector_environments_go_on(tmp_path, make):
    env = make()
    other = make()
    env.reset(**({} if make is of_stable_baselines3 else {"seed": 1}))
    actions = np.random.default_rng(0).integers(2, size=(40, 2))
    for action in actions[:20]:
        env.step(action)
    state = env_state(env)
    assert state["problems"] == []
    restore_env(other, through_files(state, tmp_path))
    for action in actions[20:]:
        for one, two in zip(env.step(action)[:3], other.step(action)[:3], strict=True):
            np.testing.assert_array_equal(one, two)


def test_generators_that_are_shared_stay_shared(tmp_path):
    env, other = (gymnasium.make("Pendulum-v1") for _ in range(2))
    env.reset(seed=1)
    other.reset(seed=2)
    shared = other.unwrapped.np_random
    restore_env(other, through_files(env_state(env), tmp_path))
    assert other.unwrapped.np_random is shared
    assert shared.random() == env.unwrapped.np_random.random()


@pytest.mark.slow
def test_other_processes_cannot_be_restored():
    venv = make_vec_env("CartPole-v1", 1, vec_env_cls=SubprocVecEnv)
    try:
        assert any("SubprocVecEnv.processes" in problem for problem in env_state(venv)["problems"])
    finally:
        venv.close()


class Engine:
    """What a simulator keeps for itself."""


def test_half_of_a_state_is_not_restored(tmp_path):
    def make():
        env = gymnasium.make("Pendulum-v1")
        env.unwrapped.engine = Engine()
        return env

    env = make()
    other = make()
    env.reset(seed=1)
    other.reset(seed=2)
    there = other.unwrapped.state.copy()
    state = env_state(env)
    assert state["problems"] == ["PendulumEnv.engine is a Engine"]
    restore_env(other, through_files(state, tmp_path))
    np.testing.assert_array_equal(other.unwrapped.state, there)
    assert other.unwrapped.np_random.random() == env.unwrapped.np_random.random()


def test_an_environment_of_other_layers_is_refused():
    env = gymnasium.make("Pendulum-v1")
    with pytest.raises(CheckpointError, match=r"> PendulumEnv, got PendulumEnv"):
        restore_env(env.unwrapped, env_state(env))
