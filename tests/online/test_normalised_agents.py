"""Agents that learned from normalised observations keep their statistics wherever they act."""

import pickle
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecFrameStack,
    VecNormalize,
)

from helpers.normalised_cartpole import CONFIG, VAR, balancing
from preferl.errors import CheckpointError, ConfigError, SpaceError
from preferl.evaluation import evaluate_policies, evaluate_policy, on_raw_observations
from preferl.evaluation.policies import NormalisedPolicy
from preferl.online import (
    DatasetConfig,
    PPOConfig,
    load_policy,
    make_environments,
    record,
    record_dataset,
    resume_run,
    save_policy,
    save_run,
)
from preferl.online.acting import act, load_actor, task_environments
from preferl.online.algorithms import build_algorithm

CARTPOLE = "CartPole-v1"
RAW = np.array([[0.02, -0.01, 0.03, 0.04], [-0.04, 0.0, -0.02, 0.01]], np.float32)


def mean_return(policy: Any) -> float:
    return evaluate_policy(policy, CARTPOLE, episodes=8, seed=10_000, parallel=8).mean


def without_statistics(agent: Any) -> Any:
    """The agent's network, which acts on observations as they are."""
    return SimpleNamespace(predict=agent.policy.predict)


def test_evaluation_uses_the_statistics():
    agent = balancing()
    assert mean_return(agent) == 500
    assert mean_return(NormalisedPolicy(agent.policy, agent.get_vec_normalize_env())) == 500
    assert mean_return(without_statistics(agent)) < 20


@pytest.mark.parametrize(
    "acts",
    [
        mean_return,
        lambda network: record(network, CARTPOLE, 8, seed=0),
        lambda network: record_dataset(
            DatasetConfig(CARTPOLE, mix="expert:2"), "nowhere", policy=network
        ),
    ],
)
def test_networks_without_their_algorithm_are_refused(tmp_path, monkeypatch, acts):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpaceError, match=r"`agent\.policy` \(ActorCriticPolicy\).*Pass `agent`"):
        acts(balancing().policy)


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
def test_agents_loaded_without_their_statistics_are_refused(tmp_path):
    agent = balancing()
    path = saved_zip(tmp_path, agent)
    with pytest.raises(SpaceError, match=r"loaded .* without it.*VecNormalize\.load"):
        mean_return(PPO.load(path))
    env = make_environments(CARTPOLE, 1, seed=0)
    statistics = VecNormalize.load(str(tmp_path / "vecnormalize.pkl"), env)
    assert mean_return(PPO.load(path, env=statistics)) == mean_return(agent) > 400


@pytest.mark.slow
def test_evaluation_in_several_processes():
    reports = evaluate_policies(
        {"one": balancing(), "two": balancing()}, CARTPOLE, episodes=2, seed=3, processes=2
    )
    assert [report.mean for report in reports.values()] == [500, 500]


def test_saved_policies_keep_them(tmp_path):
    agent = balancing(clip_obs=8.0, epsilon=1e-3)
    save_policy(tmp_path / "policy", agent, CONFIG)
    again = load_policy(tmp_path / "policy")
    assert mean_return(again) == 500
    normaliser = again.get_vec_normalize_env()
    assert (normaliser.clip_obs, normaliser.epsilon, normaliser.training) == (8.0, 1e-3, False)
    np.testing.assert_array_equal(normaliser.obs_rms.var, VAR)
    assert {file.suffix for file in (tmp_path / "policy").iterdir()} == {".json", ".safetensors"}


def saved_zip(folder: Any, agent: Any, name: str | None = "vecnormalize.pkl") -> Any:
    agent.learn(8)
    agent.save(folder / "theirs.zip")
    if name is not None:
        agent.get_vec_normalize_env().save(str(folder / name))
    return folder / "theirs.zip"


@pytest.mark.filterwarnings("ignore:Opening")
@pytest.mark.parametrize("name", ["vecnormalize.pkl", "vec_normalize.pkl", "elsewhere.pkl"])
def test_zip_files_take_statistics_along(tmp_path, name):
    agent = balancing()
    path = saved_zip(tmp_path, agent, name)
    named = tmp_path / name if name == "elsewhere.pkl" else None
    actor = load_actor(path, trust_pickle=True, vecnormalize=named)
    expected = agent.predict(agent.get_vec_normalize_env().normalize_obs(RAW), deterministic=True)
    np.testing.assert_array_equal(actor.predict(RAW, deterministic=True)[0], expected[0])
    assert mean_return(actor) > 400  # it made one update beyond the balancing one


@pytest.mark.filterwarnings("ignore:Opening")
def test_zip_files_without_their_statistics_are_refused(tmp_path):
    path = saved_zip(tmp_path, balancing(), None)
    with pytest.raises(CheckpointError, match="--vecnormalize"):
        load_actor(path, trust_pickle=True)


class Evil:
    def __reduce__(self) -> Any:
        return (eval, ("__import__('pathlib').Path('ran').touch()",))


