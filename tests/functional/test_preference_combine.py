"""Many members to one reward, by hand."""

import math

import pytest
import torch

from preferl.functional import lower_bound, mean

REWARDS = torch.tensor([[1.0, 0.0, -3.0], [3.0, 0.0, 3.0]])


def test_the_mean_over_members():
    assert mean(REWARDS).tolist() == [2.0, 0.0, 0.0]


def test_lower_bounds_pay_less_where_members_disagree():
    assert lower_bound(1.0)(REWARDS).tolist() == [1.0, 0.0, -3.0]
    assert lower_bound(0.5)(REWARDS).tolist() == [1.5, 0.0, -1.5]
    assert lower_bound(-1.0)(REWARDS).tolist() == [3.0, 0.0, 3.0]
    assert lower_bound(0.0)(REWARDS).tolist() == mean(REWARDS).tolist()


def test_imitations_bonus_by_hand():
    rewards = torch.tensor([[1.0], [2.0], [6.0]])  # mean 3, sum of squares 14
    sample = math.sqrt(14 / 2)  # what imitation's AddSTDRewardWrapper multiplies by alpha
    found = lower_bound(-0.5 * math.sqrt(3 / 2))(rewards).item()
    assert found == pytest.approx(3 + 0.5 * sample)
    assert lower_bound(-0.5)(rewards).item() == pytest.approx(3 + 0.5 * math.sqrt(14 / 3))


def test_one_member_has_no_doubt():
    assert lower_bound(2.0)(REWARDS[:1]).tolist() == [1.0, 0.0, -3.0]
