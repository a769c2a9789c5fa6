"""Print lines, tables and progress of commands, and after Ctrl-C how to continue.

Packages that draw on terminals are imported when they are used, since help does not need them.
"""

import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from preferl.cli.main import INTERRUPTED
from preferl.printing import harmless, one_line

if TYPE_CHECKING:
    from rich.text import Text

MOST: Final = 8  # letters of a name that stay on one line of a narrow terminal
BAR_COLUMNS: Final = 24
WAIT_SECONDS: Final = 2.0  # a wait is over if it is not shown again for so long
REPEAT_SECONDS: Final = 30.0  # if there is no live line, a long stage prints a line this often


def echo(text: str, style: str = "") -> None:
    """Print lines without wrapping long ones; markup and control codes have no effect."""
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(harmless(text)), style=style, soft_wrap=True)


def complain(text: str) -> None:
    """Print lines on stderr; control codes have no effect."""
    sys.stderr.write(f"{harmless(text)}\n")


def note(text: str) -> None:
    """Print what a command is doing, unless it was called with `--quiet`."""
    if _says_what_it_does():
        echo(text)


def _says_what_it_does() -> bool:
    return logging.getLogger("preferl").isEnabledFor(logging.WARNING)


def print_table(
    title: str, rows: Iterable[Sequence[str]], heads: Sequence[str] = (), bold: int | None = None
) -> None:
    """Print names and values, or cells below heads, as narrow as possible; numbers on the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [[harmless(cell) for cell in row] for row in rows]
    table = Table(box=SIMPLE_HEAD, show_header=bool(heads), padding=(0, 1, 0, 0), pad_edge=False)
    table.title = Text(harmless(title))
    table.title_justify = "left"
    for number, cells in enumerate(zip(*rows, strict=True) if rows else [()] * len(heads)):
        head = heads[number] if heads else ""
        is_numeric = heads and number and all(cell[:1] in "0123456789-–" for cell in cells)
        widest = max(map(len, cells), default=0)
        table.add_column(
            Text(harmless(head)),
            justify="right" if is_numeric else "left",
            overflow="fold",
            min_width=len(head) if number else min(widest, MOST),
        )
    for number, row in enumerate(rows):
        table.add_row(*map(Text, row), style="bold" if number == bold else "")
    Console().print(table)


def cell(value: float | str | None, form: str) -> str:
    """Return the text of a value in a table, or a dash for None.

    >>> cell(0.25, ".0%"), cell(None, ".0%")
    ('25%', '–')
    """
    return "–" if value is None else format(value, form)


def columns_that_fit(
    rows: Sequence[Mapping[str, str]], columns: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the heads of the columns for which a terminal is wide enough, in their order.

    `columns` maps heads to numbers. The columns with the highest number are left out first; columns
    with 0 always stay.
    """
    from rich.console import Console

    console = Console()
    columns_kept = list(columns)
    widths = {head: max(len(head), *(len(row[head]) for row in rows)) for head in columns}
    while sum(widths[head] + 1 for head in columns_kept) > console.width:
        last = max(reversed(columns_kept), key=columns.__getitem__)
        if not columns[last]:
            break
        columns_kept.remove(last)
    return tuple(columns_kept)


def interrupt(text: str) -> NoReturn:
    """Print where a command stopped, and exit as shells do after Ctrl-C."""
    echo(text)
    raise SystemExit(INTERRUPTED)


def require_done(result: dict[str, Any], out: Path) -> None:
    """Exit with a line on how to continue if Ctrl-C ended the run."""
    if result["interrupted"]:
        interrupt(
            f"Stopped while {result['stage']}. The results so far are in {out}; "
            "the same command with --resume continues."
        )


