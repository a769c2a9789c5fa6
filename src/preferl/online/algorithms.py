"""Algorithms of stable-baselines3 and environments, built from their settings."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from inspect import isabstract, signature
from typing import Any, Final, TypeGuard, cast, final

import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize
from torch import Tensor, nn

from preferl.envs.checks import Environment
from preferl.envs.config import EnvSource, VecEnvKind
from preferl.envs.factory import make_env
from preferl.errors import ConfigError, in_words, nearest, require_in, require_one_of
from preferl.online.configs import LINEAR, AlgorithmConfig, OnlineConfig, PPOConfig, SACConfig
from preferl.registry import ALGORITHMS
from preferl.training.configs import usable_device
from preferl.trust import resolve, safe_children

NATURE_SIDE: Final = 36
"""Fewest pixels on a side for stable-baselines3's network of pictures (Mnih et al. 2015)."""

INSTALLED_AS: Final = {
    "stable_baselines3": "stable-baselines3",
    "sb3_contrib": "sb3-contrib",
    "sbx": "sbx-rl",
}
"""Packages of algorithms, and their names for pip."""


def suited_algorithm(
    env: Environment | VecEnv, *, environments: int = 1, steps: int
) -> AlgorithmConfig:
    """Return the algorithm that suits the spaces of an environment, if the config names none.

    Continuous actions get SAC, which learns from few steps. Its buffer holds all `steps`. It makes
    half an update for each step, or one update in a single environment. Other actions get PPO, with
    rollouts of 256 steps of each environment. Pictures get PPO too, since SAC would keep gigabytes
    of them.
    """
    pictures = picture_policy(env.observation_space) is not None
    if pictures or not isinstance(env.action_space, spaces.Box):
        return PPOConfig(n_steps=256)
    size = min(SACConfig.buffer_size, steps)
    return SACConfig(buffer_size=size, gradient_steps=max(1, environments // 2))


def algorithm_of(config: OnlineConfig, env: VecEnv) -> AlgorithmConfig:
    """Return the algorithm of a run's config, or the one that suits its environments."""
    if config.algorithm is not None:
        return config.algorithm
    return suited_algorithm(env, environments=env.num_envs, steps=config.steps)


def build_algorithm(
    config: AlgorithmConfig, env: VecEnv, *, seed: int, device: str = "cpu"
) -> BaseAlgorithm:
    """Build an algorithm on an environment, with a policy that suits its observations.

    The config's class is one that `preferl.registry.ALGORITHMS` names. Its `hidden` are the units
    of each layer, its `policy` names another policy than the usual one, and all other fields are
    arguments of the algorithm. The algorithm prints nothing, and seeds torch and numpy globally, as
    SB3 does. `ConfigError` is raised if the algorithm cannot take the spaces or settings, or if
    torch lacks the device.
    """
    device = usable_device(device)
    settings = _with_schedules(asdict(config))
    space = env.observation_space
    hidden = settings.pop("hidden", None)
    named = settings.pop("policy", None)
    pictures = picture_policy(space)
    if isinstance(space, spaces.Dict):
        policy = "MultiInputPolicy"
    else:
        policy = "MlpPolicy" if pictures is None else "CnnPolicy"
    network = dict(pictures or {})
    if hidden is not None:
        network["net_arch"] = list(hidden)
    if isinstance(space, spaces.Dict) and any("." in key for key in space):
        # module names must not hold the dots of keys
        network["features_extractor_class"] = PicturesByKey
    make: Any = ALGORITHMS.load(ALGORITHMS.name_of(config))
    try:
        algorithm: BaseAlgorithm = make(
            named or policy, env, seed=seed, device=device, policy_kwargs=network, **settings
        )
    except AssertionError as error:  # stable-baselines3's error for spaces and settings
        raise ConfigError(
            f"spaces and settings of {type(config).__name__}: expected what it takes, got "
            f"{in_words(error)}. Use PPO, which takes most spaces, or change the setting."
        ) from error
    return algorithm


def any_algorithm(
    policy: str,
    env: VecEnv,
    *,
    algorithm: str,
    settings: Mapping[str, Any],
    policy_kwargs: Mapping[str, Any],
    **own: Any,
) -> BaseAlgorithm:
    """Build an algorithm of the class `module:Class` with settings of its constructor.

    Args:
        policy: name of the policy in the algorithm's class.
        env: the environment it acts in.
        algorithm: `module:Class` of stable-baselines3, sb3_contrib or sbx.
        settings: arguments of the class by name; lists become tuples, which JSON files cannot hold.
        policy_kwargs: arguments of the policy; those in `settings` come first.
        **own: arguments that this library sets: `seed` and `device`.

    Raises:
        ConfigError: the package is not installed, the name is not that of an algorithm, or the
            algorithm does not take the settings.
    """
    cls: Any = algorithm_class(algorithm)
    arguments: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in _with_schedules(settings).items()
    }
    reserved = {"policy", "env", "_init_setup_model", *own}
    accepted = [name for name in signature(cls).parameters if name not in reserved]
    for name in arguments:
        if name not in accepted:
            fix = "Leave it out of settings." if name in reserved else nearest(name, accepted)
            raise ConfigError(
                f"settings of {algorithm}: expected some of {accepted}, got {name}. {fix}".strip()
            )
    network = {**policy_kwargs, **arguments.pop("policy_kwargs", {})}
    try:
        built: BaseAlgorithm = cls(policy, env, policy_kwargs=network, **own, **arguments)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"policy and settings of {algorithm}: expected what it takes, got {in_words(error)}."
        ) from error
    return built


