"""Demonstrations as a pickled list of dictionaries of arrays, the layout of hand_dapg.

Rajeswaran et al. 2018, "Learning Complex Dexterous Manipulation with Deep Reinforcement Learning
and Demonstrations".
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from preferl.bounds import Expansion
from preferl.data.columns import as_floats, require_names, require_numbers, require_rows
from preferl.data.episodes import Episodes, require_alike
from preferl.data.sources.pickles import array_of, load_pickle
from preferl.errors import DataError
from preferl.shapes import Array

_FIELDS = ("observations", "actions", "rewards")


def load_demonstrations(path: str | Path, *, drop_last: bool = True) -> Episodes:
    """Read a pickled list of demonstrations, each `{observations, actions, rewards}`.

    Demonstrations do not say how they ended, so none counts as terminated. Other keys, such as
    `init_state_dict`, are left unread.

    Args:
        path: a pickle written by Python 2 or 3; it is read without running anything in it.
        drop_last: give the last observation of each demonstration up to be what followed the
            step before, as D4RL's Q-learning view does. True by default: only then is every
            next observation a recorded one, and published label files count rows in this view.
            False keeps every step and repeats the last observation as the final one.

    Raises:
        DataError: not such a file, or a demonstration (counted from 0) without one of the
            arrays, with arrays of other lengths or shapes, or too short.
        UnsafePickleError: the pickle wants to run code.
    """
    found = load_pickle(path)
    if not isinstance(found, list | tuple) or not found:
        raise DataError.mismatch(
            f"{path}",
            expected="a list of demonstrations, each a dictionary of arrays",
            got=f"{type(found).__name__} of length {len(found)}"
            if isinstance(found, list | tuple)
            else type(found).__name__,
        )
    expansion = Expansion.of(Path(path))  # one demonstration may be there any number of times
    demonstrations = [
        _arrays(one, f"{path}, demonstration {k}", expansion) for k, one in enumerate(found)
    ]
    for field in _FIELDS:
        parts = [one[field] for one in demonstrations]
        require_alike(f"{path}, {field}", parts, unit="demonstration")
    return _episodes(demonstrations, path, drop_last)


def _arrays(demonstration: object, name: str, expansion: Expansion) -> dict[str, Array]:
    """The checked arrays of one demonstration, with a leading axis `[T]` each."""
    if not isinstance(demonstration, Mapping):
        raise DataError.mismatch(
            name, expected="a dictionary of arrays", got=type(demonstration).__name__
        )
    require_names(name, _FIELDS, demonstration, "keys")
    arrays = {
        field: _numbers(demonstration[field], f"{name}, {field}", expansion) for field in _FIELDS
    }
    expansion.add(sum(array.nbytes for array in arrays.values()))
    if arrays["rewards"].ndim != 1:
        raise DataError.mismatch(
            f"{name}, rewards", expected="shape [T]", got=arrays["rewards"].shape
        )
    require_rows(arrays, name)
    return arrays


def _numbers(value: Any, name: str, expansion: Expansion) -> Array:
    array = np.asarray(array_of(value, name, expansion))
    require_numbers(name, array, "an array of numbers with an axis of steps")
    return array


def _episodes(demonstrations: list[dict[str, Array]], path: str | Path, drop: bool) -> Episodes:
    lengths = np.array([len(one["rewards"]) for one in demonstrations]) - drop
    if lengths.min() < 1:
        raise DataError.mismatch(
            f"{path}, demonstration {int(lengths.argmin())}",
            expected=f"at least {1 + drop} steps",
            got=int(lengths.min()) + drop,
        )
    rows: dict[str, Array] = {
        field: np.concatenate(
            [one[field][:length] for one, length in zip(demonstrations, lengths, strict=True)]
        )
        for field in _FIELDS
    }
    return Episodes(
        observations=rows["observations"],
        actions=rows["actions"],
        rewards=as_floats(rows["rewards"]),
        terminated=np.zeros(len(rows["rewards"]), bool),
        final_observations=np.stack([one["observations"][-1] for one in demonstrations]),
        lengths=lengths,
    )
