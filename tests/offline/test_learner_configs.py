"""Settings of offline learners: ranges, presets, JSON, and what a run makes of them."""

from pathlib import Path

import pytest

from preferl.errors import ConfigError
from preferl.models import CNNRewardConfig
from preferl.offline import CloningConfig, DTConfig, IQLConfig, OfflineConfig
from preferl.offline.learner_configs import CPLConfig, DTRConfig, PixelEncoderConfig


def test_presets():
    assert IQLConfig.preset("mujoco") == IQLConfig()
    assert IQLConfig.preset("antmaze") == IQLConfig(expectile=0.9, temperature=10.0)
    assert IQLConfig.preset("adroit") == IQLConfig(temperature=0.5, dropout=0.1)


def test_critics_need_a_step_that_follows():
    DTConfig(context=1)
    with pytest.raises(ConfigError, match=r"context.*at least 2.*the steps after it"):
        DTConfig(context=1, regulariser=DTRConfig())


def run_of(policy, **changes):
    how = {"demonstrations": "a", "labels": Path("b"), "env": "E"}
    return OfflineConfig(policy=policy, **how | changes)


def test_clones_have_the_policy_of_q_learning():
    given = IQLConfig(hidden=(9,), dropout=0.2, expectile=0.9)
    assert run_of("bc", iql=given).settings == CloningConfig(hidden=(9,), dropout=0.2)
    adroit = run_of("bc", env="AdroitHandDoor-v1").settings
    assert adroit == CloningConfig(dropout=0.1)


def test_a_run_decides_about_critics_and_a_target_given_twice():
    given = DTConfig(target="q0.5", regulariser=DTRConfig(weight=3.0))
    assert run_of("dt", dt=given).settings.regulariser is None
    assert run_of("dtr", dt=given).settings.regulariser == DTRConfig(weight=3.0)
    assert run_of("dt", dt=given).settings.target == "q0.5"
    assert run_of("dt", dt=given, target_return="q1").settings.target == "q1"
    assert run_of("dt").updates == 10_000
    with pytest.raises(
        ConfigError, match="target_return: expected a policy with a target return, dt"
    ):
        run_of("iql", target_return="q1")


def test_a_pixel_encoder_is_checked_as_the_network_it_becomes():
    assert PixelEncoderConfig().network() == CNNRewardConfig()
    assert PixelEncoderConfig(size=9).network().hidden == 9
    with pytest.raises(ConfigError, match="strides"):
        PixelEncoderConfig(kernels=(3, 3), strides=(1,))


def test_a_setting_out_of_its_range_is_named():
    for config, wrong in {
        DTConfig: {"warmup": 1.0, "scale": 0},
        DTRConfig: {"discount": 2, "target_rate": 0, "hidden": ()},
        IQLConfig: {"expectile": 1.0, "hidden": (0,)},
        CPLConfig: {"cloning": 1.0, "bias": 2},
    }.items():
        for name, value in wrong.items():
            with pytest.raises(ConfigError, match=name):
                config(**{name: value})
    IQLConfig(temperature=0.0, discount=1.0, target_rate=1.0)
