"""From where a MuJoCo scene is looked at, so that a person can judge it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from preferl._optional import require
from preferl.errors import ConfigError
from preferl.simulators import Environment

Camera = str | dict[str, Any]
"""The name of a camera of the model, or where a free one differs from the environment's own."""

FREE = ("lookat", "distance", "azimuth", "elevation", "trackbodyid")
"""What a free camera has: a point and metres from it, two angles in degrees, a body to follow."""

CAMERAS: Mapping[str, Camera] = MappingProxyType(
    {
        "AdroitHandDoor-v1": {
            "lookat": [0.02, -0.07, 0.25],
            "distance": 1.4,
            "azimuth": 68.0,
            "elevation": -33.0,
        }
    }
)
"""Ids to views of hand and object where the environment's own hides one behind the other."""


def view(env: Environment, camera: Camera | None) -> Any:
    """A camera as MuJoCo's renderer takes it.

    Args:
        env: a MuJoCo environment, after a reset.
        camera: the name of one in the model; or what differs from the environment's own view,
            `{}` for that view; or None: ours where `CAMERAS` has one, otherwise one that follows
            the body where the environment has it, so that walkers do not leave the picture.

    Raises:
        ConfigError: a camera that the model does not have, or not such a setting.
    """
    stage: Any = env.unwrapped
    names = [stage.model.camera(number).name for number in range(stage.model.ncam)]
    own = getattr(getattr(stage, "mujoco_renderer", None), "default_cam_config", None) or {}
    if camera is None:
        camera = CAMERAS.get(env.spec.id if env.spec else "")
    if camera is None and "trackbodyid" in own:
        camera = {"trackbodyid": own["trackbodyid"]}
    elif camera is None:
        camera = "track" if "track" in names else {}
    if isinstance(camera, str):
        if camera not in names:
            raise ConfigError.mismatch("camera", expected=f"one of {names}", got=repr(camera))
        return camera
    unknown = set(camera) - set(FREE)
    if unknown:
        raise ConfigError.mismatch("camera", expected=f"some of {FREE}", got=sorted(unknown))
    return _free(stage, {**own, **camera}, follows="trackbodyid" in camera)


def _free(stage: Any, settings: Mapping[str, Any], *, follows: bool) -> Any:
    mujoco = require("mujoco", extra="mujoco")

    camera = mujoco.MjvCamera()
    kinds = mujoco.mjtCamera
    camera.type = kinds.mjCAMERA_TRACKING if follows else kinds.mjCAMERA_FREE
    camera.lookat[:] = np.median(stage.data.geom_xpos, axis=0)
    camera.distance = stage.model.stat.extent
    for name in FREE:
        if name in settings:
            setattr(
                camera, name, np.asarray(settings[name]) if name == "lookat" else settings[name]
            )
    return camera
