"""Errors are caught as the kinds they are drawn as, and worded alike."""

from traceback import format_exception
from typing import Literal

import pytest

from preferl.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DivergenceError,
    FeedbackError,
    MissingExtraError,
    ModelError,
    PreferlError,
    ResumeError,
    SpaceError,
    StorageError,
    UnsafePickleError,
    UsageError,
    require_in,
    require_one_of,
    require_share,
)

VALUE_ERRORS = (CheckpointError, ConfigError, DataError, FeedbackError, ModelError, SpaceError)
KINDS = [
    *((kind, ValueError) for kind in VALUE_ERRORS),
    (DivergenceError, ArithmeticError),
    (UnsafePickleError, DataError),
    (ResumeError, ConfigError),
    (UsageError, ConfigError),
    (StorageError, OSError),
    (MissingExtraError, ImportError),
]


@pytest.mark.parametrize(("kind", "base"), KINDS)
def test_each_kind_is_caught_as_its_base_and_as_ours(kind, base):
    for caught in (base, PreferlError):
        with pytest.raises(caught, match=r"^words$"):
            raise kind("words")


@pytest.mark.parametrize("value", [0, 0.5, 1, True])
def test_the_ends_of_a_range_are_in_it(value):
    require_in("share", value, 0, 1)


@pytest.mark.parametrize("value", [-1e-9, 1.001, float("nan"), float("inf")])
def test_what_is_out_of_a_range_is_named(value):
    with pytest.raises(ConfigError, match=r"^share: expected in \[0, 1\], got .*\. Less\.$"):
        require_in("share", value, 0, 1, fix="Less.")


def test_a_range_without_an_end():
    require_in("steps", 10**12, 1, float("inf"))
    with pytest.raises(ConfigError, match=r"^steps: expected at least 1, got 0\.$"):
        require_in("steps", 0, 1, float("inf"))


def test_a_share_is_less_than_all():
    require_share("validation", 0)
    require_share("validation", 0.999)
    for value in (1, -0.1, float("nan")):
        with pytest.raises(ConfigError, match=r"^validation: expected in \[0, 1\), got"):
            require_share("validation", value)


@pytest.mark.parametrize("choices", [Literal["a", "b"], ["a", "b"], {"a": 1, "b": 2}])
def test_choices_are_a_literal_or_a_collection(choices):
    require_one_of("kind", "b", choices)
    with pytest.raises(ConfigError, match=r"^kind: expected one of a, b, got 'c'\.$"):
        require_one_of("kind", "c", choices)


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_no_terminal_obeys_an_error(kind):
    error = kind("\x1b[2J of \x9b2J")
    assert str(error) == r"\x1b[2J of \x9b2J"
    assert not set("\x1b\x9b") & set("".join(format_exception(error)))
