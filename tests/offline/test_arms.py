"""What agents are paid: arms by seed, scaled alike."""

import numpy as np
import pytest

from preferl.data.tasks import Task
from preferl.errors import ConfigError, DataError
from preferl.offline.arms import SEED_LIMIT, Arms, build_arms
from preferl.testing import make_episodes

TASK = Task("reach", random=0, expert=1, max_episode_steps=10, shift_after=0.5)


@pytest.fixture
def episodes(rng):
    return make_episodes(rng, [4, 6, 3])


def returns(episodes, rewards):
    return np.add.reduceat(rewards.astype(float), episodes.starts)


def test_every_arm_has_a_row_per_seed(episodes, rng):
    learned = rng.normal(size=13).astype(np.float32)
    arms = build_arms(episodes, learned, seeds=(3, 5))
    assert arms.names == ("learned", "true", "zero", "negated", "random")
    assert arms.rewards.shape == (5, 2, 13)
    assert arms.agents[:3] == ("learned-3", "learned-5", "true-3")
    assert arms.agent_seeds[:3] == [3, 5, SEED_LIMIT + 3]
    assert len(set(arms.agent_seeds)) == 10
    np.testing.assert_array_equal(arms.flat_rewards[2], arms.rewards[1, 0])
    rows = dict(zip(arms.names, arms.rewards, strict=True))
    for name in ("learned", "true", "zero", "negated"):
        np.testing.assert_array_equal(rows[name][0], rows[name][1])
    assert not rows["zero"].any()
    np.testing.assert_array_equal(rows["negated"], -rows["learned"])
    assert np.abs(rows["random"][0] - rows["random"][1]).max() > 0.1


def test_the_range_of_returns_becomes_the_horizon(episodes, rng):
    learned = rng.normal(size=13)
    arms = build_arms(episodes, learned, seeds=(0,))
    for name, rewards in zip(arms.names, arms.rewards, strict=True):
        if name != "zero":
            # without a task, the longest episode has 6 steps
            assert np.ptp(returns(episodes, rewards[0])) == pytest.approx(6, rel=1e-5)
    scaled = build_arms(episodes, learned, seeds=(0,), task=TASK)
    rows = dict(zip(scaled.names, scaled.rewards[:, 0], strict=True))
    factor = 10 / np.ptp(returns(episodes, learned))
    np.testing.assert_allclose(rows["learned"], learned * factor + 0.5, rtol=1e-5)
    np.testing.assert_allclose(rows["negated"], -learned * factor + 0.5, rtol=1e-5)
    np.testing.assert_allclose(rows["true"], episodes.rewards, rtol=1e-6)  # this task leaves it
    assert not rows["zero"].any()


def test_without_controls_or_a_true_reward_there_are_fewer(rng):
    unknown = make_episodes(rng, [4, 4], reward=lambda seen, done: np.zeros(len(done)))
    learned = rng.normal(size=8)
    assert build_arms(unknown, learned, seeds=(0,), controls=False).names == ("learned",)
    assert "true" not in build_arms(unknown, learned, seeds=(0,)).names


@pytest.mark.parametrize("seeds", [(), (0, 0), (-1,), (SEED_LIMIT,)])
def test_seeds_are_checked(episodes, seeds):
    with pytest.raises(ConfigError, match="seeds"):
        build_arms(episodes, np.zeros(13), seeds=seeds)


def test_shapes_are_checked(episodes):
    with pytest.raises(DataError, match="learned"):
        build_arms(episodes, np.zeros(12), seeds=(0,))
    with pytest.raises(DataError, match=r"Arms\.rewards"):
        Arms(("learned",), (0, 1), np.zeros((1, 1, 5)))
