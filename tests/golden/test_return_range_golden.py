"""Rewards scaled for four kinds of task equal the published implementation's."""

import numpy as np
import pytest

from preferl.data import Episodes
from preferl.training import scale_by_return_range


@pytest.mark.parametrize(
    ("task", "array"),
    [
        ("antmaze-medium-play-v2", "norm_antmaze-medium-play-v2"),
        ("hopper-medium-replay-v2", "norm_hopper-medium-replay-v2"),
        ("pen-human-v1", "norm_pen-human-v1"),
        ("Can_ph", "norm_Can"),
    ],
)
def test_scaled_rewards(shared, task, array):
    golden = np.load(shared / "golden/preference_transformer/relabel.npz")
    ends = np.flatnonzero(golden["out:dones_float"])
    lengths = np.diff(ends, prepend=-1)
    np.testing.assert_array_equal(lengths, golden["in:traj_lens"])
    episodes = Episodes(
        observations=golden["in:observations"],
        actions=golden["in:actions"],
        rewards=golden["out:pt_seq6_last_diff0"],
        terminated=golden["in:terminals"],
        final_observations=golden["in:next_observations"][ends],
        lengths=lengths,
    )
    scaled = scale_by_return_range(episodes, task)
    np.testing.assert_allclose(scaled.rewards, golden[f"out:{array}"], rtol=1e-6, atol=2e-5)
