"""Runs in environments that nobody registered: as classes, in processes, with pictures."""

import json
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from stable_baselines3.common.vec_env import SubprocVecEnv

from helpers import gardens
from helpers.gardens import Garden
from helpers.tiny_runs import tiny
from preferl.errors import ConfigError, ResumeError
from preferl.online import learn_from_preferences, run_online
from preferl.online.configs import EvaluationConfig
from preferl.store.rendering.frames import RecordedFrames
from preferl.store.stages import PICTURE_BYTES

SMALL = tiny(
    env=Garden,
    steps=400,
    initial_steps=200,
    iterations=1,
    comparisons=4,
    segment_length=5,
    initial_epochs=1,
)
EVALUATION = EvaluationConfig(episodes=2, oracle=True, queries=4, clip_steps=2)


def test_a_class_is_taught_evaluated_and_filmed(tmp_path):
    config = replace(SMALL, env_kwargs={"speed": 0.3}, max_episode_steps=10)
    result = run_online(config, tmp_path / "run", evaluation=EVALUATION)
    assert result["env"] == "helpers.gardens:Garden"
    assert set(result["policies"]) == {"random", "taught", "oracle"}
    assert set(result["policies"]["taught"]["lengths"]) == {10}
    assert "video/mp4" in (tmp_path / "run/report.html").read_text()
    saved = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert saved["env_kwargs"] == {"speed": 0.3}
    with pytest.raises(ResumeError, match="finished"):
        run_online(config, tmp_path / "run", evaluation=EVALUATION, resume=True)


def test_copies_act_in_processes_as_they_act_here():
    found = {}
    for kind in ("dummy", "subproc"):
        config = replace(SMALL, vec_env=kind)
        report = learn_from_preferences(config)
        venv = report.learner.env.unwrapped
        assert isinstance(venv, SubprocVecEnv) == (kind == "subproc")
        venv.close()
        found[kind] = report.experience
    np.testing.assert_array_equal(found["dummy"].observations, found["subproc"].observations)


class Fickle(Garden):
    """Episodes of twenty steps, or of three where an evaluation seeds it; `left` are open."""

    left: ClassVar[set[int]] = set()
    limit = 20

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.left.add(id(self))

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.limit = 20 if seed < 10_000 else 3
        return super().reset(seed=seed, options=options)

    def step(self, action):
        *others, _, info = super().step(action)
        return *others, self.time >= self.limit, info

    def close(self):
        self.left.discard(id(self))


def test_a_run_closes_its_environments_and_may_be_evaluated_on_shorter_episodes(tmp_path):
    result = run_online(replace(SMALL, env=Fickle), tmp_path / "run", evaluation=EVALUATION)
    assert set(result["policies"]["taught"]["lengths"]) == {3}
    assert result["reward"]["accuracy"] is not None
    assert not Fickle.left


def test_a_run_that_fails_closes_its_environments(tmp_path):
    def fail(report):
        raise KeyError

    config = replace(SMALL, env=Fickle)
    with pytest.raises(KeyError):
        run_online(config, tmp_path / "run", evaluation=EVALUATION, on_iteration=fail)
    assert not Fickle.left


def test_environments_are_refused_before_anything_is_made(tmp_path):
    for env in (gardens.OldStep, gardens.nothing, "helpers.gardens:Gardn"):
        with pytest.raises(ConfigError, match="environment"):
            run_online(replace(SMALL, env=env), tmp_path / "run", evaluation=EVALUATION)
    assert not (tmp_path / "run").exists()


def test_pictures_are_recorded_while_the_agent_acts():
    report = learn_from_preferences(replace(SMALL, states=True))
    segments = report.comparisons.segments
    assert segments.states.shape == (segments.steps, PICTURE_BYTES)
    pictures = list(RecordedFrames()(segments, 0))
    assert [picture.shape for picture in pictures] == [(60, 90, 3)] * 5
    for step, picture in enumerate(pictures):
        row = segments.start[0] + step
        x, y = segments.observations[row]
        red = picture[int(26 + 24 * y) + 4, int(42 + 40 * x) + 4].astype(int)
        assert red[0] > 150
        assert red[1:].max() < 90, "the point is where it was before the action"
