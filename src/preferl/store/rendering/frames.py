"""Frame sources: a clip's pixels, its environment, pictures recorded with it, or a function.

An environment draws recorded states. Without them, it draws poses: states that look right, computed
from observations. If speeds are unknown, they are zero, since no picture shows them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Literal, cast, final

import numpy as np

from preferl._optional import require
from preferl.data.segments import Segments
from preferl.envs.simulators import Environment, draw_off_screen, is_mujoco, make_registered
from preferl.errors import ConfigError, DataError, in_words, require_in, require_one_of
from preferl.shapes import Array, FloatArray, Observations, leaves
from preferl.store.rendering.cameras import CameraFrames
from preferl.store.stages import (
    Camera,
    MujocoStage,
    Stage,
    StateStage,
    holds_pictures,
    no_graphics,
    picture_of,
)
from preferl.trust import admitted, named_object

End = Literal["last", "first"]
Colours = Literal[1, 3, 4]

FEWEST_PIXELS = 8
"""Shorter sides are channels or stacked frames, not height or width."""


FrameSource = Callable[[Segments, int], Iterable[Array]]
"""Draws the segment in a row, one picture per real step.

A picture is `[height, width, 3]`, or grey `[height, width]`, as bytes. Pictures are drawn one after
another, so that they take little memory.
"""


@final
@dataclass(frozen=True)
class PixelFrames:
    """The pictures that an agent sees.

    Raises:
        ConfigError: `channels`, `colours` or `newest` has another value than those below.

    >>> stack = np.zeros((2, 84, 84, 4), np.uint8)
    >>> stack[1, ..., 3] = 7
    >>> block = np.zeros((2, 1))
    >>> segments = Segments(stack, block, np.zeros(2), np.array([0]), np.array([2]), 2)
    >>> [(picture.shape, int(picture.max())) for picture in PixelFrames()(segments, 0)]
    [((84, 84, 1), 0), ((84, 84, 1), 7)]
    """

    key: str | None = None  # which observation is the picture; None takes the only one
    # at which end colours and stacked frames are; None takes the shorter end
    channels: End | None = None
    # 3 is RGB, 1 grey, and 4 RGB with opacity or depth, which is left out. None takes 3 if 3
    # divides the number of channels, otherwise 1, so that 4 channels are four grey frames. But None
    # takes 4 if the fourth channel never changes in a clip and others do, since opacity does not
    # change.
    colours: Colours | None = None
    newest: End = "last"  # which of stacked frames is shown, the newest one; wrappers put it last

    def __post_init__(self) -> None:
        require_one_of("channels", "last" if self.channels is None else self.channels, End)
        require_one_of("colours", 3 if self.colours is None else self.colours, Colours)
        require_one_of("newest", self.newest, End)

    def __call__(self, segments: Segments, row: int) -> Iterator[Array]:
        """Yield a picture `[height, width, 1 or 3]` per real step; `DataError` if there is none."""
        pixels = _picture_of(segments.observations, self.key)
        start = int(segments.start[row])
        steps = range(start, start + int(segments.real[row]))
        pictures = (self._channels_last(np.asarray(pixels[step])) for step in steps)
        colours = self.colours or self._colours_of(pictures)
        for step in steps:
            picture = self._channels_last(np.asarray(pixels[step]))
            yield _bytes(self._newest_of(picture, colours))

    def close(self) -> None:
        """Do nothing; other sources close their simulators here."""

    def _channels_last(self, picture: Array) -> Array:
        """Return a step's picture as `[h, w, C]`; channels may be at either end, or stacked."""
        if picture.ndim == 2:
            return picture[..., None]
        if picture.ndim == 4:
            picture = picture[-1 if self.newest == "last" else 0]
        shorter = "first" if picture.shape[0] < picture.shape[2] else "last"
        return np.moveaxis(picture, 0, -1) if (self.channels or shorter) == "first" else picture

    def _colours_of(self, pictures: Iterator[Array]) -> Colours:
        """Return the number of channels per frame in the pictures `[h, w, C]` of a clip."""
        picture = next(pictures)
        channels = picture.shape[-1]
        if channels % 3 == 0:
            return 3
        if channels == 1:
            return 1
        lowest = picture.min(axis=(0, 1))
        highest = picture.max(axis=(0, 1))
        for later in pictures:
            lowest = np.minimum(lowest, later.min(axis=(0, 1)))
            highest = np.maximum(highest, later.max(axis=(0, 1)))
        changes = highest > lowest  # [C]
        channel = channels - 1 if self.newest == "last" else 0
        opacity = channels - 1 if self.newest == "last" else 3
        if channels % 4 == 0 and changes.any() and not changes[opacity]:
            return 4
        if changes.any() and not changes[channel]:
            raise DataError(
                f"pictures of {channels} channels: channel {channel}, which would be shown, never "
                "changes in this clip, although others do. Set the number of channels per frame: "
                "`colours` is 1 for grey, 3 for RGB, 4 for RGB with opacity."
            )
        return 1

    def _newest_of(self, picture: Array, colours: Colours) -> Array:
        """Return the 1 or 3 channels of the newest frame in a picture `[h, w, C]`."""
        channels = picture.shape[-1]
        if channels % colours:
            raise DataError(
                f"channels of a picture: expected a multiple of {colours}, got {channels}."
            )
        newest_frame = picture[..., -colours:] if self.newest == "last" else picture[..., :colours]
        return newest_frame[..., :3]


