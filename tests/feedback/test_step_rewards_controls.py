import numpy as np
import pytest

from preferl.data import Segments
from preferl.errors import ConfigError
from preferl.evaluation import negated, oracle, random, zero


def first_feature(observations, actions):
    assert isinstance(observations, np.ndarray)
    return np.asarray(observations[:, 0])


@pytest.fixture
def segments(rng):
    observations = rng.normal(size=(10, 3))
    actions = rng.normal(size=(10, 2))
    return Segments(
        observations, actions, np.arange(10.0), np.array([0, 2, 7]), np.array([4, 4, 2]), 4
    )


def builds():
    return [zero(), random(3), negated(random(3)), oracle(first_feature)]


@pytest.mark.parametrize("reward", builds())
def test_scores_are_sums_over_real_steps(reward, segments):
    assert (reward.context, reward.members) == (1, 1)
    clips = segments[:]
    steps = clips.actions.reshape(12, 1, 2)
    each = reward(clips.observations.reshape(12, 1, 3), steps, np.ones((12, 1), bool))
    expected = (each.reshape(3, 4) * clips.mask).sum(-1)
    np.testing.assert_allclose(reward.scores(segments), expected[None], atol=1e-12)


def test_random_is_a_function_and_depends_on_its_seed(rng):
    observations = rng.normal(size=(500, 1, 3))
    actions = rng.normal(size=(500, 1, 2))
    mask = np.ones((500, 1), bool)
    first = random(0)(observations, actions, mask)
    np.testing.assert_array_equal(first, random(0)(observations, actions, mask))
    np.testing.assert_allclose(first[7:8], random(0)(observations[7:8], actions[7:8], mask[7:8]))
    assert abs(np.corrcoef(first, random(1)(observations, actions, mask))[0, 1]) < 0.9
    assert first.std() > 0.01


def test_random_sees_dictionaries_pixels_and_discrete_actions():
    observations = {"camera": np.zeros((2, 1, 4, 4, 3), np.uint8)}
    rewards = random()(observations, np.array([[0], [1]]), np.ones((2, 1), bool))
    assert rewards.shape == (2,)
    assert rewards[0] != rewards[1]


def test_recorded_oracle_scores_segments_alone(segments):
    recorded = oracle()
    assert recorded.scores(segments).tolist() == [[6.0, 14.0, 15.0]]
    assert (recorded.context, recorded.members) == (1, 1)
    with pytest.raises(ConfigError, match="as a function"):
        recorded(np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), np.ones((1, 1), bool))
