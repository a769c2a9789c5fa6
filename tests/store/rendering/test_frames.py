from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from helpers.gardens import Garden
from preferl.data.segments import Segments
from preferl.envs.simulators import draw_off_screen, draw_plainly, make_registered
from preferl.errors import ConfigError, DataError
from preferl.store.rendering.frames import (
    POSES,
    EnvFrames,
    PixelFrames,
    RecordedFrames,
    frame_source,
    function_frames,
    holds_pixels,
    spec_for,
)
from preferl.store.stages import StateReader, picture_state, placed

BLOCK = np.zeros((3, 1))
SEGMENTS = Segments(BLOCK, BLOCK, np.zeros(3), np.array([0]), np.array([3]), 3)


def grey(segments, row):
    return np.full((segments.real[row], 16, 16), 7, np.uint8)


def test_a_function_draws():
    source = function_frames(f"{__name__}:grey")
    assert [int(picture.mean()) for picture in source(SEGMENTS, 0)] == [7, 7, 7]


def test_paths_that_lead_to_no_function():
    names = ("nowhere:draw", "math:draw", "math", ":", "", "math:pi", f"{__name__}:BLOCK")
    for path in names:
        with pytest.raises(ConfigError, match="frames"):
            function_frames(path)


def test_sources_by_what_a_project_names():
    assert isinstance(frame_source({"kind": "pixels", "newest": "first"}), PixelFrames)
    assert isinstance(frame_source({"kind": "env", "env_id": "CartPole-v1"}), EnvFrames)
    for wrong in ({}, {"kind": "function", "path": "os:getcwd"}, {"kind": "pixels", "size": 3}):
        with pytest.raises(ConfigError, match="frames"):
            frame_source(wrong)


def test_pixels_are_shown_and_other_clips_drawn():
    pixels = np.zeros((2, 16, 16, 3), np.uint8)
    assert spec_for(pixels, "CartPole-v1") == {"kind": "pixels"}
    spec = spec_for(BLOCK, "CartPole-v1")
    assert spec == {"kind": "env", "env_id": "CartPole-v1"}
    assert spec_for(BLOCK, "CartPole-v1", recorded=True) == spec
    assert spec_for(BLOCK, recorded=True) == {"kind": "recorded"}
    assert isinstance(frame_source(spec), EnvFrames)
    with pytest.raises(ConfigError, match="pictures"):
        spec_for(BLOCK)


def _drawn(pictures, **options):
    clip = one_segment(pictures, np.zeros((len(pictures), 1)))
    return list(PixelFrames(**options)(clip, 0))


@pytest.mark.parametrize("opacity", [0, 255])
@pytest.mark.parametrize("end", ["first", "last"])
def test_opacity_that_never_changes_is_not_shown(rng, opacity, end):
    pictures = rng.integers(0, 256, (3, 16, 16, 4), dtype=np.uint8)
    pictures[..., 3] = opacity
    seen = pictures if end == "last" else np.moveaxis(pictures, -1, 1)
    np.testing.assert_array_equal(_drawn(seen), pictures[..., :3])


def test_stacks_of_pictures_with_opacity_show_the_newest(rng):
    pictures = rng.integers(0, 256, (3, 16, 16, 8), dtype=np.uint8)
    pictures[..., [3, 7]] = 255
    np.testing.assert_array_equal(_drawn(pictures), pictures[..., 4:7])
    np.testing.assert_array_equal(_drawn(pictures, newest="first"), pictures[..., :3])


def test_pictures_whose_shown_channel_never_changes_are_refused(rng):
    pictures = rng.integers(0, 256, (3, 16, 16, 2), dtype=np.uint8)
    pictures[..., 1] = 255
    with pytest.raises(DataError, match="channel 1, which would be shown, never changes"):
        _drawn(pictures)
    assert int(_drawn(np.zeros_like(pictures))[0].max()) == 0


def segments_of(observations, steps=4):
    """Two segments: steps 1 and 2, and padded step 3."""
    block = np.zeros((steps, 1))
    return Segments(observations, block, np.zeros(steps), np.array([1, 3]), np.array([2, 1]), 2)


