"""Parts of a config: which of them options choose by name, and the config that options change.

`--algorithm sac` chooses a part, and `--algorithm.tau 0.01` changes it. A parser needs to know the
fields of each part before it reads their options, so `starting_config` looks at the names first.
"""

import types
from collections.abc import Collection, Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import zip_longest
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import tyro

from preferl.errors import UsageError, in_words, nearest
from preferl.online.methods.algorithm_configs import SB3_CLASSES
from preferl.reading import parse_yaml
from preferl.registry import ALGORITHMS, REWARD_MODELS, TEACHERS, Registry, registry_of, things_of

ABSENT: Final = tyro.MISSING_NONPROP
HELP: Final = frozenset({"-h", "--help"})
OF_YOUR_OWN: Final = "One of your own is known with --trust MODULE."


class Slot(NamedTuple):
    """A field of a config as options see it."""

    field: Field[Any]
    hint: Any  # its type
    path: str  # `trainer.epochs`, for the option `--trainer.epochs`
    prefix: str | None  # of the paths of what it holds; None where options have no prefixes
    value: Any  # that it has unless an option changes it; `ABSENT` if it has to be given

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The dataclasses that it may hold."""
        return kinds_of(self.hint)

    @property
    def part(self) -> type[Any] | None:
        """The dataclass that it holds, whose fields have options of their own; None for a value."""
        if is_dataclass(self.value):
            return type(self.value)
        return self.kinds[0] if self.value is ABSENT and len(self.kinds) == 1 else None


def kinds_of(hint: Any) -> tuple[type[Any], ...]:
    """The dataclasses that a type names.

    >>> from preferl.models.configs import CNNRewardConfig, LSTMRewardConfig
    >>> [kind.__name__ for kind in kinds_of(CNNRewardConfig | LSTMRewardConfig | None)]
    ['CNNRewardConfig', 'LSTMRewardConfig']
    """
    plain = _plain(hint)
    found = get_args(plain) if get_origin(plain) in (Union, types.UnionType) else (plain,)
    return tuple(one for one in found if isinstance(one, type) and is_dataclass(one))


def things_chosen(hint: Any) -> Registry | None:
    """The registry from which an option chooses what a field of this type holds; None for none."""
    kinds = kinds_of(hint)
    return things_of(_plain(hint)) or (registry_of(kinds) if len(kinds) > 1 else None)


def registry_beside(hint: Any) -> Registry | None:
    """The registry whose names a value of this type takes, as its annotation says."""
    marks = getattr(hint, "__metadata__", ())
    return next((mark for mark in marks if isinstance(mark, Registry)), None)


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def names_of(things: Registry) -> tuple[str, ...]:
    """What options may choose: the names of a registry, and of rewards also the presets."""
    if things is not REWARD_MODELS:
        return things.names()
    from preferl.training.reward_presets import model_names

    return model_names()


def slots(cls: type[Any], default: Any = None, prefix: str | None = "") -> Iterator[Slot]:
    """The fields of a config, with the values that they have in `default`, as far as it has any."""
    hints = get_type_hints(cls, include_extras=True)
    if tyro.conf.OmitArgPrefixes in vars(cls).get("__tyro_markers__", ()):
        prefix = None
    for field in fields(cls):
        marks = getattr(hints[field.name], "__metadata__", ())
        nameless = any(getattr(mark, "name", None) == "" for mark in marks)
        name = "" if nameless else field.name.replace("_", "-")
        path = ".".join(filter(None, (prefix, name)))
        value = getattr(default, field.name, _usual(field))
        inside = None if prefix is None else path
        if field.init:
            yield Slot(field, hints[field.name], path, inside, value)


def _usual(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return ABSENT if field.default is MISSING else field.default


def starting_config(
    cls: type[Any], words: Sequence[str], default: Any = None, *, every_part: bool = False
) -> Any:
    """The config that a command's options change: `default`, with the parts that they choose.

    Args:
        cls: of the config.
        words: of the command line, after the command.
        default: the config that a preset or file made; None is that of `cls`.
        every_part: whether parts are there which may be left out, as help shows them.

    Returns:
        A config that nothing has checked, with `ABSENT` in fields that have to be given.

    Raises:
        UsageError: a name that nothing has.
        ConfigError: settings of a part that do not go together.
    """
    return _started(cls, tuple(words), default, "", every_part)


def _started(
    cls: type[Any], words: tuple[str, ...], default: Any, prefix: str | None, every_part: bool
) -> Any:
    values: dict[str, Any] = {}
    for slot in slots(cls, default, prefix):
        slot = _chosen(slot, words, values)
        inside = any(word.startswith(f"--{slot.path}.") for word in words)
        if slot.value is None and len(slot.kinds) == 1 and (every_part or inside):
            slot = slot._replace(value=ABSENT)
        if slot.part is not None:
            given = None if slot.value is ABSENT else slot.value
            part = _started(slot.part, words, given, slot.prefix, every_part)
            slot = slot._replace(value=part)
        values[slot.field.name] = slot.value
    made = object.__new__(cls)  # unchecked: it is the parser's result that has to be right
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _chosen(slot: Slot, words: tuple[str, ...], beside: dict[str, Any]) -> Slot:
    """A slot with the thing that an option names, unless it holds such a thing."""
    things = things_chosen(slot.hint)
    texts = options_of(words, f"--{slot.path}")
    if things is None or not texts or name_of(things, slot.value) == texts[-1]:
        return slot
    from preferl.configs import decoded  # here, since it loads numpy

    text = texts[-1]
    if text.lstrip().startswith("{"):
        return slot._replace(value=decoded(slot.hint, settings_in(text, slot.path), slot.path))
    if things is ALGORITHMS and text not in things and text.lower() in SB3_CLASSES:
        raise UsageError(
            f"--{slot.path}: expected one of {', '.join(names_of(things))}, got {text!r}. Write "
            f"--{slot.path} sb3 --{slot.path}.algorithm {SB3_CLASSES[text.lower()]}."
        )
    require_name(text, names_of(things), slot.path, fix=OF_YOUR_OWN)
    if things is TEACHERS:
        return slot._replace(value=decoded(slot.hint, text, slot.path))
    if things is not REWARD_MODELS:
        return slot._replace(value=things.config(text)())
    from preferl.training.reward_presets import reward_preset

    lengths = options_of(words, "--segment-length") or [beside.get("segment_length", "")]
    length = int(lengths[-1]) if str(lengths[-1]).isdecimal() else None
    return slot._replace(value=reward_preset(text, length=length).model)


def require_name(text: str, names: Collection[str], path: str, *, fix: str = "") -> None:
    """Raise `UsageError` with the nearest name, or else `fix`, unless an option takes the text."""
    what = f"--{path}"
    expected = f"one of {', '.join(names)}"
    UsageError.check(text in names, what, expected, repr(text), nearest(text, names) or fix)


def name_of(things: Registry, thing: Any) -> str | None:
    """The name of a thing, by the class of its settings; None for one that is not registered."""
    return things.name_of(thing) if things.has_config(type(thing)) else None


def settings_in(text: str, path: str) -> Any:
    """What an option was given, as a file would hold it: a name, or settings by name."""
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise UsageError(
            f"--{path}: expected a name, or settings as a file has them, got {in_words(error)}."
        ) from error


def all_slots(cls: type[Any], default: Any, prefix: str | None = "") -> Iterator[Slot]:
    """The fields of a config and of all its parts."""
    for slot in slots(cls, default, prefix):
        yield slot
        if slot.part is not None:
            given = None if slot.value is ABSENT else slot.value
            yield from all_slots(slot.part, given, slot.prefix)


def without_choices(words: Sequence[str], cls: type[Any], default: Any) -> list[str]:
    """The words without the options that `starting_config` followed."""
    chosen = {f"--{slot.path}" for slot in all_slots(cls, default) if things_chosen(slot.hint)}
    rest: list[str] = []
    left = iter(words)
    for word in left:
        name, equals, _ = word.partition("=")
        if name not in chosen:
            rest.append(word)
        elif not equals and next(left, None) is None:
            rest.append(word)  # nothing follows, which the parser refuses
    return rest


def options_of(words: Sequence[str], name: str) -> list[str]:
    """All values that an option is given, in the order of the words: the last one counts."""
    found: list[str] = []
    for word, following in zip_longest(words, words[1:]):
        option, equals, value = word.partition("=")
        if option == name and (equals or following is not None):
            found.append(value if equals else following)
    return found