def _with_schedules(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Replace texts such as "lin_0.001" by schedules that fall from that number to 0."""
    return {
        name: LinearSchedule(float(value.removeprefix(LINEAR)), 0.0, 1.0)
        if isinstance(value, str) and value.startswith(LINEAR)
        else value
        for name, value in settings.items()
    }


def algorithm_class(name: str) -> type[BaseAlgorithm]:
    """Import the algorithm that `module:Class` names, from a package that `preferl.trust` admits.

    Raises:
        ConfigError: the module may not be imported or is not installed, or has no such algorithm.

    >>> algorithm_class("stable_baselines3:TD3").__name__
    'TD3'
    """
    package = name.partition(":")[0].partition(".")[0]
    if package in INSTALLED_AS and find_spec(package) is None:
        raise ConfigError(
            f"algorithm: {name} needs {package}, which is not installed. Run: pip install "
            f"{INSTALLED_AS[package]}"
        )
    named: Any = resolve(name, what="algorithm", source="the algorithm's config")
    is_class = isinstance(named, type) and issubclass(named, BaseAlgorithm)
    if not is_class or isabstract(named):
        raise ConfigError(
            f"algorithm: expected the class of an algorithm, got {name!r}. Name a class such as "
            "stable_baselines3:TD3."
        )
    return cast("type[BaseAlgorithm]", named)


def require_torch(algorithm: BaseAlgorithm) -> None:
    """Raise `ConfigError` unless networks are torch's: networks of sbx cannot be saved."""
    if not any(True for _ in algorithm.policy.parameters()):
        raise ConfigError(
            "algorithm: expected networks of torch, which can be saved, got "
            f"{type(algorithm).__name__} without any. It can learn in `learn_from_preferences` "
            "without checkpoints."
        )


def make_environments(
    env: EnvSource,
    count: int,
    *,
    seed: int,
    wrap: Callable[[Environment], Environment] | None = None,
    vec_env: VecEnvKind = "dummy",
) -> VecEnv:
    """Make copies of an environment with consecutive seeds, each in a monitor and in `wrap`.

    Args:
        env: the environment, as in `preferl.envs.config.EnvConfig`, or `env_factory(config)` of a
            run's settings.
        count: `V`, the number of copies.
        seed: seed of the first copy; each later copy adds 1.
        wrap: the outermost wrapper of each copy.
        vec_env: "dummy" steps the copies in turn. "subproc" steps each in its own process; a script
            then needs `if __name__ == "__main__":`.

    Raises:
        ConfigError: there is no such environment, `count` is below 1, or a process has ended.
    """
    require_in("environments", count, 1, float("inf"))
    require_one_of("vec_env", vec_env, VecEnvKind)
    kind = DummyVecEnv if vec_env == "dummy" else SubprocVecEnv
    try:
        with safe_children():
            make = partial(make_env, env)
            return make_vec_env(make, count, seed=seed, wrapper_class=wrap, vec_env_cls=kind)
    except (EOFError, ConnectionError) as error:
        raise ConfigError(
            f"vec_env: expected {count} processes with an environment each, got one that ended. "
            'Guard the script with `if __name__ == "__main__":`, or choose "dummy".'
        ) from error


def normalised(env: VecEnv) -> VecNormalize:
    """Normalise observations by their running mean and standard deviation, with `VecNormalize`.

    Rewards are not normalised. In a dictionary, all arrays are normalised except pictures.

    Raises:
        ConfigError: there are no observations to normalise.
    """
    space = env.observation_space
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    keys = [key for key, part in parts.items() if isinstance(part, spaces.Box)]
    keys = [key for key in keys if not is_image_space(parts[key])]
    if not keys:
        raise ConfigError(
            "normalise_observations: expected observations with arrays that are no pictures, got "
            f"{space}. Leave it out."
        )
    only = keys if isinstance(space, spaces.Dict) else None
    return VecNormalize(env, norm_reward=False, norm_obs_keys=only)


@final
class SmallPictures(BaseFeaturesExtractor):
    """Two convolutions and a dense layer, for pictures of at most 35 pixels on a side.

    Channels come first, since stable-baselines3 transposes pictures.
    """

    def __init__(self, observation_space: spaces.Box, features_dim: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        channels, height, width = observation_space.shape
        window = min(4, height), min(4, width)
        convolutions = nn.Sequential(
            nn.Conv2d(channels, 16, window, stride=window),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        size = convolutions(torch.zeros(1, *observation_space.shape)).shape[1]
        self.layers = nn.Sequential(convolutions, nn.Linear(size, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        """Return features `[B, features_dim]` of pictures `[B, channels, height, width]`.

        Values are in [0, 1].
        """
        features: Tensor = self.layers(observations)
        return features


@final
class PicturesByKey(BaseFeaturesExtractor):
    """Features of a dictionary: convolutions for pictures, and other arrays unchanged.

    Pictures may have any size; stable-baselines3's own extractor refuses small ones.
    """

    def __init__(self, observation_space: spaces.Dict) -> None:
        parts: list[nn.Module] = []
        size = 0
        for space in observation_space.values():
            if not _is_picture(space):
                parts.append(nn.Flatten())
                size += get_flattened_obs_dim(space)
                continue
            features = SmallPictures(space) if _is_small(space) else NatureCNN(space, 256)
            parts.append(features)
            size += features.features_dim
        super().__init__(observation_space, size)
        self.keys = tuple(observation_space)
        self.parts = nn.ModuleList(parts)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Return features `[B, features_dim]` of arrays `[B, ...]` by key, pictures in [0, 1]."""
        features = zip(self.keys, self.parts, strict=True)
        return torch.cat([part(observations[key]) for key, part in features], dim=1)


def picture_policy(space: spaces.Space[Any]) -> dict[str, Any] | None:
    """Return `policy_kwargs` for the pictures of a space; None if it has no pictures."""
    if isinstance(space, spaces.Dict):
        pictures = [part for part in space.values() if _is_picture(part)]
        if not pictures:
            return None
        small = any(map(_is_small, pictures))
        return {"features_extractor_class": PicturesByKey} if small else {}
    if not _is_picture(space):
        return None
    return {"features_extractor_class": SmallPictures} if _is_small(space) else {}


def _is_picture(space: spaces.Space[Any]) -> TypeGuard[spaces.Box]:
    return isinstance(space, spaces.Box) and is_image_space(space)


def _is_small(space: spaces.Box) -> bool:
    return sorted(space.shape)[1] < NATURE_SIDE  # the smallest size is the number of channels
