"""Settings of algorithms: their ranges, and defaults as stable-baselines3 has them."""

import inspect

import numpy as np
import pytest
import stable_baselines3

from preferl import SB3Config
from preferl.errors import ConfigError
from preferl.online import PPOConfig, SACConfig, SB3Learner
from preferl.online.algorithms import build_algorithm, make_environments


@pytest.mark.parametrize(
    ("config", "settings", "match"),
    [
        (PPOConfig, {"clip_range_vf": 0.0}, "clip_range_vf"),
        (PPOConfig, {"learning_rate": 0}, "learning_rate: expected a number above 0, or .lin_"),
        (PPOConfig, {"clip_range": "lin_x"}, "clip_range: expected a number.*got 'lin_x'"),
        (SACConfig, {"learning_rate": "0.001"}, "learning_rate: .*got '0.001'"),
        (SACConfig, {"ent_coef": "automatic"}, "ent_coef: expected .*\"auto_\".*got 'automatic'"),
        (SACConfig, {"ent_coef": "auto_-1"}, "ent_coef"),
        (SACConfig, {"target_entropy": "low"}, "target_entropy: expected a number, or .auto."),
        (SB3Config, {"algorithm": "TD3"}, "module:Class, such as sb3_contrib:TQC, got 'TD3'"),
        (SB3Config, {"algorithm": "os:system"}, "--trust os"),
        (SB3Config, {"settings": {"tensorboard_log": "/tmp"}}, "expected none that write files"),
        (SB3Config, {"settings": {"learning_rate": "lin_x"}}, "learning_rate: .*got 'lin_x'"),
    ],
)
def test_settings_out_of_range(config, settings, match):
    with pytest.raises(ConfigError, match=match):
        config(**settings)


@pytest.mark.parametrize(("name", "config"), [("PPO", PPOConfig()), ("SAC", SACConfig())])
def test_defaults_are_those_of_stable_baselines3(name, config):
    theirs = inspect.signature(getattr(stable_baselines3, name)).parameters
    ours = {field: value for field, value in vars(config).items() if field != "hidden"}
    assert ours == {field: theirs[field].default for field in ours}


def test_settings_reach_the_algorithm():
    env = make_environments("Pendulum-v1", 2, seed=0)
    same = {"target_update_interval": 2, "sde_sample_freq": 4, "use_sde_at_warmup": True}
    same |= {"use_sde": True, "target_entropy": -3}
    config = SACConfig(50, ent_coef="auto_0.1", n_steps=3, **same)
    sac = build_algorithm(config, env, seed=0)
    assert {name: getattr(sac, name) for name in same} == same
    assert sac.log_ent_coef.exp().item() == pytest.approx(0.1)
    assert sac.replay_buffer.n_steps == 3
    same = {"vf_coef": 0.7, "max_grad_norm": 0.4, "target_kl": 0.02, "normalize_advantage": False}
    ppo = build_algorithm(PPOConfig(8, 16, clip_range_vf=0.3, **same), env, seed=0)
    assert {name: getattr(ppo, name) for name in same} == same
    assert ppo.clip_range_vf(1.0) == 0.3
    env.close()


@pytest.mark.parametrize(
    "config",
    [
        PPOConfig(10, 20, learning_rate="lin_0.01", clip_range="lin_0.4"),
        SB3Config("stable_baselines3:A2C", settings={"n_steps": 10, "learning_rate": "lin_0.01"}),
        SACConfig(400, 20, batch_size=8, learning_rate="lin_0.01", hidden=(8,)),
    ],
)
def test_a_number_falls_to_zero_over_the_whole_run(config, rng):
    env = make_environments("Pendulum-v1", 2, seed=0)
    algorithm = build_algorithm(config, env, seed=0)
    learner = SB3Learner(algorithm, total_steps=400, exploration_fraction=0.0, rng=rng)
    rates = []
    for _ in range(4):
        learner.learn(100)
        optimizer = getattr(algorithm.policy, "optimizer", None) or algorithm.actor.optimizer
        rates.append(optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, [0.0075, 0.005, 0.0025, 0.0], atol=2e-4)
    if isinstance(config, PPOConfig):
        assert algorithm.clip_range(0.3) == pytest.approx(0.0)
    env.close()