def holds_pixels(observations: Observations) -> bool:
    """Whether exactly one array of observations `[T, *obs]` holds pictures of bytes."""
    return sum(map(_is_pixels, leaves(observations))) == 1


def _is_pixels(leaf: Array) -> bool:
    return leaf.dtype == np.uint8 and _is_wide(leaf)


def _is_wide(leaf: Array) -> bool:
    return leaf.ndim in (3, 4, 5) and sorted(leaf.shape[1:])[-2] >= FEWEST_PIXELS


def _picture_of(observations: Observations, key: str | None) -> Array:
    """Return the only array of pictures, or the one with this name."""
    observations_by_key = (
        observations if isinstance(observations, Mapping) else {key or "": observations}
    )
    is_picture = _is_pixels if key is None and observations_by_key is observations else _is_wide
    wide = [
        leaf
        for name, leaf in observations_by_key.items()
        if key in (None, name) and is_picture(leaf)
    ]
    if len(wide) != 1:
        shapes = ", ".join(f"{name} {leaf.shape}" for name, leaf in observations_by_key.items())
        raise DataError(
            f"pictures{'' if key is None else f' {key!r}'}: expected one array [T, height, width, "
            f"channels], got {len(wide) or 'none'} among {shapes}. Name the one to show as `key`, "
            "or let the environment draw."
        )
    return wide[0]


def _bytes(picture: Array) -> Array:
    """Return a picture of bytes, or of numbers in [0, 1], as bytes."""
    if picture.dtype == np.uint8:
        return picture
    low = picture.min()
    high = picture.max()
    if picture.dtype.kind != "f" or not (low >= 0 and high <= 1):  # NaN is outside, too
        raise DataError(
            f"pixels: expected uint8, or floats in [0, 1], got {picture.dtype} in [{low:g}, "
            f"{high:g}]. Draw with a function that scales them."
        )
    return np.asarray(np.rint(picture * 255), np.uint8)


@final
@dataclass(frozen=True)
class RecordedFrames:
    """The pictures that an environment drew while the agent acted, kept in `states`.

    `RecordsStates` records them for environments whose state cannot be set.
    """

    def __call__(self, segments: Segments, row: int) -> Iterator[Array]:
        """Yield a picture `[height, width, 3]` per real step; `DataError` if none were recorded."""
        states = segments.states
        start = int(segments.start[row])
        if states is None or not holds_pictures(states):
            raise DataError(
                "recorded pictures: expected some, got none. Record with `states=True` and "
                "`RecordsStates`, or let the environment draw."
            )
        for state in states[start : start + int(segments.real[row])]:
            yield picture_of(state)

    def close(self) -> None:
        """Do nothing; other sources close their simulators here."""


def function_frames(path: str) -> FrameSource:
    """Return the function named `module:function`. It runs here: only an operator may name it.

    Raises:
        ConfigError: there is no such function.
    """
    function = named_object(path, "frames")
    if callable(function):
        return cast("FrameSource", function)
    raise ConfigError(f"frames: expected a function, got {path!r}, a {type(function)}.")


