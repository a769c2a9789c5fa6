"""Presets are settings that make runs, of environments that can be made and take steps."""

from contextlib import closing
from importlib.util import find_spec

import numpy as np
import pytest

from preferl.configs import from_json
from preferl.envs.factory import env_factory
from preferl.errors import ConfigError
from preferl.online.configs import OnlineConfig
from preferl.presets import load_preset, preset_names, with_changes

PACKAGES = {
    "shimmy": "dm_control",
    "metaworld": "metaworld",
    "Pendulum": "pygame",
    "CartPole": "pygame",
    "preferl": "numpy",
}
"""What an environment needs by the beginning of its id; all others need mujoco."""


def config_of(name: str) -> OnlineConfig:
    return from_json(OnlineConfig, load_preset(name))


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_makes_a_run_of_its_own_steps_and_queries(name):
    settings = load_preset(name)
    config = config_of(name)
    assert "from" not in settings
    assert {"env", "steps", "comparisons", "algorithm", "model", "teacher"} <= settings.keys()
    assert (config.steps, config.comparisons) == (settings["steps"], settings["comparisons"])


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")  # of Meta-World's spaces
@pytest.mark.parametrize("name", preset_names())
def test_environments_can_be_made_and_take_steps(name):
    config = config_of(name)
    package = PACKAGES.get(config.env_name.split(":")[0].split("/")[0].split("-")[0], "mujoco")
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    with closing(env_factory(config)()) as env:
        observation, _ = env.reset(seed=0)
        assert env.observation_space.contains(observation)
        env.action_space.seed(0)
        _, reward, *_ = env.step(env.action_space.sample())
        assert np.isfinite(reward)


@pytest.mark.parametrize("name", ["hopper", "walker2d", "ant"])
def test_a_fall_ends_episodes_of_terminating_presets_alone(name):
    pytest.importorskip("mujoco", reason="the extra preferl[mujoco] is not installed")
    assert [ends_early(one) for one in (name, f"{name}-terminating")] == [False, True]


def test_short_clips_are_compared_where_their_length_is_the_signal():
    padded = {name for name in preset_names() if config_of(name).short == "pad"}
    assert padded == {"cartpole", "hopper-terminating", "walker2d-terminating", "ant-terminating"}


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith("pebble-")])
def test_pebble_has_the_environment_and_budget_of_the_plain_preset(name):
    pebble = config_of(name)
    plain = config_of(name.removeprefix("pebble-"))
    assert (pebble.environment, pebble.steps) == (plain.environment, plain.steps)
    assert pebble.comparisons == plain.comparisons
    assert (pebble.before, plain.before) == ("entropy", "zero")


def ends_early(name: str) -> bool:
    """Whether an episode of random actions terminates within 300 steps."""
    with closing(env_factory(config_of(name))()) as env:
        env.reset(seed=0)
        env.action_space.seed(0)
        return any(env.step(env.action_space.sample())[2] for _ in range(300))


def test_changes_of_a_section_leave_the_rest_unless_it_is_of_another_kind():
    settings = {"steps": 9, "algorithm": {"kind": "SACConfig", "tau": 0.1, "gamma": 0.9}}
    same = with_changes(settings, {"algorithm": {"gamma": 0.5}})
    other = with_changes(settings, {"algorithm": {"kind": "PPOConfig", "gamma": 0.5}})
    assert same == {"steps": 9, "algorithm": {"kind": "SACConfig", "tau": 0.1, "gamma": 0.5}}
    assert other == {"steps": 9, "algorithm": {"kind": "PPOConfig", "gamma": 0.5}}
    assert settings["algorithm"]["gamma"] == 0.9


def test_an_unknown_preset_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"expected one of ant, .* pendulum"):
        load_preset("moon")
