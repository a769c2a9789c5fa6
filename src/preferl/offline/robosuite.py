"""The environment of robosuite in which a robomimic file was recorded.

Zhu et al. 2020, "robosuite: A Modular Simulation Framework and Benchmark for Robot Learning".
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

import gymnasium
from gymnasium.wrappers import TimeLimit

from preferl.data.sources.hdf5 import SIGNATURE, open_hdf5
from preferl.data.sources.robomimic import OBSERVATION_KEYS
from preferl.errors import DataError, MissingExtraError
from preferl.reading import parse_json

RECORDED: Final = "preferl.offline.robosuite:RecordedTask"
"""Name of `RecordedTask` for configs."""

HORIZON: Final = 500
"""Steps of an episode, as for robomimic's tasks in the table of tasks; robosuite sets no end."""

_NAME: Final = re.compile(r"[\w -]*")
"""A name that settings may hold; robosuite opens some other texts as files."""

_HEADLESS: Final = {
    "has_renderer": False,
    "has_offscreen_renderer": False,
    "use_camera_obs": False,
}


def recorded_arguments(path: str | Path) -> dict[str, Any] | None:
    """Return `env_name` and `env_kwargs` of a robomimic file; None for any other source."""
    path = Path(path)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        if file.read(len(SIGNATURE)) != SIGNATURE:
            return None
    with open_hdf5(path) as contents:
        group = contents.get("data")
        text: Any = None if group is None else group.attrs.get("env_args")
    try:
        arguments = parse_json(text)
        return {"env_name": str(arguments["env_name"]), "env_kwargs": {**arguments["env_kwargs"]}}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


@final
class RecordedTask(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The environment in which a robomimic file was recorded, with `OBSERVATION_KEYS`.

    Episodes end after `HORIZON` steps.

    Args:
        demonstrations: the file.

    Raises:
        DataError: the file does not name its environment, or names files in its settings.
        MissingExtraError: robosuite is not installed.
    """

    def __init__(self, demonstrations: str | Path) -> None:
        arguments = recorded_arguments(demonstrations)
        if arguments is None:
            raise DataError(
                f"{demonstrations}: expected a robomimic file with `env_args`, got none. Name the "
                "environment by `env`."
            )
        for text in _other_than_names(arguments):
            raise DataError(
                f"{demonstrations}: expected names of letters, digits, spaces, _ and - in "
                f"`env_args`, got {text!r}. A data file may not name other files. Name the "
                "environment by `env`."
            )
        name = arguments["env_name"]
        try:
            import robosuite
            from robosuite.wrappers import GymWrapper
        except ImportError as error:
            raise MissingExtraError(
                f"robosuite is not installed, and {demonstrations} was recorded in its environment "
                f"{name}. Run: pip install robosuite. Or name another environment by `env`, or "
                "train without evaluation: 0 episodes."
            ) from error
        settings = _with_current_controllers(arguments["env_kwargs"] | _HEADLESS)
        keys = ["object-state" if key == "object" else key for key in OBSERVATION_KEYS]
        env = GymWrapper(robosuite.make(name, **settings), keys=keys)
        super().__init__(TimeLimit(env, HORIZON))


def _other_than_names(settings: Any) -> Iterator[str]:
    """Yield the texts in nested settings that are no names, such as paths."""
    if isinstance(settings, str) and not _NAME.fullmatch(settings):
        yield settings
    elif isinstance(settings, dict):
        yield from _other_than_names([*settings, *settings.values()])
    elif isinstance(settings, list):
        for each in settings:
            yield from _other_than_names(each)


def _with_current_controllers(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings in which a controller of one arm has the form that robosuite 1.5 takes."""
    controller = settings.get("controller_configs")
    try:
        from robosuite.controllers.composite import composite_controller_factory as factory
    except ImportError:  # an older version
        return settings
    if not isinstance(controller, dict) or "body_parts" in controller:
        return settings
    robots = settings["robots"]
    robot = robots if isinstance(robots, str) else robots[0]
    changed = factory.refactor_composite_controller_config(controller, robot, ["right"])
    return settings | {"controller_configs": changed}