Pose = Callable[[Environment, Array], FloatArray]
"""Maps an environment and its observations `[T, *obs]` to states `[T, state]` to draw."""


def _angles(_env: Environment, observations: Array) -> FloatArray:
    """Map cosine, sine and then speed of each angle to angles and speeds."""
    count = observations.shape[1] // 3
    cosine = observations[:, : 2 * count : 2]
    sine = observations[:, 1 : 2 * count : 2]
    return np.hstack([np.arctan2(sine, cosine), observations[:, 2 * count :]])


def _door(env: Environment, observations: Array) -> FloatArray:
    """Return poses of the hand and the door of `AdroitHandDoor-v1`.

    The observation has all joints except the slide that carries the arm to the door. It has palm
    and handle, but not the place of the door. Both missing values shift the parts behind them
    without turning them. They are therefore the difference between the observed and the computed
    site. A simulator reports sites of the substep before (2 ms), so the values are as old as that.
    """
    mujoco = require("mujoco", extra="mujoco")

    stage: Any = env.unwrapped
    model = stage.model
    data = mujoco.MjData(stage.model)
    palm = stage.grasp_site_id
    handle = stage.handle_site_id
    frame = stage.door_body_id
    stands = model.body_pos[frame].copy()
    qpos = np.zeros((len(observations), model.nq))
    qpos[:, 1:-2] = observations[:, :27]
    qpos[:, -2] = observations[:, 28]
    qpos[:, -1] = observations[:, 27]
    door = np.zeros((len(observations), 3))
    for step, seen in enumerate(observations):
        data.qpos[:] = qpos[step]
        mujoco.mj_kinematics(model, data)
        qpos[step, 0] = data.xaxis[0] @ (seen[29:32] - data.site_xpos[palm])
        door[step] = stands + seen[32:35] - data.site_xpos[handle]
    return np.concatenate([qpos, np.zeros((len(qpos), model.nv)), door], axis=1)