@final
class ProgressLine:
    """A live line with a bar on a terminal; otherwise a line per stage, and one every 30 seconds.

    Pass `live=False` if a person types in between. Then no line is printed. With `--quiet`, no line
    is printed either.
    """

    def __init__(self, doing: str = "starting", *, live: bool = True) -> None:
        from rich.console import Console

        self._console = Console()
        shown = live and _says_what_it_does()
        self.live = shown and self._console.is_terminal
        self._repeats = shown and not self.live
        self._doing = doing
        self._done = 0
        self._total = 0
        self._news = ""
        self._began = time.monotonic()  # when the stage began
        self._awaited = ""
        self._waited = -WAIT_SECONDS  # when a wait was shown last
        self._printed = self._began  # when the last line was printed

    def __call__(self, doing: str, done: int, total: int, news: str = "") -> None:
        """Show the progress of a stage; `total` is 0 if its length is unknown.

        A new stage has a line.
        """
        doing = one_line(doing)
        news = one_line(news)
        if doing != self._doing:
            self._doing = doing
            self._began = time.monotonic()
            if not self.live:
                self.note(f"{doing} ...")
        self._done = done
        self._total = total
        self._news = news

    def wait(self, awaited: str) -> None:
        """Show what the command waits for instead of the progress. Call this about once a second.

        The estimate of the remaining time excludes this wait.
        """
        time_now = time.monotonic()
        self._awaited = one_line(awaited)
        if time_now - self._waited < WAIT_SECONDS:
            self._began += time_now - self._waited
        elif not self.live:
            self.note(self._awaited)
        self._waited = time_now

    def end_wait(self, news: str) -> None:
        """Show the progress again after a wait; if there is no live line, print `news`."""
        self._waited = -WAIT_SECONDS
        if not self.live:
            self.note(one_line(news))

    def note(self, text: str) -> None:
        """Print a line above the live one, in the style of the function `note`."""
        self._printed = time.monotonic()
        if not self.live:
            note(text)
        else:  # the console that draws the live line moves it down
            from rich.text import Text

            self._console.print(Text(harmless(text)), soft_wrap=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Show the line of progress during a block."""
        if self.live:
            from rich.live import Live

            with Live(get_renderable=self._text, console=self._console, transient=True):
                yield
        elif self._repeats:
            over = threading.Event()
            thread = threading.Thread(target=self._repeat, args=(over,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()
        else:
            yield

    def _repeat(self, over: threading.Event) -> None:
        """Print a stage's progress whenever nothing was printed for long."""
        while not over.wait(max(0.0, self._printed + REPEAT_SECONDS - time.monotonic())):
            if time.monotonic() - self._printed >= REPEAT_SECONDS:
                self.note(self._in_words())

    def _text(self) -> "Text":
        from rich.text import Text

        if self._waits():  # whole, since it may contain a link
            return Text(harmless(self._awaited), overflow="fold")
        # If the last column were full, some terminals would begin another line.
        return Text(self._in_words(self._console.width - 1), no_wrap=True, overflow="ellipsis")

    def _waits(self) -> bool:
        return time.monotonic() - self._waited < WAIT_SECONDS

    def _in_words(self, width: int | None = None) -> str:
        if self._waits():
            return self._awaited
        return progress_in_words(
            self._doing,
            self._done,
            self._total,
            seconds=time.monotonic() - self._began,
            news=self._news,
            width=width,
        )


def progress_in_words(
    doing: str,
    done: int,
    total: int,
    *,
    seconds: float,
    news: str = "",
    width: int | None = None,
) -> str:
    """Return a line about a stage, with a bar if `width` has room for it. None leaves it whole.

    If the line is too long, the end of the news is cut off, and then the end of the stage's name.

    >>> progress_in_words("learning", 5, 20, seconds=60, news="return -3.0", width=75)
    'learning ━━━━━━──────────────────  25 % 0:01:00, left 0:03:00 · return -3.0'
    >>> progress_in_words("learning", 5, 20, seconds=60, news="return -3.0", width=50)
    'learning  25 % 0:01:00, left 0:03:00 · return -3.0'
    """
    clock = f"{timedelta(seconds=int(seconds))}"
    bar = ""
    if total > 0:
        share = min(1.0, done / total)
        if 0 < share < 1:
            clock += f", left {timedelta(seconds=int(seconds * (1 - share) / share))}"
        clock = f"{100 * share:3.0f} % {clock}"
        filled = round(BAR_COLUMNS * share)
        bar = "━" * filled + "─" * (BAR_COLUMNS - filled) + " "
    news = f" · {news}" if news else ""
    if width is None:
        return f"{doing} {clock}{news}"
    with_bar = f"{doing} {bar}{clock}{news}"
    if len(with_bar) <= width:
        return with_bar
    line = f"{_shortened(doing, width - len(clock) - 1)} {clock}"
    room = width - len(line)
    return line + _shortened(news, room) if room > MOST else line


def _shortened(text: str, width: int) -> str:
    """Cut a text to fit into `width` columns, with a sign if its end is missing."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
