"""Episodes: boundaries, returns, selection, joining, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from preferl.data import Episodes, join
from preferl.errors import DataError


def _episodes(lengths=(2, 3), *, seed=0, terminated=()):
    rng = np.random.default_rng(seed)
    steps = sum(lengths)
    ended = np.zeros(steps, bool)
    ended[list(terminated)] = True
    return Episodes(
        rng.normal(size=(steps, 2)),
        rng.normal(size=(steps, 1)),
        np.arange(float(steps)),
        ended,
        rng.normal(size=(len(lengths), 2)),
        np.array(lengths, int),
    )


def _as_dictionary(episodes):
    return replace(
        episodes,
        observations={"arm": episodes.observations, "eye": episodes.observations[:, 0]},
        final_observations={
            "arm": episodes.final_observations,
            "eye": episodes.final_observations[:, 0],
        },
    )


def test_boundaries_are_data():
    episodes = _episodes((2, 3, 1), terminated=[1])
    assert episodes.starts.tolist() == [0, 2, 5]
    assert episodes.ends.tolist() == [2, 5, 6]
    assert episodes.start_of_step.tolist() == [0, 0, 2, 2, 2, 5]
    assert episodes.returns.tolist() == [1.0, 9.0, 5.0]
    assert episodes.truncated.tolist() == [False, False, False, False, True, True]


def test_rewards_of_zero_are_none():
    episodes = _episodes((2, 3))
    assert not replace(episodes, rewards=np.zeros(5)).has_true_reward
    assert replace(episodes, rewards=np.full(5, -1.0)).has_true_reward
    assert replace(episodes, rewards=np.array([0.0, 0, 0, 0, 1])).has_true_reward
    assert not _episodes(())[[]].has_true_reward


def test_next_observations_end_with_the_final_one():
    episodes = _episodes((2, 3))
    following = episodes.next_observations
    np.testing.assert_array_equal(following[0], episodes.observations[1])
    np.testing.assert_array_equal(following[[1, 4]], episodes.final_observations)
    keyed = _as_dictionary(episodes).next_observations
    np.testing.assert_array_equal(keyed["arm"], following)
    np.testing.assert_array_equal(keyed["eye"], following[:, 0])


@pytest.mark.parametrize(
    "chosen", [np.array([2, 0]), np.array([True, False, True]), slice(1, None)]
)
def test_selection_equals_cutting_by_hand(chosen):
    episodes = _episodes((2, 3, 1))
    numbers = np.arange(3)[chosen]
    rows = np.concatenate(
        [np.arange(episodes.starts[number], episodes.ends[number]) for number in numbers]
    )
    selected = episodes[chosen]
    np.testing.assert_array_equal(selected.observations, episodes.observations[rows])
    np.testing.assert_array_equal(selected.rewards, episodes.rewards[rows])
    np.testing.assert_array_equal(selected.final_observations, episodes.final_observations[numbers])


def test_numbers_and_iteration_give_tables_of_one():
    episodes = _episodes((2, 3, 1))
    np.testing.assert_array_equal(episodes[-2].rewards, [2.0, 3.0, 4.0])
    assert [one.lengths.tolist() for one in episodes] == [[2], [3], [1]]
    with pytest.raises(IndexError):
        episodes[3]


def test_join_undoes_selection():
    episodes = _as_dictionary(_episodes((2, 3, 1)))
    joined = join([episodes[:1], episodes[1:]])
    assert joined.lengths.tolist() == [2, 3, 1]
    for key in ("arm", "eye"):
        np.testing.assert_array_equal(joined.observations[key], episodes.observations[key])


def test_join_keeps_states_only_if_all_have_them():
    episodes = _episodes()
    with_states = replace(episodes, states=np.arange(10.0).reshape(5, 2))
    assert join([with_states, with_states]).states.shape == (10, 2)
    assert join([with_states, episodes]).states is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("field", ["observations", "final_observations", "actions", "rewards"])
def test_numbers_must_be_finite(field, value):
    episodes = _episodes()
    array = getattr(episodes, field).copy()
    array[1] = value
    with pytest.raises(DataError, match=rf"{field}: expected finite.*row 1"):
        replace(episodes, **{field: array})


def test_termination_only_at_an_end():
    with pytest.raises(DataError, match="inside an episode at step 3"):
        _episodes((2, 3), terminated=[1, 3])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"lengths": np.array([2, 4])}, "6 rows"),
        ({"lengths": np.array([5, 0])}, "at least 1"),
        ({"lengths": np.array([2.0, 3.0])}, "whole numbers"),
        ({"actions": np.zeros((4, 1))}, "actions.*5 rows.*4 rows"),
        ({"states": np.zeros((4, 1))}, "states"),
        ({"rewards": np.zeros((5, 1))}, "one axis"),
        ({"terminated": np.zeros(5, np.uint8)}, "booleans"),
        ({"observations": np.zeros((6, 2))}, "observations"),
        ({"final_observations": np.zeros((1, 2))}, "final_observations"),
        ({"final_observations": np.zeros((2, 3))}, "final_observations"),
        ({"final_observations": {"arm": np.zeros((2, 2))}}, "final_observations"),
    ],
)
def test_shapes_must_agree(change, match):
    with pytest.raises(DataError, match=match):
        replace(_episodes(), **change)
