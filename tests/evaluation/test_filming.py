import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

from helpers import gardens
from helpers.gardens import Garden
from preferl.errors import ConfigError
from preferl.evaluation import RandomPolicy, film
from preferl.evaluation.filming import draws, frame_rate
from preferl.video import encode


@pytest.fixture
def policy():
    return RandomPolicy(Garden.action_space, seed=0)


def first_picture(seed):
    env = Garden("rgb_array")
    env.reset(seed=seed)
    return env.render()


def test_film_goes_on_with_the_next_episode(policy):
    def two_steps(render_mode):
        return TimeLimit(Garden(render_mode, speed=0.5), 2)

    frames = film(policy, two_steps, seed=4, steps=5)
    expected = [first_picture(seed) for seed in (4, 5, 6)]
    np.testing.assert_array_equal(frames[::2], expected)
    assert (frames[1::2] != frames[:4:2]).any(axis=(1, 2, 3)).all()
    np.testing.assert_array_equal(film(policy, two_steps, seed=4, steps=5, every=2), expected)


def test_film_needs_pictures(policy):
    with pytest.raises(ConfigError, match="picture"):
        film(policy, gardens.Forgetful, seed=0, steps=1)
    with pytest.raises(ConfigError, match="steps"):
        film(policy, Garden, seed=0, steps=0)


def test_an_environment_declares_whether_it_draws(monkeypatch):
    assert draws(Garden)
    assert draws("Pendulum-v1")
    for metadata in ({}, {"render_modes": []}, {"render_modes": ["human"]}):
        monkeypatch.setattr(Garden, "metadata", metadata)
        assert not draws(Garden)


@pytest.mark.parametrize(
    ("given", "expected"), [(0.5, 1), (1 / 3, 1), (500, 240), (29.97, 30), (0, 30), (None, 30)]
)
def test_frame_rate_is_the_nearest_at_which_clips_can_play(monkeypatch, given, expected):
    monkeypatch.setitem(Garden.metadata, "render_fps", given)
    assert frame_rate(Garden) == expected
    encode(np.zeros((2, 16, 16, 3), np.uint8), frame_rate(Garden))
