"""Letters of axes and types of arrays, declared once and used in every docstring.

`T` steps end to end · `K` episodes · `N` segments · `L` steps per segment · `H` steps of history
that a reward may see · `P` pairs · `B` rows of a minibatch · `E` ensemble members · `S` seeds
trained at once · `V` parallel environments · `R` answers of people to `Q` queries · `A` annotators.

Real steps come last everywhere: a window with fewer steps than its axis is padded on the left.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]

Observations = Array | dict[str, Array]
"""One array, or several in a flat dictionary, which share their leading axes.

Keys join nested names by `/`.
"""

Tree = TypeVar("Tree")


def map_observations(function: Callable[..., Any], *observations: Tree) -> Tree:
    """Apply `function` to each array of one or several observations of the same structure.

    This works for numpy arrays and torch tensors, since only the dictionary around them matters.

    >>> map_observations(lambda a: a.shape, {"arm": np.zeros((2, 3)), "hand": np.zeros(2)})
    {'arm': (2, 3), 'hand': (2,)}
    """
    alike = cast("tuple[Any, ...]", observations)
    if isinstance(alike[0], Mapping):
        return cast("Tree", {key: function(*(o[key] for o in alike)) for key in alike[0]})
    return cast("Tree", function(*observations))


def leaves(observations: Any) -> list[Any]:
    """Return the arrays of an observation, in the order of their keys."""
    return list(observations.values()) if isinstance(observations, Mapping) else [observations]


def take(observations: Tree, rows: Any) -> Tree:
    """Return rows of an observation, along the first axis of each of its arrays.

    >>> take(np.array([5, 6, 7]), np.array([[0, 2]])).tolist()
    [[5, 7]]
    """
    return map_observations(lambda array: array[rows], observations)


def keeps_values(values: Array, dtype: np.dtype[Any]) -> bool:
    """Whether numbers keep their values in an array of a type, except that floats are rounded.

    >>> keeps_values(np.array([3.0]), np.dtype(np.uint8))
    True
    >>> keeps_values(np.array([0.3]), np.dtype(np.uint8))
    False
    >>> keeps_values(np.array([300]), np.dtype(np.uint8))
    False
    """
    if values.dtype == dtype:
        return True
    if values.dtype.kind not in "biuf" or dtype.kind not in "biuf":
        return False
    if dtype.kind == "f":
        return True
    with np.errstate(invalid="ignore"):  # NaN and numbers that are too large become any number
        return np.array_equal(values.astype(dtype), values)
