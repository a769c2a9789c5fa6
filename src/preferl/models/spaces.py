"""Spaces of observations and actions: checks, inference from data, and JSON."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from gymnasium import spaces

from preferl.errors import DataError, SpaceError, require_one_of
from preferl.shapes import Array, Observations

Space = spaces.Space[Any]
"""A gymnasium space of any kind."""

Numbers = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
"""Kinds of spaces whose values are arrays of numbers."""

Channels = Literal["auto", "last", "first"]
"""Where pictures have their channels; "auto" infers this from the shape."""

MOST_NUMBERS: Final = 2**22
"""Most numbers or categories of a space in a file, as of 1,182 x 1,182 pixels in three colours."""

MOST_CATEGORIES: Final = 2**15
"""Most categories that whole numbers in data may stand for.

Each category becomes a feature. It is as many as 128 bytes, the memory of a game, have.
"""


def feature_size(space: Space) -> int:
    """Count the features of a space; raise `SpaceError` if it has no encoding."""
    match space:
        case spaces.Box() | spaces.MultiBinary():
            return int(np.prod(space.shape))
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(np.asarray(space.nvec).sum())
        case spaces.Dict():
            return sum(feature_size(part) for part in space.values())
    raise SpaceError(
        "space: expected Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these, got "
        f"{space}. Turn it into one of these with a gymnasium wrapper."
    )


def is_image(space: Space) -> bool:
    """Whether a space holds 8-bit pictures."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def check_spaces(
    expected_observations: Space,
    expected_actions: Space,
    observations: Observations,
    actions: Array,
    *,
    what: str = "data",
) -> None:
    """Raise `SpaceError` unless the steps of arrays `[T, ...]` fit the spaces.

    Shapes, keys and the range of whole numbers are checked. Bounds of boxes are not checked.
    """

    def check(name: str, space: Space, array: Any) -> None:
        array_name = f"{name} of the {what}"
        actual = sorted(array) if isinstance(array, Mapping) else f"shape {tuple(array.shape[1:])}"
        expected = sorted(space) if isinstance(space, spaces.Dict) else f"shape {space.shape}"
        if actual != expected:
            raise SpaceError(
                f"{array_name}: expected {expected} as the reward model was built for, got "
                f"{actual}. Use the data or environment that the model belongs to."
            )
        if isinstance(space, spaces.Dict):
            for key, part in space.items():
                check(f"{name}/{key}", part, array[key])
        elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            size = space.n if isinstance(space, spaces.Discrete) else space.nvec
            strange = (array < space.start) | (array >= space.start + size)
            if strange.any():
                raise SpaceError(
                    f"{array_name}: expected values of {space}, got {array[strange].ravel()[0]}. "
                    "Build the model for a space that holds all values."
                )

    check("observations", expected_observations, observations)
    check("actions", expected_actions, actions)


def can_read(model: Space, given: Space) -> bool:
    """Whether a model that was built for one space takes all values of another.

    Shapes and keys have to agree. If the one has pictures, the other must have pictures too.
    Categories have to be among those that the model knows. Bounds of boxes and types of numbers may
    differ, since recorded data do not show bounds.

    >>> can_read(spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Box(-1, 8, (3,)))
    True
    >>> can_read(spaces.Discrete(2), spaces.Discrete(4))
    False
    """
    if isinstance(model, spaces.Dict) or isinstance(given, spaces.Dict):
        if not (isinstance(model, spaces.Dict) and isinstance(given, spaces.Dict)):
            return False
        if model.keys() != given.keys():
            return False
        return all(can_read(part, given[key]) for key, part in model.items())
    if model.shape is None or model.shape != given.shape or _is_bytes(model) != _is_bytes(given):
        return False
    if not isinstance(model, spaces.Discrete | spaces.MultiDiscrete):
        return isinstance(given, Numbers)
    model_range = _range(model)
    given_range = _range(given)
    if model_range is None or given_range is None:
        return False
    return bool(
        (given_range[0] >= model_range[0]).all() and (given_range[1] <= model_range[1]).all()
    )


