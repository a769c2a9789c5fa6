"""`preferl`: find the command, parse its config, run it, print its errors.

Top-level and group help are static, and a command's module is imported once it is named, so that
help never waits for torch.
"""

import inspect
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import NamedTuple, NoReturn

from preferl.errors import PreferlError, ResumeError
from preferl.reading import allow_large


class Command(NamedTuple):
    """One command: its words, its line in the list, and the function `run` of a module here.

    The options are those of the dataclass with which `config`, the function's argument, is
    annotated. Its module may have `OLD_NAMES_OF`, a config whose former names options may contain,
    and `starting_point`, which makes of the arguments the config that they change.
    """

    name: str
    summary: str
    module: str
    run: str


COMMANDS = (
    Command("demo", "teach a pendulum from 200 comparisons and write a report",
            "demo", "run_demo"),
    Command("online run", "learn from comparisons while acting, in any gymnasium environment",
            "online", "run_online"),
    Command("offline run", "learn policies from recorded episodes and labels, beside controls",
            "offline", "run_offline"),
    Command("reward fit", "fit a reward model to people's labels of recorded episodes",
            "reward", "run_fit"),
    Command("reward evaluate", "evaluate a fitted reward on labels it has not seen",
            "reward", "run_evaluate"),
    Command("reward serve", "fit a reward to people's answers as they arrive, and publish it",
            "reward_serve", "run_reward_serve"),
    Command("data inspect", "see what episodes and labels hold before learning from them",
            "data", "run_inspect"),
    Command("data record", "train or load a policy and record a data set of mixed quality",
            "data_record", "run_data_record"),
    Command("annotate create", "cut recorded episodes into clips and queue pairs for people",
            "annotate_create", "run_create"),
    Command("annotate serve", "serve the page on which people compare clips",
            "annotate", "run_serve"),
    Command("annotate render", "draw the clips of pending queries",
            "annotate", "run_render"),
    Command("annotate invite", "print the personal link of somebody who answers",
            "annotate", "run_invite"),
    Command("annotate report", "show the progress of labels, agreement, and whose answers to check",
            "annotate_report", "run_label_report"),
    Command("annotate export", "write all answers to a table, and the clips beside it",
            "annotate", "run_export"),
    Command("annotate import", "read answers from a table or a published label folder",
            "annotate", "run_import"),
)  # fmt: skip

ALLOW_LARGE = "--allow-large"
"""Of every command: files may become far larger in memory than they are on disk."""

FAILURE, USAGE_ERROR, INTERRUPTED = 1, 2, 130
"""Exit statuses; the last is that of Ctrl-C, as shells have it."""


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
    usual = warnings.formatwarning
    # A line of words, without the line of code that raised it.
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"preferl: {message}\n"
    try:
        with allow_large() if large else nullcontext():
            _run(command, words[len(command.name.split()) :])
    except PreferlError as error:
        sys.stderr.write(f"preferl {command.name}: {error}\n")
        sys.exit(USAGE_ERROR if isinstance(error, ResumeError) else FAILURE)
    except KeyboardInterrupt:
        sys.stderr.write(f"\npreferl {command.name}: stopped.\n")
        sys.exit(INTERRUPTED)
    finally:
        warnings.formatwarning = usual
    sys.exit(0)


def _run(command: Command, arguments: Sequence[str]) -> None:
    import tyro

    from preferl.cli.options import plain_metavars
    from preferl.configs import RENAMED

    module = import_module(f"preferl.cli.{command.module}")
    run = getattr(module, command.run)
    current = {
        old.replace("_", "-"): new.replace("_", "-")
        for old, (new, _) in RENAMED.get(getattr(module, "OLD_NAMES_OF", ""), {}).items()
    }
    arguments = [_renamed(word, current) if word[:2] == "--" else word for word in arguments]
    start = getattr(module, "starting_point", None)
    with plain_metavars(), warnings.catch_warnings():
        # A registered config is beside those that a field names; tyro takes it, and warns.
        warnings.filterwarnings("ignore", ".*does not match any type in Union")
        config = tyro.cli(
            inspect.signature(run).parameters["config"].annotation,
            args=arguments,
            prog=f"preferl {command.name}",
            default=start(arguments) if start else tyro.MISSING_NONPROP,
        )
    run(config)


def _renamed(option: str, current: Mapping[str, str]) -> str:
    """An option, such as `--old.part=7`, with former names of settings replaced."""
    name, equals, value = option.removeprefix("--").partition("=")
    return f"--{'.'.join(current.get(part, part) for part in name.split('.'))}{equals}{value}"


def _help(words: Sequence[str]) -> int:
    """Print the list of commands, or of a group's; the exit status."""
    if words[:1] == ["--version"]:
        from preferl import __version__

        sys.stdout.write(f"preferl {__version__}\n")
        return 0
    group = words[0] if words and not words[0].startswith("-") else ""
    listed = [c for c in COMMANDS if not group or c.name.split()[0] == group]
    asked = bool(listed) and (not words or words[-1] in ("-h", "--help") or words == [group])
    out = sys.stdout if asked else sys.stderr
    if not asked:
        out.write(f"preferl: no such command: {' '.join(words)}\n\n")
    listed = listed or list(COMMANDS)
    width = max(len(command.name) for command in listed)
    out.write(
        "Teach agents by comparing clips of behaviour.\n\n"
        "usage: preferl COMMAND [options]\n\n"
        + "".join(f"  {command.name:<{width}}  {command.summary}\n" for command in listed)
        + "\nOptions of a command: preferl COMMAND --help\n"
        "Of every command: --allow-large reads files that grow a hundredfold in memory.\n"
    )
    return 0 if asked else USAGE_ERROR
