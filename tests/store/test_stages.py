"""States of simulators: read, drawn, and seen by cameras that are there."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from helpers import gardens
from preferl.envs.simulators import draw_off_screen, make_registered
from preferl.errors import ConfigError
from preferl.store.stages import (
    PICTURE_BYTES,
    StateReader,
    StateStage,
    holds_pictures,
    picture_of,
    picture_state,
    view,
)

draw_off_screen()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems draw in other ways")
def test_without_graphics_the_error_names_what_to_install():
    pytest.importorskip("mujoco")
    code = (
        "import ctypes.util, numpy as np\n"
        "from preferl.data.segments import Segments\n"
        "from preferl.store.rendering.frames import EnvFrames\n"
        "from preferl.errors import ConfigError\n"
        "block = np.zeros((1, 18))\n"
        "one = Segments(block, block, np.zeros(1), np.array([0]), np.array([1]), 1, states=block)\n"
        "try:\n"
        "    next(EnvFrames('HalfCheetah-v5')(one, 0))\n"
        "except ConfigError as error:\n"
        "    print(error)"
    )
    environment = {"MUJOCO_GL": "nonsense", "PATH": "/usr/bin"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert "apt-get install -y libegl1" in done.stdout


def test_drawing_a_state_is_not_acting():
    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    stage = StateStage(env)
    assert stage.widths == (4,)
    middle = np.zeros(4)
    right = np.array([2.0, 0.0, 0.0, 0.0])
    first = stage.draw(middle, np.zeros(1))
    assert first.dtype == np.uint8
    assert first.shape[2] == 3
    moved = stage.draw(right, np.zeros(1))
    assert (first != moved).any()
    np.testing.assert_array_equal(env.unwrapped.state, right)
    np.testing.assert_array_equal(stage.draw(middle, np.ones(1)), first)
    env.close()


def test_a_state_is_there_once_an_episode_has_begun():
    env = gymnasium.make("CartPole-v1")
    read = StateReader(env)
    with pytest.raises(ConfigError, match=r"environment: .* after a reset .*, got CartPoleEnv"):
        read()
    env.reset(seed=0)
    state = read()
    env.step(0)
    assert state.dtype == np.float64
    assert (state != read()).any(), "a copy, which no step changes"


def test_cameras_by_name_and_by_settings():
    mujoco = pytest.importorskip("mujoco")
    env = make_registered("HalfCheetah-v5")
    env.reset(seed=0)
    assert view(env, None) == "track", "walkers stay in the picture"
    assert view(env, "track") == "track"
    free = view(env, {"distance": 3.0, "lookat": [0.0, 1.0, 2.0]})
    assert free.type == mujoco.mjtCamera.mjCAMERA_FREE
    assert (free.distance, free.lookat.tolist()) == (3.0, [0.0, 1.0, 2.0])
    following = view(env, {"trackbodyid": 1})
    assert (following.type, following.trackbodyid) == (mujoco.mjtCamera.mjCAMERA_TRACKING, 1)
    with pytest.raises(ConfigError, match=r"camera: expected one of \['track'\], got 'moon'"):
        view(env, "moon")
    with pytest.raises(ConfigError, match=r"camera: expected some of .*, got \['zoom'\]"):
        view(env, {"zoom": 3})
    for body in (-1, 99):
        with pytest.raises(ConfigError, match="camera's trackbodyid: expected 0 to"):
            view(env, {"trackbodyid": body})
    env.close()


class Spot(gardens.Garden):
    """A garden whose pictures depend on `state` alone, unless it hides its goal."""

    def __init__(self, render_mode=None, hides=False):
        super().__init__(render_mode, hides=hides)


@pytest.fixture
def registered():
    gymnasium.register("Spot-v0", entry_point=Spot)
    gymnasium.register("Hidden-v0", entry_point=Spot, kwargs={"hides": True})
    yield
    for name in ("Spot-v0", "Hidden-v0"):
        del gymnasium.registry[name]


def width(env):
    read = StateReader(env)
    env.reset(seed=0)
    return len(read())


def test_what_cannot_be_put_back_is_drawn_while_it_acts(registered):
    drawn = {"render_mode": "rgb_array"}
    assert width(gymnasium.make("Spot-v0", **drawn)) == 2
    assert width(gymnasium.make("Spot-v0")) == 2
    assert width(gymnasium.make("Hidden-v0", **drawn)) == PICTURE_BYTES
    assert width(gymnasium.make("Spot-v0", hides=True, **drawn)) == PICTURE_BYTES
    assert width(Spot(**drawn)) == PICTURE_BYTES, "no other program can make it"
    assert width(gymnasium.make("Pendulum-v1", **drawn)) == 2
    assert width(gymnasium.make("FrozenLake-v1", **drawn)) == PICTURE_BYTES


@pytest.mark.parametrize("name", ["Spot-v0", "Pendulum-v1"])
def test_finding_out_leaves_the_generator_where_it_was(registered, name):
    plain, read = (gymnasium.make(name, render_mode="rgb_array") for _ in range(2))
    for env in (plain, read):
        env.reset(seed=3)
    StateReader(read)
    assert read.unwrapped.np_random_seed == 3
    np.testing.assert_array_equal(plain.reset()[0], read.reset()[0])


def test_recorded_pictures_are_small_and_alike():
    env = gardens.Garden("rgb_array")
    env.reset(seed=0)
    state = picture_state(env.render())
    assert (state.dtype, state.shape) == (np.uint8, (PICTURE_BYTES,))
    assert holds_pictures(state[None])
    assert not holds_pictures(np.zeros((1, PICTURE_BYTES)))
    assert not holds_pictures(None)
    difference = picture_of(state).astype(int) - env.render()
    assert np.abs(difference).mean() < 3
    with pytest.raises(ConfigError, match="what the environment renders: expected a picture"):
        picture_state(None)
