"""`preferl`: find the command, parse its config, run it, print its errors.

Top-level and group help are static, and a command's module is imported once it is named, so that
help never waits for torch.
"""

import inspect
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Final, NamedTuple, NoReturn

from preferl.errors import PreferlError, ResumeError, UsageError, in_words, nearest
from preferl.printing import harmless
from preferl.reading import allow_large

COMMANDS: Final = {
    "demo": "teach a pendulum from 40 comparisons and write a report",
    "online run": "learn from comparisons while acting, in any gymnasium environment",
    "offline run": "learn policies from recorded episodes, and labels or a reward",
    "reward fit": "fit a reward model to answers of people, of a run or of a script",
    "reward evaluate": "evaluate a fitted reward and controls on answers it was not fitted to",
    "reward episodes": "list the episodes that deserve a look, and where they went wrong",
    "reward export": "write a reward of each frame as LeRobot and RLinf read it",
    "reward serve": "fit a reward to people's answers as they arrive, and publish it",
    "data inspect": "see what episodes and labels hold before learning from them",
    "data label": "have a scripted teacher answer queries about recorded episodes",
    "data record": "train or load a policy and record a data set of mixed quality",
    "runs list": "list the runs in a folder: state, answers, scores, accuracy of the reward",
    "runs show": "show a run's changed settings, versions and results, and where things lie",
    "runs compare": "lay runs side by side, in a table and on one HTML page",
    "sweep": "run a command with many settings, here or on a Ray cluster",
    "annotate create": "cut recorded episodes into clips and queue pairs for people",
    "annotate serve": "serve the page on which people compare clips",
    "annotate render": "draw the clips of pending queries",
    "annotate ask": "let a model answer pairs, by a function or a URL",
    "annotate invite": "print the personal link of somebody who answers",
    "annotate report": "show the progress of labels, agreement, and whose answers to check",
    "annotate export": "write all answers to a table, and the clips beside it",
    "annotate import": "read answers from a table or a published label folder",
    "completion": "print what makes a shell complete commands and their options",
}
"""Each command and its line in the list.

`annotate export` is the function `annotate_export` of a module here, `annotate`. The options are
those of the dataclass with which its argument `config` is annotated. The module may have
`starting_point`, which makes of the arguments the config that they change;
`annotate_export_start` would be that of one command.
"""

TOGETHER: Final = ("reward fit",)
"""Commands whose work processes of torchrun share."""

COMMON: Final = {
    "--allow-large": "read files that grow a hundredfold in memory",
    "--quiet": "print results and errors alone",
    "--verbose": "print all log messages, and where an error comes from",
}
"""Options of every command, anywhere on the line."""

LIST: Final = "`preferl --help` lists all commands."

FAILURE = 1  # exit statuses; shells use the last one, too
USAGE_ERROR = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 for success, 1 for errors of the command, 2 for wrong usage.

    Resuming a run that is finished or missing is wrong usage.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a character that it lacks must not end a run
    words = list(sys.argv[1:] if arguments is None else arguments)
    common = COMMON.keys() & set(words)
    words = [word for word in words if word not in COMMON]
    try:
        try:
            sys.exit(_status(words, common))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has stopped, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILURE)


def _status(words: Sequence[str], common: Collection[str]) -> int:
    """Run the command that these words begin with, or print help; return the exit status."""
    command = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), None)
    if command is None:
        return _help(words)
    try:
        common = _shared(command, common)
        with _loudness(common), allow_large() if "--allow-large" in common else nullcontext():
            _run(command, words[len(command.split()) :])
    except PreferlError as error:
        if "--verbose" in common:
            sys.stderr.write(harmless(traceback.format_exc()))
        sys.stderr.write(f"preferl {command}: {error}\n")
        return USAGE_ERROR if isinstance(error, ResumeError | UsageError) else FAILURE
    except BrokenPipeError:
        raise
    except OSError as error:  # for example, a disk or network has disappeared
        if "--verbose" in common:
            sys.stderr.write(harmless(traceback.format_exc()))
        sys.stderr.write(harmless(f"preferl {command}: {in_words(error)}.\n"))
        return FAILURE
    except KeyboardInterrupt:
        sys.stderr.write(f"\npreferl {command}: stopped.\n")
        return INTERRUPTED
    return 0


