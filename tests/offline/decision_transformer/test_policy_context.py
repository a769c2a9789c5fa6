"""What a Decision Transformer sees as it acts, step by step."""

import numpy as np
import pytest

from preferl.errors import ConfigError, SpaceError
from preferl.offline.decision_transformer.policy import Context
from preferl.offline.decision_transformer.sequences import InputStatistics

STATISTICS = InputStatistics(
    context=3,
    horizon=3,
    discount=0.5,
    scale=10.0,
    longest=5,
    quantiles=(),
    mean=np.zeros(2, np.float32),
    deviation=np.ones(2, np.float32),
)


def context(environments=1, targets=(6.0,)):
    return Context(STATISTICS, np.zeros((environments, 2)), 1, np.array(targets))


def test_the_window_slides_and_late_steps_share_the_last_embedding():
    seen = context()
    real = []
    for step in range(4):
        seen.append(np.full((1, 2), step), None, "even")
        real.append(seen.real.sum())
    assert real == [1, 2, 3, 3]
    assert seen.states[0, :, 0].tolist() == [1, 2, 3]
    assert seen.timesteps.tolist() == [[1, 2, 2]]


def test_rewards_lower_the_target_of_each_candidate():
    seen = context(2, targets=(6.0, 12.0))
    seen.append(np.zeros((2, 2)), None, "received")
    np.testing.assert_allclose(seen.returns_to_go[:, :, -1], [[0.6, 1.2]] * 2)
    seen.rewards = np.array([2.0, -1.0])
    seen.append(np.zeros((2, 2)), None, "received")
    expected = [[0.8, 2.0], [1.4, 2.6]]  # (0.6 - 0.2) / 0.5 and so on
    np.testing.assert_allclose(seen.returns_to_go[:, :, -1], expected, rtol=1e-6)


def test_evenly_the_target_is_spent_over_the_longest_episode_and_no_further():
    seen = context()
    found = []
    for _ in range(7):
        seen.append(np.zeros((1, 2)), None, "even")
        found.append(seen.returns_to_go[0, 0, -1])
    np.testing.assert_allclose(found, [0.6, 0.48, 0.36, 0.24, 0.12, 0, 0], atol=1e-6)


def test_rewards_are_asked_for_at_each_step_but_the_first():
    seen = context(2)
    seen.append(np.zeros((2, 2)), None, "received")
    seen.append(np.zeros((2, 2)), np.array([True, True]), "received")  # both begin anew
    with pytest.raises(ConfigError, match=r'reward of the last actions.*decrement="even"'):
        seen.append(np.zeros((2, 2)), np.array([True, False]), "received")
    with pytest.raises(SpaceError, match="expected 2 rows, got 3"):
        seen.append(np.zeros((3, 2)), None, "received")
