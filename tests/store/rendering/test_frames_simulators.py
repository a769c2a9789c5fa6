"""Clips drawn by their environment, beside what the environment itself draws."""

import gymnasium
import numpy as np
import pytest

from preferl.data.segments import Segments
from preferl.envs.simulators import draw_off_screen, draw_plainly, make_registered
from preferl.errors import ConfigError, DataError
from preferl.store.rendering.frames import POSES, EnvFrames
from preferl.store.stages import StateReader, placed

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


def animal(pictures):
    """How many pixels of each picture show it: the one thing that is not grey or green."""
    red = pictures[..., 0].astype(int)
    green = pictures[..., 1].astype(int)
    return np.asarray((red - green > 20).sum((1, 2)))


@pytest.mark.usefixtures("graphics")
def test_walkers_stay_in_the_picture():
    env = make_registered("HalfCheetah-v5")
    env.reset(seed=0)
    states = StateReader(env)()[None].repeat(2, 0)
    states[1, 0] += 50.0  # metres ahead
    segments = one_segment(np.zeros((2, 1)), np.zeros((2, 6)), states)
    left = drawn(EnvFrames("HalfCheetah-v5", size=64, camera={}), segments)
    kept = drawn(EnvFrames("HalfCheetah-v5", size=64), segments)

    assert animal(left)[0] > 20
    assert animal(left)[1] == 0
    assert animal(kept).min() > 20


@pytest.mark.usefixtures("graphics")
@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Ant-v5"])
def test_runners_stay_in_sight_over_a_floor_that_goes_on(env_id):
    env = make_registered(env_id, render_mode="rgb_array", width=96, height=96)
    draw_plainly(env)
    env.reset(seed=0)
    stage = env.unwrapped
    mujoco = pytest.importorskip("mujoco")
    tile = 2 / stage.model.mat_texrepeat[0, 0]  # metres after which the floor looks the same
    pictures = []
    for x in (0, round(60 / tile) * tile):
        stage.data.qpos[0] = x
        mujoco.mj_forward(stage.model, stage.data)
        pictures.append(np.asarray(env.render(), int))
    env.close()
    here, far = pictures
    assert animal(np.stack(pictures)).min() > 0.8 * animal(here[None])[0] > 20
    assert (np.abs(here - far).max(-1) > 40).mean() < 0.05, "another picture"
    assert len(np.unique(here[-20:], axis=None)) > 20, "no floor"


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


def test_a_door_that_moves_is_off_by_millimetres():
    pytest.importorskip("gymnasium_robotics")
    env = make_registered(DOOR)
    read = StateReader(env)
    env.reset(seed=1)
    env.action_space.seed(1)
    pairs = [(env.step(env.action_space.sample())[0], read()) for _ in range(100)]
    poses = POSES[DOOR](env, np.array([seen for seen, _ in pairs]))
    off = np.abs(poses - np.array([state for _, state in pairs]))
    assert off[:, 0].max() < 0.01  # random actions are fast, and observed sites are 2 ms old
    assert off[:, 60:].max() < 0.01
