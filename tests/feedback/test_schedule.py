"""Plans whose parts add up."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from preferl.errors import ConfigError
from preferl.feedback.schedule import SCHEDULES, PlannedIteration, apportion, plan

WEIGHTS = st.lists(st.floats(0, 1e300), min_size=1, max_size=30).filter(any)


@given(WEIGHTS, st.integers(0, 10**15))
def test_apportion_sums_exactly_and_rounds_each_share_up_or_down(weights, total):
    counts = apportion(weights, total)
    assert sum(counts.tolist()) == total
    largest = max(weights)
    relative = np.array(weights) / largest
    share = relative / relative.sum() * total
    assert (np.abs(counts - share) <= 1 + 1e-12 * total).all()


def test_apportion_gives_what_is_left_to_the_largest_remainders():
    # Shares 4.5, 3.375, 1.125 of 9: one is left over, for the .5.
    assert apportion([4, 3, 1], 9).tolist() == [5, 3, 1]


def test_nothing_can_be_shared_without_weight():
    assert apportion([0, 0], 0).tolist() == [0, 0]
    with pytest.raises(ConfigError, match="at least one above 0"):
        apportion([0, 0], 3)
    with pytest.raises(ConfigError, match="at least one above 0"):
        apportion([], 0)


@pytest.mark.parametrize("weights", [[1, -1], [float("nan")], [float("inf")]])
def test_weights_out_of_range_are_refused(weights):
    with pytest.raises(ConfigError, match="weights"):
        apportion(weights, 3)


@given(
    steps=st.integers(0, 10**12),
    queries=st.integers(0, 10**6),
    iterations=st.integers(1, 40),
    schedule=st.sampled_from([*SCHEDULES, lambda t: 2 - t]),
    initial_fraction=st.floats(0, 1),
    initial_share=st.floats(0, 1),
    oversampling=st.floats(1, 50),
    final_queries=st.booleans(),
)
def test_a_plan_sums_to_exactly_what_was_asked_for(
    steps,
    queries,
    iterations,
    schedule,
    initial_fraction,
    initial_share,
    oversampling,
    final_queries,
):
    initial_steps = min(steps, int(steps * initial_share))
    planned = plan(
        steps=steps,
        queries=queries,
        iterations=iterations,
        schedule=schedule,
        initial_fraction=initial_fraction,
        initial_steps=initial_steps,
        oversampling=oversampling,
        final_queries=final_queries,
    )
    assert len(planned) == iterations + 1
    assert sum(one.steps for one in planned) == steps
    assert sum(one.queries for one in planned) == queries
    assert planned[0].steps == initial_steps
    assert final_queries or planned[-1].queries == 0
    learning = [one.steps for one in planned[1:]]
    assert max(learning) - min(learning) <= 1
    for one in planned:
        assert min(one.steps, one.queries) >= 0
        assert one.candidates >= 2 * one.queries
        assert (one.candidates == 0) == (one.queries == 0)


def test_queries_follow_the_schedule_at_the_moment_of_asking():
    planned = plan(steps=30, queries=90, iterations=3, schedule=lambda t: 3 * t, initial_fraction=0)
    assert planned[1:] == [
        PlannedIteration(10, 30, 60),
        PlannedIteration(10, 60, 120),
        PlannedIteration(10, 0, 0),
    ]


def test_final_queries_are_those_of_the_schedule_at_the_end():
    planned = plan(
        steps=30,
        queries=120,
        iterations=3,
        schedule=lambda t: 3 * t,
        initial_fraction=0,
        final_queries=True,
    )
    assert [one.queries for one in planned] == [0, 20, 40, 60]
    planned = plan(steps=30, queries=10, iterations=1, initial_fraction=0.3, final_queries=True)
    assert [one.queries for one in planned] == [3, 7]


def test_a_schedule_without_weight_asks_everything_first():
    planned = plan(steps=30, queries=7, iterations=2, schedule=lambda t: 0.0)
    assert [one.queries for one in planned] == [7, 0, 0]
    # Linear decay has come to 0 when the only iteration ends.
    planned = plan(steps=30, queries=7, iterations=1, schedule="linear_decay", final_queries=True)
    assert [one.queries for one in planned] == [7, 0]


def test_schedules_are_their_formulas():
    assert [SCHEDULES["constant"](t) for t in (0.0, 0.5, 1.0)] == [1, 1, 1]
    assert [SCHEDULES["hyperbolic"](t) for t in (0.0, 0.25, 1.0)] == [1, 0.8, 0.5]
    assert [SCHEDULES["inverse_quadratic"](t) for t in (0.0, 0.5, 1.0)] == [1, 0.8, 0.5]
    assert [SCHEDULES["linear_decay"](t) for t in (0.0, 0.25, 1.0)] == [1, 0.75, 0]
    increase = [SCHEDULES["increase"](t) for t in (0.01, 0.51, 1.0)]
    assert increase == pytest.approx([1, 2, 100])


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # At 1/4, 1/2 and 3/4 the weights are 0.75, 0.5 and 0.25 of 1.5 in all.
        ("linear_decay", [30, 20, 10]),
        # 1/0.76, 1/0.51 and 1/0.26 of 7.12 in all: shares of 11.08, 16.52 and 32.40.
        ("increase", [11, 17, 32]),
    ],
)
def test_queries_become_fewer_or_more(schedule, expected):
    planned = plan(steps=40, queries=60, iterations=4, schedule=schedule, initial_fraction=0)
    assert [one.queries for one in planned] == [0, *expected, 0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"steps": -1}, "steps"),
        ({"steps": 1e6}, "steps.*whole number"),
        ({"queries": -1}, "queries"),
        ({"iterations": 0}, "iterations"),
        ({"initial_fraction": 1.1}, "initial_fraction"),
        ({"initial_steps": 101}, r"initial_steps.*\[0, 100\]"),
        ({"oversampling": 0.5}, "oversampling"),
        ({"schedule": "linear"}, "schedule.*hyperbolic.*'linear'"),
        ({"schedule": lambda t: -t}, "schedule.*elapsed"),
        ({"schedule": lambda t: float("nan")}, "schedule"),
    ],
)
def test_settings_out_of_range_are_named(change, named):
    settings = {"steps": 100, "queries": 10, "iterations": 3} | change
    with pytest.raises(ConfigError, match=named):
        plan(**settings)
