"""Make a command's config of words: tyro reads them, and each mistake is worded in one line."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import takewhile
from typing import Any

import tyro

from preferl.cli.parsing.parts import (
    HELP,
    OF_YOUR_OWN,
    Slot,
    all_slots,
    name_of,
    names_of,
    registry_beside,
    slots,
    starting_config,
    things_chosen,
    without_choices,
)
from preferl.cli.parsing.rules import reading_rules
from preferl.errors import ConfigError, UsageError, closest, nearest
from preferl.registry import Registry


def parse(cls: type[Any], words: Sequence[str], *, prog: str, default: Any = None) -> Any:
    """The config of a command.

    Args:
        cls: of the config.
        words: of the command line, after the command, with options as help shows them. `--help`
            prints all options and exits.
        prog: the command, as a person types it.
        default: the config that a preset or file made; None is that of `cls`.

    Raises:
        UsageError: an option that the command does not have, or a value that one cannot take.
        ConfigError: settings that do not go together.
    """
    start = starting_config(cls, words, default, every_part=bool(HELP & set(words)))
    rest = without_choices(words, cls, start)
    refuse = partial(_refuse, cls=cls, words=rest, start=start, prog=prog)
    with _asked_about_mistakes(refuse):
        return tyro.cli(
            cls,
            args=rest,
            prog=prog,
            default=start,
            registry=reading_rules(),
            config=(tyro.conf.AvoidSubcommands,),
        )


def known_options(cls: type[Any], start: Any) -> dict[str, str]:
    """All options of a command, to what has to be chosen first; "" where that is nothing."""
    found: dict[str, str] = {}
    for slot in all_slots(cls, start):
        things = things_chosen(slot.hint)
        if things is not None:
            found[f"--{slot.path}"] = ""
            chosen = name_of(things, slot.value)
            for name in names_of(things):
                if name != chosen and name in things:
                    others = _of_another_kind(things, name, slot.prefix)
                    found = {f"--{each}": f"--{slot.path} {name}" for each in others} | found
        elif slot.part is None and slot.kinds:  # a part that may be left out
            inside = all_slots(slot.kinds[0], None, slot.prefix)
            found |= {f"--{inner.path}": "" for inner in inside if inner.part is None}
        elif slot.part is None and not _is_no_option(slot):
            found |= dict.fromkeys(_spellings(slot), "")
    return found


def _of_another_kind(things: Registry, name: str, prefix: str | None) -> Iterator[str]:
    """The options that a part would have if an option named it."""
    with suppress(ConfigError):  # one that has no settings
        yield from (inner.path for inner in slots(things.config(name), None, prefix))


def _is_no_option(slot: Slot) -> bool:
    marks = getattr(slot.hint, "__metadata__", ())
    return tyro.conf.Positional in marks or tyro.conf.Suppress in marks


def _spellings(slot: Slot) -> tuple[str, ...]:
    """The options of one value; what is true or false has two."""
    *_, last = slot.path.split(".")
    opposite = f"--{slot.path.removesuffix(last)}no-{last}"
    return (f"--{slot.path}", opposite) if slot.hint is bool else (f"--{slot.path}",)


def _asked_about_mistakes(refuse: Any) -> AbstractContextManager[Any]:
    """Call a function with what tyro refuses, before tyro prints a box about it.

    Tyro promises nothing about the hook, nor about what it calls the function with. Where it has
    no such hook, it words mistakes itself.
    """
    hook = getattr(getattr(tyro, "_errors", None), "on_parse_error", None)
    return nullcontext() if hook is None else hook(refuse)


def _refuse(event: Any, /, *, cls: type[Any], words: Sequence[str], start: Any, prog: str) -> None:
    """Raise an error of one line about words that tyro refuses; return for what is unknown here."""
    unknown = getattr(event, "tokens", None) or getattr(event, "unrecognized_tokens", None)
    argument = getattr(event, "argument", None)
    if unknown:
        raise _unknown_word(unknown, known_options(cls, start), prog)
    if missing := getattr(event, "missing_arguments", None):
        needed = ", ".join(_shown_name(each.arg) for each in missing)
        raise UsageError(f"{needed}: expected a value, got none. `{prog} --help` describes it.")
    if argument is not None:
        slots_here = all_slots(cls, start)
        taking = {f"--{slot.path}" for slot in slots_here if registry_beside(slot.hint)}
        own = OF_YOUR_OWN if argument.display_name() in taking else ""
        raise _wrong_value(event, argument, words, own)
    if (message := getattr(event, "message", None)) is not None:
        raise ConfigError(_with_option(message, words))


def _unknown_word(found: Sequence[str], options: dict[str, str], prog: str) -> UsageError:
    """An error about the first option that a command does not have, with the nearest it has."""
    word = next((each for each in found if each.startswith("-")), found[0]).partition("=")[0]
    expected = f"an option of `{prog}`"
    if not word.startswith("-"):
        return UsageError.mismatch(repr(word), expected=expected, got="a word that follows none")
    *_, last = word.removeprefix("--").split(".")
    alike = [each for each in options if each.removeprefix("--").split(".")[-1] == last]
    near = closest(word, alike, cutoff=0.0) if alike else closest(word, options)
    fix = "--help shows all of them."
    if near is not None:
        chosen = f", with {options[near]}" if options[near] else ""
        fix = f"The nearest is {near}{chosen}."
    return UsageError.mismatch(word, expected=expected, got="none of that name", fix=fix)


def _shown_name(argument: Any) -> str:
    """An option, or what help calls a word without one."""
    name = argument.lowered.metavar if argument.is_positional() else argument.display_name()
    return str(name)


def _wrong_value(event: Any, argument: Any, words: Sequence[str], fix: str) -> UsageError:
    """An error about a value that an option cannot take, or about one that is missing."""
    name = _shown_name(argument)
    lowered = argument.lowered
    expected = str(lowered.metavar)
    choices = lowered.choices or ()
    if choices:  # in the order of help
        choices = expected.strip("{}").split(",")
        expected = f"one of {', '.join(choices)}"
    given = [event.value] if hasattr(event, "value") else _given(words, name, lowered.nargs)
    got = " ".join(given)
    fix = nearest(got, choices) or fix
    return UsageError.mismatch(
        name, expected=expected, got=f"{got!r:.200}" if got else "none", fix=fix
    )


def _given(words: Sequence[str], option: str, count: object) -> list[str]:
    """The values that an option was given last."""
    found: list[str] = []
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option:
            after = list(takewhile(lambda each: not each.startswith("--"), words[at + 1 :]))
            found = [value] if equals else after[: count if isinstance(count, int) else None]
    return found


def _with_option(message: str, words: Sequence[str]) -> str:
    """A message about a field, such as `epochs: ...`, with the option that set it, if one did."""
    field, colon, rest = message.partition(":")
    names = [word.partition("=")[0] for word in words if word.startswith("--")]
    last = field.replace("_", "-")
    setting = [name for name in names if name.removeprefix("--").split(".")[-1] == last]
    return f"{setting[0]}{colon}{rest}" if len(setting) == 1 else message
