"""Parse a command line into a command's config. The fields of dataclasses are options.

`--algorithm sac` chooses a part of a config, and `--algorithm.tau 0.01` changes it. Which options
exist depends on the chosen parts. `part_of` therefore looks for their names first. Then argparse
reads all words, and each mistake becomes a message of one line.
"""

import collections.abc
import inspect
import re
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import zip_longest
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from preferl.configs import decoded
from preferl.errors import ConfigError, UsageError, closest, in_words, nearest
from preferl.online.configs import SB3_CLASSES
from preferl.reading import parse_yaml
from preferl.registry import (
    ALGORITHMS,
    REWARD_MODELS,
    TEACHERS,
    Registry,
    registry_of,
    registry_of_protocol,
)

ABSENT: Final = object()
"""The value of a field that is required."""

HELP: Final = frozenset({"-h", "--help"})
OF_YOUR_OWN: Final = "One of your own is known with --trust MODULE."


@dataclass(frozen=True)
class Mark:
    """How a field is written on the command line. It is part of the field's type, by `Annotated`.

    Attributes:
        metavar: what help calls the value, instead of its type.
        positional: the value has no option before it.
        repeated: each use of the option adds one value.
        commas: several values are separated by commas or spaces.
        flat: the options of the part in this field do not begin with the field's name; with "all",
            neither do those of the parts within it.
        hidden: there is no option.
    """

    metavar: str = ""
    positional: bool = False
    repeated: bool = False
    commas: bool = False
    flat: Literal["", "part", "all"] = ""
    hidden: bool = False


POSITIONAL: Final = Mark(positional=True)
FLAT: Final = Mark(flat="part")