def _is_bytes(space: Space) -> bool:
    """Whether a space holds 8-bit pictures, with or without channels, or stacks of them."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1


def _range(space: Space) -> tuple[Any, Any] | None:
    """Return the least and largest whole number of each entry; None if it has no such range."""
    match space:
        case spaces.Discrete():
            return np.asarray(space.start), np.asarray(space.start + space.n - 1)
        case spaces.MultiDiscrete():
            return space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            return np.zeros(space.shape), np.ones(space.shape)
        case spaces.Box() if space.dtype is not None and space.dtype.kind in "iu":
            return space.low, space.high
    return None


def infer_spaces(observations: Observations, actions: Array) -> tuple[Space, Space]:
    """Infer the widest spaces that fit recorded arrays `[T, ...]`, for data without spaces.

    Floats become unbounded boxes, and 8-bit pictures become image boxes. Whole numbers become
    `Discrete`, or `MultiDiscrete` if there are several per step. Their range is from 0, or from the
    least number if it is negative, to the largest number. Whole numbers with more than
    `MOST_CATEGORIES` values, such as clocks, or with several axes, such as depths, are not
    categories. They become boxes of all values of their type.

    Raises:
        DataError: there are no steps to infer from.

    >>> infer_spaces(np.zeros((3, 2)), np.array([0, 1, 3]))
    (Box(-inf, inf, (2,), float64), Discrete(4))
    """
    if not len(actions):
        raise DataError("steps to infer spaces from: expected at least one, got none.")

    def infer(array: Any) -> Space:
        if isinstance(array, Mapping):
            return spaces.Dict({key: infer(value) for key, value in array.items()})
        if array.dtype == np.uint8 and array.ndim in (3, 4, 5):
            return spaces.Box(0, 255, array.shape[1:], np.uint8)
        if array.dtype == np.bool_:
            return spaces.MultiBinary(array.shape[1:]) if array.ndim > 1 else spaces.Discrete(2)
        if not np.issubdtype(array.dtype, np.integer):
            return spaces.Box(-np.inf, np.inf, array.shape[1:], array.dtype)
        if array.ndim <= 2:
            lowest = np.minimum(array.min(axis=0), 0).astype(object)  # differences may overflow
            size = array.max(axis=0).astype(object) - lowest + 1
            if np.sum(size) <= MOST_CATEGORIES:
                if array.ndim == 1:
                    return spaces.Discrete(int(size), start=int(lowest))
                return spaces.MultiDiscrete(size.astype(np.int64), start=lowest.astype(np.int64))
        limits = np.iinfo(array.dtype)
        return spaces.Box(limits.min, limits.max, array.shape[1:], array.dtype)

    return infer(observations), infer(actions)


def channels_first(space: Space, channels: Channels = "auto") -> bool:
    """Whether the pictures of a space have their channels before height and width.

    Spaces hold bytes `[height, width]`, with channels at either end, or stacks of such pictures.
    "auto" takes the end of the shape that is smaller than both other sides. If there is none, it
    raises `SpaceError`.
    """
    require_one_of("channels", channels, Channels)
    shape = picture_shape(space)
    if len(shape) == 2:
        return True  # a single channel may be at either end
    if channels != "auto":
        return channels == "first"
    first, middle, last = shape[-3:]
    if first < min(middle, last) or last < min(first, middle):
        return first < last
    raise SpaceError(
        "pictures: expected channels at the end that is smaller than both sides, got shape "
        f'{shape}. Set channels="last" or channels="first".'
    )


def picture_shape(space: Space) -> tuple[int, ...]:
    """Return the shape of a space of pictures; raise `SpaceError` for any other space."""
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and 2 <= len(space.shape) <= 4:
        return space.shape
    raise SpaceError(
        "observation space: expected pictures: a Box of uint8 [height, width], with channels, or "
        f"a stack of such pictures, got {space}. Use another model, such as MLPReward, or wrap the "
        "environment."
    )


def space_to_json(space: Space) -> dict[str, Any]:
    """Convert a gymnasium space to JSON.

    >>> space_to_json(spaces.Discrete(3))
    {'kind': 'Discrete', 'n': 3, 'start': 0, 'dtype': 'int64'}
    """
    match space:
        case spaces.Dict():
            return {"kind": "Dict", "spaces": {k: space_to_json(s) for k, s in space.items()}}
        case spaces.MultiBinary():
            return {"kind": "MultiBinary", "n": np.asarray(space.n).tolist()}
        case spaces.Box():
            bounds = {"low": _bound(space.low), "high": _bound(space.high)}
            description = {"kind": "Box", **bounds, "shape": list(space.shape)}
        case spaces.Discrete():
            description = {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            numbers = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
            description = {"kind": "MultiDiscrete", **numbers}
        case _:
            raise SpaceError(f"space: expected a space that models know, got {space}.")
    return description | {"dtype": str(space.dtype)}


def space_from_json(data: dict[str, Any]) -> Space:
    """Read a space that `space_to_json` wrote; raise `SpaceError` above `MOST_NUMBERS`."""
    match data["kind"]:
        case "Dict":
            # A list of pairs keeps the order of the features; JSON sorts a dict.
            return spaces.Dict([(k, space_from_json(s)) for k, s in data["spaces"].items()])
        case "Box":
            shape = tuple(data["shape"])
            dtype = _dtype(data)
            _require_small(shape)
            bounds = (np.asarray(data[side]).astype(dtype) for side in ("low", "high"))
            low, high = (np.broadcast_to(bound, shape) for bound in bounds)
            return spaces.Box(low, high, dtype=dtype.type)
        case "Discrete":
            _require_small((data["n"],))
            return spaces.Discrete(data["n"], start=data["start"], dtype=_dtype(data).type)
        case "MultiDiscrete":
            dtype = _dtype(data)
            nvec, start = (np.asarray(data[name], dtype) for name in ("nvec", "start"))
            _require_small((int(nvec.astype(object).sum()),))
            return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
        case "MultiBinary":
            _require_small(np.atleast_1d(data["n"]).tolist())
            return spaces.MultiBinary(data["n"])
    raise SpaceError(f"space: expected a known kind, got {data['kind']}.")


def _dtype(data: dict[str, Any]) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(data["dtype"])
    if dtype.kind not in "biuf":
        raise SpaceError(f"type of a space: expected numbers, got {dtype}.")
    return dtype


def _require_small(shape: Sequence[int]) -> None:
    numbers = math.prod(shape)
    if not numbers <= MOST_NUMBERS:
        raise SpaceError(f"space: expected at most {MOST_NUMBERS:,} numbers, got {numbers:,}.")


def _bound(array: Array) -> Any:
    """Return bounds for JSON: one number if all are equal. Infinities become strings."""
    flat = np.unique(array)
    compact = flat[0] if len(flat) == 1 else array
    return (compact if np.isfinite(compact).all() else compact.astype(str)).tolist()