def numbered(*shape):
    """`[4, *shape]` whose values encode step, row and column."""
    return np.arange(4 * int(np.prod(shape))).reshape(4, *shape).astype(np.uint8)


@pytest.mark.parametrize(
    ("shape", "options", "shown"),
    [
        ((12, 10), {}, lambda one: one[..., None]),
        ((12, 10, 3), {}, lambda one: one),
        ((12, 10, 4), {}, lambda one: one[..., 3:]),
        ((12, 10, 4), {"newest": "first"}, lambda one: one[..., :1]),
        ((12, 10, 4), {"colours": 4}, lambda one: one[..., :3]),
        ((12, 10, 3), {"colours": 1}, lambda one: one[..., 2:]),
        ((1, 12, 10), {}, lambda one: one.transpose(1, 2, 0)),
        ((9, 12, 10), {}, lambda one: one[6:].transpose(1, 2, 0)),
        (
            (12, 10, 12),
            {"channels": "first", "colours": 4},
            lambda one: one[8:11].transpose(1, 2, 0),
        ),
        ((2, 12, 10, 3), {"newest": "first"}, lambda one: one[0]),
        ((2, 3, 12, 10), {}, lambda one: one[1].transpose(1, 2, 0)),
    ],
)
def test_the_newest_frame_is_shown(shape, options, shown):
    pixels = numbered(*shape)
    source = PixelFrames(**options)
    pictures = list(source(segments_of(pixels), 0))
    assert len(pictures) == 2
    for picture, step in zip(pictures, (1, 2), strict=True):
        np.testing.assert_array_equal(picture, shown(pixels[step]))
    assert len(list(source(segments_of(pixels), 1))) == 1
    source.close()


def test_floats_become_bytes():
    ramp = np.broadcast_to(np.linspace(0, 1, 256).reshape(16, 16, 1), (4, 16, 16, 1))
    picture = next(PixelFrames()(segments_of(ramp), 0))
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(picture.ravel(), np.arange(256))
    for wrong in (ramp * 255, ramp - 0.1, ramp * np.nan, (ramp * 255).astype(np.int64)):
        with pytest.raises(DataError, match=r"pixels|floats in \[0, 1\]"):
            next(PixelFrames()(segments_of(wrong), 0))


def test_one_of_several_observations():
    pixels = numbered(12, 10, 3)
    speeds = np.zeros((4, 2))
    eyes = {"camera": pixels, "speed": speeds}
    np.testing.assert_array_equal(next(PixelFrames()(segments_of(eyes), 0)), pixels[1])
    both = {"left": pixels, "right": pixels[::-1]}
    with pytest.raises(DataError, match=r"left.*right.*key"):
        next(PixelFrames()(segments_of(both), 0))
    picture = next(PixelFrames(key="right")(segments_of(both), 0))
    np.testing.assert_array_equal(picture, pixels[2])
    for key in ("speed", "ear"):
        with pytest.raises(DataError, match=key):
            next(PixelFrames(key=key)(segments_of(eyes), 0))
    assert holds_pixels(pixels)
    assert holds_pixels(eyes)
    assert not holds_pixels(both)
    assert not holds_pixels({"speed": speeds})


def test_numbers_are_no_pictures():
    for wrong in (np.zeros((4, 3)), np.zeros((4, 3, 3), np.uint8), np.zeros((4, 99), np.uint8)):
        assert not holds_pixels(wrong)
        with pytest.raises(DataError, match="pictures"):
            next(PixelFrames()(segments_of(wrong), 0))


def test_channels_that_are_not_whole_pictures():
    with pytest.raises(DataError, match="multiple of 3"):
        next(PixelFrames(colours=3)(segments_of(numbered(12, 10, 4)), 0))


