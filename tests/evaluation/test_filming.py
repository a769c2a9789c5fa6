from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from preferl.errors import ConfigError
from preferl.evaluation import RandomPolicy, film
from preferl.evaluation.filming import draws, frame_rate
from preferl.video import encode


class Painter(gymnasium.Env):
    """Paints the seed and the step of its episode; episodes last two steps."""

    observation_space = spaces.Dict({"step": spaces.Box(0, 9, (1,), np.float32)})
    action_space = spaces.Discrete(2)
    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 7}

    def __init__(self, render_mode=None, *, draws=True):
        self.render_mode = render_mode
        self.draws = draws
        self.seed = 0
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        self.seed = seed or 0
        self.steps = 0
        return {"step": np.zeros(1, np.float32)}, {}

    def step(self, action):
        self.steps += 1
        return {"step": np.zeros(1, np.float32)}, 0.0, self.steps == 2, False, {}

    def render(self):
        return np.full((5, 7, 3), 10 * self.seed + self.steps, np.uint8) if self.draws else None


@pytest.fixture
def policy():
    return RandomPolicy(Painter.action_space, seed=0)


def test_film_goes_on_with_the_next_episode(policy):
    frames = film(policy, Painter, seed=4, steps=5)
    assert frames.shape == (5, 5, 7, 3)
    assert frames[:, 0, 0, 0].tolist() == [40, 41, 50, 51, 60]
    assert film(policy, Painter, seed=4, steps=5, every=2)[:, 0, 0, 0].tolist() == [40, 50, 60]


def test_film_needs_pictures(policy):
    with pytest.raises(ConfigError, match="picture"):
        film(policy, lambda render_mode: Painter(render_mode, draws=False), seed=0, steps=1)
    with pytest.raises(ConfigError, match="steps"):
        film(policy, Painter, seed=0, steps=0)


def test_an_environment_declares_whether_it_draws(monkeypatch):
    assert draws(Painter)
    assert draws("Pendulum-v1")
    for metadata in ({}, {"render_modes": []}, {"render_modes": ["human"]}):
        monkeypatch.setattr(Painter, "metadata", metadata)
        assert not draws(Painter)


@pytest.mark.parametrize(
    ("given", "expected"), [(0.5, 1), (1 / 3, 1), (500, 240), (29.97, 30), (0, 30), (None, 30)]
)
def test_frame_rate_is_the_nearest_at_which_clips_can_play(monkeypatch, given, expected):
    monkeypatch.setitem(Painter.metadata, "render_fps", given)
    assert frame_rate(Painter) == expected
    encode(np.zeros((2, 16, 16, 3), np.uint8), frame_rate(Painter))
