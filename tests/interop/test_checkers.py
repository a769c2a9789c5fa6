"""Checkers of gymnasium, stable-baselines3 and TorchRL find no fault with wrapped environments."""

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from stable_baselines3 import PPO
from stable_baselines3.common import env_checker

from preferl.online import FeedbackVectorEnv, HumanPreferencesEnvWrapper


@pytest.fixture
def single(pendulum, tmp_path):
    env = HumanPreferencesEnvWrapper(
        pendulum.make(),
        log_dir=tmp_path / "logs",
        feedback=pendulum.feedback,
        rewards=pendulum.rewards,
        segment_length=20,
    )
    yield env
    env.close()


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")  # it is a wrapper
@pytest.mark.filterwarnings("ignore:.*recommend using a symmetric")  # the pendulum's is not
def test_gymnasium(single):
    check_env(single, skip_render_check=True)


@pytest.mark.filterwarnings("ignore:We recommend you to use a symmetric")  # the pendulum is not
def test_stable_baselines3(single):
    env_checker.check_env(single, warn=True)


def test_stable_baselines3_learns_in_one_environment(single):
    agent = PPO("MlpPolicy", single, n_steps=128, batch_size=64, device="cpu", seed=0)
    agent.learn(256)
    assert single.reward_version == 7
    assert single.save()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("several", [False, True])
def test_skrl(single, pendulum, several):
    torch_wrappers = pytest.importorskip(
        "skrl.envs.wrappers.torch", reason="`make interop` installs it"
    )
    inner = vector(pendulum) if several else single
    env = torch_wrappers.wrap_env(inner)
    observations, _ = env.reset()
    for _ in range(50):
        actions = 4 * torch.rand(env.num_envs, 1) - 2
        following, rewards, *_ = env.step(actions)
        steps = observations.numpy()[:, None], actions.numpy()[:, None]
        learned = pendulum.reward(*steps, np.ones((env.num_envs, 1), bool))
        np.testing.assert_allclose(rewards.numpy()[:, 0], learned, atol=1e-4)
        observations = following
    inner.close()


def vector(pendulum):
    return FeedbackVectorEnv(
        pendulum.make_vec(), pendulum.feedback, pendulum.rewards, segment_length=20
    )


@pytest.mark.filterwarnings("default")
class TestTorchRL:
    @pytest.fixture(autouse=True)
    def torchrl(self):
        pytest.importorskip("torchrl", reason="`make interop` installs it")

    def test_one_environment(self, single, pendulum):
        from torchrl.envs import GymWrapper
        from torchrl.envs.utils import check_env_specs

        env = GymWrapper(single)
        check_env_specs(env)
        self.require_learned_rewards(env.rollout(50), pendulum.reward)

    def test_several_environments(self, pendulum):
        from torchrl.envs import GymWrapper

        envs = vector(pendulum)
        rollout = GymWrapper(envs).rollout(50, break_when_any_done=False)
        self.require_learned_rewards(rollout, pendulum.reward)
        envs.close()

    @staticmethod
    def require_learned_rewards(rollout, reward):
        flat = rollout.reshape(-1)
        steps = flat["observation"].numpy()[:, None], flat["action"].numpy()[:, None]
        learned = reward(*steps, np.ones((len(flat), 1), bool))
        np.testing.assert_allclose(flat["next", "reward"].numpy()[:, 0], learned, atol=1e-4)
