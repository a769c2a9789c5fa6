"""A run that was killed goes on as if nothing had happened."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from safetensors import SafetensorError
from stable_baselines3 import PPO, SAC
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
from helpers.wrapped_pendulums import Sink
from preferl.data.episodes import join
from preferl.errors import CheckpointError, ConfigError, StorageError
from preferl.models import folder as model_folder
from preferl.online import (
    FeedbackVecEnv,
    FeedbackVectorEnv,
    HumanPreferencesEnvWrapper,
    SaveRunCallback,
)
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
def undisturbed(algorithm: str, env_id: str, kind: str) -> tuple[dict[str, Any], Sink]:
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


@pytest.mark.parametrize("kind", [PPO, SAC])
def test_state_dependent_noise_goes_on_between_two_rollouts(tmp_path, kind):
    saved, resumed = (
        kind("MlpPolicy", make_vec_env("Pendulum-v1", 2), use_sde=True, seed=seed, device="cpu")
        for seed in (1, 2)
    )
    save_run(tmp_path, saved)
    resume_run(tmp_path, resumed)
    observations = saved.observation_space.sample()[None].repeat(2, 0)
    np.testing.assert_array_equal(resumed.predict(observations)[0], saved.predict(observations)[0])


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
    def build() -> Any:
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
    network = torch.nn.Linear(3, 1)
    optimiser = torch.optim.Adam(network.parameters())

    def step(env: Any, count: int) -> list[float]:
        rewards = []
        for _ in range(count):
            observation, step_reward, _, over, _ = env.step(env.action_space.sample())
            rewards.append(step_reward)
            optimiser.zero_grad()
            network(torch.from_numpy(observation)).sum().backward()
            optimiser.step()
            if over:
                env.reset()
        return rewards

    def build() -> Any:
        reward = reward_for("Pendulum-v1", "lstm")
        return HumanPreferencesEnvWrapper(make("Pendulum-v1"), collect_prefs=False, rewards=reward)

    env = build()
    env.reset(seed=1)
    env.action_space.seed(2)
    step(env, 27)
    agent = {"network": network, "optimiser": optimiser}
    save_run(tmp_path / "run", agent, env, steps=27, notes={"episode": 2, "best": np.ones(2)})
    expected = step(env, 30)
    weights = network.weight.detach().clone()

    network = torch.nn.Linear(3, 1)
    optimiser = torch.optim.Adam(network.parameters())
    env = build()
    found = resume_run(tmp_path / "run", {"network": network, "optimiser": optimiser}, env)
    assert (found.steps, found.notes["episode"], found.notes["best"].tolist()) == (27, 2, [1, 1])
    assert step(env, 30) == expected
    assert torch.equal(network.weight, weights)


def test_vector_environments_of_gymnasium_go_on_with_their_history(tmp_path):
    def build() -> FeedbackVectorEnv:
        envs = SyncVectorEnv([lambda: make("CartPole-v1")] * 2)
        return FeedbackVectorEnv(envs, rewards=reward_for("CartPole-v1", "lstm"))

    actions = np.random.default_rng(0).integers(2, size=(70, 2))
    env = build()
    env.reset(seed=1)
    for action in actions[:29]:
        env.step(action)
    save_run(tmp_path / "run", {}, env, steps=58)
    other = build()
    resume_run(tmp_path / "run", {}, other)
    for action in actions[29:]:
        one = env.step(action)
        two = other.step(action)
        for here, there in zip(one[:4], two[:4], strict=True):
            np.testing.assert_array_equal(here, there)
        assert repr(one[4].get("learned_return")) == repr(two[4].get("learned_return"))


class Stop(Kill):
    def _on_step(self) -> bool:
        return self.model.num_timesteps < self.at


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    agent, _ = built("PPO", "CartPole-v1", reward_for("CartPole-v1"))
    learn(agent, 64, tmp_path / "run")
    return tmp_path / "run"


def fresh(env_id: str = "CartPole-v1") -> Any:
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

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_folder, "write_json", full)
    with pytest.raises(StorageError, match="No space left"):
        save_run(saved, agent)
    assert versions(saved) == [1]
    assert [path.name for path in saved.iterdir()] == ["00001"]
    resume_run(saved, agent)


def stale(*_: Any) -> Any:
    raise OSError(116, "Stale file handle")


def full(*_: Any) -> None:
    raise SafetensorError("I/O error: No space left on device (os error 28)")


def take_away(folder: Path, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


def be_stale(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Path, "iterdir", stale)


def damage(folder: Path, _: pytest.MonkeyPatch) -> None:
    (version_folder(folder, versions(folder)[-1]) / "checkpoint.json").write_text("")


def fill(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_folder, "save_file", full)


class Harm(Stop):
    """Does something to the disk once."""

    def __init__(self, at: int, what: Any) -> None:
        super().__init__(at)
        self.what = what

    def _on_step(self) -> bool:
        if not super()._on_step() and self.what is not None:
            what = self.what
            self.what = None
            what()
        return True


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (take_away, "expected a folder that can be read, got"),
        (be_stale, "Stale file handle"),
        (damage, "expected a whole checkpoint, got"),
        (fill, "No space left"),
    ],
)
def test_learning_goes_on_whatever_becomes_of_the_disk(
    tmp_path, monkeypatch, caplog, harm, message
):
    publish(tmp_path / "rewards", reward_for("CartPole-v1"))
    folder = tmp_path / "run"
    agent, _ = built("PPO", "CartPole-v1", tmp_path / "rewards")
    with monkeypatch.context() as patch:
        harming = Harm(100, lambda: harm(folder, patch))
        agent.learn(256, callback=[SaveRunCallback(folder, every=64), harming])
    assert agent.num_timesteps == 256
    for steps in (128, 192, 256):
        assert f"No checkpoint after {steps} steps: " in caplog.text
    assert message in caplog.text
    agent.get_env().close()


def test_a_checkpoint_is_whole_though_earlier_ones_cannot_go(saved, monkeypatch, caplog):
    agent = fresh()
    resume_run(saved, agent)
    rename = Path.rename
    with monkeypatch.context() as patch:
        patch.setattr(
            Path, "rename", lambda old, new: stale() if old.name == "00001" else rename(old, new)
        )
        learn(agent, 128, saved)
    assert versions(saved) == [1, 2]
    assert "version 1 stays for now" in caplog.text
    assert "No checkpoint" not in caplog.text
    learn(agent, 192, saved)
    assert versions(saved) == [3], "the next one takes them along"


def test_another_run_is_not_written_over(saved, tmp_path):
    with pytest.raises(ConfigError, match=r"64 steps.*got one of 0 steps"):
        learn(fresh(), 64, saved)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    with pytest.raises(StorageError, match="something else"):
        save_run(tmp_path / "mine", fresh())


def test_nothing_is_saved_in_the_middle_of_a_rollout(tmp_path):
    agent = fresh()
    agent.learn(64, callback=[SaveRunCallback(tmp_path / "run", every=1), Stop(40)])
    assert not has_run(tmp_path / "run")
