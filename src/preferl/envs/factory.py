"""Make copies of the environment that a config describes."""

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from numbers import Real
from typing import Any, Final

import gymnasium

from preferl.envs.checks import Environment, callable_as, made_by
from preferl.envs.config import EnvConfig, EnvSource, name_of, wrapper_parts
from preferl.envs.simulators import make_by, make_registered
from preferl.errors import ConfigError
from preferl.trust import named_object

RATES: Final = (1, 240)
"""Frames per second at which clips can play."""

EnvFactory = Callable[..., Environment]
"""Makes a copy of an environment; takes `render_mode`."""

Inside = Callable[[Environment], Environment] | None


def env_factory(config: EnvConfig, inside: Inside = None) -> EnvFactory:
    """Return a function that makes copies of a config's environment, in this or another process.

    `inside` is the innermost wrapper of each copy.
    """
    return partial(make_configured, config.environment, inside)


def make_configured(config: EnvConfig, inside: Inside = None, **options: Any) -> Environment:
    """Make a copy of a config's environment, with its limit and wrappers.

    `options`, such as `render_mode`, are added to the config's `env_kwargs`. If a class or function
    takes no `render_mode`, it is called without it.

    Raises:
        ConfigError: there is no such environment or wrapper, it does not take the arguments, or it
            is not an environment of gymnasium.
        MissingExtraError: the package of the environment is not installed.

    >>> make_configured(EnvConfig("Pendulum-v1", {"g": 3.7}, max_episode_steps=9)).unwrapped.g
    3.7
    """
    source = config.env
    kwargs = {**config.env_kwargs, **options}
    if config.max_episode_steps is not None:
        kwargs["max_episode_steps"] = config.max_episode_steps
    if isinstance(source, str):
        env = make_registered(source, **kwargs)
    elif source is not None:
        env = make_by(source, f"environment {config.env_name}", **kwargs)
    else:
        raise ConfigError("env: expected the environment of the run, got none.")
    env = env if inside is None else inside(env)
    for wrapper in config.wrappers:
        source_of_wrapper, arguments = wrapper_parts(wrapper)
        env = made_by(
            _wrapper(source_of_wrapper), f"wrapper {name_of(source_of_wrapper)}", arguments, env
        )
    return env


def make_env(env: EnvSource, **options: Any) -> Environment:
    """Make an environment from an id, class or function with `options`."""
    if isinstance(env, partial):  # from `env_factory`, or a partial function of the caller
        environment: Environment = env(**options)
        return environment
    return make_configured(EnvConfig(env), **options)


def draws(env: EnvSource) -> bool:
    """Whether an environment can draw: its metadata says so, and it takes `render_mode`."""
    with closing(make_env(env)) as stage:
        if "rgb_array" not in (stage.metadata.get("render_modes") or ()):
            return False
    with closing(make_env(env, render_mode="rgb_array")) as stage:
        return stage.render_mode == "rgb_array"


def playing_rate(metadata: Mapping[str, Any], default: int = 30) -> int:
    """Return the whole frames per second, in `RATES`, nearest to the metadata's `render_fps`.

    `RATES` limits it, so that clips of very long or very short steps can be played, too.

    >>> playing_rate({"render_fps": 0.5}), playing_rate({"render_fps": 500}), playing_rate({})
    (1, 240, 30)
    """
    render_fps = metadata.get("render_fps")
    rate = float(render_fps) if isinstance(render_fps, Real) else 0.0
    if not rate > 0:  # missing, or NaN
        return default
    return round(min(max(rate, RATES[0]), RATES[1]))


def _wrapper(source: EnvSource) -> Callable[..., Any]:
    """Return a wrapper's class or function; if it is a name, import it if somebody trusts it."""
    if not isinstance(source, str):
        return source
    module = source.partition(":")[0]
    wrapper = callable_as(gymnasium.Wrapper, named_object(source, "wrappers"), module)
    if wrapper is None:
        raise ConfigError(
            "wrappers: expected a wrapper of gymnasium, or a class or function in a module of "
            f"yours, got {source}."
        )
    return wrapper
