"""Questions drawn again and answered by the true reward."""

import numpy as np
import pytest

from helpers.numbered_steps import numbered_episodes
from preferl.data.sources import (
    LabelRows,
    load_demonstrations,
    read_labels,
    sample_pt_queries,
    scripted_preferences,
)
from preferl.errors import DataError

ROWS = LabelRows(np.array([0, 1, 0]), np.array([2, 0, 3]), np.array([0.0, 0.0, 1.0]), 2)


@pytest.mark.parametrize(("ties", "expected"), [("half", [0, 1, 0.5]), ("first", [0, 1, 1])])
def test_more_reward_is_preferred(ties, expected):
    episodes = numbered_episodes([5], [0.0, 1, 3, 1, 0])  # sums by start: 1, 4, 4, 1
    answered = scripted_preferences(ROWS, episodes, ties=ties)
    assert answered.preference.tolist() == expected
    shown = answered.segments[answered.pairs].observations[..., 0, 0]
    assert shown.tolist() == [[0, 2], [1, 0], [0, 3]]


def test_segments_across_an_end():
    episodes = numbered_episodes([2, 3], [0.0, 1, 3, 1, 0])  # the window at 1 crosses
    assert len(scripted_preferences(ROWS, episodes)) == 2
    assert scripted_preferences(ROWS, episodes, crossing="keep").preference.tolist() == [0, 1, 0.5]
    with pytest.raises(DataError, match="1 of 3 pairs"):
        scripted_preferences(ROWS, episodes, crossing="error")


def test_sums_have_the_precision_of_the_rewards():
    rewards = np.array([1.0, 0.0, 1.0, 1e-9], np.float32)
    rows = LabelRows(np.array([0]), np.array([2]), np.array([np.nan]), 2)
    assert scripted_preferences(rows, numbered_episodes([4], rewards)).preference.tolist() == [0.5]
    exact = numbered_episodes([4], rewards.astype(np.float64))
    assert scripted_preferences(rows, exact).preference.tolist() == [0]


def test_questions_stay_inside_long_episodes_but_the_last():
    lengths = np.array([5, 20, 11, 10, 30])  # of segments of 10, only those at 5 and 25 are longer
    rows = sample_pt_queries(lengths, 300, 10, seed=1)
    starts = np.concatenate([rows.first, rows.second])
    assert set(starts) == {*range(5, 16), 25, 26}
    assert 0.4 < (starts >= 25).mean() < 0.6  # episodes are drawn evenly, whatever their length
    assert np.isnan(rows.preference).all()
    assert (len(rows), rows.length) == (300, 10)


def test_published_computed_answers_are_those_of_the_true_reward(shared):
    folder = shared / "data/adroit-door-human"
    episodes = load_demonstrations(folder / "door-v0_demos.pickle")
    rows = read_labels(folder / "door-human-v1_fake_labels")
    ours = scripted_preferences(rows, episodes, crossing="keep").preference
    assert len(ours) == 1600
    assert (ours == rows.preference).mean() > 0.98  # 0.5 where rewards are shuffled
