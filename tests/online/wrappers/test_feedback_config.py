"""Settings of asking and collecting, and the guard of episodes' lengths."""

import re
from dataclasses import fields
from math import inf, nan

import pytest

from preferl.errors import ConfigError, DataError
from preferl.online import FeedbackConfig, OnlineConfig
from preferl.online.wrappers.feedback_config import (
    LengthGuard,
    QueryConfig,
    RepetitionGuard,
    VariableLengthWarning,
    settings_of,
)
from preferl.testing import make_episodes


def test_guards_say_the_same_everywhere() -> None:
    guard = LengthGuard("refuse")
    guard.check(None, 90)
    guard.check(90, 90)
    with pytest.raises(DataError, match='Pass variable_length="allow"'):
        guard.check(30, 90)


@pytest.mark.parametrize(
    ("lengths", "queries", "asked", "steps", "warning"),
    [
        ([12, 12], 2, 2, 2400, None),
        ([12, 12], 4, 4, 2400, "4 queries show 8 clips, and there are 6 different ones of 10 steps "
         r"\(0 of 2 episodes are shorter\)"),
        ([12, 12, 9], 4, 4, 2400, r"6 different ones .*\(1 of 3 episodes"),
        ([30], 3, 3, 2400, None),
        ([30], 4, 4, 2400, "each step is shown 2.7 times on average .4 queries, clips of 10 steps"),
        ([300], 1, 30, 300, None),
        ([300], 1, 31, 300, "each step is shown 2.1 times on average .31 queries"),
        ([9], 0, 0, 9, None),
    ],
)  # fmt: skip
def test_clips_that_run_short_are_warned_of(
    caplog, rng, lengths, queries, asked, steps, warning
) -> None:
    guard = RepetitionGuard(QueryConfig(segment_length=10, short="drop"))
    for _ in range(2):
        guard.check(make_episodes(rng, lengths), queries, asked=asked, steps=steps)
    assert guard.warned == (warning is not None)
    assert len(caplog.records) == (warning is not None)
    if warning is not None:
        assert re.search(warning, caplog.text)


def test_what_the_loop_and_wrappers_share_has_one_default() -> None:
    loop = OnlineConfig()
    wrapper = FeedbackConfig()
    for field in fields(QueryConfig):
        assert getattr(loop, field.name) == getattr(wrapper, field.name), field.name
    with pytest.raises(ConfigError, match="uniform, informative"):
        FeedbackConfig(sampler="any")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="oversampling"):
        OnlineConfig(oversampling=-inf)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("segment_length", 0), ("buffer_steps", 0), ("oversampling", 0.5), ("oversampling", nan),
        ("acquisition", "any"), ("short", "cut"), ("max_pending", 0), ("buffer_megabytes", 0.0),
        ("longest_piece", 49), ("max_queries", 0), ("ask_every", 0), ("refresh_every", 0),
        ("episode_every", -1.0), ("before", "learned"), ("variable_length", "perhaps"),
    ],
)  # fmt: skip
def test_a_setting_out_of_its_range_is_named(name, wrong) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected"):
        FeedbackConfig(**{name: wrong})


def test_keywords_change_a_config_or_the_defaults() -> None:
    given = FeedbackConfig(segment_length=7, seed=3)
    assert settings_of(given, {"seed": 4}) == FeedbackConfig(segment_length=7, seed=4)
    assert given.seed == 3
    assert settings_of(None, {}) == FeedbackConfig()
    with pytest.raises(ConfigError, match=r"settings: .*got \['zoom'\]"):
        settings_of(given, {"zoom": 1, "seed": 5})
    with pytest.raises(ConfigError, match="max_pending"):
        settings_of(given, {"max_pending": 0})


def test_a_guard_that_allows_warns_once() -> None:
    guard = LengthGuard("allow")
    with pytest.warns(VariableLengthWarning, match=r"length \(30 to 90 steps\)"):
        guard.check(30, 90)
    guard.check(30, 90)  # a second warning would be an error
    assert guard.warned


def test_a_guard_of_nothing_and_one_without_ended_episodes_are_silent() -> None:
    LengthGuard(None).check(30, 90)  # warnings are errors here
    LengthGuard("allow").check(None, 90)
    LengthGuard("refuse").check(90, 90, "more")