def _shared(command: str, common: Collection[str]) -> Collection[str]:
    """Return the common options; under torchrun, make processes after the first one quiet.

    There, a command that processes cannot share raises `UsageError`.
    """
    if "WORLD_SIZE" not in os.environ:
        return common
    from preferl.training.distributed import launched

    rank, size = launched()
    if not (size == 1 or command in TOGETHER):
        raise UsageError(
            f"torchrun: expected one process, or the command {' or '.join(TOGETHER)}, got {size} "
            f"processes of {command}. Start it without torchrun."
        )
    return common if rank == 0 else {*common, "--quiet"} - {"--verbose"}


@contextmanager
def _loudness(common: Collection[str]) -> Iterator[None]:
    """Set which messages and warnings are shown in a block; a warning is one line."""
    logger = logging.getLogger("preferl")
    usual = warnings.formatwarning
    level = logger.level
    warnings.formatwarning = lambda message, *_args, **_kwargs: harmless(f"preferl: {message}\n")
    try:
        with warnings.catch_warnings():
            if "--verbose" in common:
                logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
                logger.setLevel(logging.DEBUG)
            elif "--quiet" in common:
                logger.setLevel(logging.ERROR)
                warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        warnings.formatwarning = usual


class Command(NamedTuple):
    """The function and the config of a command."""

    run: Callable[[Any], None]
    config: type[Any]  # its fields are the options
    start: Callable[
        [Sequence[str]], Any
    ]  # returns the config that options change; None for defaults

    @classmethod
    def of(cls, command: str) -> "Command":
        """Return the command of a name, after importing its module."""
        function = command.replace(" ", "_")
        module = import_module(f"preferl.cli.{command.partition(' ')[0]}")
        run = getattr(module, function)
        starts = (getattr(module, name, None) for name in (f"{function}_start", "starting_point"))
        start = next(filter(None, starts), lambda _: None)
        config = inspect.signature(run).parameters["config"].annotation
        return cls(run, config, start)


def _run(command: str, arguments: Sequence[str]) -> None:
    config = command_parsed(command, arguments)
    Command.of(command).run(config)


def command_parsed(command: str, arguments: Sequence[str]) -> Any:
    """Return the config with which a command would run.

    Raises:
        PreferlError: the command lacks an option, or an option cannot take a value.
        SystemExit: `--help` was given; all options are printed first.
    """
    from preferl.cli.parsing import parse

    chosen = Command.of(command)
    arguments = [_as_shown(word) if word[:2] == "--" else word for word in arguments]
    default = chosen.start(arguments)
    try:
        return parse(chosen.config, arguments, prog=f"preferl {command}", default=default)
    except SystemExit as end:
        if end.code == 0:  # all options were printed
            sys.stdout.write(f"Of every command:\n{_listed(COMMON)}")
        raise


def _as_shown(option: str) -> str:
    """Return an option as help shows it: `--name_of.a_part=7` with hyphens."""
    name, equals, value = option.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}"


def _help(words: Sequence[str]) -> int:
    """Print the list of all commands or of a group's; return the exit status."""
    if words[:1] == ["--version"]:
        from preferl import __version__

        sys.stdout.write(f"preferl {__version__}\n")
        return 0
    group = words[0] if words and not words[0].startswith("-") else ""
    listed = [name for name in COMMANDS if group in ("", name.split()[0])]
    asked = bool(listed) and (not words or words[-1] in ("-h", "--help") or words == [group])
    if not asked:
        near = " ".join(filter(None, (nearest(" ".join(words[:2]), COMMANDS), LIST)))
        sys.stderr.write(harmless(f"preferl: no such command: {' '.join(words)}. {near}\n"))
        return USAGE_ERROR
    sys.stdout.write(
        "Teach agents by comparing clips of behaviour.\n\n"
        "usage: preferl COMMAND [options]\n\n"
        f"{_listed({name: COMMANDS[name] for name in listed})}"
        "\nOptions of a command: preferl COMMAND --help\n"
        f"Options of every command:\n{_listed(COMMON)}"
    )
    return 0


def _listed(about: Mapping[str, str]) -> str:
    width = max(map(len, about))
    return "".join(f"  {name:<{width}}  {line}\n" for name, line in about.items())
