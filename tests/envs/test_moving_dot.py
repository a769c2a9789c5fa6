import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from preferl.envs.simulators import make_registered
from preferl.errors import ConfigError
from preferl.testing import MovingDot

STAY, UP, DOWN, LEFT, RIGHT = range(5)


def corner(observation):
    """Row and column of the upper left pixel of the dot, in the newest frame."""
    rows, columns = np.nonzero(observation[..., -1])
    return int(rows.min()), int(columns.min())


@pytest.mark.parametrize("settings", [{}, {"size": 42, "stack": 4}, {"size": 9, "length": 3}])
def test_it_is_an_environment(settings):
    check_env(MovingDot(**settings, render_mode="rgb_array"), skip_render_check=True)


def test_it_is_registered_under_its_name():
    env = make_registered("preferl/MovingDot-v0", size=84, stack=4, render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    assert observation.shape == (84, 84, 4)
    assert env.render().shape == (168, 168, 3)
    assert isinstance(env.unwrapped, MovingDot)
    assert isinstance(gymnasium.make("preferl/MovingDot-v0").unwrapped, MovingDot)


def test_actions_move_the_dot_and_edges_stop_it():
    env = MovingDot(size=8)
    env.reset(seed=0)
    for action, count in ((UP, 8), (LEFT, 8), (STAY, 2), (DOWN, 2), (RIGHT, 1)):
        for _ in range(count):
            seen, *_ = env.step(action)
    assert corner(seen) == (2, 1)
    for _ in range(8):
        seen, *_ = env.step(DOWN)
    assert corner(seen) == (6, 1)  # two pixels wide, so that it ends at the edge
    assert seen.sum() == 4 * 255


def test_the_reward_is_for_where_the_dot_was():
    env = MovingDot(size=8)
    env.reset(seed=0)
    for action in [UP] * 8 + [LEFT] * 8:
        env.step(action)
    _, reward, *_ = env.step(DOWN)
    assert reward == pytest.approx(-np.hypot(3, 3) / 8)  # middles at (1, 1) and (4, 4)
    _, reward, *_ = env.step(DOWN)
    assert reward == pytest.approx(-np.hypot(2, 3) / 8)
    env.step(DOWN)
    for _ in range(3):
        env.step(RIGHT)
    assert env.step(STAY)[1] == 0


def test_stacked_frames_are_the_last_ones_oldest_first():
    single = MovingDot(size=10)
    stacked = MovingDot(size=10, stack=3)
    frames = [single.reset(seed=1)[0]] * 3
    assert np.array_equal(stacked.reset(seed=1)[0], np.concatenate(frames, axis=-1))
    for action in (RIGHT, DOWN, LEFT, UP):
        frames = [*frames[1:], single.step(action)[0]]
        seen = stacked.step(action)[0]
        assert np.array_equal(seen, np.concatenate(frames, axis=-1))
    seen[:] = 7  # what was handed out is the caller's
    assert not np.array_equal(stacked.step(STAY)[0], seen)


def test_episodes_have_one_length_and_a_seed_makes_the_same():
    def play(seed):
        env = MovingDot(length=7)
        rng = np.random.default_rng(0)
        env.reset(seed=seed)
        return [env.step(int(rng.integers(5)))[1:4] for _ in range(7)]

    assert [ended for _, *ended in play(0)] == [[False, False]] * 6 + [[False, True]]
    assert play(0) == play(0) != play(1)


@pytest.mark.parametrize(
    "settings", [{"size": 7}, {"stack": 0}, {"length": 0}, {"render_mode": "human"}]
)
def test_numbers_out_of_range_are_named(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        MovingDot(**settings)
