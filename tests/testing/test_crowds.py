import numpy as np
import pytest

from preferl.errors import ConfigError
from preferl.store.quality.agreement import agreement_report
from preferl.testing import CrowdConfig, simulate_crowd


def test_everybody_gets_the_share_that_was_asked_for():
    config = CrowdConfig(answers=200, quorum=3, known_share=0.1, repeat_share=0.05)
    crowd = simulate_crowd(np.zeros(6), np.random.default_rng(0), config)
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


def test_care_is_the_share_of_careful_answers():
    rng = np.random.default_rng(0)
    crowd = simulate_crowd(np.zeros(3), rng, CrowdConfig(answers=5000))
    assert agreement_report(crowd.votes, np.random.default_rng(0)).raw == pytest.approx(
        0.85, abs=0.015
    )
    crowd = simulate_crowd(np.array([0.25] * 3), rng, CrowdConfig(answers=5000))
    assert crowd.careful.mean() == pytest.approx(0.75, abs=0.02)


def test_random_answers_may_lean_to_a_side():
    crowd = simulate_crowd(np.ones(3), np.random.default_rng(0), random_left=0.8)
    assert crowd.votes.left.mean() == pytest.approx(0.8, abs=0.05)
    assert crowd.votes.preference.mean() == pytest.approx(0.5, abs=0.06)


def test_ties_where_clips_are_about_equal():
    config = CrowdConfig(tie_width=2.0, cannot_tell=0.1)
    crowd = simulate_crowd(np.zeros(3), np.random.default_rng(0), config)
    votes = crowd.votes
    assert np.isnan(votes.preference).mean() == pytest.approx(0.1, abs=0.03)
    tied = crowd.truth[votes.query[votes.counts]] == 0.5
    np.testing.assert_array_equal(votes.preference[votes.counts] == 0.5, tied)


def test_a_crowd_that_cannot_be():
    with pytest.raises(ConfigError, match="careless: expected shares in"):
        simulate_crowd(np.zeros(2), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="known_share"):
        CrowdConfig(known_share=0.7)
