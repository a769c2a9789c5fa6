"""Windows by index arithmetic equal a plain loop, and the buffer that acts equals both."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from preferl.data import History, window_indices

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def _by_loop(start_of_step, length):
    """What the indices mean, one step and one place at a time."""
    rows = np.zeros((len(start_of_step), length), int)
    mask = np.zeros((len(start_of_step), length), bool)
    for step, start in enumerate(start_of_step):
        for place in range(length):
            row = step - (length - 1 - place)
            mask[step, place] = row >= start
            rows[step, place] = row if row >= start else step
    return rows, mask


def _starts(lengths):
    return np.repeat(np.cumsum(lengths) - lengths, lengths)


@settings(max_examples=50)
@given(LENGTHS, st.integers(1, 12))
def test_windows_equal_a_loop(lengths, length):
    starts = _starts(lengths)
    rows, mask = window_indices(starts, length)
    expected_rows, expected_mask = _by_loop(starts, length)
    np.testing.assert_array_equal(rows, expected_rows)
    np.testing.assert_array_equal(mask, expected_mask)
    some = window_indices(starts, length, np.arange(len(starts))[::2])
    np.testing.assert_array_equal(some, (rows[::2], mask[::2]))


def _reset_times(rng, steps, environments):
    """`[steps, V]` true where a step begins an episode."""
    begins = rng.random((steps, environments)) < 0.2
    begins[0] = True
    return begins


@pytest.mark.parametrize("length", [1, 3, 8])
def test_history_equals_windows_through_resets(rng, length):
    steps = 40
    environments = 3
    begins = _reset_times(rng, steps, environments)
    observations = {"arm": rng.normal(size=(steps, environments, 2)), "eye": np.zeros((steps, 3))}
    observations["eye"][:] = np.arange(steps)[:, None]
    actions = rng.normal(size=(steps, environments, 1))
    clock = np.arange(steps)[:, None]
    starts = np.maximum.accumulate(np.where(begins, clock, 0))  # [steps, V]
    history = History(length, environments)
    for step in range(steps):
        history.forget(begins[step])
        now = {key: value[step] for key, value in observations.items()}
        seen, done, mask = history.append(now, actions[step])
        for environment in range(environments):
            rows, expected = window_indices(starts[:, environment], length, np.array([step]))
            np.testing.assert_array_equal(mask[environment], expected[0])
            real = rows[0][expected[0]]
            for key, value in observations.items():
                np.testing.assert_array_equal(
                    seen[key][environment][mask[environment]], value[real, environment]
                )
            np.testing.assert_array_equal(
                done[environment][mask[environment]], actions[real, environment]
            )
