"""How a run names its environment: sources, what files hold of them, and what is refused."""

import gymnasium
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation, TimeLimit

from helpers.gardens import Garden, Shift
from preferl.configs import from_json, to_json
from preferl.envs.config import EnvConfig, wrapper_parts
from preferl.envs.factory import make_configured
from preferl.errors import ConfigError
from preferl.online import DatasetConfig, OnlineConfig

GARDEN = "helpers.gardens:Garden"


def test_files_hold_names_which_are_read_again():
    config = OnlineConfig(env=Garden, env_kwargs={"speed": 0.2}, wrappers=(Shift,))
    saved = to_json(config)
    assert (saved["env"], saved["wrappers"]) == (GARDEN, ["helpers.gardens:Shift"])
    assert config.env_name == GARDEN
    read = from_json(OnlineConfig, saved)
    assert read.modules == (GARDEN, "helpers.gardens:Shift")
    assert to_json(read) == saved
    made = make_configured(read.environment)
    assert isinstance(made, Shift)
    assert made.unwrapped.speed == 0.2


def test_a_made_environment_is_taken_apart():
    env = gymnasium.make("Pendulum-v1", g=3.7, render_mode="rgb_array", max_episode_steps=50)
    config = OnlineConfig(env=FrameStackObservation(env, 2), wrappers=(Shift,))
    assert (config.env, config.max_episode_steps) == ("Pendulum-v1", 50)
    assert config.env_kwargs == {"g": 3.7}
    assert config.wrappers[1] is Shift
    copies = [make_configured(config.environment) for _ in range(2)]
    assert copies[0].unwrapped is not copies[1].unwrapped
    assert copies[0].unwrapped is not env.unwrapped
    assert copies[0].observation_space.shape == (2, 3)
    assert copies[0].unwrapped.g == 3.7
    assert from_json(OnlineConfig, to_json(OnlineConfig(env=env))) == OnlineConfig(env=env)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Garden, None),
        (lambda: Garden(), None),
        (TimeLimit(Garden(), 5), r"instance of TimeLimit.*Pass the class, env=Garden"),
        (Shift(gymnasium.make("Pendulum-v1")), r"in a Shift whose arguments are not known"),
        (SyncVectorEnv([Garden]), r"SyncVectorEnv, which is several.*`environments`"),
        (7, r"env: expected an id, or a class or function.*got a int"),
        (Shift.observation, None),
    ],
    ids=[
        "class",
        "function",
        "wrapped",
        "unknown wrapper",
        "several",
        "number",
        "method",
    ],
)
def test_environments_of_which_no_copies_can_be_made_are_refused(env, message):
    for config in (OnlineConfig, DatasetConfig):
        if message is None:
            assert config(env=env).env is env
        else:
            with pytest.raises(ConfigError, match=message):
                config(env=env)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_episode_steps": 0}, "max_episode_steps: expected at least 1"),
        ({"env_kwargs": [1]}, "env_kwargs: expected names and values"),
        ({"wrappers": ("Shift",)}, "wrappers: expected module:Name"),
        ({"wrappers": Shift}, r"wrappers: expected a tuple.*Shift.*A single one is .*\(it,\)"),
        ({"wrappers": ("a:B: {c: [",)}, "wrappers: expected module:Name"),
        ({"wrappers": ({"a:B": {}, "c:D": {}},)}, "wrappers: expected module:Name"),
        ({"vec_env": "threads"}, "vec_env: expected one of dummy, subproc"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        OnlineConfig(**change)


def test_wrappers_are_named_with_or_without_arguments():
    assert wrapper_parts("a.b:C") == ("a.b:C", {})
    assert wrapper_parts("a:B: {c: 1.5, d: [2]}") == ("a:B", {"c": 1.5, "d": [2]})
    assert wrapper_parts({"a:B": {"c": 1}}) == ("a:B", {"c": 1})
    assert wrapper_parts(Shift) == (Shift, {})
    named = EnvConfig("x:Y-v0", wrappers=("a:B", {"c:D": {"e": 1}}, Shift))
    assert named.modules == ("x:Y-v0", "a:B", "c:D")
