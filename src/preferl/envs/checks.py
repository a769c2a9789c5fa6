"""Checks of users' environments, with errors that explain what is wrong with them."""

import inspect
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from preferl.errors import ConfigError, in_words
from preferl.shapes import Array, keeps_values, map_observations
from preferl.trust import ALLOWED

Environment = gymnasium.Env[Any, Any]

NOW = "Gymnasium's `reset` returns (observation, info), and `step` returns (observation, reward, "
NOW += "terminated, truncated, info): change it, or wrap it with shimmy's compatibility class."


def callable_as(kind: type, found: Any, module: str) -> Callable[..., Any] | None:
    """Return the object that a text names if it may be called to make an environment or wrapper.

    Any text may name objects of the packages in `preferl.trust.ALLOWED`, so only classes of this
    `kind` may be called there. Other modules were typed or trusted by a person, so functions may be
    called, too.
    """
    if isinstance(found, type) and issubclass(found, kind):
        return found
    return found if callable(found) and module.split(".")[0] not in ALLOWED else None


def made_by(
    source: Callable[..., Any], what: str, kwargs: Mapping[str, Any], *inside: Environment
) -> Environment:
    """Make an environment by calling a class or function; a wrapper gets the one `inside`.

    `render_mode` is left out if the callable does not take it. Messages call the environment
    `what`.

    Raises:
        ConfigError: the callable does not take the arguments, or does not return an environment.
    """
    try:
        call_signature = inspect.signature(source)
    except ValueError:  # functions written in C
        call_signature = inspect.Signature(
            [inspect.Parameter("any", inspect.Parameter.VAR_KEYWORD)]
        )
    kinds = {name: parameter.kind for name, parameter in call_signature.parameters.items()}
    if "render_mode" not in kinds and inspect.Parameter.VAR_KEYWORD not in kinds.values():
        kwargs = {name: value for name, value in kwargs.items() if name != "render_mode"}
    try:
        call_signature.bind(*inside, **kwargs)
    except TypeError as error:
        raise refused_kwargs(what, kinds, error) from error
    environment: Environment = source(*inside, **kwargs)
    require_environment(environment, what)
    return environment


def refused_kwargs(what: str, taken: Collection[str], error: Exception) -> ConfigError:
    """Return an error about an environment or wrapper that does not take these arguments."""
    expected = f"arguments that it takes ({', '.join(taken)})" if taken else "arguments it takes"
    refused = str(error).removeprefix("got ")
    return ConfigError(
        f"{what}: expected {expected}, got {refused}. Change `env_kwargs`, or those of the wrapper."
    )


def require_environment(env: Any, what: str) -> None:
    """Raise `ConfigError` unless `env` is a single environment of gymnasium."""
    if isinstance(env, gymnasium.Env):
        return
    problem = f"{what}: expected an environment of gymnasium, got a {type(env).__name__}"
    if any(base.__module__.split(".")[0] == "gym" for base in type(env).__mro__):
        raise ConfigError(f"{problem} of the old gym. Write `import gymnasium as gym`. {NOW}")
    if isinstance(env, VectorEnv) or hasattr(env, "num_envs"):
        raise ConfigError(
            f"{problem}, which is several environments. Make one: `environments` and `vec_env` "
            "make copies of it."
        )
    if env is None:
        raise ConfigError(
            f"{problem}. The function has to return the environment or wrapper that it makes."
        )
    raise ConfigError(f"{problem}. Derive its class from gymnasium.Env.")


def require_usable(make: Callable[[], Environment], what: str) -> None:
    """Begin an episode in a copy and make a step, to find errors before a run.

    Raises:
        ConfigError: spaces are missing or no agent can act in them, `reset` or `step` is that of
            the old gym, observations differ from their space in shape or type, or the reward is not
            a number.
    """
    with closing(make()) as env:
        _require_spaces(env, what)
        _require_steps(env, what)


def _require_spaces(env: Environment, what: str) -> None:
    """Raise `ConfigError` unless agents can take its observations and act in its action space."""
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, spaces.Space):
            raise ConfigError(
                f"{what}: expected a space as `{name}`, got {space}. Set `self.{name}` in its "
                "constructor."
            )
    if not _is_observed(env.observation_space):
        raise ConfigError(
            f"{what}: expected observations in a Box with an axis, in Discrete or "
            f"MultiDiscrete from 0, in MultiBinary, or in a flat Dict of these, got "
            f"{env.observation_space}, which no agent of stable-baselines3 takes. Wrap the "
            "environment, as in gymnasium.wrappers.FlattenObservation."
        )
    if not _is_acted(env.action_space):
        raise ConfigError(
            f"{what}: expected actions in a Box of floats with an axis, in Discrete from 0, or "
            "in MultiDiscrete from 0 or MultiBinary along one axis, got "
            f"{env.action_space}, in which no agent of stable-baselines3 acts. Wrap the "
            "environment, as in gymnasium.wrappers.TransformAction."
        )


