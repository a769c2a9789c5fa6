"""Clips drawn again by their environment, from states or from what observations say of them.

Poses are states that look right, for recordings without states. Speeds, which no picture shows, are
zero where unknown.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, final

import numpy as np

from preferl._optional import require
from preferl.data.segments import Segments
from preferl.errors import DataError, require_in
from preferl.shapes import Array, FloatArray
from preferl.simulators import Environment, draw_off_screen, is_mujoco, make_registered
from preferl.store.stages import Camera, MujocoStage, Stage, StateStage, no_graphics

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


@final
class EnvFrames:
    """Pictures of recorded steps, drawn by their environment from `states` or observations.

    The simulator and its graphics context are made with the first clip and kept until `close`.

    Args:
        env_id: known to gymnasium, or to gymnasium-robotics.
        size: pixels of each side, for MuJoCo; other environments choose their own. 320 still
            shows fingers; a hundred pictures take about one second of processor time without a
            GPU, shared by all cores.
        camera: as `preferl.store.stages.view` takes it; only for MuJoCo.
        poses: ids to how observations are drawn where no states were kept.

    Raises:
        ConfigError: a size below 16.

    >>> source = EnvFrames("Pendulum-v1")
    >>> down, still = np.array([[-1.0, 0, 0]]), np.zeros((1, 1))
    >>> hanging = Segments(down, still, np.zeros(1), np.array([0]), np.array([1]), 1)
    >>> [picture.shape for picture in source(hanging, 0)]
    [(500, 500, 3)]
    >>> source.close()
    """

    def __init__(
        self,
        env_id: str,
        size: int = 320,
        camera: Camera | None = None,
        poses: Mapping[str, Pose] = POSES,
    ) -> None:
        require_in("size", size, 16, 2048)
        self._env_id, self._size, self._camera, self._poses = env_id, size, camera, poses
        self._open: tuple[Environment, Stage] | None = None
        self._resources = ExitStack()

    def __call__(self, segments: Segments, row: int) -> Iterator[Array]:
        """One picture `[height, width, 3]` per real step, as it was before its action.

        Raises:
            ConfigError: no such environment or camera, or nothing to draw with.
            DataError: neither states nor observations tell how things stood.
        """
        if self._open is None:
            self._open = self._start()
        env, stage = self._open
        start = int(segments.start[row])
        steps = slice(start, start + int(segments.real[row]))
        states = self._states(env, stage, segments, steps)
        for state, action in zip(states, segments.actions[steps], strict=True):
            yield stage.draw(state, action)

    def close(self) -> None:
        """Let go of the simulator and its graphics context."""
        self._open = None
        self._resources.close()

    def _start(self) -> tuple[Environment, Stage]:
        draw_off_screen()
        with ExitStack() as opening:
            env = _make(self._env_id)
            opening.callback(env.close)
            stage: Stage = (
                MujocoStage(env, self._size, self._camera, opening)
                if is_mujoco(env)
                else StateStage(env)
            )
            self._resources = opening.pop_all()
        return env, stage

    def _states(
        self, env: Environment, stage: Stage, segments: Segments, steps: slice
    ) -> FloatArray:
        """`[real, state]` recorded, or else what the observations say."""
        kept = segments.states
        if kept is not None:
            flat = np.asarray(kept[steps], np.float64).reshape(steps.stop - steps.start, -1)
            if flat.shape[1] in stage.widths():
                return flat
        pose, seen = self._poses.get(self._env_id), segments.observations
        if pose is not None and not isinstance(seen, Mapping):
            if pose is POSES.get(self._env_id):
                _check_observations(self._env_id, env, seen)
            return pose(env, np.asarray(seen[steps], np.float64))
        wide = " or ".join(str(width) for width in stage.widths())
        raise DataError.mismatch(
            f"states of {self._env_id}",
            expected=f"{wide} numbers per step, as preferl.store.stages.StateReader reads them",
            got="none" if kept is None else f"shape {kept.shape[1:]}",
            fix="Record states with the steps, record pixels, or draw with a function of yours "
            f"(observations alone are enough for {', '.join(POSES)}).",
        )


def _check_observations(env_id: str, env: Environment, seen: Array) -> None:
    """Raise `DataError` where observations are surely not of this environment."""
    if seen.shape[1:] != env.observation_space.shape:
        raise DataError.mismatch(
            f"observations of {env_id}",
            expected=f"shape {env.observation_space.shape}",
            got=f"{seen.shape[1:]}",
            fix="Name the environment in which they were recorded.",
        )


def _make(env_id: str) -> Environment:
    """Make an environment; where MuJoCo lacks what it draws with, even its import fails."""
    try:
        return make_registered(env_id, render_mode="rgb_array")
    except Exception as error:
        if find_spec("mujoco") is not None:
            try:
                import_module("mujoco")
            except Exception as cause:
                raise no_graphics(cause) from error
        raise
