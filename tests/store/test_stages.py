"""States of simulators: read, drawn, and seen by cameras that are there."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from preferl.envs.simulators import draw_off_screen, make_registered
from preferl.errors import ConfigError
from preferl.store.stages import StateReader, StateStage, view

DOOR = "AdroitHandDoor-v1"
draw_off_screen()


def test_reading_states_leaves_the_generator_where_it_was() -> None:
    pytest.importorskip("gymnasium_robotics")
    plain, read = (make_registered(DOOR) for _ in range(2))
    for env in (plain, read):
        env.reset(seed=3)
    StateReader(read)
    np.testing.assert_array_equal(plain.reset()[0], read.reset()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems draw in other ways")
def test_a_machine_without_graphics_is_told_what_to_install() -> None:
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


def test_drawing_a_state_is_not_acting() -> None:
    env: Any = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    stage = StateStage(env)
    assert stage.widths == (4,)
    middle, right = np.zeros(4), np.array([2.0, 0.0, 0.0, 0.0])
    first = stage.draw(middle, np.zeros(1))
    assert first.dtype == np.uint8
    assert first.shape[2] == 3
    moved = stage.draw(right, np.zeros(1))
    assert (first != moved).any()
    np.testing.assert_array_equal(env.unwrapped.state, right)
    np.testing.assert_array_equal(stage.draw(middle, np.ones(1)), first)
    env.close()


def test_a_pendulum_shows_torque_up_to_its_limit() -> None:
    stage = StateStage(gymnasium.make("Pendulum-v1", render_mode="rgb_array"))
    assert stage.widths == (2,)
    upright = np.zeros(2)
    none, most, more = (stage.draw(upright, np.array([torque])) for torque in (0.0, 2.0, 9.0))
    assert (none != most).any()
    np.testing.assert_array_equal(most, more)


def test_a_state_is_there_once_an_episode_has_begun() -> None:
    env: Any = gymnasium.make("CartPole-v1")
    read = StateReader(env)
    with pytest.raises(ConfigError, match=r"environment: expected .*after reset, got CartPoleEnv"):
        read()
    env.reset(seed=0)
    state = read()
    env.step(0)
    assert state.dtype == np.float64
    assert (state != read()).any(), "a copy, which no step changes"


def test_cameras_by_name_and_by_settings() -> None:
    mujoco = pytest.importorskip("mujoco")
    env: Any = make_registered("HalfCheetah-v5")
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
    env.close()
