"""Settings of asking and collecting, and the guard of episodes' lengths."""

import re

import pytest

from preferl.errors import ConfigError
from preferl.online import FeedbackConfig
from preferl.online.wrappers.feedback_config import QueryConfig, RepetitionGuard, settings_of
from preferl.testing import make_episodes


@pytest.mark.parametrize(
    ("lengths", "queries", "asked", "steps", "warning"),
    [
        ([12, 12], 2, 2, 2400, None),
        ([12, 12], 4, 4, 2400, "4 queries show 8 clips, and there are 6 different ones of 10 steps "
         r"\(0 of 2 episodes are shorter\)"),
        ([12, 12, 9], 4, 4, 2400, r"6 different ones .*\(1 of 3 episodes"),
        ([300], 1, 30, 300, None),
        ([300], 1, 31, 300, "each step is shown 2.1 times on average .31 queries"),
        ([9], 0, 0, 9, None),
    ],
)  # fmt: skip
def test_clips_that_run_short_are_warned_of(caplog, rng, lengths, queries, asked, steps, warning):
    guard = RepetitionGuard(QueryConfig(segment_length=10, short="drop"))
    for _ in range(2):
        guard.check(make_episodes(rng, lengths), queries, asked=asked, steps=steps)
    assert guard.warned == (warning is not None)
    assert len(caplog.records) == (warning is not None)
    if warning is not None:
        assert re.search(warning, caplog.text)


@pytest.mark.parametrize(("name", "wrong"), [("longest_piece", 49), ("episode_every", -1.0)])
def test_a_setting_out_of_its_range_is_named(name, wrong):
    with pytest.raises(ConfigError, match=f"{name}: expected"):
        FeedbackConfig(**{name: wrong})


def test_keywords_change_a_config_or_the_defaults():
    given = FeedbackConfig(segment_length=7, seed=3)
    assert settings_of(given, {"seed": 4}) == FeedbackConfig(segment_length=7, seed=4)
    assert given.seed == 3
    assert settings_of(None, {}) == FeedbackConfig()
    with pytest.raises(ConfigError, match=r"settings: .*got \['zoom'\]"):
        settings_of(given, {"zoom": 1, "seed": 5})
    with pytest.raises(ConfigError, match="max_pending"):
        settings_of(given, {"max_pending": 0})
