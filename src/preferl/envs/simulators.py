"""Environments by id, and rendering of them on machines without a display or graphics card."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import Error as GymnasiumError, UnregisteredEnv
from gymnasium.wrappers import TimeLimit

from preferl._optional import require
from preferl.envs.checks import Environment as Environment, callable_as, made_by, refused_kwargs
from preferl.errors import ConfigError, in_words
from preferl.printing import get_logger
from preferl.trust import meant_name

logger = get_logger(__name__)

ANT_MAZES = ("UMaze", "Medium", "Large")
"""Mazes of `preferl.envs.ant_maze`. The first one has the id `preferl/AntMaze_UMaze-v0`."""

ROBOTS = (
    *(f"AdroitHand{task}-v1" for task in ("Door", "Hammer", "Pen", "Relocate")),
    *(f"AntMaze_{maze}-v5" for maze in ANT_MAZES),
)
"""Ids that gymnasium-robotics registers."""

Rows = tuple[int, int]
"""The first row of a part of the screen, and the row after its last row."""

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
"""For each game, the rows of the screen, out of 210, that show a score, lives or counters.

A reward that sees them learns to read them. People could then not tell whether it learned anything
else.
"""


def register_worlds() -> None:
    """Register this library's ids with gymnasium.

    All functions that make environments call this.
    """
    worlds: dict[str, tuple[str, dict[str, str]]] = {
        f"preferl/{game}-v0": ("preferl.envs.atari:make_atari", {"game": game})
        for game in HIDDEN_ROWS
    }
    for maze in ANT_MAZES:
        worlds[f"preferl/AntMaze_{maze}-v0"] = ("preferl.envs.ant_maze:AntMaze", {"maze": maze})
    worlds["preferl/MovingDot-v0"] = ("preferl.envs.moving_dot:MovingDot", {})
    for env_id in worlds.keys() - gymnasium.registry.keys():
        place, kwargs = worlds[env_id]
        gymnasium.register(env_id, entry_point=place, kwargs=kwargs)


def make_registered(env_id: str, **options: Any) -> Environment:
    """Make the environment of an id, after importing the package that has it.

    Args:
        env_id: id that gymnasium or gymnasium-robotics (extra `robotics`) knows. After `module:`,
            it may also be a class or function of that module. `shimmy:dm_control/walker-walk-v0`
            and similar ids are tasks of the DeepMind Control Suite (extra `dmc`).
        **options: arguments of `gymnasium.make`, such as `render_mode`.

    Raises:
        ConfigError: there is no such environment, and the message lists similar ids; or it does not
            take the options.
        MissingExtraError: the package that has it is not installed.

    >>> make_registered("Pendulum-v1").spec.max_episode_steps
    200
    """
    _register(env_id)
    what = f"environment {env_id!r}"
    try:
        env: Environment = gymnasium.make(env_id, **options)
    except (UnregisteredEnv, ModuleNotFoundError) as error:
        module, _, name = env_id.rpartition(":")
        found = getattr(sys.modules.get(module), name, None)  # gymnasium has imported the module
        maker = callable_as(gymnasium.Env, found, module)
        if maker is None:
            raise _unknown(env_id, error) from error
        return make_by(maker, what, **options)
    except TypeError as error:
        cause = error.__cause__  # the error of the environment's constructor, see `gymnasium.make`
        if not isinstance(cause, TypeError) or "argument" not in str(cause):
            raise
        raise refused_kwargs(what, (), cause) from error
    except GymnasiumError as error:
        if fix := _meant_class(env_id):
            raise ConfigError(
                "environment: expected the id of a registered one, or module:Name, got "
                f"{env_id!r}. {fix}"
            ) from error
        raise ConfigError(
            f"{what}: expected an environment that can be made, got {in_words(error)}."
        ) from error
    return env


def make_by(
    maker: Callable[..., Any], what: str, /, *, max_episode_steps: int | None = None, **options: Any
) -> Environment:
    """Make an environment with a class or function; see `preferl.envs.checks.made_by`."""
    env = made_by(maker, what, options)
    return env if max_episode_steps is None else TimeLimit(env, max_episode_steps)


def _unknown(env_id: str, error: Exception) -> ConfigError:
    """Return the error for an unknown id, with similar ids."""
    if isinstance(error, ModuleNotFoundError):
        missing = getattr(error.__cause__, "name", None) or env_id.partition(":")[0]
        fix = _meant_class(env_id) or _nearest_module(env_id, missing)
        fix = fix or "Begin in its folder, or install it."
        return ConfigError(
            f"environment: expected a module that can be imported, got {env_id!r} (there is no "
            f"module {missing}). {fix}"
        )
    module, _, name = env_id.rpartition(":")
    expected = "the id of a registered one"
    close: list[str] = []
    if module:
        expected = f"an id that {module} registers, or a class or function of it"
        members = [key for key, value in vars(sys.modules[module]).items() if callable(value)]
        close = [f"{module}:{near}" for near in get_close_matches(name, members, n=2, cutoff=0.5)]
    ids = sorted({*gymnasium.registry, *ROBOTS})
    close += get_close_matches(name, ids, n=3 - len(close), cutoff=0.5)
    fix = "Register it before, install it, or name the class or function: module:Name."
    if close:
        fix = f"Did you mean {' or '.join(close)}?"
    return ConfigError(
        f"environment: expected {expected}, got {env_id!r}. {_meant_class(env_id) or fix}"
    )


def _meant_class(env_id: str) -> str:
    """Say what to do about a path instead of `module:Name`, with the file's class; or ""."""
    fix = meant_name(env_id)
    file = Path(env_id)
    if not fix.endswith(":Name.") or not file.is_file():
        return fix
    text = file.read_text(encoding="utf-8", errors="replace")
    environments = re.findall(r"^class (\w+)\(.*Env\b", text, re.MULTILINE)
    return f"{fix.removesuffix('Name.')}{environments[0]}." if environments else fix


