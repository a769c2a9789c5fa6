"""Agents that learned from normalised observations keep their statistics wherever they act."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from helpers.normalised_cartpole import CONFIG, balancing
from preferl.errors import CheckpointError, ConfigError, SpaceError
from preferl.evaluation import evaluate_policy, on_raw_observations
from preferl.evaluation.policies import NormalisedPolicy
from preferl.online import PPOConfig, load_policy, make_environments, record, save_policy
from preferl.online.acting import load_actor
from preferl.online.algorithms import build_algorithm
from preferl.testing import PointWorld
from preferl.testing.worlds import POINT_SPACE

CARTPOLE = "CartPole-v1"
RAW = np.array([[0.02, -0.01, 0.03, 0.04], [-0.04, 0.0, -0.02, 0.01]], np.float32)


def mean_return(policy):
    return evaluate_policy(policy, CARTPOLE, episodes=8, seed=10_000, parallel=8).mean


def without_statistics(agent):
    """The agent's network, which acts on observations as they are."""
    return SimpleNamespace(predict=agent.policy.predict)


def test_evaluation_uses_the_statistics():
    agent = balancing()
    assert mean_return(agent) == 500
    assert mean_return(NormalisedPolicy(agent.policy, agent.get_vec_normalize_env())) == 500
    assert mean_return(without_statistics(agent)) < 20


@pytest.mark.parametrize(
    "acts", [mean_return, lambda network: record(network, CARTPOLE, 8, seed=0)]
)
def test_networks_without_their_algorithm_are_refused(acts):
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


def saved_zip(folder, agent, name="vecnormalize.pkl"):
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
    def __reduce__(self):
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
    with pytest.raises(ConfigError, match="its own statistics"):
        load_actor(tmp_path / "policy", vecnormalize=tmp_path / "vecnormalize.pkl")


MIXED = spaces.Dict({"near": spaces.Box(-5, 5, (2,)), "far": POINT_SPACE})


def mixed():
    """Observations of which some are normalised."""
    return TransformObservation(PointWorld(), lambda seen: {"near": seen, "far": seen}, MIXED)


@pytest.mark.parametrize(
    ("inner", "settings"),
    [
        (lambda: DummyVecEnv([mixed, mixed]), {"norm_obs_keys": ["near"], "epsilon": 0.1}),
        (lambda: VecFrameStack(make_environments(CARTPOLE, 2, seed=0), 2), {}),
    ],
    ids=["dictionary", "frame stack"],
)
def test_dictionaries_and_frame_stacks_are_normalised_where_they_were(tmp_path, inner, settings):
    env = VecNormalize(inner(), clip_obs=1.5, **settings)
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
