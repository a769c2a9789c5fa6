import numpy as np
import pytest

from preferl.errors import ConfigError
from preferl.testing import CrowdConfig, simulate_crowd


def test_everybody_gets_the_share_that_was_asked_for(rng):
    config = CrowdConfig(answers=200, quorum=3, known_share=0.1, repeat_share=0.05)
    crowd = simulate_crowd(np.zeros(6), rng, config)
    votes = crowd.votes
    known = ~np.isnan(votes.known)
    repeat = votes.is_repeat
    assert np.bincount(votes.annotator[known]).tolist() == [20] * 6
    assert np.bincount(votes.annotator[repeat]).tolist() == [10] * 6
    assert len(votes) == 6 * 200
    ordinary = ~known & ~repeat
    assert (np.bincount(votes.query[ordinary]) == 3).all()
    repeats, originals = votes.repeated()
    assert len(repeats) == 60
    swapped = votes.swapped[repeats] != votes.swapped[originals]
    assert 0.3 < swapped.mean() < 0.7
    np.testing.assert_array_equal(
        crowd.truth[votes.query[repeats]], crowd.truth[votes.query[originals]]
    )
    np.testing.assert_array_equal(votes.known[known], crowd.truth[votes.query[known]])


def test_ties_where_clips_are_about_equal(rng):
    config = CrowdConfig(tie_width=2.0, cannot_tell=0.1)
    crowd = simulate_crowd(np.zeros(3), rng, config)
    votes = crowd.votes
    assert np.isnan(votes.preference).mean() == pytest.approx(0.1, abs=0.03)
    tied = crowd.truth[votes.query[votes.counts]] == 0.5
    np.testing.assert_array_equal(votes.preference[votes.counts] == 0.5, tied)


def test_a_crowd_that_cannot_be(rng):
    with pytest.raises(ConfigError, match="careless: expected shares in"):
        simulate_crowd(np.zeros(2), rng)
    with pytest.raises(ConfigError, match="known_share"):
        CrowdConfig(known_share=0.7)
