"""A run that was killed goes on as if nothing had happened."""

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from helpers.resumable_runs import (
    Kill,
    KilledError,
    agent_on,
    assert_same,
    assert_same_episodes,
    built,
    counted_resets,
    everything,
    learn,
    make,
    reward_for,
)
from preferl.data.episodes import join
from preferl.errors import CheckpointError, ConfigError, StorageError
from preferl.models import folder as model_folder
from preferl.online import FeedbackVecEnv, HumanPreferencesEnvWrapper, SaveRunCallback
from preferl.online.checkpoints.run_checkpoint import resume_run, save_run
from preferl.training import checkpoint_folder
from preferl.training.checkpoint_folder import has_run
from preferl.training.publish import publish, version_folder, versions

# Episodes of CartPole end when they end; the warning has tests of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning"
)

TOTAL = 256


@cache
def undisturbed(algorithm, env_id, kind):
    """What a run comes to that nobody kills."""
    agent, sink = built(algorithm, env_id, reward_for(env_id, kind))
    learn(agent, TOTAL, None)
    agent.get_env().core.hand_over()
    buffer = agent.rollout_buffer if algorithm == "PPO" else agent.replay_buffer
    assert np.ptp(buffer.rewards) > 1e-3
    return everything(agent), sink


@pytest.mark.parametrize(
    ("algorithm", "env_id", "kind", "kill"),
    [
        ("PPO", "CartPole-v1", "mlp", 70),
        ("PPO", "Pendulum-v1", "lstm", 130),
        ("SAC", "Pendulum-v1", "lstm", 254),
    ],
)
def test_a_killed_run_goes_on_to_the_last_bit(tmp_path, algorithm, env_id, kind, kill):
    expected, whole = undisturbed(algorithm, env_id, kind)
    killed, _ = built(algorithm, env_id, reward_for(env_id, kind))
    with pytest.raises(KilledError):
        learn(killed, TOTAL, tmp_path / "run", kill=kill)
    torch.manual_seed(99)  # another program draws otherwise

    resumed, after = built(algorithm, env_id, reward_for(env_id, kind))
    found = resume_run(tmp_path / "run", resumed)
    assert found.problems == ()
    assert kill - 66 <= found.steps <= kill
    learn(resumed, TOTAL, tmp_path / "run")
    resumed.get_env().core.hand_over()
    assert_same(everything(resumed), expected)
    assert_same_episodes(join(after.parts), join(whole.parts[-len(after.parts) :]))


def test_the_reward_in_use_comes_back_though_another_was_published_since(tmp_path):
    folder = tmp_path / "rewards"
    publish(folder, reward_for("Pendulum-v1", seed=1))
    agent, _ = built("SAC", "Pendulum-v1", folder)
    learn(agent, 128, tmp_path / "run")
    rewards = agent.replay_buffer.rewards.copy()
    agent.get_env().close()
    publish(folder, reward_for("Pendulum-v1", seed=2))

    resumed, _ = built("SAC", "Pendulum-v1", folder)
    env = resumed.get_env()
    assert env.reward_version == 2
    resume_run(tmp_path / "run", resumed)
    assert env.reward_version == 1
    np.testing.assert_array_equal(resumed.replay_buffer.rewards, rewards)
    learn(resumed, 130, None)
    assert env.reward_version == 2
    assert not np.isclose(resumed.replay_buffer.rewards[:60], rewards[:60]).any()
    env.close()


def test_normalised_observations_go_on(tmp_path):
    def build():
        inner = FeedbackVecEnv(
            make_vec_env(lambda: make("CartPole-v1"), 2, seed=5), rewards=reward_for("CartPole-v1")
        )
        return agent_on("PPO", VecNormalize(inner))

    whole = build()
    learn(whole, 256, None)
    expected = everything(whole)
    killed = build()
    with pytest.raises(KilledError):
        learn(killed, 256, tmp_path / "run", kill=140)
    resumed = build()
    assert resume_run(tmp_path / "run", resumed).problems == ()
    learn(resumed, 256, None)
    assert_same(everything(resumed), expected)
    norm = resumed.get_env()
    other = whole.get_env()
    np.testing.assert_array_equal(norm.obs_rms.mean, other.obs_rms.mean)


class Foreign:
    """Something that a simulator keeps and nobody can write down."""


def test_what_cannot_be_restored_is_logged_and_reset(tmp_path, caplog):
    agent, _ = built("SAC", "Pendulum-v1", reward_for("Pendulum-v1"))
    agent.get_env().venv.envs[0].unwrapped.engine = Foreign()
    learn(agent, 90, tmp_path / "run")
    resumed, _ = built("SAC", "Pendulum-v1", reward_for("Pendulum-v1"))
    found = resume_run(tmp_path / "run", resumed)
    assert found.problems == ("PendulumEnv.engine is a Foreign",)
    assert "PendulumEnv.engine is a Foreign" in caplog.text
    last = resumed.replay_buffer.pos - 1
    assert resumed.replay_buffer.dones[last].all()  # no window reaches across
    resets = counted_resets(resumed.get_env())
    resumed.learn(2, reset_num_timesteps=False)
    assert resets == [1]
    learn(resumed, 130, None)
    assert resumed.num_timesteps == 130


