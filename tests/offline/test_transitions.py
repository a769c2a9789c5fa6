"""Steps as agents see them, and what each agent draws."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.data import Episodes
from preferl.errors import DataError, SpaceError
from preferl.offline import Transitions
from preferl.offline.transitions import (
    BLOCK,
    ActionScale,
    Minibatches,
    flat_observations,
    observation_size,
)

EPISODES = Episodes(
    observations=np.arange(10.0).reshape(5, 2),
    actions=np.array([[-3.0], [0.5], [1.0], [0.0], [0.25]]),
    rewards=np.arange(5.0),
    terminated=np.array([False, True, False, False, False]),
    final_observations=np.array([[20.0, 21.0], [30.0, 31.0]]),
    lengths=np.array([2, 3]),
)


def test_a_termination_ends_and_a_time_limit_does_not():
    steps = Transitions.of(EPISODES)
    assert steps.continues.tolist() == [1, 0, 1, 1, 1]
    assert steps.next_observations.tolist() == [[2, 3], [20, 21], [6, 7], [8, 9], [30, 31]]
    assert steps.rewards.tolist() == [0, 1, 2, 3, 4]
    assert len(steps) == 5
    assert all(
        getattr(steps, name).dtype == torch.float32
        for name in ("observations", "actions", "rewards", "continues")
    )


def test_rewards_of_each_agent():
    rewards = np.stack([np.zeros(5), np.ones(5)])
    assert Transitions.of(EPISODES, rewards=rewards).rewards.shape == (2, 5)
    with pytest.raises(DataError, match=r"expected shape \[5\]"):
        Transitions.of(EPISODES, rewards=np.zeros(4))
    with pytest.raises(DataError, match="NaN"):
        Transitions.of(EPISODES, rewards=np.full(5, np.nan))


def test_discrete_actions_are_refused():
    episodes = replace(EPISODES, actions=np.arange(5))
    with pytest.raises(DataError, match="expected floats, got int64"):
        Transitions.of(episodes)
    with pytest.raises(SpaceError, match="Box of floats"):
        ActionScale.of(spaces.Discrete(3))


def test_actions_beyond_a_tanh_are_noticed_where_there_are_no_bounds():
    ends = np.array([np.inf, 2], np.float32)
    scale = ActionScale.of(spaces.Box(-ends, ends))
    assert scale.beyond(torch.tensor([[-1.0, 2.0], [1.0, -2.0]])) == 0
    assert scale.beyond(torch.tensor([[-1.5, 0.0], [1.0, -2.0]])) == 1.5
    assert ActionScale.of(spaces.Box(-2, 2, (2,))).beyond(torch.full((1, 2), 1.5)) == 0


def test_dictionaries_lie_in_the_order_of_their_keys_however_nested():
    arrays = {"x": np.zeros((2, 1)), "y": np.full((2, 1, 2), 2.0), "b": np.ones((2, 1))}
    nested = {"b": arrays["b"], "a": {key: arrays[key] for key in "yx"}}
    flat = {"a/x": arrays["x"], "a/y": arrays["y"], "b": arrays["b"]}
    for given in (nested, flat):
        assert flat_observations(given).tolist() == [[0, 2, 2, 1]] * 2
    box = spaces.Box(-1, 1, (2, 3))
    assert observation_size(spaces.Dict({"a": box, "b": spaces.Dict({"c": box})})) == 12
    with pytest.raises(SpaceError, match="Box of floats"):
        observation_size(spaces.Box(0, 255, (8, 8, 3), np.uint8))


def test_actions_are_scaled_to_what_a_tanh_reaches():
    scale = ActionScale.of(
        spaces.Box(np.array([0, -np.inf]), np.array([4, np.inf]), dtype=np.float64)
    )
    actions = torch.tensor([[0.0, 0.5], [3.0, -7.0]])
    assert scale.inward(actions).tolist() == [[-1.0, 0.5], [0.5, -7.0]]
    assert scale.outward(scale.inward(actions)).tolist() == actions.tolist()


def drawn(seeds, update, *, data=None, size=400):
    data = data or Transitions.of(EPISODES)
    scale = ActionScale.of(spaces.Box(-1, 1, (1,)))
    return Minibatches(data, scale, seeds, size)(update)


def test_rows_of_a_minibatch_belong_together():
    batch = drawn([3, 4], 5)
    data = Transitions.of(EPISODES)
    assert batch.states.shape == (2, 2, 400, 2)
    assert batch.pairs.shape == (2, 2, 400, 3)
    assert batch.actions.shape == (2, 1, 400)
    rows = batch.rewards.long()  # rewards are row numbers here
    assert set(rows.flatten().tolist()) == {0, 1, 2, 3, 4}
    torch.testing.assert_close(batch.states[:, 0], data.observations[rows])
    torch.testing.assert_close(batch.states[:, 1], data.next_observations[rows])
    torch.testing.assert_close(batch.continues, data.continues[rows])
    clipped = data.actions.clamp(-1 + 1e-5, 1 - 1e-5)[rows]
    torch.testing.assert_close(batch.actions.mT, clipped, atol=0, rtol=0)
    assert float(batch.actions.abs().max()) < 1
    for critic in range(2):
        expected = torch.cat([data.observations[rows], clipped], dim=-1)
        torch.testing.assert_close(batch.pairs[critic], expected)


def test_what_an_agent_draws_depends_on_its_seed_and_the_update_alone():
    for update in (0, BLOCK - 1, BLOCK, 1000):
        together = drawn([7, 9], update)
        alone = drawn([9], update)
        assert together.rewards[1].tolist() == alone.rewards[0].tolist()
        assert together.rewards[0].tolist() != alone.rewards[0].tolist()
        assert together.dropout_seeds[1] == alone.dropout_seeds[0]
    assert drawn([9], 0).rewards.tolist() != drawn([9], 1).rewards.tolist()
    assert drawn([9], 0).rewards.tolist() != drawn([9], BLOCK).rewards.tolist()


def test_minibatches_are_uniform():
    counts = torch.bincount(drawn([0], 0, size=20_000).rewards[0].long(), minlength=5)
    assert (counts - 4_000).abs().max() < 5 * (20_000 * 0.2 * 0.8) ** 0.5
