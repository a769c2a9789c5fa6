"""Configurations as JSON and back: dataclasses, checked field by field."""

import collections.abc
import inspect
import math
import re
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from preferl.errors import ConfigError, closest, require_in, require_one_of
from preferl.registry import Registry, config_beside, registry_of_protocol
from preferl.trust import resolve

Config = TypeVar("Config")

FEW_KEYS: Final = 12
"""The most names that a message lists; if a dataclass has more, it gives the nearest name."""


def without_password(text: str) -> str:
    """Return a text with `***` instead of the password of each URL in it.

    Settings, titles, messages and reports show the URL of a database only in this form.

    >>> without_password("postgresql://me:secret@host/labels?sslpassword=secret")
    'postgresql://me:***@host/labels?sslpassword=***'
    """
    if "://" not in text:
        return text
    return _WORD.sub(lambda word: _hidden(word[0]), text)


def _hidden(word: str) -> str:
    """Return a word without passwords, in time proportional to its length.

    A password ends at the next `@`, so the search stops at the last `@`.
    """
    word = _OPTION.sub(r"\1***", word)
    beginning, at_sign, ending = word.rpartition("@")
    return _USER.sub(r"\1:***@", beginning + at_sign) + ending


_WORD: Final = re.compile(r"\S+")
_OPTION: Final = re.compile(r"([?&]\w*password=)[^&#]*")
_USER: Final = re.compile(r"(?<=://)([^:/?#@]*):(?:[^/?#]*|[^@]*)@")


def to_json(config: object) -> dict[str, Any]:
    """Return a dataclass as JSON: nested dataclasses too, functions by name, infinities as words.

    Passwords in URLs are hidden, since people read settings (see `without_password`).

    If the type of a field names several dataclasses, `"kind"` names the one that the field holds.

    Raises:
        ConfigError: `config` is not a dataclass, or JSON cannot hold a value.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Adam:
    ...     rate: float = 3e-4
    >>> @dataclass(frozen=True)
    ... class Fit:
    ...     epochs: int
    ...     optimiser: Adam = Adam()
    >>> to_json(Fit(3))
    {'epochs': 3, 'optimiser': {'rate': 0.0003}}
    """
    if not is_dataclass(config) or isinstance(config, type):
        raise ConfigError(f"config: expected a dataclass, got {type(config).__name__}.")
    return cast("dict[str, Any]", _encode(config, type(config), str))


def resolved_to_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name as JSON, each dataclass with its `kind`; see `to_json`.

    >>> from preferl.models.configs import LSTMRewardConfig
    >>> resolved_to_json({"steps": 9, "model": LSTMRewardConfig(width=8)})["model"]["kind"]
    'LSTMRewardConfig'
    """
    return {
        name: {"kind": type(value).__name__} | to_json(value) if is_dataclass(value) else value
        for name, value in settings.items()
    }


def from_json(cls: type[Config], data: Mapping[str, Any]) -> Config:
    """Return the dataclass that `to_json` wrote; missing keys keep their defaults.

    Only fields that take functions look up names of functions, and only functions that preferl
    itself defines are found. A file can therefore not choose which code runs.

    Raises:
        ConfigError: a key is unknown or missing, or a value has another type; the message names it.
    """
    return cast("Config", _decode_call(cls, data, ""))


def changed(
    cls: type[Any], values: Mapping[str, Any], usual: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings written by `to_json` that differ from the defaults, by dotted name.

    A section is compared with the field's default, if that is of the same kind, or else with the
    defaults of its own kind. A section of an unknown kind differs as a whole. Nothing is imported
    because a value names it.

    Args:
        cls: the dataclass that was written.
        values: the settings that `to_json` wrote.
        usual: settings to compare with instead of the defaults.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Fit:
    ...     epochs: int
    ...     rate: float = 1e-3
    >>> changed(Fit, {"epochs": 3, "rate": 1e-3})
    {'epochs': 3}
    """
    hints = get_type_hints(cls)
    differing: dict[str, Any] = {}
    usual = _defaults(cls, hints) if usual is None else usual
    for name, value in values.items():
        default = usual.get(name, inspect.Parameter.empty)
        if value == default:
            continue
        section_class = None
        if isinstance(value, Mapping):
            section_class = _kind_of_section(hints.get(name), value.get("kind"))
        if section_class is None:
            differing[name] = value
            continue
        is_same_kind = isinstance(default, Mapping) and default.get("kind") == value.get("kind")
        section_changes = changed(section_class, value, default if is_same_kind else None)
        differing |= {
            f"{name}.{name_within}": setting for name_within, setting in section_changes.items()
        }
    return differing


