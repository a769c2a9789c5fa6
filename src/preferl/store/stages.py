"""Draw recorded states of simulators for people to compare, without simulating them again.

`StateReader` reads the states. For MuJoCo, a state is `[qpos, qvel, placed]`. `placed` holds the
places of objects without joints that the environment moves in each episode, such as the door of
`AdroitHandDoor-v1`. For classic control, the state is the environment's own `state`. If an
environment's state cannot be set, the state is the picture itself, recorded while the agent acts.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Final, final

import gymnasium
import numpy as np

from preferl._optional import require
from preferl.envs.simulators import (
    Environment,
    draw_off_screen,
    draw_plainly,
    followed_body,
    is_mujoco,
)
from preferl.errors import ConfigError
from preferl.shapes import Array, FloatArray, IntArray
from preferl.video import decode_picture, encode_picture

Camera = str | dict[str, Any]
"""A camera: its name in the model, or settings that differ from the environment's own camera."""

FREE = ("lookat", "distance", "azimuth", "elevation", "trackbodyid")
"""Settings of a free camera: a point, metres from it, two angles in degrees, a body to follow."""

_DOOR = {"lookat": [0.02, -0.07, 0.25], "distance": 1.4, "azimuth": 68.0, "elevation": -33.0}
CAMERAS: Mapping[str, Camera] = MappingProxyType({"AdroitHandDoor-v1": _DOOR})
"""Views of hand and object by environment id, if one hides the other in the usual view."""

PLACES = ("body_pos", "body_quat", "geom_pos", "site_pos")
"""Arrays of a model with which environments place things that have no joint."""

PICTURE_BYTES: Final = 8_192
"""Size in bytes of each picture that is recorded while an agent acts; 1,000 steps take 8 MB."""


def view(env: Environment, camera: Camera | None) -> Any:
    """Return a camera of a MuJoCo environment, after its reset, for MuJoCo's renderer.

    `camera` is a name in the model, or settings that differ from the environment's own view; `{}`
    is that view. None takes the camera of `CAMERAS`. If there is none, it takes one that follows
    the body, if the environment has one, so that walkers stay in the picture. `ConfigError` is
    raised for a camera or body that the model does not have, and for an unknown setting.
    """
    stage: Any = env.unwrapped
    names = [stage.model.camera(number).name for number in range(stage.model.ncam)]
    default_camera = (
        getattr(getattr(stage, "mujoco_renderer", None), "default_cam_config", None) or {}
    )
    if camera is None:
        camera = CAMERAS.get(env.spec.id if env.spec else "")
    if camera is None and (body := followed_body(env)) is not None:
        camera = {"trackbodyid": body}
    elif camera is None:
        camera = "track" if "track" in names else {}
    if isinstance(camera, str):
        if camera not in names:
            raise ConfigError(f"camera: expected one of {names}, got {camera!r}.")
        return camera
    if unknown := set(camera) - set(FREE):
        raise ConfigError(f"camera: expected some of {FREE}, got {sorted(unknown)}.")
    body = camera.get("trackbodyid", 0)  # MuJoCo would end the process for a wrong one
    bodies = range(stage.model.nbody)
    if body not in bodies:
        raise ConfigError(f"camera's trackbodyid: expected 0 to {bodies[-1]}, got {body}.")
    mujoco = require("mujoco", extra="mujoco")
    free = mujoco.MjvCamera()
    kinds = mujoco.mjtCamera
    free.type = kinds.mjCAMERA_TRACKING if "trackbodyid" in camera else kinds.mjCAMERA_FREE
    free.lookat[:] = np.median(stage.data.geom_xpos, axis=0)
    free.distance = stage.model.stat.extent
    for name, value in {**default_camera, **camera}.items():
        if name in FREE:
            setattr(free, name, np.asarray(value) if name == "lookat" else value)
    return free


