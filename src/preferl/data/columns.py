"""What tables and readers ask of arrays: names, types and shapes, in the same words."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from preferl.errors import DataError
from preferl.shapes import Array


def require_names(where: object, wanted: Collection[str], held: Iterable[Any], what: str) -> None:
    """Raise `DataError` unless all that is wanted is there.

    Args:
        where: what errors call the file.
        wanted: names.
        held: names in the file.
        what: names are of, such as "columns".
    """
    there = [str(name) for name in held]
    missing = [name for name in wanted if name not in there]
    if missing:
        raise DataError.mismatch(
            f"{where}",
            expected=f"the {what} {', '.join(wanted)}",
            got=f"no {', '.join(missing)} among {there}",
        )


def require_numbers(
    name: object, array: Any, expected: str = "numbers with an axis of steps", *, axes: int = 1
) -> None:
    """Raise `DataError` unless these are numbers or booleans with so many axes at least.

    Args:
        name: what errors call them.
        array: of numpy, or one of a file that tells its `dtype` and `shape`.
        expected: what errors call for.
        axes: at least.
    """
    if array.dtype.kind not in "biuf" or len(array.shape) < axes:
        raise DataError.mismatch(
            f"{name}", expected=expected, got=f"{array.dtype} of shape {array.shape}"
        )


def require_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    """Raise `DataError` unless an array has this shape.

    >>> require_shape("pairs", np.zeros((3, 2)), (4, 2))
    Traceback (most recent call last):
    preferl.errors.DataError: pairs: expected shape (4, 2), got shape (3, 2).
    """
    if array.shape != shape:
        raise DataError.mismatch(name, expected=f"shape {shape}", got=f"shape {array.shape}")


def require_rows(arrays: Mapping[str, Array], name: object) -> int:
    """The rows that all arrays have.

    Raises:
        DataError: arrays of different lengths.
    """
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError.mismatch(f"{name}", expected="arrays of one length", got=lengths)
    return next(iter(lengths.values()))


def as_floats(rewards: Array) -> Array:
    """Rewards that were whole numbers or booleans as floats, float32 at least."""
    return rewards.astype(np.result_type(rewards, np.float32), copy=False)
