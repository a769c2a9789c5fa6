import json

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.errors import SpaceError
from preferl.models.encoders import PictureEncoder
from preferl.models.spaces import (
    can_read,
    channels_first,
    infer_spaces,
    space_from_json,
    space_to_json,
)

ACTIONS = spaces.Discrete(3)


def frames(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((64, 48, 3), False),
        ((12, 16, 16), True),
        ((21, 21, 20), False),
        ((4, 84, 84, 3), False),
        ((4, 3, 84, 84), True),
        ((84, 84), True),
    ],
)
def test_channels_are_on_the_smaller_end(shape, first):
    assert channels_first(frames(*shape)) is first


def test_a_shape_that_does_not_tell_is_asked_about():
    shape = (16, 64, 16)
    with pytest.raises(SpaceError, match='Set channels="last" or channels="first"'):
        channels_first(frames(*shape))
    assert channels_first(frames(*shape), "first")
    assert not channels_first(frames(*shape), "last")


@pytest.mark.parametrize(
    "space",
    [spaces.Box(0, 1, (84, 84, 4)), frames(1, 2, 3, 4, 5)],
)
def test_what_is_no_picture_is_refused(space):
    with pytest.raises(SpaceError, match="expected pictures: a Box of uint8"):
        PictureEncoder(space, ACTIONS)


@pytest.mark.parametrize(
    ("shape", "order", "size"),
    [
        ((10, 12), None, (1, 10, 12)),
        ((10, 12, 3), (2, 0, 1), (3, 10, 12)),
        ((3, 10, 12), (0, 1, 2), (3, 10, 12)),
        ((4, 10, 12, 3), (0, 3, 1, 2), (12, 10, 12)),
        ((4, 3, 10, 12), (0, 1, 2, 3), (12, 10, 12)),
    ],
)
def test_planes_have_channels_first_and_newer_frames_later(shape, order, size):
    encoder = PictureEncoder(frames(*shape), ACTIONS)
    assert encoder.size == size
    picture = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = (picture if order is None else picture.transpose(order)).reshape(size) / 255
    planes = encoder.planes(torch.from_numpy(picture)[None])
    torch.testing.assert_close(planes[0].double(), torch.from_numpy(expected), rtol=1e-6, atol=1e-7)


def test_pictures_stay_bytes_and_actions_become_numbers():
    pictures = torch.zeros(2, 5, 10, 12, 3, dtype=torch.uint8)
    actions = torch.tensor([[0, 1, 2, 0, 1], [2, 2, 2, 2, 2]])
    bare = PictureEncoder(frames(10, 12, 3), ACTIONS)
    assert bare.action_size == 0
    assert bare(pictures, actions)["pictures"] is pictures
    both = PictureEncoder(frames(10, 12, 3), ACTIONS, use_actions=True)(pictures, actions)
    assert both["actions"].shape == (2, 5, 3)
    assert both["actions"][0, 1].tolist() == [0.0, 1.0, 0.0]


BYTES = frames(16, 16, 3)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Box(-1, 8, (3,), np.float32)),
        (spaces.Box(-1, 1, (3,)), spaces.Box(0, 9, (3,), np.int16)),
        (spaces.Discrete(4), spaces.Discrete(3, start=1)),
        (spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2)),
        (spaces.MultiDiscrete([5, 5]), spaces.Box(0, 4, (2,), np.int64)),
        (BYTES, BYTES),
        (
            spaces.Dict({"a": spaces.Box(-np.inf, np.inf, (2,)), "b": spaces.Discrete(2)}),
            spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1, (2,))}),
        ),
    ],
)
def test_models_read_spaces_of_their_shapes_and_kinds(model, given):
    assert can_read(model, given)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))),
        (spaces.Box(0, 1, (16, 16, 3)), BYTES),
        (spaces.Discrete(3), spaces.Discrete(3, start=1)),
        (spaces.Discrete(3), spaces.Box(0, 2, (), np.float32)),
        (spaces.MultiDiscrete([5, 5]), spaces.Box(0, 5, (2,), np.int64)),
        (spaces.Box(-1, 1, (2,)), spaces.Dict({"a": spaces.Box(-1, 1, (2,))})),
        (spaces.Dict({"a": spaces.Discrete(2)}), spaces.Dict({"b": spaces.Discrete(2)})),
        (spaces.Box(-1, 1, ()), spaces.Text(3)),
    ],
)
def test_models_read_no_other_spaces(model, given):
    assert not can_read(model, given)


@pytest.mark.parametrize(
    ("array", "space"),
    [
        (np.zeros((3, 16, 16, 1), np.uint16), spaces.Box(0, 65_535, (16, 16, 1), np.uint16)),
        (np.array([[0], [1_700_000_000]]), spaces.Box(-(2**63), 2**63 - 1, (1,), np.int64)),
        (np.array([-(2**63), 2**63 - 1]), spaces.Box(-(2**63), 2**63 - 1, (), np.int64)),
        (np.array([2**63, 1], np.uint64), spaces.Box(0, 2**64 - 1, (), np.uint64)),
        (np.array([-3, 4]), spaces.Discrete(8, start=-3)),
        (np.full((3, 128), 255, np.uint8), spaces.MultiDiscrete([256] * 128)),
    ],
)
def test_whole_numbers_are_categories_where_they_are_few(array, space):
    inferred = infer_spaces(array, np.zeros((len(array), 1)))[0]
    assert inferred == space
    assert space_from_json(json.loads(json.dumps(space_to_json(inferred)))) == space
