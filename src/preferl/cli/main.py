"""`preferl`: finds the command, parses its config, runs it, words its errors.

Top-level and group help are static, and a command's module is imported once it is named, so that
help never waits for torch.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from preferl.bounds import allow_large
from preferl.errors import PreferlError, ResumeError


@dataclass(frozen=True)
class Command:
    """One command of the line.

    Attributes:
        name: one or two words.
        summary: for the list of commands.
        module: where it lives.
        config: its dataclass there, from which options are made.
        run: its function there, which takes that config.
    """

    name: str
    summary: str
    module: str
    config: str
    run: str


COMMANDS = (
    Command("demo", "teach a pendulum from 200 comparisons and write a report",
            "preferl.cli.demo", "DemoConfig", "run_demo"),
    Command("online run", "learn from comparisons while acting, in any gymnasium environment",
            "preferl.cli.online", "OnlineRunConfig", "run_online"),
    Command("offline run", "learn policies from recorded episodes and labels, beside controls",
            "preferl.cli.offline", "OfflineRunConfig", "run_offline"),
    Command("reward fit", "fit a reward model to people's labels of recorded episodes",
            "preferl.cli.reward", "FitConfig", "run_fit"),
    Command("reward evaluate", "judge a fitted reward on labels it has not seen",
            "preferl.cli.reward", "EvaluateConfig", "run_evaluate"),
    Command("reward serve", "fit a reward to people's answers as they arrive, and publish it",
            "preferl.cli.reward_serve", "RewardServeConfig", "run_reward_serve"),
    Command("data inspect", "see what episodes and labels hold before learning from them",
            "preferl.cli.data", "InspectConfig", "run_inspect"),
    Command("data record", "train or load a policy and record a data set of mixed quality",
            "preferl.cli.data_record", "DataRecordConfig", "run_data_record"),
    Command("annotate create", "cut recorded episodes into clips and queue pairs for people",
            "preferl.cli.annotate_create", "CreateConfig", "run_create"),
    Command("annotate serve", "serve the page on which people compare clips",
            "preferl.cli.annotate", "ServeConfig", "run_serve"),
    Command("annotate render", "draw the clips that people wait for",
            "preferl.cli.annotate", "RenderConfig", "run_render"),
    Command("annotate invite", "print the link with which somebody can answer",
            "preferl.cli.annotate", "InviteConfig", "run_invite"),
    Command("annotate report", "see how far labels are, how people agree, whom to look at",
            "preferl.cli.annotate_report", "LabelReportConfig", "run_label_report"),
    Command("annotate export", "write all answers to a table, and the clips beside it",
            "preferl.cli.annotate", "ExportConfig", "run_export"),
    Command("annotate import", "read answers from a table or a published label folder",
            "preferl.cli.annotate", "ImportConfig", "run_import"),
)  # fmt: skip

ALLOW_LARGE = "--allow-large"
"""Of every command: files may become far larger in memory than they are on disk."""

FAILURE, USAGE_ERROR, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 if it went well, 1 for its errors, 2 for wrong usage.

    To resume a run that is finished, or none, is wrong usage.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    large = ALLOW_LARGE in words
    words = [word for word in words if word != ALLOW_LARGE]
    command = next((c for c in COMMANDS if words[: len(c.name.split())] == c.name.split()), None)
    if command is None:
        sys.exit(_help(words))
    rest = words[len(command.name.split()) :]
    try:
        with _plain_warnings(), allow_large() if large else nullcontext():
            _run(command, rest)
    except PreferlError as error:
        sys.stderr.write(f"preferl {command.name}: {error}\n")
        sys.exit(USAGE_ERROR if isinstance(error, ResumeError) else FAILURE)
    except KeyboardInterrupt:
        sys.stderr.write(f"\npreferl {command.name}: stopped.\n")
        sys.exit(INTERRUPTED)
    sys.exit(0)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as a line of words, without the line of code that raised them."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"preferl: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _run(command: Command, arguments: Sequence[str]) -> None:
    import tyro

    from preferl.cli.optional import plain_metavars

    module = import_module(command.module)
    arguments = _current(module, arguments)
    with plain_metavars():
        config = tyro.cli(
            getattr(module, command.config),
            args=arguments,
            prog=f"preferl {command.name}",
            default=_default(module, arguments),
        )
    run: Callable[[Any], None] = getattr(module, command.run)
    run(config)


def _current(module: Any, arguments: Sequence[str]) -> list[str]:
    """Options under the names that they have now, where a command's module says of which config."""
    from preferl.configs import RENAMED

    names = {
        f"--{old}".replace("_", "-"): f"--{new}".replace("_", "-")
        for old, (new, _) in RENAMED.get(getattr(module, "OLD_NAMES_OF", ""), {}).items()
    }
    parts = [word.partition("=") for word in arguments]
    return [names.get(name, name) + equals + value for name, equals, value in parts]


def _default(module: Any, arguments: Sequence[str]) -> Any:
    """What a command starts from before its options: a preset or file, where it knows those."""
    import tyro

    start: Callable[[Sequence[str]], Any] | None = getattr(module, "starting_point", None)
    return start(arguments) if start else tyro.MISSING_NONPROP


def _help(words: Sequence[str]) -> int:
    """Print the list of commands, or of a group's; the exit status."""
    if words[:1] == ["--version"]:
        from preferl import __version__

        sys.stdout.write(f"preferl {__version__}\n")
        return 0
    group = words[0] if words and not words[0].startswith("-") else ""
    listed = [c for c in COMMANDS if not group or c.name.split()[0] == group]
    asked = not words or words[-1] in ("-h", "--help") or words == [group]
    out = sys.stdout if asked and listed else sys.stderr
    if not listed or not asked:
        out.write(f"preferl: no such command: {' '.join(words)}\n\n")
    out.write(_listing(listed or COMMANDS))
    return 0 if asked and listed else USAGE_ERROR


def _listing(commands: Sequence[Command]) -> str:
    width = max(len(command.name) for command in commands)
    lines = [f"  {command.name:<{width}}  {command.summary}" for command in commands]
    return (
        "Teach agents by comparing clips of behaviour.\n\n"
        "usage: preferl COMMAND [options]\n\n"
        + "\n".join(lines)
        + "\n\nOptions of a command: preferl COMMAND --help\n"
        + "Of every command: --allow-large reads files that grow a hundredfold in memory.\n"
    )
