"""Environments by id: found, worded where there are none, and drawn without a display."""

import os
import subprocess
import sys
from ctypes.util import find_library

import numpy as np
import pytest

from preferl.envs.simulators import draw_off_screen, draw_plainly, is_mujoco, make_registered
from preferl.errors import ConfigError, MissingExtraError


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("Pendulum-v", "Did you mean .*Pendulum-v1"),
        ("nowhere:Moon-v0", "nowhere"),
    ],
)
def test_unknown_ids_list_near_ones(wrong, words):
    with pytest.raises(ConfigError, match=words):
        make_registered(wrong)


def test_what_an_environment_lacks_is_worded(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(ConfigError, match=r"LunarLander-v3.*can be made.*[Bb]ox2[Dd]"):
        make_registered("LunarLander-v3")


def test_the_control_suite_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(MissingExtraError, match=r"preferl\[dmc\]"):
        make_registered("shimmy:dm_control/walker-walk-v0")


@pytest.mark.skipif(find_library("EGL") is None, reason="needs libegl1, which draws off screen")
def test_the_control_suite_draws_without_a_display():
    pytest.importorskip("dm_control")
    pytest.importorskip("shimmy")
    code = "from preferl.envs import simulators\nfrom preferl.evaluation.filming import film\n"
    code += "from preferl.evaluation.policies import RandomPolicy\n"
    code += "env = 'shimmy:dm_control/walker-walk-v0'\n"
    code += "space = simulators.make_registered(env).action_space\n"
    code += "print(film(RandomPolicy(space, 0), env, seed=0, steps=1).shape)"
    chosen = {"DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"}
    env = {name: value for name, value in os.environ.items() if name not in chosen}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert "3)" in done.stdout, done.stderr


def test_importing_the_package_prints_nothing():
    pytest.importorskip("gymnasium_robotics")
    code = "from preferl.envs import simulators\nsimulators.make_registered('AdroitHandDoor-v1')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_drawing_off_screen_leaves_choices_alone(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "environ", {"MUJOCO_GL": "osmesa"})
    draw_off_screen()
    assert os.environ == {"MUJOCO_GL": "osmesa", "SDL_VIDEODRIVER": "dummy"}
    monkeypatch.setattr(os, "environ", {"DISPLAY": ":0"})
    draw_off_screen()
    assert os.environ == {"DISPLAY": ":0"}


def test_shadows_and_mirrors_are_left_out():
    pytest.importorskip("mujoco")
    env = make_registered("Hopper-v5")
    model = env.unwrapped.model
    assert is_mujoco(env)
    assert model.light_castshadow.any()
    draw_plainly(env)
    assert not model.light_castshadow.any()
    assert not model.mat_reflectance.any()
    assert model.vis.quality.offsamples == 0


def test_what_is_drawn_changes_nothing_that_happens(rng):
    pytest.importorskip("mujoco")
    plain, usual = (make_registered("HalfCheetah-v5") for _ in range(2))
    draw_plainly(plain)
    draw_plainly(plain)  # twice is as once
    for env in (plain, usual):
        env.reset(seed=0)
        env.unwrapped.data.qpos[0] = 39.9  # the floor of the model ends at 40
    for action in rng.uniform(-1, 1, (200, 6)):
        here = plain.step(action)
        there = usual.step(action)
        np.testing.assert_array_equal(here[0], there[0])
        assert here[1] == there[1]
    floor = usual.unwrapped.model.mat_texrepeat[0] / usual.unwrapped.model.geom_size[0, :2]
    np.testing.assert_allclose(plain.unwrapped.model.mat_texrepeat[0], floor)


def test_classes_and_functions_of_a_module_need_no_registration():
    env = make_registered("helpers.gardens:Garden", speed=0.3, render_mode="rgb_array")
    assert (env.unwrapped.speed, env.render_mode) == (0.3, "rgb_array")
    limited = make_registered("helpers.gardens:small_garden", max_episode_steps=1)
    limited.reset(seed=0)
    assert limited.step(limited.action_space.sample())[3]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("helpers.gardens:Gardn", r"registers, or a class.*Did you mean helpers.gardens:Garden"),
        ("helpers.garden:Garden", r"module that can be imported.*Begin in its folder"),
        ("helpers.gardens:Pendulum-v", "Did you mean Pendulum-v1"),
        ("gymnasium:make", "an id that gymnasium registers"),
    ],
)
def test_modules_without_the_environment(name, message):
    with pytest.raises(ConfigError, match=message) as raised:
        make_registered(name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./crane.py", r"got './crane.py'. Name the class or function in it, too: crane:Crane\.$"),
        (
            "cran:Crane",
            r"got 'cran:Crane' \(there is no module cran\). Did you mean crane:Crane\?$",
        ),
        ("yard.cran:Crane", r"\(there is no module yard.cran\). Did you mean yard.crane:Crane\?$"),
        ("lifts:Crane", r"\(there is no module ropes\). Install ropes, or begin in its folder\.$"),
    ],
)
def test_files_of_the_current_folder_are_led_to(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "yard").mkdir()
    for file in ("crane.py", "yard/__init__.py", "yard/crane.py"):
        (tmp_path / file).write_text("class Rope:\n    pass\n\n\nclass Crane(gym.Env):\n    pass\n")
    (tmp_path / "yard/__init__.py").write_text("")
    (tmp_path / "lifts.py").write_text("import ropes\n")
    try:
        with pytest.raises(ConfigError, match=message):
            make_registered(name)
    finally:
        for module in ("yard", "lifts"):
            sys.modules.pop(module, None)


def test_arguments_that_an_environment_does_not_take():
    with pytest.raises(ConfigError, match=r"'Pendulum-v1': expected arguments.*got .*'gravity'"):
        make_registered("Pendulum-v1", gravity=3)
    with pytest.raises(ConfigError, match=r"\(render_mode, speed, hides\)"):
        make_registered("helpers.gardens:Garden", gravity=3)
