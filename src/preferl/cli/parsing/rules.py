"""How tyro reads fields: optional values, names of a registry, and parts that a name chooses."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from preferl.cli.parsing.parts import (
    kinds_of,
    name_of,
    names_of,
    registry_beside,
    things_chosen,
)
from preferl.configs import decoded
from preferl.reading import parse_yaml
from preferl.registry import Registry, things_of


def comma_separated(kind: type[Any], metavar: str) -> Any:
    """The rule for a tuple after one option, between commas or spaces."""
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=metavar,
        instance_from_str=lambda words: tuple(
            kind(part) for word in words for part in word.split(",") if part
        ),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [",".join(map(str, values))],
    )


def mapping_of(words: list[str]) -> dict[str, Any]:
    """Names and values of one word of YAML or JSON; `ValueError` for anything else.

    >>> mapping_of(["{gravity: 3.7, size: [4, 4]}"])
    {'gravity': 3.7, 'size': [4, 4]}
    """
    settings = parse_yaml(words[0])
    if not (isinstance(settings, dict) and all(f"{name}".isidentifier() for name in settings)):
        raise ValueError(f"{words[0]!r} is none of names and values, such as '{{gravity: 3.7}}'")
    return settings


def one_of(things: Registry) -> Any:
    """The rule for the name of one of a registry's things."""
    names = names_of(things)
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(names)}}}",
        instance_from_str=lambda words: words[0],
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda value: [str(value)],
        choices=names,
    )


def some_of(things: Registry, kind: Any) -> Any:
    """The rule for a tuple of a registry's things, which a protocol `kind` describes."""

    def made(words: list[str]) -> tuple[Any, ...]:
        values = [mapping_of([word]) if word.startswith("{") else word for word in words]
        found: tuple[Any, ...] = decoded(tuple[kind, ...], values, things.names()[0])
        return found

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{{{','.join(things.names())}}} ...",
        instance_from_str=made,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [things.name_of(one) for one in values],
    )


def reading_rules() -> ConstructorRegistry:
    """Rules for tyro, in a context manager.

    - `Path | None` is shown as PATH instead of {None}|PATH. What is accepted stays the same, and
      the default beside it shows that it may be left out.
    - A field that is annotated with a registry takes one of its names.
    - A field that holds one of several kinds of parts has the options of the kind that it holds,
      beside an option for the name of the kind.
    - A part that may be left out has options if it is there.
    - Settings by name are one word of YAML.
    - Functions are left out of a choice: Python alone passes them.
    - Several things of a registry are their names, or words of YAML with a `kind` and settings.
    """
    rules = ConstructorRegistry()
    asked: set[str] = set()  # of tyro's own rules, while their answers are changed

    @contextmanager
    def usual(kind: str) -> Iterator[None]:
        asked.add(kind)
        try:
            yield
        finally:
            asked.discard(kind)

    @rules.primitive_rule
    def without_none(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if "value" in asked or NoneType not in get_args(info.type):
            return None
        with usual("value"):
            spec = ConstructorRegistry.get_primitive_spec(info)
        if not isinstance(spec, PrimitiveConstructorSpec):
            return None
        metavar = spec.metavar.removeprefix("{None}|").replace("{None,", "{", 1)
        return replace(spec, metavar=metavar)

    @rules.primitive_rule
    def by_name(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if info.type_origin is not Mapping:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="{NAME: VALUE, ...}",
            instance_from_str=mapping_of,
            is_instance=lambda value: isinstance(value, Mapping),
            str_from_instance=lambda value: [json.dumps(dict(value))],
        )

    @rules.primitive_rule
    def without_functions(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        kinds = get_args(info.type)
        if str not in kinds or not any(get_origin(kind) is Callable for kind in kinds):
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="STR",
            instance_from_str=lambda words: words[0],
            is_instance=lambda value: value is None or isinstance(value, str | Mapping),
            str_from_instance=lambda value: [str(value)],
        )

    @rules.primitive_rule
    def several_by_name(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        kind = next(iter(get_args(info.type)), None)
        things = things_of(kind) if info.type_origin is tuple else None
        return None if things is None else some_of(things, kind)

    @rules.struct_rule
    def with_names(info: StructTypeInfo) -> StructConstructorSpec | None:
        if "part" in asked or not is_dataclass(info.type):
            return None
        with usual("part"):
            spec = ConstructorRegistry.get_struct_spec(info)
        return _named(spec, info.type) if isinstance(spec, StructConstructorSpec) else None

    return rules


def _named(spec: StructConstructorSpec, cls: type[Any]) -> StructConstructorSpec:
    """A dataclass as tyro reads it, with names in place of unions."""
    found: list[StructFieldSpec] = []
    names: list[str] = []
    fixed: dict[str, Any] = {}
    for field in spec.fields:
        more = get_args(field.type)[1:] if get_origin(field.type) is Annotated else ()
        things = registry_beside(field.type)
        kinds = things_chosen(field.type)
        if things is not None:
            field = replace(field, type=_annotated(str, one_of(things), *more))
        elif kinds is not None:
            names.append(f"{field.name}_name")
            found.append(_name_option(field, names[-1], kinds))
            field = replace(field, helptext=None)  # that of the kind
        if not is_dataclass(field.default) and (
            kinds is not None or (field.default is None and kinds_of(field.type))
        ):
            fixed[field.name] = field.default  # it has no fields to be set
            continue
        if is_dataclass(field.default):
            field = replace(field, type=_annotated(type(field.default), *more))
        found.append(field)

    def make(**given: Any) -> Any:
        return cls(**{name: given[name] for name in given if name not in names}, **fixed)

    make.__doc__ = cls.__doc__  # which help shows
    return StructConstructorSpec(make if names or fixed else cls, tuple(found))


def _annotated(kind: Any, *more: Any) -> Any:
    return Annotated[(kind, *more)] if more else kind


def _name_option(field: StructFieldSpec, name: str, things: Registry) -> StructFieldSpec:
    """The option that names the kind of a part; `starting_config` has followed it."""
    default = name_of(things, field.default)
    rule = one_of(things), tyro.conf.arg(name=field.name)
    return StructFieldSpec(name, _annotated(str | None, *rule), default, field.helptext)
