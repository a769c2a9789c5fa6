"""Errors that preferl raises on purpose, and checks of settings that raise them.

::

    PreferlError
    ├── DataError (ValueError)        arrays, files and labels that are not what they should be
    │   └── UnsafePickleError         a foreign pickle that wants to do more than hold arrays
    ├── SpaceError (ValueError)       observations or actions of another space
    ├── ConfigError (ValueError)      a setting out of its range
    │   ├── ResumeError               no run that could be resumed: it is finished, or not there
    │   └── UsageError                an option that a command does not have, or cannot take
    ├── FeedbackError (ValueError)    a teacher, sampler or feedback that broke its contract
    ├── ModelError (ValueError)       a reward model that broke its contract
    ├── DivergenceError (ArithmeticError)  a training whose numbers became NaN or infinite
    ├── CheckpointError (ValueError)  a model file that cannot be loaded
    ├── StorageError (OSError)        a folder that cannot be read or written
    └── MissingExtraError (ImportError)  an optional dependency that is not installed

Messages name the thing, what was expected, what was got and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral
from typing import Any, Final, Self, get_args

from preferl.printing import harmless

LARGEST_WHOLE: Final = 2**63 - 1  # the largest whole number that arrays hold
# seeds are below this, so that numpy, torch and stable-baselines3 all take them
SEED_LIMIT: Final = 2**32


class PreferlError(Exception):
    """Base of all errors that preferl raises on purpose. A terminal shows their text harmlessly."""

    def __str__(self) -> str:
        return harmless(super().__str__())


class DataError(PreferlError, ValueError):
    """Arrays, files or labels are not what they should be."""


class UnsafePickleError(DataError):
    """A foreign pickle wants to do more than hold arrays."""


class SpaceError(PreferlError, ValueError):
    """Observations or actions belong to another space."""


class ConfigError(PreferlError, ValueError):
    """A setting is out of its range, or does not fit another setting."""


class ResumeError(ConfigError):
    """No run can be resumed: it is finished, or there is none. Nothing was changed."""


class UsageError(ConfigError):
    """A command does not have the option, or the option cannot take the value."""


class FeedbackError(PreferlError, ValueError):
    """A teacher, a sampler or feedback broke its contract."""


class ModelError(PreferlError, ValueError):
    """A reward model broke its contract."""


class DivergenceError(PreferlError, ArithmeticError):
    """Numbers became NaN or infinite in training.

    >>> str(DivergenceError.of("the policy's weights"))
    "the training diverged (NaN in the policy's weights); lower the learning rate, or check ..."
    """

    @classmethod
    def of(cls, where: str, *, infinite: bool = False) -> Self:
        """Return the error that says where NaN, or infinity, appeared first."""
        return cls(
            f"the training diverged ({'infinity' if infinite else 'NaN'} in {where}); "
            "lower the learning rate, or check the observations for numbers that are far too large"
        )


class CheckpointError(PreferlError, ValueError):
    """A model file cannot be loaded."""


class StorageError(PreferlError, OSError):
    """A folder or file cannot be read or written."""


class MissingExtraError(PreferlError, ImportError):
    """An optional dependency is not installed."""


def in_words(got: object) -> str:
    """Return a value as text; an error of the operating system without its number.

    >>> in_words(FileNotFoundError(2, "No such file or directory", "config.json"))
    'No such file or directory: config.json'
    """
    if isinstance(got, OSError) and got.strerror:
        return got.strerror if got.filename is None else f"{got.strerror}: {got.filename}"
    return f"{got}"


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like a mistyped one; None if none reaches `cutoff`.

    >>> closest("stepz", ["env", "steps"]), closest("fish", ["env", "steps"])
    ('steps', None)
    """
    return next(iter(get_close_matches(word, known, 1, cutoff)), None)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a sentence with the known name that is most like a mistyped one, or "".

    >>> nearest("stepz", ["env", "steps"])
    'The nearest is steps.'
    """
    name = closest(word, known)
    return "" if name is None else f"The nearest is {name}."


def require_in(what: str, value: float, low: float, high: float, *, fix: str = "") -> None:
    """Raise `ConfigError` unless `low <= value <= high`; NaN is out of every range.

    Without an upper bound, a whole number must still fit into arrays.
    """
    if high == float("inf") and isinstance(value, int) and value > LARGEST_WHOLE:
        high = LARGEST_WHOLE
    if not low <= value <= high:
        expected = f"at least {low:g}" if high == float("inf") else f"in [{low:g}, {high:g}]"
        raise ConfigError(f"{what}: expected {expected}, got {value}. {fix}".rstrip())


def require_share(what: str, value: float) -> None:
    """Raise `ConfigError` unless `0 <= value < 1`."""
    if not 0 <= value < 1:
        raise ConfigError(f"{what}: expected in [0, 1), got {value}.")


def require_seed(seed: object) -> None:
    """Raise `ConfigError` unless a seed is a whole number from 0 to below `SEED_LIMIT`.

    >>> require_seed(7)
    """
    if not isinstance(seed, Integral) or not 0 <= int(seed) < SEED_LIMIT:
        raise ConfigError(
            f"seed: expected a whole number from 0 to {SEED_LIMIT - 1}, got {seed!r}."
        )


def require_one_of(what: str, value: object, choices: Any) -> None:
    """Raise `ConfigError` unless `value` is among `choices`, a `Literal` type or a collection.

    >>> require_one_of("unit", "steps", ("episodes", "steps"))
    """
    allowed = get_args(choices) or tuple(choices)
    if value not in allowed:
        words = [word for word in allowed if isinstance(word, str)]
        fix = nearest(value, words) if isinstance(value, str) else ""
        expected = f"one of {', '.join(map(str, allowed))}"
        raise ConfigError(f"{what}: expected {expected}, got {value!r}. {fix}".rstrip())