@dataclass
class Slot:
    """A field of a config, from the view of options.

    Attributes:
        name: name of the field.
        hint: type of the field.
        mark: how the option is written.
        names: allowed names, if the annotation of the field names a registry.
        path: `trainer.epochs`, for the option `--trainer.epochs`.
        text: description of the field in help.
        value: default value: a part, or `ABSENT` if a value is required.
    """

    name: str
    hint: Any
    mark: Mark
    names: Registry | None
    path: str
    text: str
    value: Any

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The dataclasses that the field may hold."""
        kinds = _alternatives(self.hint)
        return tuple(kind for kind in kinds if isinstance(kind, type) and is_dataclass(kind))

    @property
    def registry(self) -> Registry | None:
        """The registry from which an option chooses the part in the field."""
        return registry_of_protocol(self.hint) or (
            registry_of(self.kinds) if len(self.kinds) > 1 else None
        )

    @property
    def has_option(self) -> bool:
        """Whether the field has an option."""
        is_part = isinstance(self.value, Part) or bool(self.kinds)
        return not self.mark.hidden and (self.registry is not None or not is_part)

    @property
    def options(self) -> tuple[str, ...]:
        """The field's option, or the two options of a boolean field."""
        if self.hint is not bool:
            return (f"--{self.path}",)
        prefix, dot, name = self.path.rpartition(".")
        return (f"--{self.path}", f"--{prefix}{dot}no-{name}")

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that the option takes; empty if it also takes others."""
        registry = self.names or self.registry
        if registry is not None:
            return names_of(registry)
        kinds = _alternatives(self.hint)
        words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
        return tuple(map(str, words)) if len(kinds) == 1 else ()

    @property
    def metavar(self) -> str:
        """What help calls the value."""
        if self.mark.metavar or self.mark.positional:
            return self.mark.metavar or self.name.upper()
        return f"{{{','.join(self.choices)}}}" if self.choices else _metavar(self.hint)

    @property
    def shown_name(self) -> str:
        """The option, or if the word has no option, what help calls it."""
        return self.metavar if self.mark.positional else f"--{self.path}"


@dataclass
class Part:
    """A dataclass of settings whose fields are options.

    Attributes:
        kind: the dataclass.
        path: prefix of its options; "" if they have none.
        slots: its fields.
    """

    kind: type[Any]
    path: str
    slots: list[Slot]

    def all_slots(self) -> Iterator[Slot]:
        """Yield the fields, and the fields of all parts within them."""
        for slot in self.slots:
            yield slot
            if isinstance(slot.value, Part):
                yield from slot.value.all_slots()


def parse(cls: type[Any], words: Sequence[str], *, prog: str, default: Any = None) -> Any:
    """Make the config of a command.

    Args:
        cls: class of the config.
        words: the words after the command, with options as help shows them. `--help` prints all
            options and exits.
        prog: the command, as a person types it.
        default: the config of a preset or file; None is the default of `cls`.

    Raises:
        UsageError: the command does not have an option, or an option cannot take a value.
        ConfigError: settings contradict each other.
    """
    part = part_of(cls, words, default, every_part=bool(HELP & set(words)))
    parser = ArgumentParser(
        prog=prog,
        usage=" ".join([prog, "[-h] [OPTIONS]", *_positional_names(part)]),
        description=_summary(cls),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=SUPPRESS,
        exit_on_error=False,
    )
    add_options(parser, part)
    by_option = {option: slot for slot in part.all_slots() for option in slot.options}
    try:
        namespace, unknown = parser.parse_known_intermixed_args(words)
    except ArgumentError as error:
        option = str(error.argument_name).partition("/")[0]
        raise UsageError(f"{option}: expected {by_option[option].metavar}, got none.") from error
    if unknown:
        every_part = part_of(cls, words, default, every_part=True)
        raise _unknown_word(unknown, known_options(every_part), prog)
    given_values = vars(namespace)
    slots = part.all_slots()
    missing_slots = [
        slot for slot in slots if slot.value is ABSENT and slot.path not in given_values
    ]
    if missing_slots:
        names = ", ".join(slot.shown_name for slot in missing_slots)
        raise UsageError(f"{names}: expected a value, got none. `{prog} --help` describes it.")
    return _config_of_part(part, given_values)


def part_of(
    cls: type[Any],
    words: Sequence[str],
    default: Any = None,
    *,
    prefix: str | None = "",
    every_part: bool = False,
) -> Part:
    """Return the options of a config: those of `default`, with the parts that words choose.

    Args:
        cls: class of the config.
        words: the words after the command.
        default: the config of a preset or file; None is the default of `cls`.
        prefix: prefix of the options' paths; None if neither these options nor those of parts
            within have one.
        every_part: whether to include optional parts, as help does.

    Raises:
        UsageError: a name is unknown.
        ConfigError: settings of a part contradict each other.
    """
    part = Part(cls, prefix or "", [])
    for slot in _slots(cls, default, prefix):
        _choose(slot, words, part.slots)
        inside = any(word.startswith(f"--{slot.path}.") for word in words)
        if slot.value is None and len(slot.kinds) == 1 and (every_part or inside):
            slot.value = ABSENT
        kind = type(slot.value) if is_dataclass(slot.value) else None
        if slot.value is ABSENT and len(slot.kinds) == 1:
            kind = slot.kinds[0]
        if kind is not None:
            within = None if prefix is None or slot.mark.flat == "all" else slot.path
            slot.value = part_of(kind, words, slot.value, prefix=within, every_part=every_part)
        part.slots.append(slot)
    return part


def _slots(cls: type[Any], default: Any, prefix: str | None) -> Iterator[Slot]:
    """Yield the fields of a config in the form for options, with the values of `default`."""
    texts = _texts_of_fields(cls)
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        if not field.init:
            continue
        hint = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        hint = get_args(hint)[0] if marks else hint
        mark = next((mark for mark in marks if isinstance(mark, Mark)), Mark())
        names = next((mark for mark in marks if isinstance(mark, Registry)), None)
        word = "" if mark.flat else field.name.replace("_", "-")
        default_value = ABSENT if field.default is MISSING else field.default
        if field.default_factory is not MISSING:
            default_value = field.default_factory()
        yield Slot(
            name=field.name,
            hint=hint,
            mark=mark,
            names=names or registry_of_protocol(next(iter(get_args(_tuple_of(hint))), None)),
            path=".".join(filter(None, (prefix, word))),
            text=texts.get(field.name, ""),
            value=getattr(default, field.name, default_value),
        )


def _choose(slot: Slot, words: Sequence[str], earlier_slots: Sequence[Slot]) -> None:
    """Give a slot the part that an option names, unless it has such a part already."""
    registry = slot.registry
    texts = options_of(words, f"--{slot.path}")
    if registry is None or not texts or name_of(registry, slot.value) == texts[-1]:
        return
    text = texts[-1]
    has_settings = text.lstrip().startswith("{")
    if registry is ALGORITHMS and text not in registry and text.lower() in SB3_CLASSES:
        raise UsageError(
            f"--{slot.path}: expected one of {', '.join(names_of(registry))}, got {text!r}. Write "
            f"--{slot.path} sb3 --{slot.path}.algorithm {SB3_CLASSES[text.lower()]}."
        )
    if not has_settings:
        require_name(text, names_of(registry), slot.path, fix=OF_YOUR_OWN)
    if has_settings or registry is TEACHERS:
        slot.value = decoded(slot.hint, settings_in(text, slot.path), slot.path)
    elif registry is not REWARD_MODELS:
        slot.value = registry.config(text)()
    else:
        from preferl.training.reward_presets import reward_preset

        default_lengths = [
            earlier.value for earlier in earlier_slots if earlier.name == "segment_length"
        ]
        lengths = [*default_lengths, *options_of(words, "--segment-length")]
        length = int(lengths[-1]) if lengths and str(lengths[-1]).isdecimal() else None
        slot.value = reward_preset(text, length=length).model


def require_name(text: str, names: Collection[str], path: str, *, fix: str = "") -> None:
    """Raise `UsageError`, with the nearest name or else `fix`, unless `names` has the text."""
    if text not in names:
        raise UsageError(
            f"--{path}: expected one of {', '.join(names)}, got {text!r}. "
            f"{nearest(text, names) or fix}".rstrip()
        )


def name_of(registry: Registry, settings: Any) -> str | None:
    """Return the registered name for settings, by their class; None if the class has none."""
    kind = settings if isinstance(settings, type) else type(settings)
    return registry.name_of(kind) if registry.has_config(kind) else None


def names_of(registry: Registry) -> tuple[str, ...]:
    """Return the names that options accept: those of a registry, and for rewards also presets."""
    if registry is not REWARD_MODELS:
        return registry.names()
    from preferl.training.reward_presets import model_names

    return model_names()


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union type, without None."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(kind for kind in kinds if kind is not NoneType)


def settings_in(text: str, path: str) -> Any:
    """Parse an option's text as in a file: a name, or settings by name."""
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise UsageError(
            f"--{path}: expected a name, or settings as a file has them, got {in_words(error)}."
        ) from error


