from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings, strategies as st
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

from preferl.errors import DataError, SpaceError
from preferl.online.wrappers.feedback_env import episode_recorder
from preferl.online.wrappers.recording import Recording, zeros_of

GOES_ON = 0
TERMINATES = 1
TRUNCATES = 2


class Scripted(gymnasium.Env[Any, Any]):
    """Ends episodes on schedule, numbers what it shows, and writes down what a recorder should."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,))
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, number, ends, log):
        self.ends = ends
        self.log = log
        self.shown = 1_000.0 * number
        self.time = 0
        self.steps = []

    def show(self):
        self.shown += 1
        return np.float32([self.shown])

    def cut(self, terminated=False):
        if self.steps:
            self.log.append((self.steps, terminated, self.shown))
        self.steps = []

    def reset(self, **_):
        self.cut()
        return self.show(), {}

    def step(self, action):
        end = self.ends[self.time]
        self.time += 1
        self.steps.append((self.shown, float(action[0]), 10.0 * self.time))
        seen = self.show()
        if end != GOES_ON:
            self.cut(end == TERMINATES)
        return seen, 10.0 * self.time, end == TERMINATES, end == TRUNCATES, {}


def require_same(episodes, expected):
    assert (episodes is None) == (not expected)
    for number, (steps, terminated, final) in enumerate(expected):
        one = episodes[number : number + 1]
        columns = one.observations[:, 0], one.actions[:, 0], one.rewards
        for column, values in zip(columns, zip(*steps, strict=True), strict=True):
            np.testing.assert_array_equal(column, np.float32(values))
        assert one.final_observations.tolist() == [[final]]
        assert one.terminated.tolist() == [False] * (len(steps) - 1) + [terminated]
    assert episodes is None or len(episodes) == len(expected)


@st.composite
def scripts(draw):
    environments = draw(st.integers(1, 4))
    deeds = draw(st.lists(st.sampled_from(["step"] * 6 + ["take", "cut", "reset"]), max_size=40))
    end = st.sampled_from([GOES_ON] * 4 + [TERMINATES, TRUNCATES])
    steps = max(deeds.count("step"), 1)
    row = st.lists(end, min_size=steps, max_size=steps)
    return draw(st.lists(row, min_size=environments, max_size=environments)), deeds


@settings(max_examples=150)
@given(scripts())
def test_any_course_of_events_is_recorded_as_by_hand(script):
    ends, deeds = script
    log = []
    venv = DummyVecEnv([partial(Scripted, number, own, log) for number, own in enumerate(ends)])
    recorder = episode_recorder(venv)
    space = venv.observation_space
    small = Recording(space, venv.action_space, venv.num_envs, capacity=2)  # has to grow at once
    recorder.core.recording = small
    recorder.reset()
    for number, deed in enumerate(deeds):
        if deed == "step":
            actions = np.full((venv.num_envs, 1), number / 100, np.float32)
            observations, rewards, *_ = recorder.step(actions)
            for array in (actions, observations, rewards):
                array[:] = np.nan  # whoever has them may change them
        elif deed == "reset":
            recorder.reset()
        else:
            if deed == "cut":
                for env in venv.envs:
                    env.cut()
            else:
                assert small.finished_steps == sum(len(steps) for steps, *_ in log)
            require_same(recorder.take(unfinished="cut" if deed == "cut" else "keep"), log)
            log.clear()
    assert recorder.steps == deeds.count("step") * venv.num_envs


def test_what_environments_do_not_tell_is_missed():
    recorder = episode_recorder(make_vec_env("CartPole-v1"), states=True)
    with pytest.raises(DataError, match="the key state"):
        recorder.reset()
    recorder = episode_recorder(make_vec_env("Pendulum-v1"))
    seen = recorder.reset()
    recorder.venv.step_wait = lambda: (seen, np.zeros(1), np.array([True]), [{}])
    with pytest.raises(DataError, match="terminal_observation"):
        recorder.step(np.zeros((1, 1)))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(3),
        spaces.Dict({"outer": spaces.Dict({"inner": spaces.Discrete(2)})}),
    ],
)
def test_spaces_without_arrays_of_one_shape_are_refused(space):
    with pytest.raises(SpaceError, match="expected"):
        zeros_of(space, (2,))
