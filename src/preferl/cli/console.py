"""What commands print: lines, tables, progress, and after Ctrl-C how to continue.

What draws on terminals is imported when it is used, since help needs none of it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, NoReturn, final

from preferl.cli.main import INTERRUPTED

MOST: Final = 8  # letters of a name that stay on one line of a narrow terminal


def echo(text: str, style: str = "") -> None:
    """Print lines as they are: long ones are not wrapped, and brackets are no markup."""
    from rich.console import Console

    Console().print(text, style=style, highlight=False, soft_wrap=True, markup=False, emoji=False)


def note(text: str) -> None:
    """Print what a command does meanwhile, unless it was called with `--quiet`."""
    if _says_what_it_does():
        echo(text)


def _says_what_it_does() -> bool:
    return logging.getLogger("preferl").isEnabledFor(logging.WARNING)


def print_table(
    title: str, rows: Iterable[Sequence[str]], heads: Sequence[str] = (), bold: int | None = None
) -> None:
    """Print names and values, or cells below heads, as narrow as can be; numbers on the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    table = Table(box=SIMPLE_HEAD, show_header=bool(heads), padding=(0, 1, 0, 0), pad_edge=False)
    table.title, table.title_justify = Text(title), "left"
    for number, cells in enumerate(zip(*rows, strict=True) if rows else [()] * len(heads)):
        head = heads[number] if heads else ""
        is_numeric = heads and number and all(cell[:1] in "0123456789-–" for cell in cells)
        widest = max(map(len, cells), default=0)
        table.add_column(
            head,
            justify="right" if is_numeric else "left",
            overflow="fold",
            min_width=len(head) if number else min(widest, MOST),
        )
    for number, row in enumerate(rows):
        table.add_row(*map(Text, row), style="bold" if number == bold else "")
    Console().print(table)


def columns_that_fit(
    rows: Sequence[Mapping[str, str]], columns: Mapping[str, int]
) -> tuple[str, ...]:
    """Heads of the columns that a terminal is wide enough for, in their order.

    Of `columns`, heads to numbers, those of the highest numbers are left out first, and those of 0
    never.
    """
    from rich.console import Console

    console, kept = Console(), list(columns)
    widths = {head: max(len(head), *(len(row[head]) for row in rows)) for head in columns}
    while sum(widths[head] + 1 for head in kept) > console.width:
        last = max(reversed(kept), key=columns.__getitem__)
        if not columns[last]:
            break
        kept.remove(last)
    return tuple(kept)


def interrupt(text: str) -> NoReturn:
    """Print where a command stopped, and exit as shells do after Ctrl-C."""
    echo(text)
    raise SystemExit(INTERRUPTED)


def require_done(result: dict[str, Any], out: Path) -> None:
    """Exit as after Ctrl-C, with a line on how to continue, if that ended the run."""
    if result["interrupted"]:
        interrupt(
            f"Stopped while {result['stage']}. The results so far are in {out}; "
            "the same command with --resume continues."
        )


@final
class ProgressLine:
    """A live line with a bar on a terminal, and a plain line per stage but the first elsewhere.

    `live` is off where a person types in between. With `--quiet` there are neither.
    """

    def __init__(self, doing: str = "starting", *, live: bool = True) -> None:
        from rich import progress
        from rich.console import Console

        console = Console()
        self.live = live and console.is_terminal and _says_what_it_does()
        columns = (
            "{task.description}",
            progress.BarColumn(bar_width=24),
            "{task.percentage:>3.0f} %",
            progress.TimeElapsedColumn(),
            "left",
            progress.TimeRemainingColumn(),
            "{task.fields[news]}",
        )
        self._bar = progress.Progress(*columns, console=console, transient=True)
        self._doing, self._task = doing, self._bar.add_task(doing, total=1, news="")

    def __call__(self, doing: str, done: int, total: int, news: str = "") -> None:
        """Show the progress of a stage; a new one begins a new line."""
        if doing != self._doing:
            self._doing = doing
            self._bar.remove_task(self._task)
            self._task = self._bar.add_task(doing, total=total, news=news)
            if not self.live:
                note(f"{doing} ...")
        self._bar.update(self._task, completed=done, total=total, news=news)

    def running(self) -> AbstractContextManager[Any]:
        """Keep the line alive for a block."""
        return self._bar if self.live else nullcontext()