def options_of(words: Sequence[str], name: str) -> list[str]:
    """Return all values of an option, in their order; the last one counts."""
    values: list[str] = []
    for word, following in zip_longest(words, words[1:]):
        option, equals, value = word.partition("=")
        if option == name and (equals or following is not None):
            values.append(value if equals else following)
    return values


class _Flag(Action):
    """Stores whether the first of two options was given."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, _parser: Any, namespace: Any, _values: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, option == self.option_strings[0])


def add_options(parser: ArgumentParser, part: Part, *, completed: bool = False) -> None:
    """Add the options of a part, and of parts within it, to a parser that keeps their words.

    Args:
        parser: parser of a command.
        part: part that has the options.
        completed: whether the parser is for a shell, which then offers the words of lists.
            Otherwise `parse` checks these words, since it explains mistakes.
    """
    group: Any = parser
    if part.path:
        group = parser.add_argument_group(f"{part.path} options", _escaped(_summary(part.kind)))
    for slot in part.slots:
        if slot.has_option:
            _add_option(group, slot, completed=completed)
    for slot in part.slots:
        if isinstance(slot.value, Part):
            add_options(parser, slot.value, completed=completed)


def _add_option(group: Any, slot: Slot, *, completed: bool) -> None:
    several = _tuple_of(slot.hint) is not None and not slot.mark.repeated
    settings: dict[str, Any] = {"help": _escaped(f"{slot.text} ({_default_in_words(slot)})")}
    if slot.hint is bool:
        group.add_argument(*slot.options, dest=slot.path, action=_Flag, **settings)
        return
    if completed and slot.choices:
        settings["choices"] = slot.choices
    settings["metavar"] = slot.metavar
    if slot.mark.positional:
        group.add_argument(slot.path, nargs="+" if several else "?", **settings)
        return
    settings["nargs"] = "*" if several else 1
    settings["action"] = "extend" if slot.mark.repeated else "store"
    group.add_argument(*slot.options, dest=slot.path, **settings)


def _positional_names(part: Part) -> Iterator[str]:
    for slot in part.all_slots():
        if slot.mark.positional:
            yield slot.metavar if slot.value is ABSENT else f"[{slot.metavar}]"


def _summary(cls: type[Any]) -> str:
    """Return the docstring of a class without its sections on fields and errors."""
    return re.split(r"\n\n(?:Attributes|Raises|Args):\n", inspect.getdoc(cls) or "")[0]


def _texts_of_fields(cls: type[Any]) -> dict[str, str]:
    """Return the descriptions of fields, by name, from the docstrings of a class and its bases."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        attributes = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for name, text in re.findall(r"^ {4}(\w+): (.+(?:\n {5,}.+)*)", attributes, re.MULTILINE):
            texts[name] = " ".join(text.split())
    return texts


