"""Checks of arrays and files. All readers share them, so that errors have the same words."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from preferl.errors import DataError, PreferlError
from preferl.shapes import Array


@contextmanager
def reading_foreign(
    what: object,
    expected: str,
    fix: str = "Check the path, and that the file was copied whole and in binary mode.",
) -> Iterator[None]:
    """Turn any exception of the block, except a `PreferlError`, into a `DataError`.

    `what` names the thing that is read, `expected` says what it should be, and `fix` what to do.
    """
    try:
        yield
    except PreferlError:
        raise
    except Exception as error:  # damaged bytes can make a library raise anything
        raise DataError(
            f"{what}: expected {expected}, got {type(error).__name__}: {error}. {fix}"
        ) from error


@contextmanager
def naming(what: object) -> Iterator[None]:
    """Put `what` before the message of a `DataError` that is raised in the block."""
    try:
        yield
    except DataError as error:
        raise type(error)(f"{what}: {error}") from error


def require_names(where: object, wanted: Collection[str], held: Iterable[Any], what: str) -> None:
    """Raise `DataError` unless all `wanted` names are among `held`.

    `what` is their noun, in plural.
    """
    there = [str(name) for name in held]
    missing = ", ".join(name for name in wanted if name not in there)
    if missing:
        raise DataError(
            f"{where}: expected the {what} {', '.join(wanted)}, got no {missing} among {there}."
        )


def require_numbers(
    what: object, array: Any, expected: str = "numbers with an axis of steps", *, axes: int = 1
) -> None:
    """Raise `DataError` unless an array, or HDF5 data set, holds numbers and has `axes` axes."""
    if not (array.dtype.kind in "biuf" and len(array.shape) >= axes):
        raise DataError(f"{what}: expected {expected}, got {array.dtype} of shape {array.shape}.")


def require_shape(what: str, array: Array, shape: tuple[int, ...]) -> None:
    """Raise `DataError` unless an array has this shape."""
    if array.shape != shape:
        raise DataError(f"{what}: expected shape {shape}, got shape {array.shape}.")


def require_rows(arrays: Mapping[str, Array], what: object) -> int:
    """Return the number of rows of all arrays; raise `DataError` if they differ."""
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise DataError(f"{what}: expected arrays of one length, got {lengths}.")
    return next(iter(lengths.values()))


def one_per_row(what: str, array: Array) -> Array:
    """Return a column `[T]` or `[T, 1]` as `[T]`; raise `DataError` for any other shape."""
    if array.size != len(array):
        raise DataError(f"{what}: expected one number per row, got shape {array.shape}.")
    return array.reshape(-1)


def require_finite(what: str, array: Array) -> None:
    """Raise `DataError` if an array holds NaN or infinity, and name the first such row."""
    if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
        row = int((~np.isfinite(array).reshape(len(array), -1).all(axis=1)).argmax())
        raise DataError(
            f"{what}: expected finite numbers, got NaN or infinity, first in row {row}. Repair or "
            "drop that step before it becomes training data."
        )


def as_floats(rewards: Array) -> Array:
    """Convert rewards, which may be whole numbers or booleans, to float32 or wider."""
    return rewards.astype(np.result_type(rewards, np.float32), copy=False)
