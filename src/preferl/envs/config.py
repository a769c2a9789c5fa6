"""Which environment a run acts in, and how it is copied (loads neither torch nor gymnasium)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, Final, Literal

from preferl.errors import ConfigError, require_in
from preferl.reading import parse_yaml, reading

EnvSource = str | Callable[..., Any]
"""The id of an environment, or a class or function that makes one."""

WrapperSource = str | Mapping[str, Any] | Callable[..., Any]
"""A wrapper: `module:Name`, also with arguments, or a class or function."""

VecEnvKind = Literal["dummy", "subproc"]
"""Where copies act: in turn in this process, or each in a separate process."""

SIMULATORS: Final = (
    "gymnasium",
    "gymnasium-robotics",
    "mujoco",
    "metaworld",
    "dm-control",
    "shimmy",
)
"""Packages whose versions change the behaviour of environments."""


@dataclass(frozen=True)
class EnvConfig:
    """The environment of a run: everything that is needed to make a copy of it, on any machine.

    An environment object of gymnasium is replaced by the id, arguments and wrappers with which it
    was made. Files name classes and functions as `module:Name`, and import them by this name if
    possible. If that is not possible, a run resumes only if the script passes a class or function
    of the same name.

    Attributes:
        env: id of a gymnasium environment, `module:Id`, `module:Class` or `module:function`; the
            module may be in the current folder. In Python, also the class or function itself.
        env_kwargs: arguments of the environment by name, as YAML or JSON: "{gravity: 3.7}".
        max_episode_steps: steps after which an episode is cut off; None leaves this to the
            environment.
        wrappers: wrappers around each copy, innermost first: `module:Name`, or with arguments
            "module:Name: {argument: value}". In Python, also classes and functions.

    Raises:
        ConfigError: the environment cannot be copied, a wrapper is of another kind, or an episode
            has less than one step.

    >>> EnvConfig("Pendulum-v1", {"g": 3.7}, wrappers=("mine:Shift: {by: 2}",)).modules
    ('Pendulum-v1', 'mine:Shift')
    """

    env: EnvSource | None = None
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    wrappers: tuple[WrapperSource, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.wrappers, list | tuple):
            raise ConfigError(
                f"wrappers: expected a tuple of wrappers, got {self.wrappers!r}. A single one is "
                "written wrappers=(it,)."
            )
        for name, value in _parts_of(self).items():
            object.__setattr__(self, name, value)
        if not isinstance(self.env_kwargs, Mapping):
            raise ConfigError(
                'env_kwargs: expected names and values, such as {"gravity": 3.7}, got '
                f"{self.env_kwargs!r}."
            )
        if self.max_episode_steps is not None:
            require_in("max_episode_steps", self.max_episode_steps, 1, inf)
        for wrapper in self.wrappers:
            wrapper_parts(wrapper)

    @property
    def env_name(self) -> str:
        """The id of the environment, or `module:Name` of its class or function.

        "" if there is none.
        """
        return name_of(self.env or "")

    @property
    def modules(self) -> tuple[str, ...]:
        """Names whose modules are imported when copies are made; see `preferl.trust`.

        The argument `env_id` counts, too, since environments such as shimmy's make the environment
        it names.
        """
        names = [self.env, self.env_kwargs.get("env_id")]
        for wrapper in self.wrappers:
            source, arguments = wrapper_parts(wrapper)
            names += [source, arguments.get("env_id")]
        return tuple(name for name in names if isinstance(name, str))

    @property
    def environment(self) -> "EnvConfig":
        """The fields of `EnvConfig` only, which are small enough to send to other processes."""
        return EnvConfig(**{one.name: getattr(self, one.name) for one in fields(EnvConfig)})


def name_of(source: EnvSource) -> str:
    """Return an id unchanged, and `module:Name` for a class or function.

    >>> name_of("Pendulum-v1"), name_of(EnvConfig)
    ('Pendulum-v1', 'preferl.envs.config:EnvConfig')
    """
    if isinstance(source, str):
        return source
    return f"{source.__module__}:{getattr(source, '__qualname__', type(source).__qualname__)}"


def wrapper_parts(wrapper: WrapperSource) -> tuple[EnvSource, Mapping[str, Any]]:
    """Return the class or function of a wrapper, and its arguments by name.

    Raises:
        ConfigError: the wrapper is neither `module:Name` nor a class or function.

    >>> wrapper_parts("gymnasium.wrappers:FrameStackObservation: {stack_size: 2}")
    ('gymnasium.wrappers:FrameStackObservation', {'stack_size': 2})
    """
    if callable(wrapper):
        return wrapper, {}
    expected = 'module:Name, or "module:Name: {argument: value}"'
    with reading("wrappers", expected=expected, error=ConfigError):
        named = parse_yaml(wrapper) if isinstance(wrapper, str) else wrapper
    name = named
    arguments: Any = {}
    if isinstance(named, Mapping) and len(named) == 1:
        ((name, arguments),) = named.items()
    if not (isinstance(name, str) and ":" in name and isinstance(arguments, Mapping)):
        raise ConfigError(f"wrappers: expected {expected}, got {wrapper!r:.200}.")
    return name, arguments


def _parts_of(config: EnvConfig) -> dict[str, Any]:
    """Return fields of `EnvConfig` that replace an environment object; none for other sources.

    An environment made by `gymnasium.make` knows its id, its arguments and those of its wrappers.
    """
    env: Any = config.env
    if env is None or isinstance(env, str):
        return {}
    if isinstance(env, type) or not hasattr(env, "step"):
        if not callable(env) or not hasattr(env, "__qualname__"):
            raise ConfigError(
                "env: expected an id, or a class or function that makes an environment, got a "
                f"{type(env).__name__}. Write `def make(): ...`, or pass a class and its "
                "arguments as `env_kwargs`."
            )
        return {}
    spec = _spec_of(env)
    wrapped = [
        {wrapper.entry_point: wrapper.kwargs} if wrapper.kwargs else wrapper.entry_point
        for wrapper in spec.additional_wrappers
    ]
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    return {
        "env": spec.id,
        "env_kwargs": {**kwargs, **config.env_kwargs},
        "max_episode_steps": config.max_episode_steps or spec.max_episode_steps,
        "wrappers": (*wrapped, *config.wrappers),
    }


def _spec_of(env: Any) -> Any:
    """Return gymnasium's record of how an environment was made.

    Refuse one that cannot be copied.
    """
    problem = (
        "env: expected an id, or a class or function that makes an environment, since copies are "
        f"needed, got an instance of {type(env).__name__}"
    )
    if hasattr(env, "num_envs"):
        raise ConfigError(
            f"{problem}, which is several environments. Pass a class or function that makes one of "
            "them; `environments` and `vec_env` make copies of it."
        )
    spec = getattr(env, "spec", None)
    if spec is None:
        raise ConfigError(
            f"{problem}. Pass the class, env={type(env.unwrapped).__name__}, with its arguments as "
            "`env_kwargs`."
        )
    for wrapper in spec.additional_wrappers:
        if wrapper.kwargs is None:
            raise ConfigError(
                f"{problem} in a {wrapper.name} whose arguments are not known. Pass the "
                "environment without it, and `wrappers=`."
            )
    return spec
