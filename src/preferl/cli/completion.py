"""`preferl completion`: scripts by which shells complete commands and their options."""

import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from preferl.cli.main import COMMANDS, Command
from preferl.cli.parsing import POSITIONAL, add_options, part_of


@dataclass(frozen=True)
class CompletionConfig:
    """Print a script with which a shell completes preferl's commands, options and names.

    For example
      eval "$(preferl completion bash)"
      preferl completion zsh > ~/.zfunc/_preferl
      preferl completion fish > ~/.config/fish/completions/preferl.fish

    Attributes:
        shell: the shell that will read the script.
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], POSITIONAL]


def completion(config: CompletionConfig) -> None:
    """Print the script with which a shell completes commands."""
    import shtab

    parser = ArgumentParser("preferl")
    groups: dict[str, Any] = {"": parser.add_subparsers()}
    for command, text in COMMANDS.items():
        group, _, name = command.rpartition(" ")
        if group not in groups:
            groups[group] = groups[""].add_parser(group, help=f"{group} ...").add_subparsers()
        chosen = Command.of(command)
        part = part_of(chosen.config, (), chosen.start(()), every_part=True)
        add_options(groups[group].add_parser(name, help=text), part, completed=True)
    sys.stdout.write(shtab.complete(parser, config.shell))