@final
class MujocoStage:
    """Draws MuJoCo states in squares of `size` pixels, without shadows, mirrors and smoothed edges.

    The environment is reset. `resources` closes the graphics context. `ConfigError` is raised for a
    camera that `view` refuses, and on a machine that cannot draw.
    """

    def __init__(
        self, env: Environment, size: int, camera: Camera | None, resources: ExitStack
    ) -> None:
        mujoco = require("mujoco", extra="mujoco")
        stage: Any = env.unwrapped
        self._placed = placed(env)
        self._model = stage.model
        self._data = stage.data
        sizes = [self._model.nq, self._model.nv, *(len(rows) for _, rows in self._placed)]
        self._ends: list[int] = np.cumsum(sizes).tolist()
        # widths of states; some also begin with the time
        self.widths = (self._ends[-1], 1 + self._ends[-1])
        self._forward = mujoco.mj_forward
        self._camera = view(env, camera)
        draw_plainly(env)
        buffer = self._model.vis.global_
        buffer.offwidth = max(size, buffer.offwidth)
        buffer.offheight = max(size, buffer.offheight)
        try:
            self._renderer = resources.enter_context(mujoco.Renderer(self._model, size, size))
        except Exception as error:  # each way of drawing has its own errors
            raise no_graphics(error) from error

    def draw(self, state: Array, action: Array) -> Array:
        """Draw a state. The action is not shown."""
        del action
        parts = np.split(state[-self._ends[-1] :], self._ends[:-1])
        self._data.qpos[:], self._data.qvel[:], *parts = parts
        for (name, rows), part in zip(self._placed, parts, strict=True):
            getattr(self._model, name).reshape(-1)[rows] = part
        self._forward(self._model, self._data)
        self._renderer.update_scene(self._data, self._camera)
        return np.asarray(self._renderer.render())


@final
class StateStage:
    """Draws environments that keep their whole state in `state`, as classic control does."""

    def __init__(self, env: Environment) -> None:
        env.reset(seed=0)
        self._env: Environment = env
        self._stage: Any = env.unwrapped
        self.widths = (len(_state(self._stage)),)  # widths of states

    def draw(self, state: Array, action: Array) -> Array:
        """Draw a state. A pendulum also shows the torque that will act next."""
        self._stage.state = np.asarray(state, np.float64)
        if hasattr(self._stage, "last_u"):
            limit = self._stage.max_torque
            self._stage.last_u = float(np.clip(np.ravel(action)[0], -limit, limit))
        return np.asarray(self._env.render(), np.uint8)


Stage = MujocoStage | StateStage
"""Draws states of one environment."""


@final
class StateReader:
    """Reads an environment's state for a clip's `states`, so that it can be drawn again.

    For registered environments of MuJoCo and classic control, it reads their state. It does the
    same for other environments, if setting their `state` gives the same pictures. For any other
    environment made with `render_mode="rgb_array"`, it reads the picture itself.

    Args:
        env: the environment. The reader may reset it to find out what its pictures depend on, and
            restores its generator. Therefore make the reader before an episode.

    >>> import gymnasium
    >>> env = gymnasium.make("CartPole-v1")
    >>> read = StateReader(env)
    >>> observation, _ = env.reset(seed=0)
    >>> bool(np.allclose(read(), observation))
    True
    """

    def __init__(self, env: Environment) -> None:
        self._stage: Any = env.unwrapped
        is_drawable = env.render_mode == "rgb_array"
        simulated = is_mujoco(env)
        if is_drawable:
            draw_off_screen()
        has_state = self._stage.spec is not None and (
            simulated or (is_drawable and _shows_state(env))
        )
        self._drawn = env if is_drawable and not has_state else None
        self._placed = placed(env) if simulated and self._drawn is None else None

    def __call__(self) -> Array:
        """Return the current `[state]`; raise `ConfigError` if there is no state and no picture."""
        if self._drawn is not None:
            return picture_state(self._drawn.render())
        if self._placed is None:
            return np.array(_state(self._stage), np.float64).ravel()
        model = self._stage.model
        data = self._stage.data
        placed_arrays = [getattr(model, name).reshape(-1)[rows] for name, rows in self._placed]
        return np.concatenate([data.qpos, data.qvel, *placed_arrays])


@contextmanager
def _generator_left_alone(stage: Any) -> Iterator[None]:
    """Restore an environment's generator after the block; seeded resets inside replace it."""
    generator = stage._np_random
    seed = stage._np_random_seed
    try:
        yield
    finally:
        stage._np_random = generator
        stage._np_random_seed = seed


