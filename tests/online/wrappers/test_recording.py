import numpy as np
import pytest
from gymnasium import spaces

from preferl.errors import DataError, DivergenceError, SpaceError
from preferl.online.wrappers.recording import Recording

SPACE = spaces.Box(-99, 99, (1,), np.float32)
ACTIONS = spaces.Discrete(9)


def column(*values):
    return np.array(values, np.float32)[:, None]


def test_whole_episodes_are_those_that_nothing_cut():
    recording = Recording(SPACE, ACTIONS, 2)
    recording.begin(column(0, 10))

    def step(*ended):
        recording.act(np.array([1, 1]))
        recording.advance(column(1, 11), np.zeros(2))
        if ended:
            recording.end(np.array(ended), np.zeros(len(ended), bool), column(*[1] * len(ended)))
            recording.begin(environments=np.isin([0, 1], ended))

    step()
    step(1)
    step()
    recording.take(unfinished="cut")
    assert recording.whole.tolist() == [True, False, False]
    step(0, 1)
    step(0)
    other = Recording(SPACE, ACTIONS, 2)
    other.restore(recording.snapshot())
    for one in (recording, other):
        one.take()
        assert one.whole.tolist() == [False, False, True], "the rest of one that was cut is a piece"
    recording.take()
    assert not len(recording.whole)


def test_no_step_has_the_success_of_one_that_was_there_before():
    recording = Recording(SPACE, ACTIONS, 1, capacity=8)
    recording.begin(column(0))
    found = []
    for number in range(1, 41):
        recording.act(np.array([1]))
        over = number % 4 == 0
        # As environments do that tell only with an episode's last step.
        recording.advance(column(1), np.zeros(1), success=np.array([number == 4]) if over else None)
        if over:
            recording.end(np.array([0]), np.array([False]), column(1))
            recording.begin()
        if number % 8 == 0:
            episodes = recording.take()
            assert episodes is not None
            found += episodes.success.tolist()
    assert np.flatnonzero(found).tolist() == [3]


def test_recent_steps_stop_where_the_episode_began():
    recording = Recording(SPACE, ACTIONS, 2)
    recording.begin(column(0, 10))
    for number in range(1, 4):
        recording.act(np.array([number, number]))
        recording.advance(column(number, 10 + number), np.zeros(2))
        if number == 2:
            recording.end(np.array([1]), np.array([False]), column(12))
            recording.begin(column(0, 20), environments=np.array([False, True]))
    recording.act(np.array([4, 4]))
    observations, actions, mask = recording.windows(4)
    assert mask.tolist() == [[True] * 4, [False, False, True, True]]
    assert observations[mask][:, 0].tolist() == [0, 1, 2, 3, 20, 13]
    assert actions[mask].tolist() == [1, 2, 3, 4, 3, 4]


def test_long_recordings_stay_small():
    recording = Recording(SPACE, ACTIONS, 2, capacity=4)
    recording.begin(column(0, 0))
    for number in range(1, 1001):
        recording.act(np.zeros(2, int))
        recording.advance(column(number, number), np.zeros(2))
        recording.cut(recording.pending >= 5)
        recording.take()
    assert recording.capacity <= 16


@pytest.mark.parametrize(
    ("space", "values"),
    [
        (spaces.Box(-5, 5, (2,), np.int64), [0.25, np.nan]),
        (spaces.Box(0, 255, (2,), np.uint8), [-1, 3]),
        (spaces.MultiBinary(2), [0.5, 1.0]),
    ],
)
def test_numbers_that_the_type_of_their_space_cannot_hold_are_refused(space, values):
    recording = Recording(spaces.Dict({"seen": space}), ACTIONS, 1)
    with pytest.raises(SpaceError, match="observations/seen: expected numbers of dtype"):
        recording.begin({"seen": np.array([values])})
    recording = Recording(SPACE, space, 1)
    recording.begin(column(0))
    with pytest.raises(SpaceError, match=f"actions: expected numbers of dtype {space.dtype}"):
        recording.act(np.array([values]))


@pytest.mark.parametrize("observations", [np.zeros((1, 3)), {"other": np.zeros((1, 2))}])
def test_observations_of_another_shape_or_keys_are_refused(observations):
    recording = Recording(spaces.Dict({"seen": SPACE}), ACTIONS, 1)
    with pytest.raises(SpaceError, match=r"expected the keys \['seen'\]"):
        recording.begin(observations)
    with pytest.raises(SpaceError, match=r"expected shape \(1,\), as their space, got \(3,\)"):
        recording.begin({"seen": np.zeros((1, 3))})


def test_numbers_that_are_not_finite_are_refused_where_steps_are_collected():
    recording = Recording(SPACE, SPACE, 2)
    with pytest.raises(DataError, match="observations of environment 1: expected finite numbers"):
        recording.begin(column(0, np.nan))
    recording.begin(column(0, 0))
    with pytest.raises(DivergenceError, match="NaN in the agent's actions"):
        recording.act(column(np.nan, 0))
    recording.act(column(0, 0))
    with pytest.raises(DataError, match="rewards of environment 0: expected finite numbers"):
        recording.advance(column(1, 1), np.array([np.inf, 0]))
    recording.pause()
    recording.begin(column(0, np.nan))
