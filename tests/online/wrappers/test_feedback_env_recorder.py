from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings, strategies as st
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from preferl.data.episodes import Episodes
from preferl.errors import DataError, SpaceError
from preferl.online.wrappers.feedback_env import episode_recorder
from preferl.online.wrappers.recording import Recording, zeros_of

GOES_ON = 0
TERMINATES = 1
TRUNCATES = 2


class ScriptedVecEnv(VecEnv):
    """Ends episodes on schedule, numbers everything it shows, and reuses its arrays."""

    def __init__(self, ends: np.ndarray) -> None:
        self.ends = ends  # [T, V]
        super().__init__(
            ends.shape[1], spaces.Box(-np.inf, np.inf, (1,)), spaces.Box(-1, 1, (1,), np.float32)
        )
        self.shown = np.zeros((self.num_envs, 1), np.float32)
        self.rewards = np.zeros(self.num_envs, np.float32)
        self.time = 0
        self.number = 0

    def _show(self) -> np.ndarray:
        self.shown[:, 0] = self.number + np.arange(self.num_envs)
        self.number += self.num_envs
        return self.shown

    def reset(self) -> Any:
        return self._show()

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self) -> Any:
        ends = self.ends[self.time]
        self.time += 1
        self.rewards[:] = 10.0 * self.time + np.arange(self.num_envs)
        final = self._show().copy()
        infos: list[dict[str, Any]] = [
            {"TimeLimit.truncated": end == TRUNCATES}
            | ({"terminal_observation": final[i]} if end else {})
            for i, end in enumerate(ends)
        ]
        if ends.any():
            self._show()
        return self.shown, self.rewards, ends > 0, infos

    def close(self) -> None: ...

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs

    def env_method(self, *args: Any, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError


class ByHand:
    """What the recorder should do, one environment and one step at a time."""

    def __init__(self, environments: int) -> None:
        self.under_way: list[list[tuple[Any, Any, Any]]] = [[] for _ in range(environments)]
        self.ended: list[tuple[list[tuple[Any, Any, Any]], bool, Any]] = []
        self.present: Any = None

    def reset(self, observations: Any) -> None:
        self.cut()
        self.present = observations

    def step(self, actions: Any, observations: Any, rewards: Any, dones: Any, infos: Any) -> None:
        for i, steps in enumerate(self.under_way):
            steps.append((self.present[i], actions[i], rewards[i]))
            if dones[i]:
                self._end(i, not infos[i]["TimeLimit.truncated"], infos[i]["terminal_observation"])
        self.present = observations

    def cut(self) -> None:
        for i, steps in enumerate(self.under_way):
            if steps:
                self._end(i, False, self.present[i])

    def _end(self, i: int, terminated: bool, final: Any) -> None:
        self.ended.append((self.under_way[i], terminated, final))
        self.under_way[i] = []

    def take(self) -> list[Any]:
        ended = self.ended
        self.ended = []
        return ended


def assert_same(got: Episodes | None, expected: list[Any]) -> None:
    if not expected:
        assert got is None
        return
    assert got is not None
    assert got.lengths.tolist() == [len(steps) for steps, _, _ in expected]
    flat = [step for steps, _, _ in expected for step in steps]
    np.testing.assert_array_equal(got.observations, np.stack([o for o, _, _ in flat]))
    np.testing.assert_array_equal(got.actions, np.stack([a for _, a, _ in flat]))
    np.testing.assert_array_equal(got.rewards, np.stack([r for _, _, r in flat]))
    np.testing.assert_array_equal(got.final_observations, np.stack([f for _, _, f in expected]))
    assert got.terminated[got.ends - 1].tolist() == [t for _, t, _ in expected]


@st.composite
def scripts(draw: st.DrawFn) -> tuple[np.ndarray, list[str]]:
    environments = draw(st.integers(1, 4))
    deeds = draw(st.lists(st.sampled_from(["step"] * 6 + ["take", "cut", "reset"]), max_size=40))
    end = st.sampled_from([GOES_ON] * 4 + [TERMINATES, TRUNCATES])
    row = st.lists(end, min_size=environments, max_size=environments)
    steps = max(deeds.count("step"), 1)
    return np.array(draw(st.lists(row, min_size=steps, max_size=steps))), deeds


def small_recorder(venv: VecEnv, **settings: Any) -> Any:
    """One whose arrays have to grow at once."""
    recorder = episode_recorder(venv, **settings)
    recorder.core.recording = Recording(
        venv.observation_space, venv.action_space, venv.num_envs, capacity=2
    )
    return recorder


@settings(max_examples=150)
@given(scripts())
def test_any_course_of_events_is_recorded_as_by_hand(script: tuple[np.ndarray, list[str]]) -> None:
    ends, deeds = script
    recorder = small_recorder(ScriptedVecEnv(ends))
    by_hand = ByHand(recorder.num_envs)
    by_hand.reset(np.copy(recorder.reset()))
    for number, deed in enumerate(deeds):
        if deed == "step":
            actions = np.full((recorder.num_envs, 1), number / 100, np.float32)
            observations, rewards, dones, infos = recorder.step(actions)
            by_hand.step(actions.copy(), observations.copy(), rewards.copy(), dones, infos)
            actions[:] = np.nan
        elif deed == "reset":
            by_hand.reset(np.copy(recorder.reset()))
        elif deed == "cut":
            by_hand.cut()
            assert_same(recorder.take(unfinished="cut"), by_hand.take())
        else:
            expected = by_hand.take()
            assert recorder.core.recording.finished_steps == sum(
                len(steps) for steps, _, _ in expected
            )
            assert_same(recorder.take(), expected)
    assert recorder.steps == deeds.count("step") * recorder.num_envs


def test_states_that_are_not_reported_are_missed() -> None:
    recorder = episode_recorder(make_vec_env("CartPole-v1"), states=True)
    with pytest.raises(DataError, match="the key state"):
        recorder.reset()


def test_an_end_without_its_final_observation_is_refused() -> None:
    env = ScriptedVecEnv(np.ones((1, 1), int))
    recorder = episode_recorder(env)
    recorder.reset()
    env.step_wait = lambda: (env.shown, env.rewards, np.array([True]), [{}])  # type: ignore[method-assign]
    with pytest.raises(DataError, match="terminal_observation"):
        recorder.step(np.zeros((1, 1)))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(3),
        spaces.Dict({"outer": spaces.Dict({"inner": spaces.Discrete(2)})}),
    ],
)
def test_spaces_without_arrays_of_one_shape_are_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(SpaceError, match="expected"):
        zeros_of(space, (2,))
