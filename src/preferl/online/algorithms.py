"""Algorithms of stable-baselines3 and environments, built from their settings."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Final, final

import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv
from torch import Tensor, nn

from preferl.envs.checks import Environment
from preferl.envs.config import EnvSource, VecEnvKind
from preferl.envs.factory import make_env
from preferl.errors import ConfigError, require_in, require_one_of
from preferl.online.configs import AlgorithmConfig
from preferl.registry import ALGORITHMS
from preferl.training.configs import usable_device
from preferl.trust import safe_children

NATURE_SIDE: Final = 36
"""Pixels on a side that stable-baselines3's network needs (that of Mnih et al. 2015)."""


def build_algorithm(
    config: AlgorithmConfig, env: VecEnv, *, seed: int, device: str = "cpu"
) -> BaseAlgorithm:
    """An algorithm on an environment, quiet, with a policy that suits its observations.

    The config is of a kind that `preferl.registry.ALGORITHMS` has: `hidden` in it are the units of
    each layer, all else is what the algorithm's constructor takes. SB3 seeds torch and numpy
    globally. Actions that the algorithm cannot take, and a device that torch lacks, are a
    `ConfigError`.
    """
    device = usable_device(device)
    settings, seen = asdict(config), env.observation_space
    hidden = settings.pop("hidden", None)
    pictures = picture_policy(seen)
    policy = "MultiInputPolicy" if isinstance(seen, spaces.Dict) else "MlpPolicy"
    policy = policy if pictures is None else "CnnPolicy"
    network = ({} if hidden is None else {"net_arch": list(hidden)}) | (pictures or {})
    cls: Any = ALGORITHMS.load(ALGORITHMS.name_of(config))
    try:
        algorithm: BaseAlgorithm = cls(
            policy, env, seed=seed, device=device, policy_kwargs=network, **settings
        )
    except AssertionError as error:  # so stable-baselines3 refuses a space
        expected = "a space that it takes"
        what = f"actions for {cls.__name__}"
        raise ConfigError.mismatch(what, expected=expected, got=error, fix="Use PPO.") from error
    return algorithm


def make_environments(
    env: EnvSource,
    count: int,
    *,
    seed: int,
    wrap: Callable[[Environment], Environment] | None = None,
    vec_env: VecEnvKind = "dummy",
) -> VecEnv:
    """Several copies of an environment, seeded in a row, each inside of a monitor and of `wrap`.

    Args:
        env: as of `preferl.envs.config.EnvConfig`; of a run's settings, `env_factory(config)`.
        count: `V`.
        seed: of the first copy; each later one adds 1.
        wrap: wraps each copy last.
        vec_env: "dummy" steps them in turn, "subproc" each in a process of its own, for which a
            script needs `if __name__ == "__main__":`.

    Raises:
        ConfigError: no such environment, fewer than one copy, or a process that ended.
    """
    require_in("environments", count, 1, float("inf"))
    require_one_of("vec_env", vec_env, VecEnvKind)
    kind = DummyVecEnv if vec_env == "dummy" else SubprocVecEnv
    try:
        with safe_children():
            make = partial(make_env, env)
            return make_vec_env(make, count, seed=seed, wrapper_class=wrap, vec_env_cls=kind)
    except (EOFError, ConnectionError) as error:
        expected, got = f"{count} processes with an environment each", "one that ended"
        fix = 'Guard the script with `if __name__ == "__main__":`, or choose "dummy".'
        raise ConfigError.mismatch("vec_env", expected=expected, got=got, fix=fix) from error


def use_threads(count: int) -> None:
    """Let torch use `count` processor threads; one is fastest for networks of these sizes."""
    torch.set_num_threads(count)


@final
class SmallPictures(BaseFeaturesExtractor):
    """Two convolutions and a dense layer, for pictures of 8 to 35 pixels on a side.

    They have their channels first, as stable-baselines3 turns them.
    """

    def __init__(self, observation_space: spaces.Box, features_dim: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        channels = observation_space.shape[0]
        convolutions = nn.Sequential(
            nn.Conv2d(channels, 16, 4, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        size = convolutions(torch.zeros(1, *observation_space.shape)).shape[1]
        self.layers = nn.Sequential(convolutions, nn.Linear(size, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        """Pictures `[B, channels, height, width]` in [0, 1] to `[B, features_dim]`."""
        features: Tensor = self.layers(observations)
        return features


def picture_policy(space: spaces.Space[Any]) -> dict[str, Any] | None:
    """What stable-baselines3 is to build for pictures of this space; None if it holds none."""
    if not (isinstance(space, spaces.Box) and is_image_space(space)):
        return None
    side = sorted(space.shape)[1]  # the smallest is the number of channels
    return {} if side >= NATURE_SIDE else {"features_extractor_class": SmallPictures}
