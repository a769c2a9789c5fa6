"""Many members to one reward, by hand."""

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


def test_one_member_has_no_doubt():
    assert lower_bound(2.0)(REWARDS[:1]).tolist() == [1.0, 0.0, -3.0]