def test_a_loop_of_ones_own_goes_on(tmp_path):
    def build():
        network = torch.nn.Linear(3, 1)
        reward = reward_for("Pendulum-v1", "lstm")
        world = make("Pendulum-v1")
        env = HumanPreferencesEnvWrapper(world, collect_prefs=False, rewards=reward)
        return env, {"network": network, "optimiser": torch.optim.Adam(network.parameters())}

    def step(env, agent, count):
        rewards = []
        for _ in range(count):
            observation, reward, _, over, _ = env.step(env.action_space.sample())
            rewards.append(reward)
            agent["optimiser"].zero_grad()
            agent["network"](torch.from_numpy(observation)).sum().backward()
            agent["optimiser"].step()
            if over:
                env.reset()
        return rewards, agent["network"].weight.tolist()

    env, agent = build()
    env.reset(seed=1)
    env.action_space.seed(2)
    step(env, agent, 27)
    save_run(tmp_path / "run", agent, env, steps=27, notes={"episode": 2, "best": np.ones(2)})
    expected = step(env, agent, 30)
    env, agent = build()
    found = resume_run(tmp_path / "run", agent, env)
    assert (found.steps, found.notes["episode"], found.notes["best"].tolist()) == (27, 2, [1, 1])
    assert step(env, agent, 30) == expected


class Stop(Kill):
    def _on_step(self):
        return self.model.num_timesteps < self.at


@pytest.fixture
def saved(tmp_path):
    agent, _ = built("PPO", "CartPole-v1", reward_for("CartPole-v1"))
    learn(agent, 64, tmp_path / "run")
    return tmp_path / "run"


def fresh(env_id="CartPole-v1"):
    return built("PPO", env_id, reward_for(env_id))[0]


def test_a_damaged_checkpoint_is_refused(saved):
    agent = fresh()
    file = version_folder(saved, 1) / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match=r"another tensors\.safetensors than was written"):
        resume_run(saved, agent)
    file.unlink()
    with pytest.raises(CheckpointError, match="expected a whole checkpoint"):
        resume_run(saved, agent)


def test_a_checkpoint_of_another_run_is_refused(saved, tmp_path):
    with pytest.raises(CheckpointError, match=r"observations of the run in .*saved"):
        resume_run(saved, fresh("Pendulum-v1"))
    other = agent_on("PPO", FeedbackVecEnv(make_vec_env(lambda: make("CartPole-v1"), 3)))
    with pytest.raises(CheckpointError, match=r"environments .*expected 2, .*got 3"):
        resume_run(saved, other)
    bare = agent_on("PPO", make_vec_env(lambda: make("CartPole-v1"), 2))
    with pytest.raises(CheckpointError, match=r"FeedbackVecEnv > DummyVecEnv.*got DummyVecEnv"):
        resume_run(saved, bare)
    with pytest.raises(CheckpointError, match="no such folder"):
        resume_run(tmp_path / "nothing", fresh())


def test_the_one_before_stays_until_the_next_is_whole(saved, monkeypatch):
    agent = fresh()
    resume_run(saved, agent)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_folder, "write_json", full)
    with pytest.raises(StorageError, match="No space left"):
        save_run(saved, agent)
    assert versions(saved) == [1]
    assert [path.name for path in saved.iterdir()] == ["00001"]
    resume_run(saved, agent)


def stale(*_):
    raise OSError(116, "Stale file handle")


def full(*_):
    raise SafetensorError("I/O error: No space left on device (os error 28)")


class Harm(Stop):
    """Does something to the disk at a step."""

    def __init__(self, at, harm):
        super().__init__(at)
        self.harm = harm

    def _on_step(self):
        if self.model.num_timesteps == self.at:
            self.harm()
        return True


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ("taken away", "expected a folder that can be read, got"),
        ("stale", "Stale file handle"),
        ("damaged", "expected a whole checkpoint, got"),
        ("full", "No space left"),
    ],
)
def test_learning_goes_on_whatever_becomes_of_the_disk(
    tmp_path, monkeypatch, caplog, harm, message
):
    folder = tmp_path / "run"

    def do_harm():
        match harm:
            case "taken away":
                shutil.rmtree(folder)
                folder.write_text("")
            case "stale":
                monkeypatch.setattr(Path, "iterdir", stale)
            case "damaged":
                (version_folder(folder, versions(folder)[-1]) / "checkpoint.json").write_text("")
            case "full":
                monkeypatch.setattr(model_folder, "save_file", full)

    publish(tmp_path / "rewards", reward_for("CartPole-v1"))
    agent, _ = built("PPO", "CartPole-v1", tmp_path / "rewards")
    agent.learn(256, callback=[SaveRunCallback(folder, every=64), Harm(100, do_harm)])
    monkeypatch.undo()
    assert agent.num_timesteps == 256
    for steps in (128, 192, 256):
        assert f"No checkpoint after {steps} steps: " in caplog.text
    assert message in caplog.text
    agent.get_env().close()


def test_another_run_is_not_written_over(saved, tmp_path):
    with pytest.raises(ConfigError, match=r"64 steps.*got 0\."):
        learn(fresh(), 64, saved)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    with pytest.raises(StorageError, match="other files"):
        save_run(tmp_path / "mine", fresh())


def test_nothing_is_saved_in_the_middle_of_a_rollout(tmp_path):
    agent = fresh()
    agent.learn(64, callback=[SaveRunCallback(tmp_path / "run", every=1), Stop(40)])
    assert not has_run(tmp_path / "run")
