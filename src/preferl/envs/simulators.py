"""Environments by their id, and rendering them on machines without display or graphics card."""

import contextlib
import io
import logging
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import gymnasium
from gymnasium.error import Error as GymnasiumError
from gymnasium.error import UnregisteredEnv

from preferl._optional import require
from preferl.errors import ConfigError

logger = logging.getLogger(__name__)

Environment = gymnasium.Env[Any, Any]

ROBOTS = tuple(f"AdroitHand{task}-v1" for task in ("Door", "Hammer", "Pen", "Relocate"))
"""Ids that gymnasium-robotics registers."""

Rows = tuple[int, int]
"""The first row of the screen and the one after the last."""

HIDDEN_ROWS: Mapping[str, tuple[Rows, ...]] = MappingProxyType(
    {
        "BeamRider": ((0, 43), (181, 193)),  # score, sector, ships to come; ships left
        "Breakout": ((0, 17),),  # score, lives, player
        "Enduro": ((155, 210),),  # distance, cars to pass, day
        "Pong": ((0, 24),),  # points of both players
        "Qbert": ((0, 29),),  # score; lives
        "Seaquest": ((0, 31),),  # score; lives
        "SpaceInvaders": ((0, 21),),  # scores of both players
    }
)
"""Games to the rows of the screen, of 210, that show a score, lives or counters: a reward that
can read them learns to read them, and people cannot tell whether it learned anything else."""


def register_worlds() -> None:
    """Register our own ids with gymnasium; whatever makes environments here does so."""
    worlds: dict[str, tuple[str, dict[str, str]]] = {
        f"preferl/{game}-v0": ("preferl.envs.atari:make_atari", {"game": game})
        for game in HIDDEN_ROWS
    }
    worlds["preferl/MovingDot-v0"] = ("preferl.envs.moving_dot:MovingDot", {})
    for env_id in worlds.keys() - gymnasium.registry.keys():
        place, kwargs = worlds[env_id]
        gymnasium.register(env_id, entry_point=place, kwargs=kwargs)


def make_registered(env_id: str, **options: Any) -> Environment:
    """Make the environment of an id, once the package that has it is imported.

    Args:
        env_id: known to gymnasium, or to gymnasium-robotics (extra `robotics`).
        **options: passed to `gymnasium.make`, such as `render_mode`.

    Raises:
        ConfigError: no such environment; the message lists ids that look alike.
        MissingExtraError: the package that has it is not installed.

    >>> make_registered("Pendulum-v1").spec.max_episode_steps
    200
    """
    _register(env_id)
    try:
        env: Environment = gymnasium.make(env_id, **options)
    except (UnregisteredEnv, ModuleNotFoundError) as error:
        known = sorted({*gymnasium.registry, *ROBOTS})
        close = " or ".join(get_close_matches(env_id, known, n=3, cutoff=0.5))
        fix = f"Did you mean {close}?" if close else "Register it before, or install it."
        expected, got = "the id of a registered one", f"{env_id!r} ({error})"
        raise ConfigError.mismatch("environment", expected=expected, got=got, fix=fix) from error
    except GymnasiumError as error:
        what = f"environment {env_id!r}"
        raise ConfigError.mismatch(what, expected="one that can be made", got=error) from error
    return env


def draw_off_screen() -> None:
    """Let MuJoCo and pygame draw without a display where there is none, unless variables are set.

    MuJoCo reads the variable when it is first imported.
    """
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def draw_plainly(env: Environment) -> None:
    """Leave out MuJoCo's shadows and mirrors, nine tenths of its time without a GPU."""
    if is_mujoco(env):
        model: Any = getattr(env.unwrapped, "model", None)
        model.light_castshadow[:] = 0
        model.mat_reflectance[:] = 0
        model.vis.quality.offsamples = 0


def is_mujoco(env: Environment) -> bool:
    """Whether MuJoCo simulates it, so that it has `model` and `data`."""
    model = getattr(env.unwrapped, "model", None)
    return type(model).__module__.split(".")[0] == "mujoco"


def _register(env_id: str) -> None:
    """Let the package of an id, or else gymnasium-robotics where it is installed, register."""
    register_worlds()
    known = env_id in gymnasium.registry or ":" in env_id
    if env_id not in ROBOTS and (known or not find_spec("gymnasium_robotics")):
        return
    # Version 1.4.2 prints that the rewards of its hand environments differ from those of version
    # 1.2.0. `preferl.evaluation` corrects them, so that it would mislead.
    notice = io.StringIO()
    with contextlib.redirect_stderr(notice):
        require("gymnasium_robotics", extra="robotics")
    if notice.getvalue():
        logger.debug("%s", notice.getvalue().strip())