def _defaults(cls: type[Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass that have defaults, as JSON."""
    defaults: dict[str, Any] = {}
    for field in fields(cls):
        if field.default is not MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not MISSING:
            defaults[field.name] = field.default_factory()
    return {name: _encode(value, hints[name], str) for name, value in defaults.items()}


def _kinds_of(hint: Any) -> list[type[Any]]:
    """Return the dataclasses that a type names."""
    hints = (hint, *get_args(hint))
    return [kind for kind in hints if is_dataclass(kind) and isinstance(kind, type)]


def _kind_of_section(hint: Any, name: object) -> type[Any] | None:
    """Return the dataclass of a section, if the field takes it; None if it is unknown."""
    kinds = _kinds_of(hint)
    registry = registry_of_protocol(hint)
    with suppress(ConfigError):
        if registry is not None:
            kind = registry.config(str(name or registry.names()[0]))
            return kind if is_dataclass(kind) else None
        if name is None:
            return kinds[0] if len(kinds) == 1 else None
        kinds_by_name = {kind.__name__: kind for kind in kinds}
        return kinds_by_name.get(str(name)) or config_beside(str(name), kinds)
    return None


def decoded(hint: Any, data: Any, where: str) -> Any:
    """Return the value of a field from what `to_json` wrote for this field.

    Raises:
        ConfigError: see `from_json`; the message calls the field `where`.
    """
    return _decode(hint, data, where)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name as JSON (see `to_json`); infinite numbers and NaN become null.

    Raises:
        ConfigError: JSON cannot hold a value.
    """
    return cast("dict[str, Any]", _encode(values, Any, lambda _: None))


def require_fields(config: Any, **ranges: float | tuple[float, float]) -> None:
    """Raise `ConfigError` if a field of a dataclass is out of its range, or is an unknown word.

    The type of some fields lists words or names a registry. These fields take only such words.

    Args:
        config: the dataclass.
        **ranges: by field, its lowest value, or its lowest and highest value; None is in any range.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Fit:
    ...     pooling: Literal["sum", "mean"] = "sum"
    ...     epochs: int = 10
    >>> require_fields(Fit("max"))
    Traceback (most recent call last):
    preferl.errors.ConfigError: pooling: expected one of sum, mean, got 'max'.
    >>> require_fields(Fit(epochs=0), epochs=1)
    Traceback (most recent call last):
    preferl.errors.ConfigError: epochs: expected at least 1, got 0.
    """
    for name, limits in ranges.items():
        low, high = limits if isinstance(limits, tuple) else (limits, math.inf)
        if (value := getattr(config, name)) is not None:
            require_in(name, value, low, high)
    cls: Any = type(config)
    for name, words in _words_of_fields(cls).items():
        choices = words.names() if isinstance(words, Registry) else words
        require_one_of(name, getattr(config, name), choices)


@cache
def _words_of_fields(cls: type[Any]) -> dict[str, Any]:
    """Return the fields that take only words, with their `Literal` type or registry."""
    words: dict[str, Any] = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        registries = [
            annotation
            for annotation in getattr(hint, "__metadata__", ())
            if isinstance(annotation, Registry)
        ]
        if get_origin(hint) is Literal:
            words[name] = hint
        elif registries:
            words[name] = registries[0]
    return words


def _encode(value: Any, hint: Any, infinite: Callable[[float], Any]) -> Any:
    """Return a value as JSON; `infinite` converts infinite numbers and NaN."""
    if is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        hints = get_type_hints(type(value))
        encoded = {
            f.name: _encode(getattr(value, f.name), hints[f.name], infinite) for f in fields(value)
        }
        several = sum(map(is_dataclass, get_args(hint))) > 1
        registry = registry_of_protocol(hint)
        needs_kind = several or (
            registry is not None and registry.config(registry.names()[0]) is not cls
        )
        return {"kind": cls.__name__, **encoded} if needs_kind else encoded
    if isinstance(value, Mapping):
        return {str(key): _encode(item, Any, infinite) for key, item in value.items()}
    # an array; its package is not imported for this
    if callable(as_lists := getattr(value, "tolist", None)):
        value = as_lists()
    if isinstance(value, list | tuple | set | frozenset):
        item_hint = next(iter(get_args(hint)), Any)
        return [_encode(item, item_hint, infinite) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return infinite(value)
    if isinstance(value, str):
        return without_password(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if callable(value) and getattr(value, "__qualname__", None):
        return f"{value.__module__}:{value.__qualname__}"
    raise ConfigError(
        "a value to be written: expected numbers, text, lists, mappings, dataclasses or named "
        f"functions, got {type(value).__name__}."
    )


def _decode_call(target: Callable[..., Any], data: Any, where: str) -> Any:
    """Call a dataclass or function with its arguments by name."""
    name = getattr(target, "__name__", type(target).__name__)
    if not isinstance(data, Mapping):
        raise _wrong(where or name, f"the fields of {name}", data)
    keys = f"keys of {where or name}"
    parameters = inspect.signature(target).parameters
    unknown = sorted(map(str, set(data) - set(parameters)))
    if unknown:
        nearest_key = closest(unknown[0], parameters, cutoff=0.0)
        fix = "" if nearest_key is None else f" The nearest is {nearest_key}."
        has_few = len(parameters) <= FEW_KEYS
        expected = f"some of {sorted(parameters)}" if has_few else f"those that {name} has"
        raise ConfigError(f"{keys}: expected {expected}, got {unknown}.{fix}")
    required = (
        key for key, parameter in parameters.items() if parameter.default is parameter.empty
    )
    if missing := [key for key in required if key not in data]:
        raise ConfigError(f"{keys}: expected {missing}, got {sorted(data)}.")
    plain_class = isinstance(target, type) and not is_dataclass(target)
    typed = vars(target).get("__init__", target) if plain_class else target
    hints = get_type_hints(typed)
    prefix = f"{where}." if where else ""
    decoded = {k: _decode(hints.get(k, Any), value, prefix + k) for k, value in data.items()}
    return target(**decoded)


def _decode_registered(registry: Registry, data: Any, where: str) -> Any:
    """Return a registered class or function by name or settings; the first if no name is given."""
    settings = {"kind": data} if isinstance(data, str) else data
    if not isinstance(settings, Mapping):
        raise _wrong(where, "a name or settings", data)
    target = registry.load(str(settings.get("kind", registry.names()[0])))
    if settings is not data and ":" in data and inspect.isfunction(target):
        return target  # the name belongs to a function that is itself the entry
    return _decode_call(target, {k: v for k, v in settings.items() if k != "kind"}, where)


def _decode(hint: Any, data: Any, where: str) -> Any:
    origin = get_origin(hint)
    arguments = get_args(hint)
    if hint is Any or hint is object:
        return data
    if origin in (Union, types.UnionType):
        return _decode_union(hint, data, where)
    if is_dataclass(hint):
        return _decode_call(cast("type[Any]", hint), data, where)
    if (registry := registry_of_protocol(hint)) is not None:
        return _decode_registered(registry, data, where)
    if origin is Literal:
        if data not in arguments:
            raise _wrong(where, f"one of {list(arguments)}", data)
        return data
    if collections.abc.Callable in (hint, origin) and isinstance(data, str):
        return _named_function(data, where)
    if origin is not None:
        return _decode_container(origin, arguments, data, where)
    return _decode_leaf(hint, data, where)


def _decode_union(hint: Any, data: Any, where: str) -> Any:
    arguments = get_args(hint)
    if data is None and type(None) in arguments:
        return None
    kinds = _kinds_of(hint)
    if len(kinds) > 1 and isinstance(data, Mapping):
        cls = _kind_of_section(hint, data.get("kind"))
        if cls is None:
            names = sorted(kind.__name__ for kind in kinds)
            raise _wrong(f"{where}.kind", f"one of {names}", data.get("kind"))
        fields_given = {key: value for key, value in data.items() if key != "kind"}
        return _decode_call(cls, fields_given, where)
    *other_choices, last_choice = (a for a in arguments if a is not type(None))
    for choice in other_choices:
        with suppress(ConfigError):
            return _decode(choice, data, where)
    return _decode(last_choice, data, where)


def _decode_container(origin: Any, arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise _wrong(where, "a mapping", data)
        value_hint = arguments[1] if len(arguments) > 1 else Any
        return {key: _decode(value_hint, value, f"{where}.{key}") for key, value in data.items()}
    if not isinstance(data, list | tuple):
        raise _wrong(where, "a list", data)
    fixed = origin is tuple and arguments[-1] is not Ellipsis
    if fixed and len(arguments) != len(data):
        raise _wrong(where, f"{len(arguments)} values", data)
    hints = arguments if fixed else (arguments[0],) * len(data)
    items = [_decode(hints[i], item, f"{where}[{i}]") for i, item in enumerate(data)]
    return items if origin is list else tuple(items)


_NUMBER: Final = re.compile(r"-?inf|nan|[-+]?\d+[eE][-+]?\d+")
"""How numbers may be written: words that JSON lacks, and `1e-05`, which YAML 1.1 reads as text."""


def _decode_leaf(hint: Any, data: Any, where: str) -> Any:
    is_number = isinstance(data, int) and not isinstance(data, bool)
    if hint is float and (is_number or (isinstance(data, str) and _NUMBER.fullmatch(data))):
        return float(data)
    if isinstance(hint, type) and issubclass(hint, Path | Enum):
        try:
            return hint(data)
        except (TypeError, ValueError) as error:
            raise _wrong(where, hint.__name__, data) from error
    if not isinstance(data, hint) or (isinstance(data, bool) and hint is not bool):
        raise _wrong(where, hint.__name__, data)
    return data


def _named_function(name: str, where: str) -> Any:
    """The function or class that `module:name` means, if preferl defines it under a public name."""
    parts = name.replace(":", ".").split(".")
    if parts[0] == "preferl" and not any(part.startswith("_") for part in parts):
        function = resolve(name, what=where, source="a configuration")
        is_named = inspect.isfunction(function) or inspect.isclass(function)
        # A name that a module only imports is refused, because `preferl.files:os.system` would run
        # anything.
        if is_named and f"{function.__module__}:{function.__qualname__}" == name:
            return function
    raise ConfigError(
        f"{where}: expected the name of a function of preferl, as module:name where it is "
        f"defined, got {name!r}. Set functions of your own in code, with dataclasses.replace."
    )


def _wrong(where: str, expected: object, value: object) -> ConfigError:
    return ConfigError(f"{where}: expected {expected}, got {value!r}.")
