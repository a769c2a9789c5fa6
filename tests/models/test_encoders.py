"""Any common space to features: values by hand, statistics that are set and not gathered."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.errors import DataError, SpaceError
from preferl.models import VectorEncoder, check_spaces, infer_spaces
from preferl.models.encoders import CLIP
from preferl.models.spaces import feature_size
from preferl.shapes import map_observations
from preferl.training.batches import to_tensors

ONE = spaces.Box(-1, 1, (1,))


def features(space, values):
    encoder = VectorEncoder(space, ONE, use_actions=False)
    return encoder(to_tensors(map_observations(np.asarray, values), "cpu"), torch.zeros(1)).tolist()


@pytest.mark.parametrize(
    ("space", "values", "expected"),
    [
        (spaces.Box(-9, 9, (2,)), [[1.0, -2.0]], [[1.0, -2.0]]),
        (spaces.Box(-9, 9, ()), [3.0], [[3.0]]),
        (spaces.Box(-9, 9, (1, 2)), [[[1.0, -2.0]]], [[1.0, -2.0]]),
        (spaces.Discrete(3, start=-1), [-1, 1], [[1, 0, 0], [0, 0, 1]]),
        (spaces.MultiDiscrete([2, 3], start=[5, -1]), [[5, 1]], [[1, 0, 0, 0, 1]]),
        (spaces.MultiDiscrete([[2], [2]]), [[[1], [0]]], [[0, 1, 1, 0]]),
        (spaces.MultiBinary(3), np.array([[1, 0, 1]], np.int8), [[1, 0, 1]]),
        (spaces.Box(0, 255, (1, 1, 2), np.uint8), np.uint8([[[[255, 51]]]]), [[1.0, 0.2]]),
        (
            spaces.Dict([("b", spaces.Discrete(2)), ("a", spaces.Box(-9, 9, (1,)))]),
            {"a": [[7.0]], "b": [1]},
            [[0, 1, 7.0]],  # in the order of the space, not of the dictionary
        ),
    ],
)
def test_features_by_hand(space, values, expected):
    assert features(space, values) == [pytest.approx(row) for row in expected]
    assert feature_size(space) == len(expected[0])


def test_statistics_are_those_of_the_steps_and_only_numbers_are_scaled():
    rng = np.random.default_rng(0)
    space = spaces.Dict({"at": spaces.Box(-99, 99, (2,)), "mode": spaces.Discrete(2)})
    encoder = VectorEncoder(space, ONE)
    at = torch.from_numpy(rng.normal([5, -3], [2, 0.1], (1000, 2))).float()
    actions = torch.from_numpy(rng.normal(1, 3, (1000, 1))).float()
    mode = torch.from_numpy(rng.integers(0, 2, 1000))
    encoder.observe({"at": at, "mode": mode}, actions)
    encoded = encoder({"at": at, "mode": mode}, actions)
    numbers = encoded[:, [0, 1, 4]]
    torch.testing.assert_close(numbers.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(numbers.std(0, correction=0), torch.ones(3), atol=1e-4, rtol=0)
    assert torch.equal(encoded[:, 2:4], torch.nn.functional.one_hot(mode).float())
    assert encoder.count == 1000


def test_statistics_are_set_again_and_never_gathered():
    encoder = VectorEncoder(ONE, ONE)
    steps = torch.randn(50, 1, generator=torch.Generator().manual_seed(0))
    encoder.observe(steps * 100, steps)
    encoder.observe(steps, steps)
    mean = encoder.mean.clone()
    count = int(encoder.count)
    encoder.observe(steps, steps)
    assert torch.equal(encoder.mean, mean)
    assert int(encoder.count) == count == 50
    assert mean[0] == pytest.approx(float(steps.mean()), abs=1e-6)
    encoder.observe(steps[:0], steps[:0])
    assert torch.equal(encoder.mean, mean)


@pytest.mark.parametrize("constant", [0.1, -1e9])
def test_a_feature_that_never_moved_keeps_its_scale(constant):
    encoder = VectorEncoder(spaces.Box(-np.inf, np.inf, (2,)), ONE, use_actions=False)
    steps = torch.stack([torch.full((19,), constant), torch.linspace(-1, 1, 19)], dim=1)
    encoder.observe(steps, torch.zeros(19, 1))
    assert encoder.deviation[0] == 1
    encoded = encoder(steps, torch.zeros(19, 1))
    assert (encoded[:, 0] == 0).all()
    assert encoded[:, 1].std(correction=0).item() == pytest.approx(1, abs=1e-5)
    steps[0, 0] = torch.nextafter(steps[0, 0], torch.tensor(torch.inf))  # rounding is no scale
    encoder.observe(steps, torch.zeros(19, 1))
    assert encoder.deviation[0] == 1


def test_strange_numbers_are_cut_off_where_numbers_are_normalised():
    for normalise, expected in ((True, CLIP), (False, 1e9)):
        encoder = VectorEncoder(ONE, ONE, use_actions=False, normalise=normalise)
        encoder.observe(torch.linspace(-1, 1, 9)[:, None], torch.zeros(9, 1))
        encoded = encoder(torch.tensor([[1e9], [-1e9]]), torch.zeros(2, 1))
        assert encoded.tolist() == [[expected], [-expected]]


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Dict({"a": spaces.Sequence(ONE)})])
def test_spaces_without_an_encoding_are_refused(space):
    with pytest.raises(SpaceError, match="expected Box, Discrete, MultiDiscrete, MultiBinary"):
        VectorEncoder(space, ONE)


@pytest.mark.parametrize(
    ("space", "array", "words"),
    [
        (ONE, np.zeros((3, 2)), r"shape \(1,\) .* got shape \(2,\)"),
        (spaces.Dict({"a": ONE}), {"b": np.zeros((3, 1))}, r"expected \['a'\] .* got \['b'\]"),
        (spaces.Dict({"a": ONE}), {"a": np.zeros((3, 4))}, r"observations/a of the steps"),
        (spaces.Discrete(2, start=1), np.array([0, 1]), r"got 0"),
        (spaces.MultiDiscrete([2, 3]), np.array([[1, 2], [0, 3]]), r"got 3"),
    ],
)
def test_steps_of_other_spaces_are_refused(space, array, words):
    actions = np.zeros((3, 1), np.float32)
    with pytest.raises(SpaceError, match=words):
        check_spaces(space, ONE, array, actions, what="steps")
    with pytest.raises(SpaceError, match="actions of the data"):
        check_spaces(ONE, space, actions, array if isinstance(array, np.ndarray) else np.zeros(3))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros((3, 2), np.float32), spaces.Box(-np.inf, np.inf, (2,), np.float32)),
        (np.zeros(3), spaces.Box(-np.inf, np.inf, (), np.float64)),
        (np.array([0, 3, 1]), spaces.Discrete(4)),
        (np.array([[0, 3], [1, 1]]), spaces.MultiDiscrete([2, 4])),
        (np.array([[True, False]]), spaces.MultiBinary((2,))),
        (np.zeros((2, 4, 4, 3), np.uint8), spaces.Box(0, 255, (4, 4, 3), np.uint8)),
        (
            {"a": np.zeros((3, 1))},
            spaces.Dict({"a": spaces.Box(-np.inf, np.inf, (1,), np.float64)}),
        ),
    ],
)
def test_inferred_spaces_hold_what_they_were_inferred_from(array, expected):
    space, same = infer_spaces(array, array if not isinstance(array, dict) else array["a"])
    assert space == expected
    assert isinstance(array, dict) or same == expected
    check_spaces(space, space, array, array)
    VectorEncoder(space, space)(to_tensors(array, "cpu"), to_tensors(array, "cpu"))


def test_nothing_is_inferred_from_nothing():
    with pytest.raises(DataError, match="at least one"):
        infer_spaces(np.zeros((0, 2)), np.zeros(0, int))


@pytest.mark.parametrize(("offset", "spread"), [(1.7e9, 30.0), (1e4, 0.01)])
def test_numbers_far_from_zero_keep_what_they_vary_by(offset, spread):
    encoder = VectorEncoder(spaces.Box(-np.inf, np.inf, (1,), np.float64), ONE)
    steps = torch.linspace(-1, 1, 101, dtype=torch.float64)[:, None]
    actions = torch.zeros(101, 1)
    encoder.observe(steps, actions)
    near = encoder(steps, actions)
    encoder.observe(offset + spread * steps, actions)
    far = encoder(offset + spread * steps, actions)
    assert far.dtype == near.dtype == torch.float32
    torch.testing.assert_close(far, near, atol=1e-4, rtol=0)
