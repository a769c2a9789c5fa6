"""Scripted teachers: truth tables worked out by hand, and what sampling amounts to."""

import math
from dataclasses import replace

import numpy as np
import pytest

from helpers.clips import at
from preferl.data import Clips
from preferl.errors import ConfigError, FeedbackError
from preferl.feedback import ScriptedTeacher

NAN = float("nan")


def clips(rewards, mask=None):
    array = np.asarray(rewards, np.float64)
    real = np.ones(array.shape, bool) if mask is None else np.asarray(mask, bool)
    return Clips(array[..., None], array[..., None], real, array)


def of_returns(first, second):
    """Clips of one step with these returns."""
    return clips(np.stack([np.asarray(first), np.asarray(second)], axis=1)[..., None])


def answers(teacher, shown):
    return teacher(shown, np.random.default_rng(0)).tolist()


def logit(p):
    return math.log(p / (1 - p))


def test_oracle_prefers_the_higher_return_and_calls_exact_ties_equal():
    shown = clips([[[1, 2], [0, 2]], [[0, 0], [0, 1]], [[3, 0], [1, 2]], [[-5, 0], [0, -6]]])
    assert answers(ScriptedTeacher.oracle(), shown) == [1.0, 0.0, 0.5, 1.0]


def test_temperature_divides_and_rationality_multiplies():
    shown = of_returns([2.0], [0.0])
    for teacher in (
        ScriptedTeacher(temperature=4, scale=None, sample=False),
        ScriptedTeacher(temperature=2, scale=2.0, sample=False),
        replace(ScriptedTeacher.noisy(rationality=0.25), sample=False),
    ):
        assert teacher.probabilities(shown)[0] == pytest.approx(1 / (1 + math.exp(-0.5)))


def test_deviation_is_the_root_mean_square_of_the_differences_shown():
    shown = of_returns([7.0, 0.0], [0.0, 1.0])  # differences 7 and -1: sqrt((49 + 1) / 2) = 5
    chance = ScriptedTeacher().probabilities(shown)
    assert list(map(logit, chance)) == pytest.approx([1.4, -0.2])


def test_length_compares_mean_rewards():
    shown = clips([[[3, 1, 2, 2], [0, 1, 1, 0]]])  # (8 - 2) / 4 steps
    chance = ScriptedTeacher(scale="length").probabilities(shown)
    assert logit(chance[0]) == pytest.approx(1.5)


@pytest.mark.parametrize("scale", ["deviation", "length", 3.0, None])
def test_equal_returns_are_a_toss_up_at_any_scale(scale):
    shown = of_returns(np.full(5, 300.0), np.full(5, 300.0))
    teacher = ScriptedTeacher(scale=scale, sample=False)
    np.testing.assert_array_equal(teacher.probabilities(shown), 0.5)