@pytest.mark.parametrize("wrong", [{"channels": "middle"}, {"colours": 2}, {"newest": "mid"}])
def test_unknown_settings(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        PixelFrames(**wrong)


@pytest.fixture
def walks():
    """Two clips of three steps, with their pictures."""
    env = Garden("rgb_array")
    seen = []
    states = []
    for seed in range(2):
        observation, _ = env.reset(seed=seed)
        for _ in range(3):
            seen.append(observation)
            states.append(picture_state(env.render()))
            observation = env.step(np.ones(2))[0]
    columns = np.stack(seen), np.zeros((6, 2)), np.zeros(6)
    return Segments(*columns, np.array([0, 3]), np.array([3, 3]), 3, states=np.stack(states))


def test_an_environment_that_is_not_here_is_not_needed(walks):
    source = EnvFrames("nowhere:Garden-v0")
    drawn = list(source(walks, 1))
    np.testing.assert_array_equal(drawn, list(RecordedFrames()(walks, 1)))
    assert drawn[0].shape == (60, 90, 3)


def test_where_none_were_recorded_the_message_explains_how(walks):
    bare = replace(walks, states=None)
    with pytest.raises(DataError, match=r"recorded pictures: expected some.*`states=True`"):
        next(frame_source({"kind": "recorded"})(bare, 0))


DOOR = "AdroitHandDoor-v1"
draw_off_screen()


def one_segment(observations, actions, states=None):
    steps = len(observations)
    start = np.array([0])
    real = np.array([steps])
    return Segments(observations, actions, np.zeros(steps), start, real, steps, states=states)


def observed(env):
    """What the environment reports of its present state: the outcome of a step of no time."""
    stage = env.unwrapped
    frames = stage.frame_skip
    stage.frame_skip = 0
    with np.errstate(invalid="ignore"):  # a speed of 0 m in 0 s
        observation = stage.step(np.zeros(stage.action_space.shape))[0]
    stage.frame_skip = frames
    return observation


def rollout(env, steps, *, settle=False):
    """A segment with states, and what the environment draws of each step."""
    read = StateReader(env)
    observation, _ = env.reset(seed=5)
    env.action_space.seed(0)
    seen = []
    done = []
    states = []
    pictures = []
    for _ in range(steps):
        if settle:  # simulators report and draw sites of the substep before
            env.unwrapped.set_state(env.unwrapped.data.qpos, env.unwrapped.data.qvel)
            observation = observed(env)
        seen.append(observation)
        states.append(read())
        if hasattr(env.unwrapped, "last_u"):
            env.unwrapped.last_u = None
        pictures.append(env.render())
        done.append(env.action_space.sample())
        observation = env.step(done[-1])[0]
    actions = np.asarray(done, np.float64).reshape(steps, -1)
    return one_segment(np.array(seen), actions, np.array(states)), pictures


def without_states(segments):
    return one_segment(segments.observations, segments.actions)


def drawn(source, segments):
    try:
        return np.stack(list(source(segments, 0)))
    finally:
        source.close()


@pytest.mark.parametrize(
    "env_id", ["Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0"]
)
def test_classic_control_is_drawn_as_it_was(env_id):
    env = gymnasium.make(env_id, render_mode="rgb_array")
    segments, pictures = rollout(env, 3)
    env.close()
    assert np.ptp(pictures) > 0
    np.testing.assert_array_equal(drawn(EnvFrames(env_id), segments), pictures)
    poses = POSES[env_id](env, np.asarray(segments.observations, np.float64))
    np.testing.assert_allclose(poses, segments.states, atol=1e-6)  # observations are float32
    # A number in the last place may move a pixel of an edge.
    close = drawn(EnvFrames(env_id), without_states(segments)).astype(int) - pictures
    assert (np.abs(close) > 8).mean() < 0.001


def test_a_pendulum_also_shows_its_torque():
    env = gymnasium.make("Pendulum-v1", render_mode="rgb_array")
    segments, pictures = rollout(env, 2)
    for step in range(2):
        env.unwrapped.state = segments.states[step]
        env.unwrapped.last_u = segments.actions[step, 0]
        pictures[step] = env.render()
    env.close()
    np.testing.assert_array_equal(drawn(EnvFrames("Pendulum-v1"), segments), pictures)
    poses = POSES["Pendulum-v1"](env, np.asarray(segments.observations))
    angle = (segments.states[:, 0] + np.pi) % (2 * np.pi) - np.pi
    np.testing.assert_allclose(poses[:, 0], angle, atol=1e-6)


def test_what_cannot_be_drawn_is_refused():
    block = np.zeros((2, 3))
    with pytest.raises(ConfigError, match=r"Did you mean .*Pendulum-v1"):
        drawn(EnvFrames("Pendulum-v"), one_segment(block, block))
    with pytest.raises(ConfigError, match="state"):
        drawn(EnvFrames("Blackjack-v1"), one_segment(block, block))
    with pytest.raises(DataError, match=r"states of Pendulum-v1.*2 numbers.*none.*CartPole"):
        drawn(EnvFrames("Pendulum-v1", poses={}), one_segment(block, block))
    with pytest.raises(DataError, match=r"shape \(3,\)"):
        drawn(EnvFrames("Pendulum-v1", poses={}), one_segment(block, block, block))
    with pytest.raises(ConfigError, match="size"):
        EnvFrames("Pendulum-v1", size=0)


def where_it_looks(env):
    """The middle of the scene when an environment first drew, which differs among episodes."""
    return {"lookat": env.unwrapped.mujoco_renderer.viewer.cam.lookat.tolist()}


@pytest.fixture(scope="module")
def graphics():
    """MuJoCo that can draw here."""
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    try:
        mujoco.Renderer(model, 16, 16).close()
    except Exception as error:
        pytest.skip(f"MuJoCo cannot draw here: {error}")


@pytest.mark.usefixtures("graphics")
@pytest.mark.parametrize(
    ("env_id", "follows"),
    [("HalfCheetah-v5", True), ("Reacher-v5", False)],
)
def test_mujoco_is_drawn_as_its_environment_draws_it(env_id, follows):
    env = make_registered(env_id, render_mode="rgb_array", width=96, height=96)
    draw_plainly(env)
    segments, pictures = rollout(env, 3, settle=True)
    source = EnvFrames(env_id, size=96, camera=None if follows else where_it_looks(env))
    env.close()
    np.testing.assert_allclose(drawn(source, segments), pictures, atol=2)
    later = np.concatenate([np.ones((3, 1)), segments.states], axis=1)
    timed = one_segment(segments.observations, segments.actions, later)
    np.testing.assert_allclose(drawn(source, timed), pictures, atol=2)  # opens again


@pytest.mark.usefixtures("graphics")
def test_the_door_is_drawn_from_what_was_observed():
    pytest.importorskip("gymnasium_robotics")
    mujoco = pytest.importorskip("mujoco")
    env = make_registered(DOOR, render_mode="rgb_array", width=96, height=96)
    draw_plainly(env)
    assert [(name, len(rows)) for name, rows in placed(env)] == [("body_pos", 3)]
    segments, pictures = rollout(env, 6, settle=True)
    truth = segments.states
    seen = np.asarray(segments.observations)
    stage = env.unwrapped
    stage.reset(seed=9)  # another door
    poses = POSES[DOOR](env, seen)
    np.testing.assert_allclose(poses[:, :30], truth[:, :30], atol=1e-9)
    np.testing.assert_allclose(poses[:, 60:], truth[:, 60:], atol=1e-9)
    for pose, observation in zip(poses, seen, strict=True):
        stage.model.body_pos[stage.door_body_id] = pose[60:]
        stage.data.qpos[:] = pose[:30]
        mujoco.mj_forward(stage.model, stage.data)
        palm, handle = stage.data.site_xpos[[stage.grasp_site_id, stage.handle_site_id]]
        np.testing.assert_allclose([*palm, *handle], observation[29:35], atol=1e-9)
    camera = where_it_looks(env)
    env.close()
    for clip in (segments, without_states(segments)):
        source = EnvFrames(DOOR, size=96, camera=camera)
        np.testing.assert_allclose(drawn(source, clip), pictures, atol=2)
    # States without the door are completed from what was observed.
    short = one_segment(seen, segments.actions, truth[:, :60])
    np.testing.assert_allclose(drawn(EnvFrames(DOOR, 96, camera), short), pictures, atol=2)
