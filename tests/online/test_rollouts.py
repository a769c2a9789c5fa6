"""Steps are at most those asked for, and a shorter rollout is learned from as any other."""

import pytest
import torch
from stable_baselines3 import A2C, PPO, SAC, TD3
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from preferl.errors import DivergenceError
from preferl.online.rollouts import learn_within, least_steps

pytestmark = pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")

TINY = {"net_arch": [8]}


def agent(kind, environments=1, **settings):
    env = make_vec_env("Pendulum-v1", environments, seed=0)
    of_kind = {"learning_starts": 10, "batch_size": 8, "buffer_size": 500}
    if kind is PPO:
        of_kind = {"n_steps": 32, "batch_size": 16, "n_epochs": 2}
    elif kind is A2C:
        of_kind = {"n_steps": 5, "normalize_advantage": True}
    given = {"seed": 0, "policy_kwargs": dict(TINY), "device": "cpu"} | of_kind
    return kind("MlpPolicy", env, **(given | settings))


def weights(algorithm):
    return [part.detach().clone() for part in algorithm.policy.parameters()]


class Lengths(BaseCallback):
    """Notes how many steps of each environment every rollout had."""

    def __init__(self):
        super().__init__()
        self.found = []

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.found.append(self.model.rollout_buffer.rewards.shape[0])


@pytest.mark.parametrize(
    ("kind", "environments", "settings"),
    [
        (PPO, 1, {"batch_size": 100}),
        (PPO, 3, {"batch_size": 2}),
        (A2C, 3, {}),
        (SAC, 3, {"train_freq": 7}),
        (TD3, 1, {"train_freq": (1, "episode")}),
    ],
)
def test_no_more_steps_than_asked_for_and_few_less(kind, environments, settings, rng):
    algorithm = agent(kind, environments, **settings)
    asked = 0
    for steps in rng.integers(1, 120, size=8).tolist():
        asked += steps
        assert learn_within(algorithm, asked - algorithm.num_timesteps)
        assert asked - least_steps(algorithm) < algorithm.num_timesteps <= asked
    for part in weights(algorithm):
        assert torch.isfinite(part).all()


def test_the_last_rollout_is_the_shorter_one():
    algorithm = agent(PPO, 2)
    lengths = Lengths()
    for steps, last, expected in (
        (32 + 32 + 15, True, [32, 32, 15]),
        (32, True, [32]),
        (32 + 15, False, [32]),  # before the last, a shorter one only where no whole one fits
        (15, False, [15]),
    ):
        lengths.found.clear()
        learn_within(algorithm, 2 * steps, last=last, callback=lengths)
        assert lengths.found == expected
        assert (algorithm.n_steps, algorithm.rollout_buffer.buffer_size) == (32, 32)


def test_no_minibatch_has_a_single_step():
    algorithm = agent(PPO)
    lengths = Lengths()
    learn_within(algorithm, 17, callback=lengths)  # one minibatch of 16, and one step
    assert lengths.found == [16]


def test_the_fewest_steps_that_an_agent_learns_from_are_learned_from():
    algorithm = agent(PPO, 3, batch_size=2)  # of three steps, one would be left alone
    assert least_steps(algorithm) == 6
    learn_within(algorithm, 5)
    assert algorithm.num_timesteps == 0
    learn_within(algorithm, 6)
    assert algorithm.num_timesteps == 6


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_a_shorter_rollout_is_what_an_agent_of_such_rollouts_makes(kind):
    usual = agent(kind, 2, n_steps=16).learn(32)
    shorter = agent(kind, 2, n_steps=40)  # seeds the program's generators as well
    learn_within(shorter, 32)
    assert all(map(torch.equal, weights(usual), weights(shorter)))


@pytest.mark.parametrize("kind", [PPO, A2C, SAC])
def test_whole_rollouts_are_those_of_the_library(kind):
    theirs = agent(kind, 2).learn(320)
    ours = agent(kind, 2)
    assert learn_within(ours, 320)
    assert all(map(torch.equal, weights(ours), weights(theirs)))


class Own(RolloutBuffer):
    """May hold more than an array per field, as that of recurrent policies does."""


def test_rollouts_in_other_buffers_stay_whole():
    algorithm = agent(PPO, rollout_buffer_class=Own)
    assert learn_within(algorithm, 47)
    assert algorithm.num_timesteps == least_steps(algorithm) == 32
    assert learn_within(algorithm, 31)
    assert algorithm.num_timesteps == 32


@pytest.mark.parametrize("kind", [PPO, SAC])
def test_an_agent_that_diverges_is_an_error(kind):
    algorithm = agent(kind, learning_rate=1e20)
    with pytest.raises(DivergenceError, match=r"the training diverged .* lower the learning rate"):
        learn_within(algorithm, 64)