def test_rounding_is_not_mistaken_for_a_difference():
    shown = clips([[[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]])
    assert ScriptedTeacher().probabilities(shown)[0] == pytest.approx(0.5, abs=1e-6)


def test_discount_counts_from_the_first_step_and_recency_from_the_last():
    shown = clips([[[4, 0, 0], [0, 0, 3]]])
    unscaled = ScriptedTeacher(scale=None, sample=False)
    half = replace(unscaled, discount=0.5)  # 4 * 1 against 3 / 4
    assert logit(half.probabilities(shown)[0]) == pytest.approx(3.25)
    myopic = replace(unscaled, recency=0.5)  # 4 / 4 against 3 * 1
    assert logit(myopic.probabilities(shown)[0]) == pytest.approx(-2)
    assert answers(ScriptedTeacher.oracle(), shown) == [1.0]
    assert answers(ScriptedTeacher.myopic(0.5), shown) == [0.0]


def test_padded_steps_do_not_count():
    full = clips([[[5, 1, 1], [0, 0, 3]]])
    padded = clips([[[NAN, 1, 1], [0, 0, 3]]], [[[False, True, True], [True, True, True]]])
    assert answers(ScriptedTeacher.oracle(), full) == [1.0]
    assert answers(ScriptedTeacher.oracle(), padded) == [0.0]
    # Without its padding the first clip begins at its own first step: 1 + 1/2 against 3/4.
    discounted = ScriptedTeacher(scale=None, discount=0.5).probabilities(padded)
    assert logit(discounted[0]) == pytest.approx(0.75)


def test_the_logit_is_bounded():
    shown = of_returns([1e300, 0.0], [0.0, 1e300])
    teacher = ScriptedTeacher(temperature=1e-200, scale=None, largest_logit=2.0)
    assert list(map(logit, teacher.probabilities(shown))) == pytest.approx([2.0, -2.0])


def test_skip_declines_only_if_both_returns_are_low():
    teacher = ScriptedTeacher.skip(typical=10.0, margin=0.1)
    shown = of_returns([1.0, 0.5, 1.1, 0.0], [0.0, 1.0, 0.0, 9.0])
    np.testing.assert_array_equal(answers(teacher, shown), [NAN, NAN, 1.0, 0.0])


def test_skip_and_equal_work_where_returns_are_negative():
    shown = of_returns([-100.0, -91.0, -60.0], [-95.0, -89.0, -52.0])
    skip = ScriptedTeacher.skip(typical=-50.0, worst=-100.0, margin=0.2)  # at or below -90
    np.testing.assert_array_equal(answers(skip, shown), [NAN, 0.0, 0.0])
    equal = ScriptedTeacher.equal(typical=-50.0, worst=-100.0, margin=0.1)  # less than 5 apart
    assert answers(equal, shown) == [0.0, 0.5, 0.0]
    with pytest.raises(ConfigError, match=r"typical.*worst"):
        ScriptedTeacher.skip(typical=-50.0)


def test_thresholds_follow_the_policy():
    # Ten episodes of 1,000 steps return 800 on average, that is 40 in 50 steps; a tenth is 4.
    skip = ScriptedTeacher.skip().adapted(40.0)
    shown = of_returns([3.9, 4.1, 4.0], [2.0, 0.0, 0.0])
    np.testing.assert_array_equal(answers(skip, shown), [NAN, 1.0, NAN])
    equal = ScriptedTeacher.equal().adapted(40.0)
    assert answers(equal, of_returns([8.0, 8.0], [4.5, 4.0])) == [0.5, 1.0]
    # A better policy is asked more of, and the margin is used once, however often it is renewed.
    assert answers(skip.adapted(80.0), of_returns([7.9, 8.1], [0.0, 0.0]))[1] == 1.0
    assert math.isnan(answers(skip.adapted(80.0), of_returns([7.9], [0.0]))[0])
    assert skip.adapted(40.0) == skip


@pytest.mark.parametrize("typical", [0.0, -1.0])
def test_nothing_is_skipped_or_equal_while_the_policy_shows_nothing(typical):
    shown = of_returns([0.0, -2.0], [0.0, -1.0])
    for teacher in (ScriptedTeacher.skip(), ScriptedTeacher.equal()):
        assert answers(teacher.adapted(typical), shown) == [0.5, 0.0]


def test_margins_can_be_joined_with_other_settings():
    teacher = ScriptedTeacher(temperature=0, skip_margin=0.1, equal_margin=0.2, error_rate=1)
    shown = of_returns([0.9, 2.0, 9.0], [0.0, 1.0, 0.0])  # 1 is little, less than 2 is equal
    np.testing.assert_array_equal(answers(teacher.adapted(10.0), shown), [NAN, 0.5, 0.0])


def test_a_threshold_that_follows_an_unknown_policy_is_refused():
    for teacher in (ScriptedTeacher.skip(), ScriptedTeacher.equal()):
        with pytest.raises(FeedbackError, match=r"typical: expected a number.*got None.*adapted"):
            answers(teacher, of_returns([1.0], [0.0]))


def test_equal_overwrites_mistakes_and_looks_at_plain_returns():
    shown = clips([[[4, 0], [0, 3]], [[9, 0], [0, 0]]])
    teacher = ScriptedTeacher(temperature=0, recency=0.5, error_rate=1, equal_within=2)
    assert answers(teacher, shown) == [0.5, 0.0]


def test_mistakes_turn_answers_round_and_leave_ties():
    shown = of_returns([1.0, 0.0, 2.0], [0.0, 1.0, 2.0])
    assert answers(ScriptedTeacher.mistake(rate=1.0), shown) == [0.0, 1.0, 0.5]


def test_a_person_errs_declines_and_calls_alike_what_is_alike(rng):
    first = np.repeat([5.0, 0.0, 1.0], 20_000)  # 2 of 20 is the margin
    second = np.repeat([0.0, 5.0, 0.0], 20_000)
    given = ScriptedTeacher.person().adapted(20.0)(of_returns(first, second), rng).reshape(3, -1)
    declined = np.isnan(given)
    np.testing.assert_allclose(declined.mean(1), 0.05, atol=0.01)
    np.testing.assert_allclose((given[:2] == [[0.0], [1.0]]).mean(1), 0.095, atol=0.01)
    assert set(given[2][~declined[2]]) == {0.5}


def test_a_share_of_declined_pairs_does_not_change_the_other_answers():
    shown = of_returns(np.arange(50.0), np.arange(50.0)[::-1])
    teacher = ScriptedTeacher(temperature=0.5)
    answered, some = (
        replace(teacher, skip_rate=rate)(shown, np.random.default_rng(0)) for rate in (0.0, 0.4)
    )
    kept = ~np.isnan(some)
    assert 20 < kept.sum() < 40
    np.testing.assert_array_equal(some[kept], answered[kept])


def test_probabilities_mix_guesses_then_mistakes():
    shown = of_returns([1.0, 0.0], [0.0, 1.0])
    guessing = ScriptedTeacher(temperature=0, guess_rate=0.1)
    np.testing.assert_allclose(guessing.probabilities(shown), [0.95, 0.05])
    both = replace(guessing, error_rate=0.2)
    np.testing.assert_allclose(both.probabilities(shown), [0.77, 0.23])


@pytest.mark.parametrize(
    "teacher",
    [
        ScriptedTeacher(),
        ScriptedTeacher(temperature=0.3, guess_rate=0.1),
        ScriptedTeacher(temperature=0, error_rate=0.1),
        ScriptedTeacher(temperature=0.5, error_rate=0.2, guess_rate=0.3, recency=0.9),
    ],
)
def test_sampled_answers_come_as_often_as_their_probability(teacher, rng):
    repeats = 20_000
    one = rng.normal(size=(3, 2, 5))
    shown = clips(np.tile(one, (repeats, 1, 1)))
    given = teacher(shown, rng).reshape(repeats, 3)
    assert set(np.unique(given)) <= {0.0, 1.0}
    expected = teacher.probabilities(shown)[:3]
    deviation = np.sqrt(expected * (1 - expected) / repeats)
    assert (np.abs(given.mean(0) - expected) <= 4.5 * deviation + 1e-12).all()


def test_swapping_the_clips_mirrors_the_probability(rng):
    first, second = rng.normal(size=(2, 50)) + 3
    teacher = ScriptedTeacher(guess_rate=0.1, error_rate=0.1, equal_within=0.2)
    there = teacher.probabilities(of_returns(first, second))
    back = teacher.probabilities(of_returns(second, first))
    np.testing.assert_allclose(there, 1 - back)


def test_scaled_to_fixes_the_scale_for_pairs_shown_one_at_a_time(rng):
    rewards = rng.normal(size=400) * 70
    segments = at(*rewards)
    teacher = ScriptedTeacher().scaled_to(segments)
    assert teacher.scale == pytest.approx(math.sqrt(2) * rewards.std())
    few = of_returns([10.0], [0.0])
    many = of_returns([10.0, 900.0], [0.0, 0.0])
    assert teacher.probabilities(few)[0] == teacher.probabilities(many)[0]
    pairs = rng.integers(400, size=(20_000, 2))
    spread = np.sqrt(((rewards[pairs[:, 0]] - rewards[pairs[:, 1]]) ** 2).mean())
    assert teacher.scale == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", "width"),
        ("scale", 0.0),
        ("scale", NAN),
        ("discount", 1.5),
        ("skip_below", NAN),
        ("skip_margin", 1.1),
        ("equal_margin", -0.1),
    ],
)
def test_settings_out_of_range_are_named(name, value):
    with pytest.raises(ConfigError, match=name):
        ScriptedTeacher(**{name: value})


def test_clips_that_are_no_pairs_are_refused(rng):
    with pytest.raises(FeedbackError, match=r"\[P, 2, L\]"):
        ScriptedTeacher()(clips([[1.0, 2.0]]), rng)


def test_rewards_that_are_no_numbers_are_refused(rng):
    with pytest.raises(FeedbackError, match="finite"):
        ScriptedTeacher()(clips([[[1.0], [NAN]]]), rng)