def _nearest_module(env_id: str, missing: str) -> str:
    """Say which module of the current folder was meant instead of a missing one; or ""."""
    module, _, name_in_it = env_id.partition(":")
    if not f"{module}.".startswith(f"{missing}."):  # another module, which this one imports
        return f"Install {missing}, or begin in its folder."
    *parents, name = missing.split(".")
    folder = Path(*parents)
    modules = [file.stem for file in folder.glob("*.py")]
    modules += [file.parent.name for file in folder.glob("*/__init__.py")]
    nearest = get_close_matches(name, modules, n=1)
    if not nearest:
        return ""
    meant = ".".join([*parents, nearest[0]]) + module.removeprefix(missing)
    return f"Did you mean {meant}:{name_in_it}?"


def draw_off_screen() -> None:
    """Let MuJoCo and pygame draw without a display if there is none, unless variables are set.

    MuJoCo and dm_control read their variable when they are first imported.
    """
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


RUNWAY = 10.0
"""Smallest floor to run on, in metres from the middle to the edge; smaller floors are scenery."""


def draw_plainly(env: Environment) -> None:
    """Draw MuJoCo's environments fast, and keep a runner above its floor and in the picture.

    Shadows and mirrors are left out: without a GPU, they take nine tenths of the time. Floors to
    run on become endless, since a runner leaves them after seconds, and a body above nothing seems
    not to move. The camera follows the body if the environment or its model says how. Gymnasium 1.4
    would take a fixed camera.
    """
    if not is_mujoco(env):
        return
    stage: Any = env.unwrapped
    model = stage.model
    model.light_castshadow[:] = 0
    model.mat_reflectance[:] = 0
    model.vis.quality.offsamples = 0
    model.vis.rgba.haze[:3] = 0.4  # grey, since an endless floor would have a white edge
    mujoco = require("mujoco", extra="mujoco")
    planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    wide = (model.geom_size[:, :2] >= RUNWAY).all(axis=1)
    for floor in np.flatnonzero(planes & wide & (model.geom_matid >= 0)):
        material = model.geom_matid[floor]
        size = model.geom_size[floor, :2]
        if not model.mat_texuniform[material]:  # tiles then keep their size
            model.mat_texrepeat[material] /= size
            model.mat_texuniform[material] = 1
        size[:] = 0  # endless, as it is for bodies
    renderer: Any = getattr(stage, "mujoco_renderer", None)
    if getattr(renderer, "camera_id", None) == -1:
        if followed_body(env) is not None:
            tracking = {"type": mujoco.mjtCamera.mjCAMERA_TRACKING}
            renderer.default_cam_config = renderer.default_cam_config | tracking
            renderer.camera_id = None  # -1 would fix it again
        elif "track" in (names := [model.camera(number).name for number in range(model.ncam)]):
            renderer.camera_id = names.index("track")


def followed_body(env: Environment) -> int | None:
    """Return the body that a MuJoCo environment's camera follows; None if it follows none."""
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    config = getattr(renderer, "default_cam_config", None) or {}
    body = int(config.get("trackbodyid", -1))  # gymnasium's Pusher has -1, its Reacher 0
    return body if body > 0 else None


def is_mujoco(env: Environment) -> bool:
    """Whether MuJoCo simulates an environment, which then has `model` and `data`."""
    model = getattr(env.unwrapped, "model", None)
    return type(model).__module__.split(".")[0] == "mujoco"


def _register(env_id: str) -> None:
    """Let the package of an id register its ids, or else gymnasium-robotics if it is installed."""
    register_worlds()
    if env_id.startswith("shimmy:dm_control/"):
        draw_off_screen()  # dm_control chooses how to draw when it is imported
        require("dm_control", extra="dmc")  # without it, shimmy does not register these ids
        require("shimmy", extra="dmc")
    known = env_id in gymnasium.registry or ":" in env_id
    if env_id not in ROBOTS and (known or not find_spec("gymnasium_robotics")):
        return
    # Version 1.4.2 prints that the rewards of its hand environments differ from those of version
    # 1.2.0. `preferl.evaluation` corrects them, so the message would mislead.
    notice = io.StringIO()
    with contextlib.redirect_stderr(notice):
        require("gymnasium_robotics", extra="robotics")
    if notice.getvalue():
        logger.debug("%s", notice.getvalue().strip())
