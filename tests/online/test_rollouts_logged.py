"""Numbers of stable-baselines3's logger reach a sink under their own names."""

import numpy as np
import pytest
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env

from helpers.tiny_runs import Kept
from preferl.online import SB3Learner

OF_KIND = {
    PPO: (
        {"n_steps": 16, "batch_size": 16, "n_epochs": 1},
        {"train/approx_kl", "train/entropy_loss", "train/explained_variance", "train/loss"},
    ),
    SAC: (
        {"learning_starts": 10, "batch_size": 8, "buffer_size": 200},
        {"train/ent_coef", "train/actor_loss", "train/critic_loss"},
    ),
}


def learner(kind, **settings):
    env = make_vec_env("Pendulum-v1", 2, seed=0)
    given = OF_KIND[kind][0] | {"policy_kwargs": {"net_arch": [8]}, "seed": 0, "device": "cpu"}
    algorithm = kind("MlpPolicy", env, **(given | settings))
    return SB3Learner(
        algorithm, total_steps=1_000, exploration_fraction=0.1, rng=np.random.default_rng(0)
    )


@pytest.mark.parametrize("kind", list(OF_KIND))
def test_diagnostics_of_each_algorithm_are_logged_by_environment_steps(kind):
    subject = learner(kind)
    sink = Kept()
    subject.report_to(sink)
    for _ in range(3):
        subject.learn(100)
    for name in OF_KIND[kind][1]:
        found = sink.of(name)
        assert found, name
        assert np.isfinite([value for _, value in found]).all()
        steps = [step for step, _ in found]
        assert steps == sorted(steps)
        assert steps[-1] == subject.steps, "exploration counts, and the last update is there"
    assert "time/total_timesteps" not in {name for _, values in sink.rows for name in values}


def test_each_update_is_logged_once():
    subject = learner(PPO)
    sink = Kept()
    subject.report_to(sink)
    subject.learn(36 + 64)  # 10 to explore, two whole rollouts; the rest waits
    assert len(sink.of("train/loss")) == 2
    subject.learn(6)
    assert len(sink.of("train/loss")) == 3
