"""What an observation says of how things stand, where a recording kept no simulator states.

Poses are states that look right. Speeds, which no picture shows, are zero where unknown.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from preferl._optional import require
from preferl.shapes import Array, FloatArray
from preferl.simulators import Environment

Pose = Callable[[Environment, Array], FloatArray]
"""An environment and observations `[T, *obs]` of it to states `[T, state]` as it draws them."""


def _as_it_is(env: Environment, observations: Array) -> FloatArray:
    del env
    return np.asarray(observations, np.float64)


def _pendulum(env: Environment, observations: Array) -> FloatArray:
    """Cosine, sine and speed to angle and speed."""
    del env
    return np.stack([_angle(observations[:, 0:2]), observations[:, 2]], axis=1)


def _acrobot(env: Environment, observations: Array) -> FloatArray:
    """Cosine and sine of two angles, and their speeds, to angles and speeds."""
    del env
    angles = [_angle(observations[:, 0:2]), _angle(observations[:, 2:4])]
    return np.concatenate([np.stack(angles, axis=1), observations[:, 4:6]], axis=1)


def _angle(cosine_and_sine: Array) -> FloatArray:
    return np.asarray(np.arctan2(cosine_and_sine[:, 1], cosine_and_sine[:, 0]))


def _door(env: Environment, observations: Array) -> FloatArray:
    """The hand and the door of `AdroitHandDoor-v1`.

    The observation holds all joints but the slide that carries the arm to the door, and it holds
    palm and handle, but not where the door stands. Both missing values shift what hangs on them
    without turning it, so that the difference between observed and computed site gives them.
    A simulator reports sites of the substep before (2 ms), and so old is what they give.
    """
    mujoco = require("mujoco", extra="mujoco")

    stage: Any = env.unwrapped
    model, data = stage.model, mujoco.MjData(stage.model)
    palm, handle, frame = stage.grasp_site_id, stage.handle_site_id, stage.door_body_id
    stands = model.body_pos[frame].copy()
    qpos = np.zeros((len(observations), model.nq))
    qpos[:, 1:-2] = observations[:, :27]
    qpos[:, -2], qpos[:, -1] = observations[:, 28], observations[:, 27]
    door = np.zeros((len(observations), 3))
    for step, seen in enumerate(observations):
        data.qpos[:] = qpos[step]
        mujoco.mj_kinematics(model, data)
        qpos[step, 0] = data.xaxis[0] @ (seen[29:32] - data.site_xpos[palm])
        door[step] = stands + seen[32:35] - data.site_xpos[handle]
    return np.concatenate([qpos, np.zeros((len(qpos), model.nv)), door], axis=1)


POSES: Mapping[str, Pose] = MappingProxyType(
    {
        "Acrobot-v1": _acrobot,
        "AdroitHandDoor-v1": _door,
        "CartPole-v0": _as_it_is,
        "CartPole-v1": _as_it_is,
        "MountainCar-v0": _as_it_is,
        "MountainCarContinuous-v0": _as_it_is,
        "Pendulum-v1": _pendulum,
    }
)
"""Ids to how their observations are drawn."""
