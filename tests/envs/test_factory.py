"""Copies of the environment that settings describe."""

import pickle

import gymnasium
import pytest

from helpers.gardens import Garden, Shift, small_garden
from preferl.envs.config import EnvConfig
from preferl.envs.factory import draws, env_factory, make_configured, make_env
from preferl.errors import ConfigError


@pytest.mark.parametrize(
    "config",
    [
        EnvConfig(Garden, {"speed": 0.4}, max_episode_steps=3),
        EnvConfig("helpers.gardens:Garden", {"speed": 0.4}, max_episode_steps=3),
        EnvConfig("helpers.gardens:small_garden", {"speed": 0.4}, max_episode_steps=3),
    ],
    ids=["class", "its name", "a function's name"],
)
def test_arguments_limits_and_wrappers_reach_each_copy(config):
    wrappers = ("helpers.gardens:Shift: {by: 9}", lambda env: Shift(env, 1))
    wrapped = EnvConfig(config.env, config.env_kwargs, 3, wrappers)
    make = pickle.loads(pickle.dumps(env_factory(config)))
    assert make() is not make()
    env = make_configured(wrapped)
    assert env.unwrapped.speed == 0.4
    seen, _ = env.reset(seed=0)
    assert (seen > 9).all(), "both wrappers add to what is in [-1, 1]"
    ended = [env.step(env.action_space.sample())[3] for _ in range(3)]
    assert ended == [False, False, True]


def test_wrappers_that_are_none_are_refused():
    for name, message in (
        ("helpers.gardens:Absent", "wrappers"),
        ("helpers.gardens:Shift: {of: 2}", r"Shift: expected .*\(env, by\)"),
        ("helpers.gardens:nothing", "wrapper helpers.gardens:nothing: expected arguments"),
        ("preferl.files:write_json", "a wrapper of gymnasium, or a class or function in a module"),
        ("nowhere:Shift", "wrappers: expected module:Name.*nowhere"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_configured(EnvConfig("Pendulum-v1", wrappers=(name,)))


def test_pictures_are_drawn_where_render_mode_is_taken():
    assert draws(Garden)
    assert draws(env_factory(EnvConfig("Pendulum-v1")))
    assert not draws(small_garden), "it takes no render_mode"
    assert make_env(Garden, render_mode="rgb_array").render_mode == "rgb_array"
    assert make_env(lambda: gymnasium.make("CartPole-v1")).spec.id == "CartPole-v1"


def test_a_run_without_an_environment_makes_none():
    with pytest.raises(ConfigError, match="env: expected the environment of the run, got none"):
        make_configured(EnvConfig())