@pytest.mark.filterwarnings("ignore:Opening")
@pytest.mark.parametrize("content", ["evil", "other", "spaces"])
def test_statistics_run_nothing_and_belong_to_the_policy(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    path = saved_zip(tmp_path, balancing(), None)
    file = tmp_path / "vecnormalize.pkl"
    match content:
        case "evil":
            file.write_bytes(pickle.dumps(Evil()))
        case "other":
            file.write_bytes(pickle.dumps({"mean": 3}))
        case "spaces":
            VecNormalize(make_vec_env("Pendulum-v1", 1)).save(str(file))
    with pytest.raises(CheckpointError, match=r"vecnormalize\.pkl"):
        load_actor(path, trust_pickle=True)
    assert not (tmp_path / "ran").exists()


def test_folders_need_no_file_of_statistics(tmp_path):
    save_policy(tmp_path / "policy", balancing(), CONFIG)
    assert mean_return(load_actor(tmp_path / "policy")) == 500
    with pytest.raises(ConfigError, match="statistics of its own"):
        load_actor(tmp_path / "policy", vecnormalize=tmp_path / "vecnormalize.pkl")


class Mixed(gymnasium.Env[Any, Any]):
    """Observations of which some can be normalised."""

    observation_space = spaces.Dict(
        {
            "near": spaces.Box(-5, 5, (2,)),
            "far": spaces.Box(-2, 2, (3,)),
            "kind": spaces.Discrete(3),
        }
    )
    action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.mark.parametrize("keys", [["near"], ["near", "far"]])
def test_dictionaries_are_normalised_where_they_were(tmp_path, keys):
    env = VecNormalize(DummyVecEnv([Mixed, Mixed]), norm_obs_keys=keys, clip_obs=1.5, epsilon=0.1)
    config = PPOConfig(n_steps=8, batch_size=8, hidden=(8,))
    agent = build_algorithm(config, env, seed=0)
    agent.learn(32)
    save_policy(tmp_path / "policy", agent, config)
    raw = env.venv.reset()
    expected, _ = agent.predict(env.normalize_obs(raw), deterministic=True)
    for one in (agent, load_policy(tmp_path / "policy")):
        actions, _ = on_raw_observations(one).predict(raw, deterministic=True)
        np.testing.assert_array_equal(actions, expected)
    assert not np.array_equal(agent.predict(raw, deterministic=True)[0], expected)


def test_frame_stacks_inside_are_normalised(tmp_path):
    env = VecNormalize(VecFrameStack(make_environments(CARTPOLE, 2, seed=0), 2))
    config = PPOConfig(n_steps=8, batch_size=8, hidden=(8,))
    agent = build_algorithm(config, env, seed=0)
    agent.learn(64)
    save_policy(tmp_path / "policy", agent, config)
    raw = env.venv.reset()
    assert raw.shape == (2, 8)
    expected, _ = agent.predict(env.normalize_obs(raw), deterministic=True)
    for one in (agent, load_policy(tmp_path / "policy")):
        got, _ = on_raw_observations(one).predict(raw, deterministic=True)
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(SpaceError, match="statistics of"):
        mean_return(agent)  # an environment that stacks nothing


class Simulator(gymnasium.Wrapper):
    """Keeps something that cannot be restored, so that its episodes are reset."""

    engine = None

    def reset(self, **how: Any) -> Any:
        self.engine = object()
        return self.env.reset(**how)


@pytest.mark.parametrize("wrapper", ["VecNormalize", "NormalizeObservation"])
def test_resumed_runs_keep_them_where_episodes_are_reset(tmp_path, wrapper):
    def agent_in_simulator() -> tuple[Any, Any]:
        env: Any = Simulator(gymnasium.make(CARTPOLE))
        if wrapper == "NormalizeObservation":
            env = gymnasium.wrappers.NormalizeObservation(env)
            return build_algorithm(CONFIG, DummyVecEnv([lambda: env]), seed=0), env
        top = VecNormalize(DummyVecEnv([lambda: env]))
        return build_algorithm(CONFIG, top, seed=0), top

    (agent, before), (other, after) = agent_in_simulator(), agent_in_simulator()
    agent.learn(32)
    save_run(tmp_path / "run", agent)
    assert resume_run(tmp_path / "run", other).problems
    for part in ("mean", "var", "count"):
        np.testing.assert_array_equal(getattr(after.obs_rms, part), getattr(before.obs_rms, part))
    other.learn(8, reset_num_timesteps=False)
    assert after.obs_rms.count > before.obs_rms.count


@pytest.mark.slow
def test_an_agent_that_learned_is_as_good_wherever_it_acts(tmp_path):
    """PPO on `VecNormalize`, 80,000 steps; its policy alone returns about 9."""
    config = PPOConfig(n_steps=64, batch_size=256, learning_rate=1e-3, gae_lambda=0.8, gamma=0.98)
    env = VecNormalize(make_environments(CARTPOLE, 16, seed=0), norm_reward=False)
    agent = build_algorithm(config, env, seed=0)
    for _ in range(4):
        agent.learn(20_000, reset_num_timesteps=False)
    save_policy(tmp_path / "policy", agent, config)
    again = load_policy(tmp_path / "policy")
    assert mean_return(agent) > 475
    assert mean_return(again) == mean_return(agent)
    venv = task_environments(CARTPOLE, 4, seed=0, states=False)
    assert act(again, venv, episodes=8, deterministic=True).lengths.mean() > 475
    assert mean_return(without_statistics(agent)) < 250
