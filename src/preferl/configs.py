"""Configurations as JSON and back: dataclasses, checked field by field."""

import collections.abc
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

import numpy as np

from preferl.errors import ConfigError, require_one_of
from preferl.registry import config_beside
from preferl.trust import resolve

Config = TypeVar("Config")


def _same(value: Any) -> Any:
    return value


RENAMED: Final[Mapping[str, Mapping[str, tuple[str, Callable[[Any], Any]]]]] = {
    "FeedbackConfig": {
        "sampling": ("sampler", lambda word: {"disagreement": "informative"}.get(word, word)),
        "candidates": ("oversampling", lambda segments: max(segments / 2, 1.0)),  # now in pairs
    },
    "OnlineConfig": {"turns": ("iterations", _same), "memory": ("buffer_steps", _same)},
    "ServiceConfig": {
        "first_epochs": ("initial_epochs", _same),
        "deviation": ("reward_deviation", _same),
    },
}
"""Fields of configurations by the names that they once had: what they are now, and their values."""


def current_names(cls: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a configuration under the names that its fields have now.

    Args:
        cls: name of the configuration's class.
        values: by name, old or new.

    Raises:
        ConfigError: a setting under both of its names.

    >>> current_names("OnlineConfig", {"memory": 5_000, "steps": 10})
    {'buffer_steps': 5000, 'steps': 10}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        name, converted = RENAMED.get(cls, {}).get(key, (key, _same))
        if name in found or (name != key and name in values):
            raise ConfigError.mismatch(name, expected="one of its names", got=f"{key} beside it")
        found[name] = converted(value)
    return found


def takes_old_names(cls: type[Config]) -> type[Config]:
    """Let a dataclass of `RENAMED` be made with the names that its fields once had."""
    made: Any = cls.__init__

    @functools.wraps(made)
    def init(self: Any, *given: Any, **settings: Any) -> None:
        old = RENAMED[cls.__name__].keys() & settings.keys()
        for name in old:  # beside them, `replace` passes what is there under the present names
            settings.pop(RENAMED[cls.__name__][name][0], None)
        made(self, *given, **current_names(cls.__name__, settings))

    cls.__init__ = init  # type: ignore[method-assign]  # the dataclass's own, with other keywords
    return cls


def to_json(config: object) -> dict[str, Any]:
    """A dataclass as JSON: nested ones recursively, functions by name, infinities as words.

    Where a field's type names several dataclasses, the one that is there is told by `"kind"`.

    Raises:
        ConfigError: not a dataclass, or a value that JSON cannot hold.

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
        raise ConfigError.mismatch("config", expected="a dataclass", got=type(config).__name__)
    return cast("dict[str, Any]", _encode(config, type(config), _or_word))


def from_json(cls: type[Config], data: Mapping[str, Any]) -> Config:
    """The dataclass that `to_json` wrote; what is left out keeps its default.

    Names of functions are looked up only where a field takes functions, and only among those that
    preferl itself defines, so that a file cannot choose what is run.

    Raises:
        ConfigError: unknown or missing keys, or values of another type, by name.
    """
    return cast("Config", _decode_dataclass(cls, data, ""))


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by name as JSON, as `to_json` writes them; numbers that are not finite become null.

    Raises:
        ConfigError: a value that JSON cannot hold.
    """
    return cast("dict[str, Any]", _encode(values, Any, _or_null))


def require_words(config: object) -> None:
    """Raise `ConfigError` unless each field of a dataclass whose type lists words has one of them.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Fit:
    ...     pooling: Literal["sum", "mean"] = "sum"
    >>> require_words(Fit("max"))
    Traceback (most recent call last):
    preferl.errors.ConfigError: pooling: expected one of sum, mean, got 'max'.
    """
    for name, hint in typing.get_type_hints(type(config)).items():
        if get_origin(hint) is Literal:
            require_one_of(name, getattr(config, name), hint)


def _encode(value: Any, hint: Any, number: Callable[[float], Any]) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        hints = typing.get_type_hints(type(value))
        encoded = {
            f.name: _encode(getattr(value, f.name), hints[f.name], number) for f in fields(value)
        }
        return {"kind": type(value).__name__, **encoded} if len(_tagged(hint)) > 1 else encoded
    if isinstance(value, Mapping):
        return {str(key): _encode(item, Any, number) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        items = value.tolist() if isinstance(value, np.ndarray) else list(value)
        inner = next(iter(get_args(hint)), Any)
        return [_encode(item, inner, number) for item in items]
    return _encode_leaf(value, number)


def _encode_leaf(value: Any, number: Callable[[float], Any]) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return number(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if callable(value) and getattr(value, "__qualname__", None):
        return f"{value.__module__}:{value.__qualname__}"
    raise ConfigError.mismatch(
        "a value to be written",
        expected="numbers, text, lists, mappings, dataclasses or named functions",
        got=type(value).__name__,
    )


def _or_word(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)


def _or_null(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _decode_dataclass(cls: type[Any], data: Any, where: str) -> Any:
    name = where or cls.__name__
    if not isinstance(data, Mapping):
        raise _wrong(name, f"the fields of {cls.__name__}", data)
    data = current_names(cls.__name__, data)
    known = {f.name: f for f in fields(cls) if f.init}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ConfigError.mismatch(
            f"keys of {name}", expected=f"some of {sorted(known)}", got=unknown
        )
    missing = [
        key
        for key, f in known.items()
        if key not in data and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise ConfigError.mismatch(f"keys of {name}", expected=missing, got=sorted(data))
    hints = typing.get_type_hints(cls)
    prefix = f"{where}." if where else ""
    return cls(**{key: _decode(hints[key], value, prefix + key) for key, value in data.items()})


def _decode(hint: Any, data: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return data
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, data, where)
    if is_dataclass(hint):
        return _decode_dataclass(cast("type[Any]", hint), data, where)
    if origin is Literal:
        if data not in arguments:
            raise _wrong(where, f"one of {list(arguments)}", data)
        return data
    if collections.abc.Callable in (hint, origin) and isinstance(data, str):
        return _named_function(data, where)
    if origin is not None:
        return _decode_container(origin, arguments, data, where)
    return _decode_leaf(hint, data, where)


def _decode_union(arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in arguments:
        return None
    tagged = {a.__name__: a for a in arguments if is_dataclass(a) and isinstance(a, type)}
    if len(tagged) > 1 and isinstance(data, Mapping):
        kind = data.get("kind")
        try:
            cls = tagged.get(str(kind)) or config_beside(str(kind), tagged.values())
        except ConfigError:
            cls = None
        if cls is None:
            raise _wrong(f"{where}.kind", f"one of {sorted(tagged)}", kind)
        rest = {key: value for key, value in data.items() if key != "kind"}
        return _decode_dataclass(cls, rest, where)
    choices = [a for a in arguments if a is not type(None)]
    for choice in choices[:-1]:
        try:
            return _decode(choice, data, where)
        except ConfigError:
            continue
    return _decode(choices[-1], data, where)


def _decode_container(origin: Any, arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        if not isinstance(data, Mapping):
            raise _wrong(where, "a mapping", data)
        inner = arguments[1] if len(arguments) > 1 else Any
        return {key: _decode(inner, value, f"{where}.{key}") for key, value in data.items()}
    if not isinstance(data, list | tuple):
        raise _wrong(where, "a list", data)
    fixed = origin is tuple and arguments[-1] is not Ellipsis
    if fixed and len(arguments) != len(data):
        raise _wrong(where, f"{len(arguments)} values", data)
    hints = arguments if fixed else (arguments[0],) * len(data)
    items = [
        _decode(h, d, f"{where}[{i}]") for i, (h, d) in enumerate(zip(hints, data, strict=True))
    ]
    return items if origin is list else tuple(items)


def _decode_leaf(hint: Any, data: Any, where: str) -> Any:
    if hint is float and data in ("inf", "-inf", "nan"):
        return float(data)
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
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
    """The function or class that `module:name` stands for, if preferl defines it in public.

    What a module of ours only imports is none of ours: `preferl.files:os.system` would be a way
    to run anything.
    """
    parts = name.replace(":", ".").split(".")
    if parts[0] != "preferl" or any(part.startswith("_") for part in parts):
        raise _no_function(where, name)
    found = resolve(name, what=where, source="a configuration")
    is_named = inspect.isfunction(found) or inspect.isclass(found)
    if not is_named or f"{found.__module__}:{found.__qualname__}" != name:
        raise _no_function(where, name)
    return found


def _no_function(where: str, name: str) -> ConfigError:
    return ConfigError.mismatch(
        where,
        expected="the name of a function of preferl, as module:name where it is defined",
        got=repr(name),
        fix="Set functions of your own in code, with dataclasses.replace.",
    )


def _tagged(hint: Any) -> list[Any]:
    return [a for a in get_args(hint) if is_dataclass(a)]


def _wrong(where: str, expected: object, got: object) -> ConfigError:
    return ConfigError.mismatch(where, expected=expected, got=repr(got))
