"""Options that may be left out, as help shows them: by what they take."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import NoneType
from typing import Annotated, Any, get_args

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
)

from preferl.registry import imported
from preferl.trust import typed

Trust = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="MODULE")]
"""`--trust MODULE`, once for each module that data may name (see `preferl.trust`)."""


def options_of(arguments: Sequence[str], name: str) -> list[str]:
    """All values that an option is given."""
    after = (value for word, value in pairwise(arguments) if word == name)
    joined = (word.partition("=")[2] for word in arguments if word.startswith(f"{name}="))
    return [*after, *joined]


def import_trusted(arguments: Sequence[str]) -> None:
    """Import the modules that `--trust` names, for what they add to tables of `preferl.registry`.

    Raises:
        ConfigError: one that is not there.
    """
    for module in typed(trust=options_of(arguments, "--trust")):
        imported(module, source="--trust")


def plain_metavars() -> ConstructorRegistry:
    """Rules that show `Path | None` as PATH instead of {None}|PATH; a context manager.

    What is accepted stays the same, and the default beside it tells that it may be left out.
    """
    rules = ConstructorRegistry()
    usual = False  # while the rules of tyro itself are asked for

    @rules.primitive_rule
    def without_none(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        nonlocal usual
        if usual or NoneType not in get_args(info.type):
            return None
        usual = True
        try:
            spec = ConstructorRegistry.get_primitive_spec(info)
        finally:
            usual = False
        if not isinstance(spec, PrimitiveConstructorSpec):
            return None
        plain = spec.metavar.removeprefix("{None}|")
        return replace(spec, metavar=plain.replace("{None,", "{", 1))

    return rules
