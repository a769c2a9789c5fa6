"""Demonstrations as a pickled list of dictionaries of arrays, the layout of hand_dapg.

Rajeswaran et al. 2018, "Learning Complex Dexterous Manipulation with Deep Reinforcement Learning
and Demonstrations".
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from preferl.bounds import Expansion
from preferl.data.columns import (
    as_floats,
    check,
    naming,
    require_names,
    require_numbers,
    require_rows,
)
from preferl.data.episodes import Episodes, join, require_alike
from preferl.data.sources.pickles import array_of, load_pickle
from preferl.errors import DataError
from preferl.shapes import Array

_FIELDS = ("observations", "actions", "rewards")


def load_demonstrations(path: str | Path, *, drop_last: bool = True) -> Episodes:
    """Read a pickled list of demonstrations, each `{observations, actions, rewards}`.

    The layout does not record how demonstrations ended, so none counts as terminated. Other keys,
    such as `init_state_dict`, are not read.

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
    several = isinstance(found, list | tuple)
    got = type(found).__name__ + (f" of length {len(found)}" if several else "")
    expected = "a list of demonstrations, each a dictionary of arrays"
    check(several and found, path, expected, got)
    expansion = Expansion.of(Path(path))  # one demonstration may be there any number of times
    demonstrations = [
        _arrays(one, f"{path}, demonstration {k}", expansion) for k, one in enumerate(found)
    ]
    for field in _FIELDS:
        parts = [one[field] for one in demonstrations]
        require_alike(f"{path}, {field}", parts, unit="demonstration")
    episodes = []
    for k, one in enumerate(demonstrations):
        observations, steps = one["observations"], len(one["rewards"]) - drop_last
        name, expected = f"{path}, demonstration {k}", f"at least {1 + drop_last} steps"
        check(steps >= 1, name, expected, steps + drop_last)
        with naming(name):
            episodes.append(
                Episodes(
                    observations=observations[:steps],
                    actions=one["actions"][:steps],
                    rewards=as_floats(one["rewards"][:steps]),
                    terminated=np.zeros(steps, bool),
                    final_observations=observations[-1:],
                    lengths=np.array([steps]),
                )
            )
    return join(episodes)


def _arrays(demonstration: object, name: str, expansion: Expansion) -> dict[str, Array]:
    """The checked arrays of one demonstration, with a leading axis `[T]` each."""
    if not isinstance(demonstration, Mapping):
        got = type(demonstration).__name__
        raise DataError.mismatch(name, expected="a dictionary of arrays", got=got)
    require_names(name, _FIELDS, demonstration, "keys")
    arrays = {}
    for field in _FIELDS:
        what = f"{name}, {field}"
        arrays[field] = np.asarray(array_of(demonstration[field], what, expansion))
        require_numbers(what, arrays[field], "an array of numbers with an axis of steps")
    expansion.add(sum(array.nbytes for array in arrays.values()))
    shape = arrays["rewards"].shape
    check(len(shape) == 1, f"{name}, rewards", "shape [T]", shape)
    require_rows(arrays, name)
    return arrays