POSES: Mapping[str, Pose] = MappingProxyType(
    {
        **dict.fromkeys(("Acrobot-v1", "Pendulum-v1"), _angles),
        "AdroitHandDoor-v1": _door,
        **dict.fromkeys(
            ("CartPole-v0", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0"),
            lambda _, observations: observations,
        ),
    }
)
"""Functions that make states from observations, by environment id."""


@final
class EnvFrames:
    """Pictures of recorded steps, drawn by their environment from `states` or observations.

    If pictures were recorded instead of states, they are shown without the environment. The
    simulator and its graphics context are made with the first clip and kept until `close`.

    Args:
        env_id: id that gymnasium or gymnasium-robotics knows.
        size: pixels of each side, for MuJoCo; other environments choose their own size. 320 still
            shows fingers. A hundred pictures take about one second of processor time without a GPU,
            shared by all cores.
        camera: see `preferl.store.stages.view`; only for MuJoCo.
        poses: functions that make states from observations, by environment id, if no states were
            kept.

    Raises:
        ConfigError: the size is below 16.

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
        self._env_id = env_id
        self._size = size
        self._camera = camera
        self._poses = poses
        self._open: tuple[Environment, Stage] | None = None
        self._resources = ExitStack()

    def __call__(self, segments: Segments, row: int) -> Iterator[Array]:
        """Yield a picture `[height, width, 3]` per real step, as it was before the step's action.

        Raises:
            ConfigError: there is no such environment or camera, or nothing to draw with.
            DataError: neither states nor observations are enough to draw from.
        """
        if holds_pictures(segments.states):
            yield from RecordedFrames()(segments, row)
            return
        env, stage = self._open = self._open or self._start()
        start = int(segments.start[row])
        steps = slice(start, start + int(segments.real[row]))
        states = self._states(env, stage, segments, steps)
        for state, action in zip(states, segments.actions[steps], strict=True):
            yield stage.draw(state, action)

    def close(self) -> None:
        """Close the simulator and its graphics context."""
        self._open = None
        self._resources.close()

    def _start(self) -> tuple[Environment, Stage]:
        draw_off_screen()
        stage: Stage
        with ExitStack() as opening:
            env = _make(self._env_id)
            opening.callback(env.close)
            if is_mujoco(env):
                stage = MujocoStage(env, self._size, self._camera, opening)
            else:
                stage = StateStage(env)
            self._resources = opening.pop_all()
        return env, stage

    def _states(
        self, env: Environment, stage: Stage, segments: Segments, steps: slice
    ) -> FloatArray:
        """Return the states `[real, state]`: recorded, or else computed from the observations."""
        states = segments.states
        observations = segments.observations
        if states is not None:
            flat = np.asarray(states[steps], np.float64).reshape(steps.stop - steps.start, -1)
            if flat.shape[1] in stage.widths:
                return flat
        pose = self._poses.get(self._env_id)
        if pose is not None and not isinstance(observations, Mapping):
            expected = env.observation_space.shape
            if observations.shape[1:] != expected and pose is POSES.get(self._env_id):
                raise DataError(
                    f"observations of {self._env_id}: expected shape {expected}, got "
                    f"{observations.shape[1:]}. Name the environment in which they were recorded."
                )
            return pose(env, np.asarray(observations[steps], np.float64))
        wide = " or ".join(str(width) for width in stage.widths)
        raise DataError(
            f"states of {self._env_id}: expected {wide} numbers per step, as "
            "preferl.store.stages.StateReader reads them, got "
            f"{'none' if states is None else f'shape {states.shape[1:]}'}. Record states with the "
            "steps, record pixels, or draw with a function of yours. Observations are only enough "
            f"for {', '.join(POSES)}."
        )


def _make(env_id: str) -> Environment:
    """Make an environment. If MuJoCo has nothing to draw with, even its import fails."""
    try:
        return make_registered(env_id, render_mode="rgb_array")
    except Exception as error:
        if find_spec("mujoco") is not None:
            try:
                import_module("mujoco")
            except Exception as cause:
                raise no_graphics(cause) from error
        raise


ProjectFrames = PixelFrames | EnvFrames | RecordedFrames | CameraFrames
"""Kinds of sources that `frames` of a project can describe."""

KINDS: Mapping[str, Callable[..., ProjectFrames]] = {
    "pixels": PixelFrames,
    "env": EnvFrames,
    "recorded": RecordedFrames,
    "cameras": CameraFrames,
}


def frame_source(
    spec: Mapping[str, Any], *, trust: Collection[str] = (), source: str = "the project"
) -> ProjectFrames:
    """Make the source that a project's `frames` describe. Simulators start with the first clip.

    There are only four kinds, so that no text in a database can make a program run. They are
    `{"kind": "pixels"}` with the arguments of `PixelFrames`, `{"kind": "env", "env_id": ...}` with
    those of `EnvFrames`, `{"kind": "cameras", "folder": ...}` with those of `CameraFrames`, and
    `{"kind": "recorded"}`. An id such as `module:Id` is refused unless its module is in `trust` or
    in `preferl.trust.ALLOWED`. Messages name the `source` of the spec.

    Raises:
        ConfigError: the kind is another one, it does not have an argument, or a module is not
            trusted.

    >>> type(frame_source({"kind": "env", "env_id": "Pendulum-v1"})).__name__
    'EnvFrames'
    """
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind not in KINDS:
        raise ConfigError(f"kind of frames: expected one of {[*KINDS]}, got {kind}.")
    if "env_id" in options:
        admitted(options["env_id"], source=f"the `frames` of {source}", trust=trust)
    try:
        return KINDS[kind](**options)
    except TypeError as error:
        raise ConfigError(
            f"frames of kind {kind!r}: expected its arguments, got {in_words(error)}."
        ) from error


def spec_for(
    observations: Observations, env_id: str | None = None, *, recorded: bool = False
) -> dict[str, Any]:
    """Describe how clips of observations `[T, *obs]` become pictures, for `frame_source`.

    Pixels among the observations are shown. If there are none, the environment draws, or pictures
    in `states` are shown if they were `recorded`.

    Raises:
        ConfigError: there are no pixels, no environment and no recorded pictures.
    """
    if holds_pixels(observations):
        return {"kind": "pixels"}
    if recorded and env_id is None:
        return {"kind": "recorded"}
    if env_id is not None:
        return {"kind": "env", "env_id": env_id}
    raise ConfigError(
        "pictures: expected observations with pixels, or the id of an environment that draws, got "
        "neither. Name the environment, or draw with a function of yours."
    )