def _escaped(text: str) -> str:
    return text.replace("%", "%%")  # otherwise argparse would fill it in


def _default_in_words(slot: Slot) -> str:
    """Return an option's default in words, for help."""
    if slot.mark.repeated:
        return "repeatable"
    if slot.value is ABSENT:
        return "required"
    value = slot.value.kind if isinstance(slot.value, Part) else slot.value
    registry = slot.names or slot.registry
    items = value if isinstance(value, tuple) else (value,)
    words = [str(item if registry is None else name_of(registry, item) or item) for item in items]
    return f"default: {' '.join(words)}"


def _tuple_of(hint: Any) -> Any:
    """Return the tuple type in a type's alternatives, or None."""
    return next((kind for kind in _alternatives(hint) if get_origin(kind) is tuple), None)


_METAVARS: Final = {
    bool: "{True,False}",
    int: "INT",
    float: "FLOAT",
    str: "STR",
    Path: "PATH",
    collections.abc.Mapping: "{NAME: VALUE, ...}",
}


def _metavar(hint: Any) -> str:
    """Return what help calls the values of a type, or the items of a tuple."""
    several = _tuple_of(hint)
    names: list[str] = []
    for kind in _alternatives(hint if several is None else get_args(several)[0]):
        origin = get_origin(kind)
        if origin is Literal:
            names.append(f"{{{','.join(map(str, get_args(kind)))}}}")
        else:
            names.append(_METAVARS.get(origin or kind, ""))
    return "|".join(filter(None, names))


def _config_of_part(part: Part, given_values: Mapping[str, Any]) -> Any:
    """Make the config of a part with the values of the given options."""
    values: dict[str, Any] = {}
    for slot in part.slots:
        if isinstance(slot.value, Part):
            values[slot.name] = _config_of_part(slot.value, given_values)
        elif slot.has_option and slot.registry is None and slot.path in given_values:
            values[slot.name] = _value(slot, given_values[slot.path])
        else:
            values[slot.name] = slot.value
    try:
        return part.kind(**values)
    except ConfigError as error:
        field, colon, rest = str(error).partition(":")
        for slot in part.slots:
            if slot.name == field and slot.path in given_values:
                raise type(error)(f"--{slot.path}{colon}{rest}") from error
        raise


