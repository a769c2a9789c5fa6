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
from typing import Final, NoReturn

from preferl.errors import PreferlError, ResumeError
from preferl.reading import allow_large

COMMANDS: Final = {
    "demo": "teach a pendulum from 200 comparisons and write a report",
    "online run": "learn from comparisons while acting, in any gymnasium environment",
    "offline run": "learn policies from recorded episodes and labels, beside controls",
    "reward fit": "fit a reward model to people's labels of recorded episodes",
    "reward evaluate": "evaluate a fitted reward on labels it has not seen",
    "reward serve": "fit a reward to people's answers as they arrive, and publish it",
    "data inspect": "see what episodes and labels hold before learning from them",
    "data record": "train or load a policy and record a data set of mixed quality",
    "annotate create": "cut recorded episodes into clips and queue pairs for people",
    "annotate serve": "serve the page on which people compare clips",
    "annotate render": "draw the clips of pending queries",
    "annotate invite": "print the personal link of somebody who answers",
    "annotate report": "show the progress of labels, agreement, and whose answers to check",
    "annotate export": "write all answers to a table, and the clips beside it",
    "annotate import": "read answers from a table or a published label folder",
}
"""Each command and its line in the list.

`annotate export` is the function `annotate_export` of a module here, `annotate`. The options are
those of the dataclass with which its argument `config` is annotated. The module may have
`OLD_NAMES_OF`, a config whose former names options may contain, and `starting_point`, which makes
of the arguments the config that they change.
"""

OWN_MODULE: Final = {"reward serve", "data record", "annotate create", "annotate report"}
"""Commands in modules that are called as they are; the others are in that of their group."""

ALLOW_LARGE = "--allow-large"  # files may become far larger in memory than they are on disk

FAILURE, USAGE_ERROR, INTERRUPTED = 1, 2, 130  # exit statuses; the last one as shells have it


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 if it went well, 1 for its errors, 2 for wrong usage.

    To resume a run that is finished, or none, is wrong usage.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    large = ALLOW_LARGE in words
    words = [word for word in words if word != ALLOW_LARGE]
    command = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), None)
    if command is None:
        sys.exit(_help(words))
    usual = warnings.formatwarning
    # A line of words, without the line of code that raised it.
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"preferl: {message}\n"
    try:
        with allow_large() if large else nullcontext():
            _run(command, words[len(command.split()) :])
    except PreferlError as error:
        sys.stderr.write(f"preferl {command}: {error}\n")
        sys.exit(USAGE_ERROR if isinstance(error, ResumeError) else FAILURE)
    except KeyboardInterrupt:
        sys.stderr.write(f"\npreferl {command}: stopped.\n")
        sys.exit(INTERRUPTED)
    finally:
        warnings.formatwarning = usual
    sys.exit(0)


def _run(command: str, arguments: Sequence[str]) -> None:
    import tyro

    from preferl.cli.options import plain_metavars
    from preferl.configs import RENAMED

    function = command.replace(" ", "_")
    home = function if command in OWN_MODULE else command.partition(" ")[0]
    module = import_module(f"preferl.cli.{home}")
    run = getattr(module, function)
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
            prog=f"preferl {command}",
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
    listed = [name for name in COMMANDS if group in ("", name.split()[0])]
    asked = bool(listed) and (not words or words[-1] in ("-h", "--help") or words == [group])
    out = sys.stdout if asked else sys.stderr
    if not asked:
        out.write(f"preferl: no such command: {' '.join(words)}\n\n")
    listed = listed or list(COMMANDS)
    width = max(map(len, listed))
    out.write(
        "Teach agents by comparing clips of behaviour.\n\n"
        "usage: preferl COMMAND [options]\n\n"
        + "".join(f"  {name:<{width}}  {COMMANDS[name]}\n" for name in listed)
        + "\nOptions of a command: preferl COMMAND --help\n"
        "Of every command: --allow-large reads files that grow a hundredfold in memory.\n"
    )
    return 0 if asked else USAGE_ERROR