def _require_steps(env: Environment, what: str) -> None:
    """Raise `ConfigError` unless `reset` and `step` return what gymnasium requires."""
    first_result = _called(env.reset, what, seed=0)
    if not _ends_with_info(first_result, 2):
        raise ConfigError(
            f"{what}: expected (observation, info) from `reset`, got {_shortly(first_result)}. "
            f"{NOW}"
        )
    _require_shape(env.observation_space, first_result[0], what)
    ended = _called(env.step, what, env.action_space.sample())
    if not _ends_with_info(ended, 5):
        raise ConfigError(
            f"{what}: expected (observation, reward, terminated, truncated, info) from "
            f"`step`, got {_shortly(ended)}. {NOW}"
        )
    _require_shape(env.observation_space, ended[0], what)
    if np.ndim(ended[1]) != 0 or np.asarray(ended[1]).dtype.kind not in "biuf":
        raise ConfigError(f"{what}: expected one number as the reward, got {ended[1]!r}.")
    for name, flag in zip(("terminated", "truncated"), ended[2:4], strict=True):
        if np.ndim(flag) != 0 or np.asarray(flag).dtype.kind not in "biu":
            raise ConfigError(f"{what}: expected True or False as `{name}`, got {flag!r}. {NOW}")


def _is_observed(space: spaces.Space[Any], *, inside: bool = False) -> bool:
    """Whether agents of stable-baselines3 can take observations of a space."""
    match space:
        case spaces.Dict():
            return not inside and all(_is_observed(part, inside=True) for part in space.values())
        case spaces.Box():
            return len(space.shape) > 0
        case spaces.Discrete():
            return int(space.start) == 0
        case spaces.MultiDiscrete():
            return space.nvec.ndim == 1 and not space.start.any()
    return isinstance(space, spaces.MultiBinary)


def _is_acted(space: spaces.Space[Any]) -> bool:
    """Whether some agent of stable-baselines3 can give actions of a space."""
    match space:
        case spaces.Box():
            return len(space.shape) > 0 and space.dtype is not None and space.dtype.kind == "f"
        case spaces.Discrete():
            return int(space.start) == 0
        case spaces.MultiDiscrete():
            return space.nvec.ndim == 1 and not space.start.any()
        case spaces.MultiBinary():
            return len(space.shape) == 1
    return False


def one_number(what: str, value: Any) -> float:
    """Return a number, or the only number of an array; raise `ConfigError` for anything else.

    >>> one_number("reward of `step`", np.array([0.5]))
    0.5
    """
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ConfigError(f"{what}: expected one number, got {value!r}. {NOW}")
    return float(array.item())


def require_info(what: str, info: Any) -> None:
    """Raise `ConfigError` unless the info of a reset or step is a dictionary."""
    if not isinstance(info, Mapping):
        raise ConfigError(f"{what}: expected a dictionary, got {info!r}. {NOW}")


def _called(method: Callable[..., Any], what: str, *given: Any, **named: Any) -> Any:
    """Call a method; explain the errors that other interfaces than gymnasium's raise."""
    try:
        return method(*given, **named)
    except (TypeError, ValueError) as error:
        if not re.search("values to unpack|keyword argument 'seed'", str(error)):
            raise  # the environment's own error, whose trace says more
        raise ConfigError(
            f"{what}: expected `{method.__name__}` as gymnasium defines it, got "
            f"{in_words(error)}. {NOW}"
        ) from error


def _require_shape(space: spaces.Space[Any], observation: Any, what: str) -> None:
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    shape: Any = {key: part.shape for key, part in parts.items()} or space.shape
    if None in (shape.values() if parts else [shape]):
        return  # nested spaces, which the recording of steps refuses
    actual = map_observations(np.shape, observation)
    if actual != shape:
        raise ConfigError(
            f"{what}: expected observations of shape {shape}, as in its space, got {actual}. "
            "Change the space or the observations."
        )
    for key, part in (parts or {"": space}).items():
        _require_type(part.dtype, np.asarray(observation[key] if parts else observation), what)


def _require_type(dtype: Any, observation: Array, what: str) -> None:
    """Refuse numbers that arrays of their space cannot hold; warn if some may not fit."""
    if not keeps_values(observation, dtype):
        raise ConfigError(
            f"{what}: expected observations of dtype {dtype}, as in its space, got "
            f"{observation.dtype} between {observation.min()} and {observation.max()}, which it "
            "cannot hold. Change the space or the observations."
        )
    if observation.dtype.kind == "f" and dtype.kind != "f":
        warnings.warn(
            f"{what}: observations have dtype {observation.dtype}, but their space has {dtype}, in "
            "which fractions are lost. Change the space or the observations.",
            stacklevel=2,
        )


def _ends_with_info(values: Any, count: int) -> bool:
    """Whether a reset or step returned `count` values, the last of them a dictionary."""
    return isinstance(values, tuple) and len(values) == count and isinstance(values[-1], dict)


def _shortly(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"a {type(value).__name__}"