def _value(slot: Slot, words: Any) -> Any:
    """Return the value of an option's words; raise `UsageError` if it cannot take them."""
    if slot.hint is bool:
        return words
    words = [words] if isinstance(words, str) else words
    text = " ".join(words)
    if slot.mark.commas:
        words = [part for word in words for part in word.split(",") if part]
    several = _tuple_of(slot.hint)
    try:
        if several is not None and words != ["None"]:
            item_hints = get_args(several)
            hints = item_hints[:1] * len(words) if item_hints[-1] is Ellipsis else item_hints
            return tuple(_read(hint, word) for hint, word in zip(hints, words, strict=True))
        if slot.names is not None and text not in slot.choices:
            raise ValueError(text)
        return _read(slot.hint, text)
    except ValueError as error:
        is_choice = several is None and slot.choices
        expected = f"one of {', '.join(slot.choices)}" if is_choice else slot.metavar
        actual = f"{text!r:.200}" if text else "none"
        fix = nearest(text, slot.choices) or (OF_YOUR_OWN if slot.names else "")
        message = f"{slot.shown_name}: expected {expected}, got {actual}. {fix}".rstrip()
        raise UsageError(message) from error


def _read(hint: Any, text: str) -> Any:
    """Return the value of a word for a type: None, its value as YAML, or the word itself."""
    if text == "None" and NoneType in get_args(hint):
        return None
    settings = parse_yaml(text) if text.strip() else text
    is_number = isinstance(settings, bool | int | float)
    if is_number or str not in _alternatives(hint):
        names = settings if isinstance(settings, Mapping) else ()
        if not all(str(name).isidentifier() for name in names):
            raise ValueError(f"{text!r} is none of names and values, such as '{{gravity: 3.7}}'")
        with suppress(ConfigError):
            return decoded(hint, settings, "")
    return decoded(hint, text, "")


def known_options(part: Part) -> dict[str, str]:
    """Map each option of a command to the option that must be chosen first, or to ""."""
    options: dict[str, str] = {}
    for slot in part.all_slots():
        if slot.has_option and not slot.mark.positional:
            options |= dict.fromkeys(slot.options, "")
        registry = slot.registry
        if registry is None:
            continue
        present_name = name_of(registry, slot.value.kind) if isinstance(slot.value, Part) else None
        for name in registry.names():
            if name == present_name:
                continue
            with suppress(ConfigError):  # some entries have no settings
                inside = part_of(registry.config(name), (), prefix=slot.path)
                choice = f"--{slot.path} {name}"
                options = {
                    f"--{slot_within.path}": choice for slot_within in inside.slots
                } | options
    return options


def _unknown_word(words: Sequence[str], options: Mapping[str, str], prog: str) -> UsageError:
    """Return an error about the first unknown option, which names the nearest known option."""
    word = next((unknown for unknown in words if unknown.startswith("-")), words[0]).partition("=")[
        0
    ]
    expected = f"an option of `{prog}`"
    if not word.startswith("-"):
        return UsageError(f"{word!r}: expected {expected}, got a word that follows none.")
    last_name = word.removeprefix("--").split(".")[-1]
    same_last_name = [
        name for name in options if name.removeprefix("--").split(".")[-1] == last_name
    ]
    nearest_option = (
        closest(word, same_last_name, cutoff=0.0) if same_last_name else closest(word, options)
    )
    fix = "--help shows all of them."
    if nearest_option is not None:
        needed_choice = f", with {options[nearest_option]}" if options[nearest_option] else ""
        fix = f"The nearest is {nearest_option}{needed_choice}."
    return UsageError(f"{word}: expected {expected}, got none of that name. {fix}")