def _shows_state(env: Environment) -> bool:
    """Whether pictures depend only on the id and `state`; the environment's generator is restored.

    This holds for gymnasium's own environments that have a `state`.
    """
    stage: Any = env.unwrapped
    try:
        with _generator_left_alone(stage):
            if type(stage).__module__.split(".")[0] == "gymnasium":
                env.reset(seed=0)
                return getattr(stage, "state", None) is not None
            return _shows_the_same(env)
    except Exception:  # environments raise errors of any class for a state
        return False


def _shows_the_same(env: Environment) -> bool:
    """Whether states that are set in another episode give the same pictures as in their own one."""
    stage: Any = env.unwrapped
    arguments = stage.spec.kwargs
    usual = gymnasium.registry[stage.spec.id].kwargs
    if {**arguments, "render_mode": None} != {**usual, "render_mode": None}:
        return False  # its id alone would make a different environment
    actions = deepcopy(env.action_space)
    actions.seed(0)
    renderings: list[tuple[FloatArray, Any]] = []
    for seed in range(3):
        env.reset(seed=seed)
        renderings.append((np.array(_state(stage), np.float64).ravel(), env.render()))
        env.step(actions.sample())
        renderings.append((np.array(_state(stage), np.float64).ravel(), env.render()))
    env.reset(seed=3)
    for state, picture in renderings:
        stage.state = state
        if not np.array_equal(np.asarray(env.render()), np.asarray(picture)):
            return False
    return True


def picture_state(picture: Any) -> Array:
    """Return a frame `[height, width, 3]` as a JPEG in `[PICTURE_BYTES]`, padded with zeros."""
    is_picture = isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.dtype == np.uint8
    if not is_picture:
        raise ConfigError(
            "what the environment renders: expected a picture [height, width, 3] of bytes, got "
            f"{type(picture).__name__}. Return a picture from `render`."
        )
    data = np.frombuffer(encode_picture(picture[..., :3], PICTURE_BYTES), np.uint8)
    return np.pad(data, (0, PICTURE_BYTES - len(data)))


def holds_pictures(states: Array | None) -> bool:
    """Whether states `[T, state]` are recorded pictures."""
    return states is not None and states.dtype == np.uint8 and states.shape[1:] == (PICTURE_BYTES,)


def picture_of(state: Array) -> Array:
    """Return the picture `[height, width, 3]` from which `picture_state` made a state."""
    return decode_picture(np.asarray(state).tobytes().rstrip(b"\0"))


def placed(env: Environment) -> list[tuple[str, IntArray]]:
    """Find what a MuJoCo environment moves in each episode: names of arrays, and flat indices.

    The function begins two episodes and compares them. It restores the environment's generator.
    """
    stage: Any = env.unwrapped
    seen = []
    with _generator_left_alone(stage):
        for seed in (0, 1):
            env.reset(seed=seed)
            seen.append({name: getattr(stage.model, name).copy() for name in PLACES})
    # If one coordinate of an object differs, all its coordinates are kept.
    differ = {name: (seen[0][name] != seen[1][name]) for name in PLACES}  # [things, 3 or 4]
    whole = {name: rows | rows.any(axis=1, keepdims=True) for name, rows in differ.items()}
    return [(name, np.flatnonzero(rows)) for name, rows in whole.items() if rows.any()]


def no_graphics(error: Exception) -> ConfigError:
    """Return the error for a machine on which MuJoCo cannot draw."""
    return ConfigError(
        "drawing with MuJoCo: expected a library that draws without a display, got "
        f"{type(error).__name__}: {error}. Run: apt-get install -y libegl1 libgl1-mesa-dri. Set "
        "MUJOCO_GL=egl if this program imported mujoco before."
    )


def _state(stage: Any) -> Any:
    """Return a classic control environment's state, which exists after an episode has begun."""
    state = getattr(stage, "state", None)
    if state is None:
        raise ConfigError(
            "environment: expected an environment of MuJoCo, one that draws pictures, or one that "
            f"has `state` after a reset like classic control, got {type(stage).__name__}. Make it "
            'with render_mode="rgb_array", or record pixels.'
        )
    return state
