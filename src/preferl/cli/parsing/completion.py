"""`preferl completion`: scripts by which shells complete commands and their options."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import tyro

from preferl.cli.main import COMMANDS, Command
from preferl.cli.parsing.parts import starting_config
from preferl.cli.parsing.rules import reading_rules


@dataclass(frozen=True)
class CompletionConfig:
    """Print what makes a shell complete preferl's commands, options and names.

    For example
      eval "$(preferl completion bash)"
      preferl completion zsh > ~/.zfunc/_preferl
      preferl completion fish > ~/.config/fish/completions/preferl.fish

    Attributes:
        shell: to print it for.
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]


def completion(config: CompletionConfig) -> None:
    """Print the script."""
    with suppress(SystemExit):  # tyro ends so once it has printed
        tyro.cli(
            _all_commands(),
            prog="preferl",
            args=("--tyro-print-completion", config.shell),
            registry=reading_rules(),
            config=(tyro.conf.AvoidSubcommands,),
        )


def _all_commands() -> Any:
    """A type that tyro reads as all commands, in their groups."""
    groups: dict[str, list[str]] = {}
    for command in COMMANDS:
        groups.setdefault(command.split()[0], []).append(command)
    return _one_of(
        _command(name, name) if commands == [name] else _group(name, commands)
        for name, commands in groups.items()
    )


def _group(name: str, commands: list[str]) -> Any:
    inside = _one_of(_command(command.split()[1], command) for command in commands)
    return Annotated[Any, tyro.conf.subcommand(name, constructor_factory=lambda: inside)]


def _command(name: str, command: str) -> Any:
    """A command, with the options that it has before anything is chosen."""
    found = Command.of(command)
    default = starting_config(found.config, (), found.start(()), every_part=True)
    about = tyro.conf.subcommand(name, default=default, description=COMMANDS[command])
    return Annotated[found.config, about]


def _one_of(kinds: Iterable[Any]) -> Any:
    """A union, which tyro takes for commands; a suppressed part makes one of a single kind."""
    return reduce(or_, kinds, Annotated[None, tyro.conf.Suppress])
